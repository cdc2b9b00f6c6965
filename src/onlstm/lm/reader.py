"""How a language model reads: sentences in batches of like length, or a long text window by window.

A sentence is read alone, from a zero state, as `<eos> w1 … wn`; what follows a word cannot change what is read at it.
`LanguageModel.read` is the one place where this happens: parsing, scoring, inspecting and drawing take what they need
from its batches. A long text stands in columns side by side, and the state is carried from window to window.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from onlstm.cell import Distances, MasterGates
from onlstm.device import moved
from onlstm.errors import UserError
from onlstm.lm.cells.recurrent import LayerState
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks

if TYPE_CHECKING:
    from onlstm.grammar.pcfg import Grammar
    from onlstm.lm.model import LanguageModel

T = TypeVar("T")
States = tuple[LayerState, ...]
"""What each layer carries from word to word: a tuple of tensors (K, B, F); (h, c) of (1, B, H) for an LSTM."""
Layers = int | str | Sequence[int | str]
"""A layer by its number from 1, as "middle" or as "last"; or several, in a list or as "1,2"."""

FIRST_CHUNK, CHUNK_SENTENCES, CHUNK_WORDS = 100, 1000, 20_000
"""What is sorted by length at once, at most, of a text of any size: results come in parts of this size, the first one
soon. Ten times as much saves a fourteenth of the time."""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """What the layers make of ids (T, B)."""

    hidden: Tensor
    """The output of the last layer computed, (T, B, H)."""
    state: States
    """To continue from."""
    distances: Distances | None
    """`.forget` and `.input`, (L, T, B); of LSTM layers None unless asked for."""
    master_gates: tuple[MasterGates, ...]
    """`.forget` and `.input` of each layer, (T, B, M); empty unless asked for, and for LSTM layers."""
    outputs: tuple[Tensor, ...] = ()
    """The output of each layer, (T, B, H); empty in a `Batch`."""


@dataclass(frozen=True, kw_only=True)
class Batch(Encoded):
    """T words of B sentences, read side by side: whole sentences, or a window of long ones.

    Distances and master gates are on the CPU, and there only if they were asked for.
    """

    sentences: list[int]
    """Positions of the sentences among those given, the longest first."""
    lengths: list[int]
    """How many of the T words each sentence has; the rest is padding."""
    following: Tensor
    """Ids of the words after those read, (T, B); `<eos>` after the last."""

    @property
    def real(self) -> Tensor:
        """Which words are not padding, (T, B)."""
        lengths = torch.tensor(self.lengths, device=self.hidden.device)
        return torch.arange(len(self.hidden), device=self.hidden.device)[:, None] < lengths

    def split(self, values: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield the position of each sentence with its part (…, n) of values (…, T, B)."""
        for column, (position, length) in enumerate(zip(self.sentences, self.lengths, strict=True)):
            yield position, values[..., :length, column]


