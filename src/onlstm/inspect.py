"""What the gates of a language model do on a text, and which of its layers not to trust.

A layer that does not work makes trees all the same, mostly right-branching ones: the limits below say when to distrust
it. `onlstm inspect` prints the result.
"""

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import get_args

import numpy as np
import torch

from onlstm.errors import UserError, at_least_one
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import Batch, Layers, layer_numbers, tokenizer_of, words_and_ids
from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.f1 import tied

EDGE = 0.01  # distances in this share of their range at either end are stuck there
SATURATED = 20.0  # percent of stuck distances from which a layer is saturated; healthy ones have less than 1
FLAT = 0.01  # deviation inside sentences below which a layer is flat: untrained ones reach 0.008, trained ones 0.03
TIED = 5.0  # percent of ties from which the order of the words, not the model, makes too many of the trees
ONE_WAY = 95.0  # percent of right- or left-branching brackets, with both decoders: the words no longer matter
ENOUGH = 20  # words from which a layer is judged; fewer are alike by chance
BINS = 25  # bars of a histogram, from distance 0 to 1
LONGEST = 2000  # words of a line that are read at most
SHOWN = 200  # words of a picture at most


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
        signs = {
            "saturated": self.stuck > SATURATED,
            "flat": self.inside < FLAT,
            "tied": self.ties > TIED,
            "one-way": max(min(self.right.values()), min(self.left.values())) > ONE_WAY,
        }
        return tuple(problem for problem, shows in signs.items() if shows and self.inner >= ENOUGH)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What the paper's Figure 2 (c) shows, for a sentence and a layer."""

    layer: int
    distances: tuple[float, ...]
    """Of the forget gate, one per word."""
    erased: tuple[tuple[float, ...], ...]
    """By word and chunk, low-ranking first: 1 - master forget gate, how much a chunk drops; empty for an LSTM."""
    written: tuple[tuple[float, ...], ...]
    """The same: master input gate, how much of the word a chunk lets in."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What `inspect` returns."""

    sentences: int
    """Lines with words that were read."""
    words: int
    unknown: int
    """How many of them the model does not know."""
    cut: int
    """Lines of more than `LONGEST` words, of which only these are read."""
    more: bool
    """Whether there was more text than the limit allowed."""
    spreads: tuple[Spread, ...]
    """By layer and gate."""
    updates: tuple[tuple[float, ...], ...]
    """By layer and chunk, low-ranking first: the paper's update frequency, the mean over all words of what is not
    simply kept, 1 - forget (1 - input); empty for an LSTM."""
    shown: tuple[str, ...]
    """The words of the sentence that the pictures are of, `SHOWN` at most."""
    pictures: tuple[Picture, ...]
    """By layer asked for."""


