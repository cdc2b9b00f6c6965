"""`onlstm inspect`: what the gates of a run do on a text, and which layers have nothing to say.

All is summed up as the text is read, so its size costs no memory. A layer that does not work makes trees all the same,
mostly right-branching ones: the limits below say when to distrust it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, get_args

import numpy as np
import torch

from onlstm.errors import UserError, at_least_one
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import Layers, layer_numbers, tokenizer_of
from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.f1 import tied

EDGE = 0.01
"""Distances in this share of their range at either end are stuck there."""
SATURATED = 20.0
"""Percent of stuck distances from which a layer is saturated; healthy ones have less than 1."""
FLAT = 0.01
"""Deviation inside sentences below which a layer is flat: untrained ones reach 0.008, trained ones are above 0.03."""
TIED = 5.0
"""Percent of ties from which the order of the words, not the model, makes too many of the trees."""
ONE_WAY = 95.0
"""Percent of right- or left-branching brackets, with both decoders, from which the words no longer matter."""
ENOUGH = 20
"""Words from which a layer is judged; fewer are alike by chance."""
BINS = 25
"""Bars of a histogram, from distance 0 to 1."""
LONGEST = 2000
"""Words of a line that are read at most, and words that are computed together."""
SHOWN = 200
"""Words of a picture at most."""

Array = np.ndarray[Any, np.dtype[Any]]

_LINES = 1000  # sorted by length together
_GATES, _DECODERS = ("forget", "input"), get_args(Decoder)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The distances of one gate of a layer; shares from 0 to 100, nan where there was nothing to count."""

    layer: int
    """From 1."""
    gate: str
    """Which makes the distances: forget or input."""
    mean: float
    deviation: float
    low: float
    high: float
    inside: float
    """Deviation inside sentences, which is what trees are made of. It, and what comes of trees, is of sentences of
    three words or more; first words are left out."""
    inner: int
    """How many distances that is of."""
    histogram: tuple[int, ...]
    """Distances in equal steps from 0 to 1."""
    ties: float
    """Share of distances that occur again in their sentence."""
    stuck: float
    """Share of distances at an end of their range, which is 0 to 1 - 1/M unless the last chunk is free, then 0 to 1."""
    right: dict[str, float]
    """By decoder: F1 of the trees to right-branching ones (rule on-lstm)."""
    left: dict[str, float]
    """The same to left-branching ones."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Why not to trust the layer: saturated, flat, tied, one-way; none if there is too little text to tell."""
        found = {
            "saturated": self.stuck > SATURATED,
            "flat": self.inside < FLAT,
            "tied": self.ties > TIED,
            "one-way": max(min(self.right.values()), min(self.left.values())) > ONE_WAY,
        }
        return tuple(problem for problem, there in found.items() if there and self.inner >= ENOUGH)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What the paper's Figure 2 (c) shows, for a sentence and a layer."""

    layer: int
    distances: tuple[float, ...]
    """Of the forget gate, one per word."""
    erased: tuple[tuple[float, ...], ...]
    """By word and chunk, the low-ranking first: 1 - master forget gate, how much a chunk drops; none for an LSTM."""
    written: tuple[tuple[float, ...], ...]
    """The same: master input gate, how much of the word a chunk lets in."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What `inspect` returns."""

    sentences: int
    """Lines with words that were read."""
    words: int
    cut: int
    """Lines that have more than `LONGEST` words, of which only these are read."""
    more: bool
    """Whether there was more text than the limit allowed."""
    spreads: tuple[Spread, ...]
    """By layer and gate."""
    correlations: dict[str, float]
    """By two layers, as "1-2": how alike their forget distances are inside sentences, from -1 to 1."""
    updates: tuple[tuple[float, ...], ...]
    """By layer and chunk, the low-ranking first: the paper's update frequency, the mean over all words of what is not
    simply kept, 1 - forget (1 - input); none for an LSTM."""
    shown: tuple[str, ...]
    """The words of the sentence that the pictures are of, `SHOWN` at most."""
    pictures: tuple[Picture, ...]
    """By layer asked for."""


