"""Log-probabilities of many sentences that begin alike: every distinct prefix is run once.

The sentences are made a trie, whose root is `<eos>` with a zero state. A slice of a level is run as one batch; then,
before the level's next slice, all that hangs below it. So memory grows with the length of the sentences, not with their
number, and equal sentences have equal scores to the last bit. Used where minimal pairs are compared.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import States, columns, evaluating, tokenizer_of
from onlstm.lm.softmax import FullSoftmax, Head, slices

Tile = Callable[[Tensor], Tensor]
Place = tuple[int, int]
"""A prefix: its level and its place in it."""

_TILE = 512
"""Words whose logits are computed together: for 1024 prefixes they stay in a processor's cache."""


class _Level(NamedTuple):
    """All prefixes of one length, in alphabetical order of their ids."""

    ids: np.ndarray
    """The last of each."""
    parents: np.ndarray
    """Places in the level above; they never fall."""
    scored: np.ndarray
    """Whether any sentence wants this id's log-probability."""
    inner: np.ndarray
    """Places of those that continue."""
    sums: np.ndarray
    """Log-probabilities of all scored ids so far, once they are known."""


class _Slice(NamedTuple):
    """Prefixes to run together: some of a level's inner ones, in a row."""

    depth: int
    nodes: np.ndarray
    above: np.ndarray
    """The nodes that were run together with their parents …"""
    states: States | None
    """… and the states of these."""


@torch.no_grad()
def sentence_log_probs(
    model: LanguageModel,
    sentences: Sequence[Sequence[int]],
    *,
    given: Sequence[int] | None = None,
    at_once: int = 1024,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[float]:
    """Return the sum of log p, in nats, over the ids of each sentence, read after `<eos>` from a zero state.

    What stands in `sentences` is scored, and nothing else: a closing `<eos>` only if it is among the ids.

    Args:
        given: how many first ids of each sentence are only read, not scored.
        at_once: prefixes in a batch.
        on_progress: called with the numbers of prefixes that have been run and of all.

    >>> from onlstm.lm.config import LMConfig
    >>> from onlstm.text.tokenizer import Tokenizer
    >>> config = LMConfig(vocab_size=5, embedding_size=4, hidden_size=8, chunk_size=2)
    >>> model = LanguageModel(config, Tokenizer.of_words(["dogs", "cats", "bark"]))
    >>> dogs, cats, again = sentence_log_probs(model, [[0, 2], [1, 2], [0, 2]])
    >>> dogs == again, dogs != cats
    (True, True)
    """
    levels, starts, ends = _trie(tokenizer_of(model).eos_id, sentences, given)
    total, done = sum(len(level.inner) for level in levels), 0
    tiles = _tiles(model.head)
    todo = [_Slice(0, levels[0].inner, levels[0].inner, None)] if total else []
    with evaluating(model):
        while todo:
            now = todo.pop()
            states = _run(model, tiles, levels, now)
            todo += reversed(_below(levels, now, states, at_once))
            done += len(now.nodes)
            on_progress(done, total)
    before, after = ([levels[depth].sums[place] for depth, place in nodes] for nodes in (starts, ends))
    return [float(b - a) for a, b in zip(before, after, strict=True)]


def _trie(
    eos: int, sentences: Sequence[Sequence[int]], given: Sequence[int] | None
) -> tuple[list[_Level], list[Place], list[Place]]:
    """Return the levels and, of each sentence, the prefix that is given and the one that is all of it."""
    order = sorted(range(len(sentences)), key=lambda k: list(sentences[k]))
    lengths = np.array([len(sentences[k]) for k in order], int)
    firsts = np.array([given[k] if given else 0 for k in order], int)
    tables = [(np.array([eos]), np.zeros(1, int), np.zeros(1, bool))]  # ids, parents and what is scored, by level
    places = np.zeros((len(sentences), max(lengths, default=0) + 1), int)  # of each sentence's prefixes
    differs = np.arange(len(sentences)) == 0  # from the prefix of the sentence before
    for depth in range(1, places.shape[1]):
        ids = np.array([sentences[k][depth - 1] if len(sentences[k]) >= depth else -1 for k in order])
        differs[1:] |= ids[1:] != ids[:-1]
        new = differs & (ids >= 0)
        places[:, depth] = new.cumsum() - 1
        scored = np.zeros(new.sum(), bool)
        scored[places[(lengths >= depth) & (firsts < depth), depth]] = True
        tables.append((ids[new], places[new, depth - 1], scored))
    inner = [np.unique(parents) for _, parents, _ in tables[1:]] + [np.zeros(0, int)]
    levels = [_Level(*table, nodes, np.zeros(len(table[0]))) for table, nodes in zip(tables, inner, strict=True)]
    starts, ends = [(0, 0)] * len(sentences), [(0, 0)] * len(sentences)
    for row, k in enumerate(order):
        starts[k], ends[k] = ((depth, places[row, depth]) for depth in (firsts[row], lengths[row]))
    return levels, starts, ends


def _run(model: LanguageModel, tiles: list[Tile], levels: list[_Level], now: _Slice) -> States:
    """Return the states after the slice's prefixes; write the sums of all that is one longer."""
    level, below, device = levels[now.depth], levels[now.depth + 1], model.device

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device)

    states = None
    if now.states:
        parents = tensor(np.searchsorted(now.above, level.parents[now.nodes]))
        states = columns(now.states, parents)
    encoded = model.encode(tensor(level.ids[now.nodes])[None], states)

    first, last = np.searchsorted(below.parents, (now.nodes[0], now.nodes[-1] + 1))
    below.sums[first:last] = level.sums[below.parents[first:last]]
    longer = first + np.flatnonzero(below.scored[first:last])
    nodes, rows = np.unique(below.parents[longer], return_inverse=True)
    h = encoded.hidden[0, tensor(np.searchsorted(now.nodes, nodes))]
    log_p = _log_probs(model.head, tiles, h, tensor(rows), tensor(below.ids[longer]))
    below.sums[longer] += log_p.cpu().double().numpy()
    return encoded.state


