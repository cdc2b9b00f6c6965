"""The language model of the paper's section 5.1: embedding, a stack of ON-LSTM (or LSTM) layers, softmax.

`LanguageModel(LMConfig(vocab_size=10_000))` has the paper's size. Saving, scoring and generating live beside this file;
training in `onlstm.train`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from onlstm._layout import State
from onlstm.cell import Distances
from onlstm.errors import UserError
from onlstm.layer import ONLSTM
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import LSTM, Masks
from onlstm.lm.softmax import AdaptiveSoftmax, FullSoftmax, Head, MixtureSoftmax

if TYPE_CHECKING:
    from onlstm.lm.score import SentenceScore

States = tuple[State, ...]
"""One (h, c) of (1, B, H) for each layer."""


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