def inspect(
    model: LanguageModel, lines: Iterable[str], *, layer: Layers | None = None, sentence: int = 1, limit: int = 2000
) -> Inspection:
    """Return what the gates of a model do on lines of raw text, and pictures of one sentence.

    Args:
        layer: those to make pictures of, as for `Parser`.
        sentence: the one in the pictures, from 1; lines without words do not count.
        limit: read so many sentences at most.

    >>> from onlstm.lm.config import LMConfig
    >>> from onlstm.text.tokenizer import Tokenizer
    >>> config = LMConfig(vocab_size=5, embedding_size=4, hidden_size=8, chunk_size=2)
    >>> new = LanguageModel(config, Tokenizer.of_words(["dogs", "bark", "loudly"], "generic"))
    >>> found = inspect(new, ["Dogs bark loudly.", "Dogs bark."])
    >>> found.words, found.shown, [len(chunks) for chunks in found.updates]
    (5, ('Dogs', 'bark', 'loudly'), [4, 4, 2])
    """
    tokenizer = tokenizer_of(model)
    layers = layer_numbers(layer or model.config.parse_layer or "middle", model.config.num_layers)
    at_least_one(sentence=sentence, max=limit)
    found, sums = _sentences(tokenizer, lines), _Sums(model)
    chosen = sums.read(islice(found, limit), sentence)
    tokens = tokenizer.tokens(chosen)[:SHOWN]
    pictures = _pictures(model, [token.id for token in tokens], layers)
    return Inspection(
        more=next(found, None) is not None,
        shown=tuple(token.text for token in tokens),
        pictures=pictures,
        **sums.results(),
    )


