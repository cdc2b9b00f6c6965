"""The language model of the paper's section 5.1: embedding, a stack of ON-LSTM (or LSTM) layers, softmax.

`LanguageModel(LMConfig(vocab_size=10_000))` has the paper's size. Saving, scoring and generating live beside this file;
training in `onlstm.train`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from onlstm._layout import State
from onlstm.cell import Distances
from onlstm.errors import UserError
from onlstm.layer import ONLSTM
from onlstm.lm.dropout import LSTM, Masks
from onlstm.lm.softmax import AdaptiveSoftmax, FullSoftmax, Head, MixtureSoftmax
from onlstm.settings import at_least

if TYPE_CHECKING:
    from onlstm.lm.score import SentenceScore

States = tuple[State, ...]
"""One (h, c) of (1, B, H) for each layer."""


@dataclass(frozen=True, kw_only=True)
class LMConfig:
    """The shape of a `LanguageModel` and its regularisers; the defaults are the paper's for the Penn Treebank."""

    vocab_size: int = 0
    """Words, `<unk>` and `<eos>` among them; a `LanguageModel` needs some."""
    rnn: Literal["onlstm", "lstm"] = "onlstm"
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
    softmax: Literal["full", "bfloat16", "adaptive"] = "full"
    """`bfloat16`: full, but training rounds factors to save time; `adaptive`: for large vocabularies, never tied."""
    mos: int = 0
    """Mix so many softmaxes (the table's AWD-LSTM-MoS has 15); 0: a plain one."""
    free_last_chunk: bool = False
    """Mend the paper's dead last chunk."""
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
    weight_dropout_scale: Literal["inverted", "original"] = "original"
    """`original`: evaluation scales the weights down; `inverted`: training scales them up."""
    parse_layer: int = 0
    """The layer, from 1, that trees are made of unless another is asked for; 0: the middle one."""

    def __post_init__(self) -> None:
        if not isinstance(self.hidden_size, int):
            object.__setattr__(self, "hidden_size", tuple(self.hidden_size))
            object.__setattr__(self, "num_layers", len(self.sizes))
        at_least(self, "model.", vocab_size=0, embedding_size=1, num_layers=1, chunk_size=1, mos=0, init_range=0)
        if not 0 <= self.parse_layer <= self.num_layers:
            raise UserError(
                f"model.parse_layer {self.parse_layer}: the layers are 1 to {self.num_layers}; 0: the middle"
            )
        if min(self.sizes) < 1:
            raise UserError(f"model.hidden_size {self.hidden_size}: every layer needs at least 1 neuron")
        for name in (n for n in self.__dataclass_fields__ if "dropout" in n and not n.endswith("scale")):
            p = getattr(self, name)
            if not 0 <= p < 1:
                raise UserError(f"model.{name} {p}: a number from 0 to less than 1 is needed")
        if self.rnn == "onlstm":
            _check_chunk(self.sizes, self.chunk_size)
        if self.softmax == "adaptive" and (self.tied or self.mos):
            raise UserError("model.softmax adaptive: not with tied embeddings or mos; say tied: false, mos: 0")
        if self.softmax == "bfloat16" and self.mos:
            raise UserError("model.softmax bfloat16: not with mos; say softmax: full")
        if self.tied and not self.mos and self.sizes[-1] != self.embedding_size:
            raise UserError(
                f"model.tied: the last layer has {self.sizes[-1]} neurons, the embedding {self.embedding_size}; "
                "make them equal, or say tied: false"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of neurons of every layer."""
        if isinstance(self.hidden_size, tuple):
            return self.hidden_size
        last = self.embedding_size if self.tied and not self.mos else self.hidden_size
        return (self.hidden_size,) * (self.num_layers - 1) + (last,)


@dataclass(frozen=True, kw_only=True)
class LMOutput:
    """What `LanguageModel.forward` returns for ids (T, B)."""

    logits: Tensor
    """(T, B, V); log_softmax gives the distribution of the next word, whatever the kind of softmax."""
    state: States
    """To go on from."""
    distances: Distances | None
    """`.forget` and `.input`, (L, T, B); None for LSTM layers."""
    hidden: Tensor
    """The last layer's output, (T, B, H)."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What `LanguageModel.loss` returns."""

    nll: Tensor
    """Mean negative log-probability of the next words."""
    activation: Tensor
    """Mean square of the last layer's output, for activation regularisation (AR)."""
    slowness: Tensor
    """Mean square of its change over time, for temporal activation regularisation (TAR)."""
    state: States
    """To go on from."""


class LanguageModel(nn.Module):
    """A word-level language model.

    >>> model = LanguageModel(LMConfig(vocab_size=50, embedding_size=8, hidden_size=20, chunk_size=4))
    >>> output = model(torch.randint(50, (7, 2)))
    >>> output.logits.shape, output.distances.forget.shape
    (torch.Size([7, 2, 50]), torch.Size([3, 7, 2]))
    """

    def __init__(self, config: LMConfig, tokenizer: Any = None) -> None:
        super().__init__()
        if not config.vocab_size:
            raise UserError("model.vocab_size 0: say how many words there are")
        self.config, self.tokenizer = config, tokenizer
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.layers = nn.ModuleList(_layer(config, a, b) for a, b in pairwise((config.embedding_size, *config.sizes)))
        self.decoder = _head(config)
        nn.init.uniform_(self.embedding.weight, -config.init_range, config.init_range)
        if not isinstance(self.decoder, AdaptiveSoftmax):
            nn.init.zeros_(self.decoder.bias)
            nn.init.uniform_(self.decoder.weight, -config.init_range, config.init_range)
            if config.tied:
                self.decoder.weight = self.embedding.weight

    @classmethod
    def load(cls, folder: str | Path) -> "LanguageModel":
        """Return the model of a run folder, ready for use: in evaluation mode, with its tokenizer."""
        from onlstm.lm.folder import load_model

        return load_model(Path(folder))

    def save(self, folder: str | Path) -> None:
        """Write config.json, model.safetensors and tokenizer.json."""
        from onlstm.lm.folder import save_model

        save_model(self, Path(folder))

    def score(self, sentences: Iterable[str | Sequence[str]]) -> "list[SentenceScore]":
        """Return the surprisal (nats) of each word of each sentence, in order; see `onlstm.lm.score`."""
        from onlstm.lm.score import score

        return score(self, sentences)

    def generate(self, prompt: str | Sequence[str] = "", **options: Any) -> list[list[str]]:
        """Return texts that go on from `prompt`; for the options see `onlstm.lm.generate`."""
        from onlstm.lm.generate import generate

        return generate(self, prompt, **options)

    def forward(self, ids: Tensor, state: States | None = None) -> LMOutput:
        """Return logits of the word after each of ids (T, B), new state and distances."""
        hidden, new_state, distances = self.encode(ids, state)
        masks = Masks()
        flat = masks.locked(hidden, self._p("dropout_output")).flatten(0, 1)
        if type(self.decoder) is FullSoftmax:
            logits = nn.functional.linear(flat, self.decoder.weight, self.decoder.bias)
        else:
            logits = self.decoder.log_probs(flat)
        return LMOutput(logits=logits.unflatten(0, ids.shape), state=new_state, distances=distances, hidden=hidden)

    def loss(self, ids: Tensor, words: Tensor, state: States | None, masks: Masks | None = None) -> Step:
        """Return how well `words` (T, B), the ones after `ids`, were predicted, without holding all logits."""
        masks = masks or Masks()
        hidden, new_state, _ = self.encode(ids, state, masks)
        change = hidden[1:] - hidden[:-1] if len(hidden) > 1 else hidden.new_zeros(1)
        return Step(
            nll=self.decoder.mean_nll(masks.locked(hidden, self._p("dropout_output")), words, masks),
            activation=hidden.square().mean(),
            slowness=change.square().mean(),
            state=new_state,
        )

    def encode(
        self,
        ids: Tensor,
        state: States | None = None,
        masks: Masks | None = None,
        layers: int | None = None,
        gates: bool = False,
    ) -> tuple[Tensor, States, Distances | None]:
        """Return the output (T, B, H) of the last (or of the first so many) layers, all states, and distances.

        LSTM layers have distances only if their `gates` are asked for, see `onlstm.lm.dropout.LSTM`.
        """
        masks = masks or Masks()
        x = masks.embed(self.embedding.weight, ids, self._p("dropout_embedding"))
        x = masks.locked(x, self._p("dropout_input"))
        states: list[State] = []
        distances: list[Distances] = []
        stack: Sequence[Any] = list(self.layers)[:layers]
        for k, layer in enumerate(stack):
            p = self._p("weight_dropout")
            mask = [masks.kept(tuple(layer.weight_hh_l0.shape), p, layer.weight_hh_l0)] if p else None
            more = {"gates": True} if gates and self.config.rnn == "lstm" else {}
            x, new_state, d = layer.scan(x, state[k] if state else None, weight_mask=mask, **more)
            states.append(new_state)
            if d is not None:
                distances.append(d)
            if k < len(stack) - 1:
                x = masks.locked(x, self._p("dropout_hidden"))
        joined = Distances(*(torch.cat(kind) for kind in zip(*distances, strict=True))) if distances else None
        return x, tuple(states), joined

    def _p(self, name: str) -> float:
        """The dropout probability that counts now."""
        return getattr(self.config, name) if self.training else 0.0

    @property
    def head(self) -> Head:
        """The softmax."""
        return self.decoder


def _layer(config: LMConfig, input_size: int, hidden_size: int) -> nn.Module:
    drop: Any = {"weight_dropout": config.weight_dropout, "weight_dropout_scale": config.weight_dropout_scale}
    if config.rnn == "lstm":
        return LSTM(input_size, hidden_size, **drop)
    more: Any = {"chunk_size": config.chunk_size, "free_last_chunk": config.free_last_chunk}
    return ONLSTM(input_size, hidden_size, **more, **drop)


def _head(config: LMConfig) -> Head:
    last = config.sizes[-1]
    if config.softmax == "adaptive":
        return AdaptiveSoftmax(last, config.vocab_size)
    if config.mos:
        return MixtureSoftmax(last, config.embedding_size, config.vocab_size, config.mos, config.dropout_mos)
    return FullSoftmax(last, config.vocab_size, narrow=config.softmax == "bfloat16")


def _check_chunk(sizes: tuple[int, ...], chunk: int) -> None:
    works = [c for c in range(1, min(sizes)) if not any(size % c for size in sizes)]
    if chunk not in works:
        near = [*[c for c in works if c < chunk][-1:], *[c for c in works if c > chunk][:1]]
        raise UserError(
            f"model.chunk_size {chunk}: layers of {', '.join(map(str, sizes))} neurons need a common proper divisor; "
            f"nearest that work: {', '.join(map(str, near))}"
        )
