"""The language model of the paper's section 5.1: embedding, a stack of ON-LSTM (or LSTM) layers, softmax.

`LanguageModel(LMConfig(vocab_size=10_000))` has the paper's size. Scoring and generating live beside this file;
training in `onlstm.train`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from onlstm import folder as store
from onlstm.cell import Distances, MasterGates
from onlstm.errors import UserError
from onlstm.layer import ONLSTM, Scanned
from onlstm.lm import reader
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.lstm import LSTM
from onlstm.lm.reader import Encoded, States
from onlstm.lm.softmax import AdaptiveSoftmax, FullSoftmax, Head, MixtureSoftmax
from onlstm.models import locate

if TYPE_CHECKING:
    from onlstm.lm.score import SentenceScore


@dataclass(frozen=True, kw_only=True)
class LMOutput(Encoded):
    """What `LanguageModel.forward` returns for ids (T, B)."""

    logits: Tensor
    """(T, B, V); log_softmax gives the distribution of the next word, whatever the kind of softmax."""


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
    """To continue from."""


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
            raise UserError("model.vocab_size 0: the number of words is needed")
        self.config, self.tokenizer = config, tokenizer
        self.embedding = _Embedding(config.vocab_size, config.embedding_size)
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
        """Return the model of a run folder, or of that name in the box, in evaluation mode, with its tokenizer."""
        folder = locate(folder)
        stored = store.load(folder, "model")
        try:
            config = LMConfig.of(stored.config)
        except UserError as error:
            raise UserError(f"{folder / store.CONFIG}: {error}") from None
        words = len(stored.tokenizer)
        if words != config.vocab_size:
            raise UserError(f"{folder / store.TOKENIZER}: {words} words, but the model has {config.vocab_size}")
        tensors = stored.tensors
        if config.tied and "embedding.weight" in tensors:
            tensors["decoder.weight"] = tensors["embedding.weight"]
        with torch.device("meta"):  # takes no memory before the sizes are known to be those of the weights
            model = cls(config, stored.tokenizer)
        store.fill(model, tensors, folder)
        if config.tied:
            model.decoder.weight = model.embedding.weight
        return model.eval()

    def save(self, folder: str | Path, *, half: bool = False, **facts: str) -> None:
        """Write the model's folder; with `half`, its weights in half precision. Facts go into config.json."""
        self.save_description(folder, **facts)
        self.save_weights(folder, half=half)

    def save_description(self, folder: str | Path, **facts: str) -> None:
        """Write everything but the weights."""
        store.save_description(Path(folder), "model", self.config, reader.tokenizer_of(self), **facts)

    def save_weights(self, folder: str | Path, *, half: bool = False) -> None:
        """Write the weights alone."""
        tensors = self.state_dict()
        if self.config.tied:
            del tensors["decoder.weight"]
        store.save_weights(Path(folder), tensors, half=half)

    def read(
        self,
        sentences: Sequence[Sequence[int]],
        *,
        layers: int | None = None,
        distances: bool = False,
        master_gates: bool = False,
        tokens_at_once: int = 2048,
    ) -> Iterator[reader.Batch]:
        """Yield what the network makes of sentences of ids, each read alone from the state after `<eos>`.

        Sentences of like length are computed together, the longest first, without gradients, in evaluation mode and
        without the softmax; those without words are in no batch. The parts of a long sentence come in order.

        Args:
            layers: compute only this many, from the first.
            distances: with the distances of every layer; they must be finite.
            master_gates: with the master gates of every ON-LSTM layer, which takes longer.
            tokens_at_once: bounds the memory, also for a single long sentence; it changes nothing but speed.
        """
        options = {"layers": layers, "distances": distances, "master_gates": master_gates}
        return reader.read(self, sentences, tokens_at_once, **options)

    def score(self, sentences: Iterable[str | Sequence[str]]) -> "list[SentenceScore]":
        """Return the surprisal (nats) of each word of each sentence, in order; see `onlstm.lm.score`."""
        from onlstm.lm.score import score

        return score(self, sentences)

    def generate(self, prompt: str | Sequence[str] = "", **options: Any) -> list[list[str]]:
        """Return texts that continue `prompt`; for the options see `onlstm.lm.generate`."""
        from onlstm.lm.generate import generate

        return generate(self, prompt, **options)

    def forward(self, ids: Tensor, state: States | None = None) -> LMOutput:
        """Return logits of the word after each of ids (T, B), new state and distances."""
        encoded = self.encode(ids, state)
        flat = Masks().locked(encoded.hidden, self._p("dropout_output")).flatten(0, 1)
        logits = self.head(flat) if type(self.head) is FullSoftmax else self.head.log_probs(flat)
        return LMOutput(logits=logits.unflatten(0, ids.shape), **vars(encoded))

    def loss(self, ids: Tensor, words: Tensor, state: States | None, masks: Masks | None = None) -> Step:
        """Return how well `words` (T, B), the ones after `ids`, were predicted, without holding all logits."""
        masks = masks or Masks()
        encoded = self.encode(ids, state, masks)
        hidden = encoded.hidden
        change = hidden[1:] - hidden[:-1] if len(hidden) > 1 else hidden.new_zeros(1)
        return Step(
            nll=self.head.mean_nll(masks.locked(hidden, self._p("dropout_output")), words, masks),
            activation=hidden.square().mean(),
            slowness=change.square().mean(),
            state=encoded.state,
        )

    def encode(
        self,
        ids: Tensor,
        state: States | None = None,
        masks: Masks | None = None,
        *,
        layers: int | None = None,
        distances: bool = False,
        master_gates: bool = False,
    ) -> Encoded:
        """Return what the layers, or the first `layers` of them, make of ids (T, B).

        Distances of ON-LSTM layers come for free; those of LSTM layers, see `onlstm.lm.lstm`, are to be asked for.
        """
        masks = masks or Masks()
        x = masks.embed(self.embedding.weight, ids, self._p("dropout_embedding"))
        x = masks.locked(x, self._p("dropout_input"))
        scans: list[Scanned] = []
        gates: list[MasterGates] = []
        options = {"distances": distances} if self.config.rnn == "lstm" else {}
        stack: Sequence[Any] = list(self.layers)[:layers]
        for k, layer in enumerate(stack):
            p, before = self._p("weight_dropout"), state[k] if state else None
            mask = [masks.kept(tuple(layer.weight_hh_l0.shape), p, layer.weight_hh_l0)] if p else None
            if master_gates and self.config.rnn == "onlstm":
                gates.append(MasterGates(*(gate[0] for gate in layer.gates(x, before))))
            scans.append(layer.scan(x, before, weight_mask=mask, **options))
            x = scans[-1].output
            if k < len(stack) - 1:
                x = masks.locked(x, self._p("dropout_hidden"))
        by_layer = [scan.distances for scan in scans if scan.distances]
        joined = Distances(*(torch.cat(kind) for kind in zip(*by_layer, strict=True))) if by_layer else None
        states = tuple(scan.state for scan in scans)
        return Encoded(hidden=x, state=states, distances=joined, master_gates=tuple(gates))

    def _p(self, name: str) -> float:
        """The dropout probability that counts now."""
        return getattr(self.config, name) if self.training else 0.0

    @property
    def head(self) -> Head:
        """The softmax."""
        return self.decoder


class _Embedding(nn.Embedding):
    """`nn.Embedding`, without the seconds for which torch imports its compiler to draw normal weights on "meta"."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


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