@torch.no_grad()
def read(
    model: "LanguageModel", sentences: Sequence[Sequence[int]], tokens_at_once: int, **options: Any
) -> Iterator[Batch]:
    """Yield the batches that `LanguageModel.read` describes; the options are those of `LanguageModel.encode`."""
    order = sorted((k for k, ids in enumerate(sentences) if len(ids)), key=lambda k: -len(sentences[k]))
    with evaluating(model):
        _, start = after_eos(model, options["layers"])
        first = 0
        while first < len(order):
            batch = order[first : first + max(1, tokens_at_once // len(sentences[order[first]]))]
            yield from _windows(model, sentences, batch, start, max(1, tokens_at_once // len(batch)), options)
            first += len(batch)


def _windows(
    model: "LanguageModel",
    sentences: Sequence[Sequence[int]],
    batch: list[int],
    start: States,
    steps: int,
    options: dict[str, Any],
) -> Iterator[Batch]:
    """Yield some sentences, longest first, `steps` words at a time."""
    lengths = [len(sentences[k]) for k in batch]
    rows = np.full((len(batch), lengths[0] + 1), model.tokenizer.eos_id)
    for row, k, length in zip(rows, batch, lengths, strict=True):
        row[:length] = sentences[k]
    ids = moved(torch.from_numpy(rows.T.copy()), model.device)
    state = each_part(start, lambda part: part.repeat(1, len(batch), 1))
    ends = [*range(steps, lengths[0], steps), lengths[0]]
    for begin, encoded in walk(model, ids[:-1], lengths, state, ends, **options):
        end, live = begin + len(encoded.hidden), encoded.hidden.shape[1]
        yield Batch(
            sentences=batch[:live],
            lengths=[min(length, end) - begin for length in lengths[:live]],
            following=ids[begin + 1 : end + 1, :live],
            hidden=encoded.hidden,
            state=encoded.state,
            distances=_finite(encoded.distances) if options["distances"] and encoded.distances else None,
            master_gates=tuple(MasterGates(pair.forget.cpu(), pair.input.cpu()) for pair in encoded.master_gates),
        )


def walk(
    model: "LanguageModel",
    ids: Tensor,
    lengths: Sequence[int],
    state: States,
    ends: Iterable[int],
    masks: Callable[[], Masks | None] = lambda: None,
    **options: Any,
) -> Iterator[tuple[int, Encoded]]:
    """Yield where a part of columns of ids (T, B), longest first, begins, and what `LanguageModel.encode` returns.

    The parts run from one of `ends` to the next; columns that have ended are no longer computed.
    """
    for begin, end in pairwise([0, *ends]):
        live = sum(length > begin for length in lengths)
        before = columns(state, slice(live))
        encoded = model.encode(ids[begin:end, :live], before, masks(), **options)
        state = encoded.state
        yield begin, encoded


def each_part(states: States, change: Callable[[Tensor], Tensor]) -> States:
    """Return the states with every tensor changed."""
    return tuple(tuple(change(part) for part in layer) for layer in states)


def columns(states: States, which: Tensor | slice) -> States:
    """Return the states of some columns of the batch."""
    return each_part(states, lambda part: part[:, which])


def detached(states: States) -> States:
    """Return the states without what they were computed from."""
    return each_part(states, Tensor.detach)


def _finite(distances: Distances) -> Distances:
    """Return the distances on the CPU."""
    on_cpu = Distances(distances.forget.cpu(), distances.input.cpu())
    if not all(values.isfinite().all() for values in on_cpu):
        raise UserError("the model's distances are not finite: its weights are damaged; did its training diverge?")
    return on_cpu


def after_eos(model: "LanguageModel", layers: int | None = None) -> tuple[Tensor, States]:
    """Return the output (1, H) and the states, where every sentence starts, after `<eos>` read from a zero state."""
    eos = torch.tensor([[tokenizer_of(model).eos_id]], device=model.device)
    encoded = model.encode(eos, layers=layers)
    return encoded.hidden[0], encoded.state


def window(text: np.ndarray, first: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids (T, B) of columns of text (B, N) from `first` on, and the words after them; T is `length` at most."""
    ids = moved(torch.from_numpy(text[:, first : first + length + 1].T.astype(np.int64, order="C")), device)
    return ids[:-1], ids[1:]


def read_columns(model: "LanguageModel", text: np.ndarray, length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the last layer's output (T, B, H) before each word of a window of text (B, N), and these words (T, B).

    Each column is read from a zero state, which is carried on; gradients end with the window. -1 stands for no word.
    """
    state: States | None = None
    for first in range(0, text.shape[1] - 1, length):
        ids, words = window(text, first, length, model.device)
        encoded = model.encode(ids.clamp(min=0), state)
        state = detached(encoded.state)
        yield encoded.hidden, words


def chunks(sentences: Iterable[T], words: Callable[[T], int], scale: int = 1) -> Iterator[list[T]]:
    """Yield as many sentences at a time as are sorted by length together; `words` counts those of a sentence.

    The first are fewer, unless `scale` multiplies the numbers.
    """
    chunk: list[T] = []
    count, most = 0, min(FIRST_CHUNK, CHUNK_SENTENCES) if scale == 1 else scale * CHUNK_SENTENCES
    try:
        for sentence in sentences:
            chunk.append(sentence)
            count += words(sentence)
            if len(chunk) >= most or count >= scale * CHUNK_WORDS:
                yield chunk
                chunk, count, most = [], 0, scale * CHUNK_SENTENCES
    except UserError:  # of a sentence that cannot be read; those before it come first
        yield chunk
        raise
    if chunk:
        yield chunk


@contextmanager
def evaluating(model: "LanguageModel") -> Iterator[torch.device]:
    """Put the model into evaluation mode for a while; yield its device."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model.device
    finally:
        for module, training in modes:
            module.training = training


def tokenizer_of(model: "LanguageModel | Grammar") -> Any:
    """Return the model's tokenizer; without one, raise a `UserError`."""
    if model.tokenizer is None:
        raise UserError("the model has no tokenizer: load it from its folder, or set model.tokenizer")
    return model.tokenizer


def words_and_ids(tokenizer: Any, sentence: str | Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the words of raw text, or those given, and their ids."""
    if not isinstance(sentence, str):
        return list(sentence), tokenizer.ids(sentence)
    check_utf8(sentence)
    tokens = tokenizer.tokens(sentence)
    return [token.text for token in tokens], [token.id for token in tokens]


def check_utf8(text: str, prefix: str = "") -> None:
    """Raise a `UserError` for text with what Python makes of bytes that are not UTF-8."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise UserError(f"{prefix}the text is not UTF-8")


def layer_numbers(layers: Layers | None, config: LMConfig) -> tuple[int, ...]:
    """Return the numbers of layers, from 1, in order, each once; None: the one that the configuration names."""
    count = config.distance_layers
    names = {str(k): k for k in range(1, count + 1)} | {"middle": count // 2 + 1, "last": count}
    if layers is None:
        layers = config.parse_layer or "middle"
    several = layers.split(",") if isinstance(layers, str) else layers if isinstance(layers, Sequence) else [layers]
    asked = [str(layer).strip() for layer in several]
    for name in asked or [""]:
        if name not in names:
            raise UserError(f"layer {name!r}: there are {', '.join(names)}, or several of them")
    return tuple(sorted({names[name] for name in asked}))
