"""The shape of a language model, its regularisers, and how it writes. No torch here: the help is read from it."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from onlstm.errors import UserError, at_least, at_least_one, at_most, check_seed, nearest_divisors
from onlstm.records import typed

RNN = Literal["onlstm", "lstm", "variational", "rhn", "nas", "melis", "prpn", "clockwork", "nested"]
Softmax = Literal["full", "bfloat16", "adaptive"]
Scale = Literal["inverted", "original"]
_MOST_WORDS = 10_000_000
MOST_NEURONS, MOST_LAYERS = 1_000_000, 1_000
"""Of a layer, and of a network: what is more is a slip of the pen."""
_WHOLE: tuple[RNN, ...] = ("melis", "prpn")
"""Networks that are no mere stack of layers: all layers have one size, and a last step returns to embedding_size."""
_ONLY: Mapping[str, tuple[RNN, ...]] = {
    "chunk_size": ("onlstm",),
    "free_last_chunk": ("onlstm",),
    "dropout_recurrent": ("variational", "rhn", "nas", "melis", "prpn", "clockwork", "nested"),
    "depth": ("rhn",),
    "slots": ("prpn",),
    "lookback": ("prpn",),
    "resolution": ("prpn",),
    "soft_gates": ("prpn",),
    "residual_blocks": ("prpn",),
    "clocks": ("clockwork",),
    "nested_mean": ("nested",),
}
"""Settings that belong to some networks only."""
_ANYWHERE = ("chunk_size", "free_last_chunk")
"""Of these, those that stand in the configuration of other networks too, where they mean nothing."""


def check_settings(rnn: str, names: Collection[str]) -> None:
    """Raise a `UserError` if one of the named settings does not belong to the network."""
    for name in names if rnn in get_args(RNN) else ():
        if rnn not in _ONLY.get(name, get_args(RNN)):
            raise UserError(f"model.{name}: not a setting of rnn {rnn}; only of {', '.join(_ONLY[name])}")


@dataclass(frozen=True, kw_only=True)
class LMConfig:
    """The shape of a `LanguageModel` and its regularisers; the defaults are the paper's for the Penn Treebank."""

    vocab_size: int = 0
    """Number of words, including `<unk>` and `<eos>`; in training it comes from the text."""
    rnn: RNN = "onlstm"
    """The network between embedding and softmax; everything else is the same."""
    embedding_size: int = 400
    """Size of the input embeddings."""
    hidden_size: int | tuple[int, ...] = 1150
    """Neurons of a layer (with `tied`, the last has embedding_size), or of each layer."""
    num_layers: int = 3
    """Number of layers, if hidden_size is one number."""
    chunk_size: int = 10
    """Neurons that share an entry of the master gates; only for `rnn: onlstm`."""
    tied: bool = True
    """Input and output embeddings are the same."""
    softmax: Softmax = "full"
    """`bfloat16`: full, always trained in it (see train.precision); `adaptive`: for large vocabularies, never tied."""
    mos: int = 0
    """Number of softmaxes to mix (AWD-LSTM-MoS: 15); 0: one plain softmax."""
    free_last_chunk: bool = False
    """Let the last chunk be written, which stays zero in the paper's cell."""
    filters: tuple[int, ...] = ()
    """Build words from characters (CharCNN) by this many filters of width 1, 2, …; none: look words up."""
    character_size: int = 15
    """Size of a character's vector, with `filters`."""
    pointer: int = 0
    """Mix in a pointer to this many last words (pointer sentinel: 100); 0: none."""
    augmented: float = 0.0
    """Weight of the augmented loss (Inan et al. 2017), which asks for words like the right one too; 0: none."""
    augmented_temperature: float = 20.0
    """Temperature of the augmented loss."""
    depth: int = 10
    """Highway layers in a step of `rnn: rhn`."""
    slots: int = 15
    """States that `rnn: prpn` looks back at."""
    lookback: int = 5
    """Words before each that the parser of `rnn: prpn` sees."""
    resolution: float = 0.1
    """Difference of distances at which a gate of `rnn: prpn` is shut."""
    soft_gates: bool = False
    """Gates of `rnn: prpn` are sigmoids instead of clipped lines."""
    residual_blocks: int = 0
    """Residual blocks before the softmax of `rnn: prpn`."""
    clocks: int = 5
    """Groups of neurons of `rnn: clockwork`, which tick every 1, 2, 4, … words."""
    nested_mean: float = 1.0
    """Mean number of first neurons that `rnn: nested` leaves on in training, as a share of the layer."""
    init_range: float = 0.1
    """Embeddings start from U(±init_range); Adam leaves the first plateau sooner from a larger one."""
    dropout_embedding: float = 0.1
    """Share of the words dropped from a step's input."""
    dropout_input: float = 0.5
    """Dropout of the embedded words, the same at all times."""
    dropout_hidden: float = 0.3
    """Dropout between layers, the same at all times."""
    dropout_output: float = 0.45
    """Dropout of the last layer's output, the same at all times."""
    dropout_mos: float = 0.29
    """Dropout of the contexts of a mixture of softmaxes."""
    dropout_recurrent: float = 0.0
    """Dropout of the state on its way into the next step, the same at all times; not for onlstm and lstm."""
    dropout_each_step: bool = False
    """Draw the masks of input, hidden and output dropout anew for every word (Zaremba et al. 2014)."""
    weight_dropout: float = 0.45
    """Drop-connect on the recurrent weights."""
    weight_dropout_scale: Scale = "original"
    """`original`: evaluation scales the weights down; `inverted`: training scales them up."""
    parse_layer: int = 0
    """The layer, from 1, that trees are made from by default; 0: the middle one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", tuple(self.filters))
        if not isinstance(self.hidden_size, int):
            object.__setattr__(self, "hidden_size", tuple(self.hidden_size))
            object.__setattr__(self, "num_layers", len(self.sizes))
        for name, kind in {"rnn": RNN, "softmax": Softmax, "weight_dropout_scale": Scale}.items():
            if getattr(self, name) not in get_args(kind):
                raise UserError(f"model.{name} {getattr(self, name)}: one of {', '.join(get_args(kind))} is needed")
        ones = "embedding_size", "num_layers", "chunk_size", "character_size", "depth", "slots", "lookback", "clocks"
        limits: dict[str, float] = dict.fromkeys(ones, 1)
        limits |= {"augmented_temperature": 1e-3, "resolution": 1e-6, "nested_mean": 1e-3}
        at_least(self, "model.", vocab_size=0, mos=0, init_range=0, pointer=0, augmented=0, residual_blocks=0, **limits)
        most = dict.fromkeys(("embedding_size", "character_size", "pointer", "slots", "lookback"), MOST_NEURONS)
        most |= dict.fromkeys(("num_layers", "mos", "depth", "clocks", "residual_blocks"), MOST_LAYERS)
        at_most(**{f"model.{name}": (getattr(self, name), limit) for name, limit in most.items()})
        if not math.isfinite(self.init_range):
            raise UserError(f"model.init_range {self.init_range}: a finite number is needed")
        for name in (
            name for name in self.__dataclass_fields__ if "dropout" in name and not name.endswith(("scale", "step"))
        ):
            p = getattr(self, name)
            if not isinstance(p, int | float) or not 0 <= p < 1:
                raise UserError(f"model.{name} {p}: a number from 0 to less than 1 is needed")
        if not 0 <= self.parse_layer <= self.distance_layers:
            last = self.distance_layers
            raise UserError(f"model.parse_layer {self.parse_layer}: the layers are 1 to {last}; 0: the middle")
        if min(self.sizes) < 1:
            raise UserError(f"model.hidden_size {self.hidden_size}: every layer needs at least 1 neuron")
        if max(self.sizes) > MOST_NEURONS:
            raise UserError(f"model.hidden_size {self.hidden_size}: at most {MOST_NEURONS:,} is possible")
        if self.rnn == "onlstm" and (near := nearest_divisors(self.chunk_size, *self.sizes)) is not None:
            raise UserError(
                f"model.chunk_size {self.chunk_size}: layers of {', '.join(map(str, self.sizes))} neurons need a "
                f"common proper divisor; nearest that work: {', '.join(map(str, near))}"
            )
        self._check_network()
        self._check_softmax()

    def _check_network(self) -> None:
        fields = self.__dataclass_fields__
        check_settings(self.rnn, [n for n in _ONLY if n not in _ANYWHERE and getattr(self, n) != fields[n].default])
        if self.rnn in _WHOLE and not isinstance(self.hidden_size, int):
            raise UserError(f"model.hidden_size {list(self.sizes)}: rnn {self.rnn} needs one number for all layers")
        if self.rnn == "prpn" and self.sizes[0] % 2:
            raise UserError(f"model.hidden_size {self.hidden_size}: rnn prpn needs an even number")
        if self.rnn == "clockwork" and any(size % self.clocks for size in self.sizes):
            raise UserError(
                f"model.clocks {self.clocks}: must divide the layers' sizes, {', '.join(map(str, self.sizes))}"
            )
        if self.filters and min(self.filters) < 0:
            raise UserError(f"model.filters {list(self.filters)}: 0 or more of each width are needed")
        if self.filters and (self.tied or sum(self.filters) != self.embedding_size):
            raise UserError(f"model.filters: need tied: false and embedding_size: {sum(self.filters)}, their number")

    def _check_softmax(self) -> None:
        if self.softmax == "adaptive" and (self.tied or self.mos):
            raise UserError("model.softmax adaptive: not with tied embeddings or mos; set tied: false, mos: 0")
        if self.softmax == "bfloat16" and self.mos:
            raise UserError("model.softmax bfloat16: not with mos; set softmax: full")
        if (self.pointer or self.augmented) and (self.softmax != "full" or self.mos):
            raise UserError("model.pointer and model.augmented: only with softmax: full and mos: 0")
        if self.augmented and (self.pointer or not self.tied):
            raise UserError("model.augmented: only with tied: true and pointer: 0")
        if self.tied and not self.mos and self.sizes[-1] != self.embedding_size:
            raise UserError(
                f"model.tied: the last layer has {self.sizes[-1]} neurons, the embedding {self.embedding_size}; "
                "make them equal, or set tied: false"
            )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "LMConfig":
        """Return the configuration of plain data, such as the `model` of config.json."""
        return typed(cls, settings, "model", strict=True)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of neurons of every layer."""
        if isinstance(self.hidden_size, tuple):
            return self.hidden_size
        if self.rnn in _WHOLE:
            return (*(self.hidden_size,) * self.num_layers, self.embedding_size)
        last = self.embedding_size if self.tied and not self.mos else self.hidden_size
        return (self.hidden_size,) * (self.num_layers - 1) + (last,)

    def require_distances(self) -> None:
        """Raise a `UserError` if the network has none."""
        if self.rnn == "nas":
            raise UserError("rnn nas: its cell has no gate that keeps or writes, so no distances and no trees")

    @property
    def distance_layers(self) -> int:
        """How many layers have distances of their own."""
        return 1 if self.rnn == "prpn" else self.num_layers

    @property
    def least_bytes(self) -> int:
        """The memory of the largest weights, those of embeddings and gates, in float32."""
        gates = 4 if self.rnn in ("onlstm", "lstm") else 1
        weights = [gates * after * (before + after) for before, after in pairwise((self.embedding_size, *self.sizes))]
        return 4 * sum(weights, start=0 if self.filters else self.vocab_size * self.embedding_size)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a `LanguageModel` writes text."""

    words: int = 50
    """Maximum number of words."""
    count: int = 1
    """Number of texts."""
    temperature: float = 1.0
    """Below 1 likely words become likelier, above 1 less so; 0 always takes the likeliest."""
    top_k: int = 0
    """Choose among the k likeliest words; 0: all."""
    top_p: float = 1.0
    """Choose among the fewest words that hold this share of the probability."""
    unk: bool = False
    """Allow `<unk>`."""
    seed: int | None = None
    """The same seed gives the same texts, and a larger count only adds some."""

    def __post_init__(self) -> None:
        at_least_one(words=self.words, count=self.count)
        if self.seed is not None:
            check_seed(self.seed)
        if self.words * self.count > _MOST_WORDS:
            name, value = max(("words", self.words), ("count", self.count), key=lambda pair: pair[1])
            raise UserError(f"{name} {value}: at most {_MOST_WORDS:,} words in all texts are possible")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise UserError(f"temperature {self.temperature}: a number of 0 or more is needed")
        if self.top_k < 0:
            raise UserError(f"top_k {self.top_k}: 0 (all words) or more is needed")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p {self.top_p}: more than 0 and at most 1 is needed")
