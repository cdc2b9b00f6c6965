"""The language model of the paper's section 5.1: embedding, a stack of ON-LSTM (or LSTM) layers, softmax.

`LanguageModel(LMConfig(vocab_size=10_000))` has the paper's size. Scoring and generating live beside this file;
training in `onlstm.train`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from onlstm import folder as store
from onlstm import memory
from onlstm.cell import Distances
from onlstm.device import find
from onlstm.errors import UserError
from onlstm.lm import reader
from onlstm.lm.cells import layers_of
from onlstm.lm.cells.augmented import AugmentedSoftmax
from onlstm.lm.cells.characters import Characters
from onlstm.lm.cells.pointer import Pointer, PointerSoftmax
from onlstm.lm.cells.recurrent import Reading
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
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
    objective: Tensor
    """What is minimised: `nll`, and the loss of a pointer or the augmented loss if there is one."""
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
        if torch.get_default_device().type == "cpu":
            memory.check(config.least_bytes, "model", "choose smaller sizes")
        self.config, self.tokenizer = config, tokenizer
        words = tokenizer.vocabulary if tokenizer else None
        self.embedding = Characters(config, words) if config.filters else _Embedding(config)
        self.layers = nn.ModuleList(layers_of(config))
        self.pointer = Pointer(config) if config.pointer else None
        self.decoder = _head(config)
        nn.init.uniform_(self.embedding.weight, -config.init_range, config.init_range)
        if not isinstance(self.decoder, AdaptiveSoftmax):
            nn.init.zeros_(self.decoder.bias)
            nn.init.uniform_(self.decoder.weight, -config.init_range, config.init_range)
            if config.tied:
                self.decoder.weight = self.embedding.weight

    @classmethod
    def load(cls, folder: str | Path, *, device: str | torch.device = "auto") -> "LanguageModel":
        """Return the model of a run folder, or of that name in the box, in evaluation mode, with its tokenizer.

        For `device` see `onlstm.device.find`.
        """
        folder, place = locate(folder), find(device)
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
        return model.to(place).eval()

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
        flat = self.output_dropout(encoded.hidden, Masks()).flatten(0, 1)
        logits = self.head(flat) if type(self.head) is FullSoftmax else self.head.log_probs(flat)
        return LMOutput(logits=logits.unflatten(0, ids.shape), **vars(encoded))

    def loss(self, ids: Tensor, words: Tensor, state: States | None, masks: Masks | None = None) -> Step:
        """Return how well `words` (T, B), the ones after `ids`, were predicted, without holding all logits."""
        masks = masks or Masks()
        encoded = self.encode(ids, state, masks)
        hidden = encoded.hidden[..., : self.config.sizes[-1]]
        change = hidden[1:] - hidden[:-1] if len(hidden) > 1 else hidden.new_zeros(1)
        nll, objective = self.head.losses(self.output_dropout(encoded.hidden, masks), words, masks)
        return Step(
            nll=nll,
            objective=objective,
            activation=hidden.square().mean(),
            slowness=change.square().mean(),
            state=encoded.state,
        )

    def output_dropout(self, hidden: Tensor, masks: Masks) -> Tensor:
        """Return the output with dropout; what a pointer has put beside it stays."""
        size, p, each_step = self.config.sizes[-1], self._p("dropout_output"), self.config.dropout_each_step
        if hidden.shape[-1] == size:
            return masks.locked(hidden, p, each_step)
        return torch.cat((masks.locked(hidden[..., :size], p, each_step), hidden[..., size:]), -1)

    def encode(
        self,
        ids: Tensor,
        state: States | None = None,
        masks: Masks | None = None,
        *,
        embedded: Tensor | None = None,
        layers: int | None = None,
        distances: bool = False,
        master_gates: bool = False,
    ) -> Encoded:
        """Return what the layers, or the first `layers` of them, make of ids (T, B), or of their vectors if given.

        Distances of ON-LSTM layers come for free; those of others, see `onlstm.lm.cells`, are to be asked for.
        """
        masks, each_step = masks or Masks(), self.config.dropout_each_step
        x = masks.embed(*self.embedding.rows(ids), self._p("dropout_embedding")) if embedded is None else embedded
        x = masks.locked(x, self._p("dropout_input"), each_step)
        readings: list[Reading] = []
        stack: Sequence[Any] = list(self.layers)[:layers]
        for k, layer in enumerate(stack):
            before = state[k] if state else layer.start(x.shape[1], x)
            readings.append(layer(x, before, masks, distances=distances, gates=master_gates))
            x = readings[-1].output
            if k < len(stack) - 1:
                x = masks.locked(x, self._p("dropout_hidden"), each_step)
        by_layer = [reading.distances for reading in readings if reading.distances]
        joined = Distances(*(torch.cat(kind) for kind in zip(*by_layer, strict=True))) if by_layer else None
        states = tuple(reading.state for reading in readings)
        if self.pointer and layers is None:
            x, window = self.pointer(x, ids, state[-1] if state else self.pointer.start(x.shape[1], x))
            states = *states, window
        gates = tuple(reading.gates for reading in readings if reading.gates)
        outputs = tuple(reading.output for reading in readings)
        return Encoded(hidden=x, state=states, distances=joined, master_gates=gates, outputs=outputs)

    def start(self, batch: int) -> States:
        """Return the states of all layers before the first word of `batch` columns."""
        parts: list[Any] = [*self.layers, *([self.pointer] if self.pointer else [])]
        return tuple(part.start(batch, self.embedding.weight) for part in parts)

    def _p(self, name: str) -> float:
        """The dropout probability that counts now."""
        return getattr(self.config, name) if self.training else 0.0

    @property
    def device(self) -> torch.device:
        """Where it computes, and expects ids."""
        return self.embedding.weight.device

    @property
    def head(self) -> Head:
        """The softmax."""
        return self.decoder


class _Embedding(nn.Embedding):
    """`nn.Embedding`, without the seconds for which torch imports its compiler to draw normal weights on "meta"."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__(config.vocab_size, config.embedding_size)

    def rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return a table of vectors and which of its rows each of ids has."""
        return self.weight, ids

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


def _head(config: LMConfig) -> Head:
    last = config.sizes[-1]
    if config.softmax == "adaptive":
        return AdaptiveSoftmax(last, config.vocab_size)
    if config.pointer:
        return PointerSoftmax(config)
    if config.augmented:
        return AugmentedSoftmax(config)
    if config.mos:
        return MixtureSoftmax(last, config.embedding_size, config.vocab_size, config.mos, config.dropout_mos)
    return FullSoftmax(last, config.vocab_size, narrow=config.softmax == "bfloat16")