def inspect(
    model: LanguageModel,
    lines: Iterable[str],
    *,
    layer: Layers | None = None,
    sentence: int = 1,
    limit: int = 2000,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> Inspection:
    """Return what the gates of a model do on lines of raw text, and pictures of one sentence.

    Args:
        layer: those to make pictures of, as for `Parser`.
        sentence: the one in the pictures, from 1; lines without words do not count.
        limit: read this many sentences at most.
        on_progress: called with the number of sentences read and of all.

    >>> from onlstm.text.tokenizer import Tokenizer
    >>> config = LMConfig(vocab_size=5, embedding_size=4, hidden_size=8, chunk_size=2)
    >>> new = LanguageModel(config, Tokenizer.of_words(["dogs", "bark", "loudly"], "generic"))
    >>> inspection = inspect(new, ["Dogs bark loudly.", "Dogs bark."])
    >>> inspection.words, inspection.shown, [len(chunks) for chunks in inspection.updates]
    (5, ('Dogs', 'bark', 'loudly'), [4, 4, 2])
    """
    tokenizer, config = tokenizer_of(model), model.config
    config.require_distances()
    layers = layer_numbers(layer, config)
    at_least_one(sentence=sentence, limit=limit)
    tokenised = (words_and_ids(tokenizer, line) for line in lines)
    with_words = (pair for pair in tokenised if pair[1])
    text = list(islice(with_words, min(limit, sys.maxsize)))
    if not text:
        raise UserError("no words to inspect: the text is empty, or of punctuation alone")
    if sentence > len(text):
        raise UserError(f"sentence {sentence}: choose one of 1 to {len(text)}")
    words, ids = text[sentence - 1]
    (shown,) = model.read([ids[:SHOWN]], distances=True, master_gates=True)
    distances, updates = _read(model, [ids[:LONGEST] for _, ids in text], on_progress)
    return Inspection(
        sentences=len(text),
        words=sum(d.shape[-1] for d in distances),
        unknown=sum(tokenizer.unknown(ids[:LONGEST]) for _, ids in text),
        cut=sum(len(ids) > LONGEST for _, ids in text),
        more=next(with_words, None) is not None,
        spreads=tuple(
            _spread(config, k + 1, gate, [d[k, side] for d in distances])
            for k in range(config.distance_layers)
            for side, gate in enumerate(("forget", "input"))
        ),
        updates=updates,
        shown=tuple(words[:SHOWN]),
        pictures=tuple(_picture(shown, k) for k in layers),
    )


def _read(
    model: LanguageModel, sentences: list[list[int]], on_progress: Callable[[int, int], object]
) -> tuple[list[np.ndarray], tuple[tuple[float, ...], ...]]:
    """Return the distances (L, 2, n) of each sentence by layer and gate, and the update frequencies."""
    distances: list[np.ndarray] = []
    totals: list[torch.Tensor] = []
    for batch in model.read(sentences, distances=True, master_gates=True, tokens_at_once=LONGEST):
        assert batch.distances
        both = torch.stack(batch.distances, 1).double()
        distances += [part.numpy() for _, part in batch.split(both)]
        real = batch.real.cpu()
        updated = [(1 - f * (1 - i))[real].sum(0, dtype=torch.float64) for f, i in batch.master_gates]
        totals = [a + b for a, b in zip(totals, updated, strict=True)] if totals else updated
        on_progress(len(distances), len(sentences))
    words = sum(map(len, sentences))
    return distances, tuple(tuple((total / words).tolist()) for total in totals)


def _spread(config: LMConfig, layer: int, gate: str, sentences: list[np.ndarray]) -> Spread:
    """Return how the distances (n,) of sentences are spread."""
    every, long = np.concatenate(sentences), [d for d in sentences if len(d) > 2]
    inner = np.concatenate([np.zeros(0), *(d[1:] - d[1:].mean() for d in long)])
    closed = config.rnn == "onlstm" and not config.free_last_chunk
    top = 1 - config.chunk_size / config.sizes[layer - 1] if closed else 1.0
    one_way = {decoder: _branching(long, decoder) for decoder in get_args(Decoder)}
    return Spread(
        layer=layer,
        gate=gate,
        mean=float(every.mean()),
        deviation=float(every.std()),
        low=float(every.min()),
        high=float(every.max()),
        inside=float(inner.std()) if len(inner) else math.nan,
        inner=len(inner),
        histogram=tuple(np.histogram(every.clip(0, 1), BINS, (0, 1))[0].tolist()),
        ties=tied(d.tolist() for d in sentences),
        stuck=100 * float(((every < EDGE * top) | (every > (1 - EDGE) * top)).mean()),
        right={decoder: right for decoder, (right, _) in one_way.items()},
        left={decoder: left for decoder, (_, left) in one_way.items()},
    )


def _branching(sentences: list[np.ndarray], decoder: Decoder) -> tuple[float, float]:
    """Return the F1 of the trees of sentences to right- and to left-branching ones: the share of brackets in both."""
    shares = []
    for d in sentences:
        spans = tree_from_distances(d.tolist(), decoder=decoder).spans()
        shares.append((sum(end == len(d) for _, end in spans) / len(spans), sum(i == 0 for i, _ in spans) / len(spans)))
    right, left = (100 * fmean(side) for side in zip(*shares, strict=True)) if shares else (math.nan, math.nan)
    return right, left


def _picture(batch: Batch, layer: int) -> Picture:
    """Return the picture of the only sentence of a batch."""
    assert batch.distances
    gates = batch.master_gates[layer - 1] if batch.master_gates else None
    return Picture(
        layer=layer,
        distances=tuple(batch.distances.forget[layer - 1, :, 0].tolist()),
        erased=tuple(map(tuple, (1 - gates.forget[:, 0]).tolist())) if gates else (),
        written=tuple(map(tuple, gates.input[:, 0].tolist())) if gates else (),
    )