def _sentences(tokenizer: Any, lines: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield the lines that have words, and their ids."""
    rest = iter(lines)
    while some := list(islice(rest, _LINES)):
        yield from (pair for pair in zip(some, tokenizer.encode(some), strict=True) if pair[1])


class _Sums:
    """Running sums over the distances (rows: layer by layer, forget and input) and the master gates of a text."""

    def __init__(self, model: LanguageModel) -> None:
        config, rows = model.config, 2 * model.config.num_layers
        self.model = model
        chunks = [size // config.chunk_size for size in config.sizes] if config.rnn == "onlstm" else []
        self.updates = [np.zeros(M) for M in chunks]
        self.top = np.ones((rows, 1))
        if chunks and not config.free_last_chunk:
            self.top[:, 0] -= np.repeat([1 / M for M in chunks], 2)
        self.sentences = self.words = self.cut = self.inner = self.long = 0
        self.sum, self.squares, self.ties, self.stuck = np.zeros((4, rows))
        self.low, self.high = np.ones(rows), np.zeros(rows)
        self.bins = np.zeros((rows, BINS), np.int64)
        self.products = np.zeros((rows, rows))  # of inner distances less their sentence's mean
        self.branching = np.zeros((2, rows, len(_DECODERS)))

    def read(self, sentences: Iterator[tuple[str, list[int]]], number: int) -> str:
        """Add up all sentences; return the text of that number."""
        chosen = ""
        while some := list(islice(sentences, _LINES)):
            if self.sentences < number <= self.sentences + len(some):
                chosen = some[number - 1 - self.sentences][0]
            self.sentences += len(some)
            self.cut += sum(len(ids) > LONGEST for _, ids in some)
            self._add(_read(self.model, [ids[:LONGEST] for _, ids in some], self.updates))
        if not self.sentences:
            raise UserError("no words to inspect: the text is empty, or of punctuation alone")
        if not chosen:
            raise UserError(f"--sentence {number}: choose one of 1 to {self.sentences}")
        return chosen

    def _add(self, sentences: list[Array]) -> None:
        """Add the distances (rows, n) of sentences."""
        for d in sentences:
            self.ties += [tied([row]) * len(row) for row in d.tolist()]
            if d.shape[1] > 2:
                inner = d[:, 1:] - d[:, 1:].mean(1, keepdims=True)
                self.products += inner @ inner.T
                self.inner += inner.shape[1]
                self.branching += _branching(d)
                self.long += 1
        d = np.concatenate(sentences, 1)
        self.words += d.shape[1]
        self.sum += d.sum(1)
        self.squares += (d * d).sum(1)
        self.stuck += 100 * ((d < EDGE * self.top) | (d > self.top * (1 - EDGE))).sum(1)
        self.low, self.high = np.minimum(self.low, d.min(1)), np.maximum(self.high, d.max(1))
        self.bins += [np.histogram(row, BINS, (0, 1))[0] for row in d.clip(0, 1)]

    def results(self) -> dict[str, Any]:
        """Return fields of an `Inspection`."""
        forget = self.products[::2, ::2]
        size = np.sqrt(np.diag(forget))
        size[size == 0] = math.nan
        alike = (forget / size / size[:, None]).tolist()
        return {
            "sentences": self.sentences,
            "words": self.words,
            "cut": self.cut,
            "spreads": self._spreads(),
            "correlations": {f"{i + 1}-{j + 1}": alike[i][j] for i, j in combinations(range(len(alike)), 2)},
            "updates": tuple(tuple((each / self.words).tolist()) for each in self.updates),
        }

    def _spreads(self) -> tuple[Spread, ...]:
        mean, sides = self.sum / self.words, (100 * self.branching / (self.long or math.nan)).tolist()
        columns: dict[str, list[Any]] = {
            "mean": mean.tolist(),
            "deviation": np.sqrt(np.maximum(self.squares / self.words - mean**2, 0)).tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "inside": np.sqrt(np.diag(self.products) / (self.inner or math.nan)).tolist(),
            "histogram": list(map(tuple, self.bins.tolist())),
            "ties": (self.ties / self.words).tolist(),
            "stuck": (self.stuck / self.words).tolist(),
            "right": [dict(zip(_DECODERS, f1, strict=True)) for f1 in sides[0]],
            "left": [dict(zip(_DECODERS, f1, strict=True)) for f1 in sides[1]],
        }
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        return tuple(
            Spread(layer=k // 2 + 1, gate=_GATES[k % 2], inner=self.inner, **row) for k, row in enumerate(rows)
        )


def _branching(d: Array) -> Array:
    """Return the shares (right and left, rows, decoders) of the brackets of trees that are those of one-way trees.

    Two binary trees have as many brackets, so it is F1.
    """
    n = d.shape[1]
    spans = [[tree_from_distances(row, decoder=decoder).spans() for decoder in _DECODERS] for row in d.tolist()]
    ends = [[sum(end == n for _, end in each) for each in row] for row in spans]
    starts = [[sum(start == 0 for start, _ in each) for each in row] for row in spans]
    shares: Array = np.array([ends, starts]) / (n - 2)
    return shares


def _read(model: LanguageModel, sentences: list[list[int]], updates: list[Array]) -> list[Array]:
    """Return the distances (rows, n) of each sentence, longest first; add to what the master gates update."""
    done = list[Array]()
    for batch in model.read(sentences, distances=True, master_gates=True, tokens_at_once=LONGEST):
        words = batch.real.cpu()
        for total, (forget, input) in zip(updates, batch.master_gates, strict=True):
            total += (1 - forget * (1 - input))[words].sum(0, dtype=torch.float64).numpy()
        assert batch.distances
        rows = torch.stack(batch.distances, 1).flatten(0, 1).double()  # layer by layer, forget and input
        done += [part.numpy() for _, part in batch.split(rows)]
    return done


def _pictures(model: LanguageModel, ids: list[int], layers: Sequence[int]) -> tuple[Picture, ...]:
    batch = next(model.read([ids], distances=True, master_gates=True))
    assert batch.distances
    return tuple(
        Picture(
            layer=k,
            distances=tuple(batch.distances.forget[k - 1, :, 0].tolist()),
            erased=tuple(map(tuple, (1 - gates[k - 1].forget[:, 0]).tolist())) if gates else (),
            written=tuple(map(tuple, gates[k - 1].input[:, 0].tolist())) if gates else (),
        )
        for gates in [batch.master_gates]
        for k in layers
    )
