"""The shape of a language model, its regularisers, and how it writes. No torch here: the help is read from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from onlstm.errors import UserError, at_least, at_least_one, nearest_divisors
from onlstm.records import typed

RNN = Literal["onlstm", "lstm"]
Softmax = Literal["full", "bfloat16", "adaptive"]
Scale = Literal["inverted", "original"]
_MOST_WORDS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class LMConfig:
    """The shape of a `LanguageModel` and its regularisers; the defaults are the paper's for the Penn Treebank."""

    vocab_size: int = 0
    """Number of words, including `<unk>` and `<eos>`; in training it comes from the text."""
    rnn: RNN = "onlstm"
    """The layers; everything else is the same."""
    embedding_size: int = 400
    """Size of the input embeddings."""
    hidden_size: int | tuple[int, ...] = 1150
    """Neurons of a layer (with `tied`, the last has embedding_size), or of each layer."""
    num_layers: int = 3
    """Number of layers, if hidden_size is one number."""
    chunk_size: int = 10
    """Neurons that share an entry of the master gates; not for `rnn: lstm`."""
    tied: bool = True
    """Input and output embeddings are the same."""
    softmax: Softmax = "full"
    """`bfloat16`: full, but training rounds factors to save time; `adaptive`: for large vocabularies, never tied."""
    mos: int = 0
    """Number of softmaxes to mix (AWD-LSTM-MoS: 15); 0: one plain softmax."""
    free_last_chunk: bool = False
    """Let the last chunk be written, which stays zero in the paper's cell."""
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
    weight_dropout: float = 0.45
    """Drop-connect on the recurrent weights."""
    weight_dropout_scale: Scale = "original"
    """`original`: evaluation scales the weights down; `inverted`: training scales them up."""
    parse_layer: int = 0
    """The layer, from 1, that trees are made from by default; 0: the middle one."""

    def __post_init__(self) -> None:
        if not isinstance(self.hidden_size, int):
            object.__setattr__(self, "hidden_size", tuple(self.hidden_size))
            object.__setattr__(self, "num_layers", len(self.sizes))
        for name, kind in {"rnn": RNN, "softmax": Softmax, "weight_dropout_scale": Scale}.items():
            if getattr(self, name) not in get_args(kind):
                raise UserError(f"model.{name} {getattr(self, name)}: one of {', '.join(get_args(kind))} is needed")
        at_least(self, "model.", vocab_size=0, embedding_size=1, num_layers=1, chunk_size=1, mos=0, init_range=0)
        for name in (name for name in self.__dataclass_fields__ if "dropout" in name and not name.endswith("scale")):
            p = getattr(self, name)
            if not isinstance(p, int | float) or not 0 <= p < 1:
                raise UserError(f"model.{name} {p}: a number from 0 to less than 1 is needed")
        if not 0 <= self.parse_layer <= self.num_layers:
            raise UserError(
                f"model.parse_layer {self.parse_layer}: the layers are 1 to {self.num_layers}; 0: the middle"
            )
        if min(self.sizes) < 1:
            raise UserError(f"model.hidden_size {self.hidden_size}: every layer needs at least 1 neuron")
        if self.rnn == "onlstm" and (near := nearest_divisors(self.chunk_size, *self.sizes)) is not None:
            raise UserError(
                f"model.chunk_size {self.chunk_size}: layers of {', '.join(map(str, self.sizes))} neurons need a "
                f"common proper divisor; nearest that work: {', '.join(map(str, near))}"
            )
        if self.softmax == "adaptive" and (self.tied or self.mos):
            raise UserError("model.softmax adaptive: not with tied embeddings or mos; set tied: false, mos: 0")
        if self.softmax == "bfloat16" and self.mos:
            raise UserError("model.softmax bfloat16: not with mos; set softmax: full")
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
        last = self.embedding_size if self.tied and not self.mos else self.hidden_size
        return (self.hidden_size,) * (self.num_layers - 1) + (last,)


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
        if self.words * self.count > _MOST_WORDS:
            raise UserError(f"words {self.words}, count {self.count}: at most {_MOST_WORDS:,} words at once")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise UserError(f"temperature {self.temperature}: a number of 0 or more is needed")
        if self.top_k < 0:
            raise UserError(f"top_k {self.top_k}: 0 (all words) or more is needed")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p {self.top_p}: more than 0 and at most 1 is needed")