def _below(levels: list[_Level], now: _Slice, states: States, at_once: int) -> list[_Slice]:
    """Return what is to be run next, in slices of equal size."""
    below = levels[now.depth + 1]
    first, last = np.searchsorted(below.parents[below.inner], (now.nodes[0], now.nodes[-1] + 1))
    parts = np.array_split(below.inner[first:last], -(-(last - first) // at_once)) if last > first else []
    return [_Slice(now.depth + 1, nodes, now.nodes, states) for nodes in parts]


def _log_probs(head: Head, tiles: list[Tile], h: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
    """Return the log-probability (N,) of ids (N,) after the states h[rows]; rows never fall."""
    out = [h.new_zeros(0)]
    if type(head) is FullSoftmax:
        total = _normaliser(tiles, h)
        for row, id in zip(rows.split(_TILE), ids.split(_TILE), strict=True):
            out.append((h[row] * head.weight[id]).sum(-1) + head.bias[id] - total[row])
        return torch.cat(out)
    for part in slices(len(h), head):
        here = (rows >= part.start) & (rows < part.stop)
        out.append(head.log_probs(h[part])[rows[here] - part.start, ids[here]])
    return torch.cat(out)


def _tiles(head: Head) -> list[Tile]:
    """Return functions from states (N, H) to the logits of some words each, for a head that has such."""
    if type(head) is not FullSoftmax:
        return []
    parts = zip(head.weight.split(_TILE), head.bias.split(_TILE), strict=True)
    onednn: Any = torch.ops.mkldnn
    single = head.weight.device.type == "cpu" and head.weight.dtype == torch.float32
    if single and torch.backends.mkldnn.is_available() and hasattr(onednn, "_linear_pointwise"):
        # What PyTorch's compiler uses: weights that are rearranged once are read an eighth faster.
        packed = [(onednn._reorder_linear_weight(weight), bias) for weight, bias in parts]
        linear = partial(onednn._linear_pointwise, attr="none", scalars=[], algorithm="")
        return [partial(linear, W=weight, B=bias) for weight, bias in packed]
    return [partial(F.linear, weight=weight, bias=bias) for weight, bias in parts]


def _normaliser(tiles: list[Tile], h: Tensor) -> Tensor:
    """Return log sum exp (N,) of the logits after states (N, H), which are never in memory all at once."""
    total = sum((logits(h).exp_().sum(-1) for logits in tiles), h.new_zeros(len(h)))
    if bool(((total > 1e-30) & (total < 1e38)).all()):
        return total.log()
    return torch.stack([logits(h).logsumexp(-1) for logits in tiles]).logsumexp(0)  # whatever the logits, but slower
