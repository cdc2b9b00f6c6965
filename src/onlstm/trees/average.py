"""Tree averaging: from several trees over the same words to the one binary tree that agrees with them most.

`best_trees` also decodes a grammar's span probabilities, and `shares` is what trees teach one. No torch, only numpy.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from onlstm.trees.tree import Tree


def vote(trees: Sequence[Tree], weights: Sequence[float] | None = None) -> Tree:
    """Return the binary tree that shares most spans with `trees`, each counted with its weight (1 by default).

    The trees may come from layers, checkpoints or seeds, and need not be binary; labels and one-word nodes do not
    count. Ties are broken as in `best_trees`. The `confidence` of a span is its share of the votes.

    >>> tree = vote([Tree.from_brackets(text) for text in ("((a b) (c d))", "(a (b (c d)))", "((a b) (c d))")])
    >>> print(tree, tree.spans(), [round(share, 2) for share in tree.confidence])
    ( ( a b ) ( c d ) ) ((0, 2), (2, 4)) [0.67, 1.0]
    """
    return votes([[tree] for tree in trees], weights)[0]


def votes(forests: Sequence[Sequence[Tree]], weights: Sequence[float] | None = None) -> list[Tree]:
    """Return the `vote` for each sentence, fast; a forest is one voter's trees, one per sentence."""
    weights = _checked(weights, len(forests))
    sentences = list(zip(*forests, strict=True))
    same_length: defaultdict[int, list[int]] = defaultdict(list)
    for k, trees in enumerate(sentences):
        same_length[len(trees[0].words)].append(k)
    winners: dict[int, Tree] = {}
    for n, indices in same_length.items():
        for piece in _pieces(len(indices), n):
            counts = np.stack([_counts(sentences[k], weights) for k in indices[piece]])
            spans = best_trees(counts)  # of counts, not shares: rounding breaks no tie
            confidence = counts[np.arange(len(counts))[:, None], spans[..., 0], spans[..., 1]] / (counts[0, 0, n] or 1)
            for k, inside, share in zip(indices[piece], spans.tolist(), confidence.tolist(), strict=True):
                winners[k] = Tree.from_spans(sentences[k][0].words, inside, share)
    return [winners[k] for k in range(len(sentences))]


def shares(trees: Sequence[Tree], weights: Sequence[float] | None = None) -> NDArray[np.float64]:
    """Return the share of a sentence's trees that have the span [i, j), at [i, j]; words 0, the whole sentence 1.

    >>> shares([Tree.from_brackets("((a b) c)"), Tree.from_brackets("(a (b c))")], weights=[3, 1])[0]
    array([0.  , 0.  , 0.75, 1.  ])
    """
    counts = _counts(trees, _checked(weights, len(trees)))
    counts /= counts[0, -1] or 1
    counts[0, -1] = 1
    return counts


def best_trees(scores: NDArray[np.floating | np.integer]) -> NDArray[np.intp]:
    """Return the spans of each sentence's best binary tree, (B, n - 2, 2): start and end, as `Tree.spans` has them.

    `scores` is (B, n + 1, n + 1), of the span [i, j) of sentence b at [b, i, j]; the best tree has the largest sum over
    its spans of two words or more. Of equally good splits of a span the leftmost wins, so that words without a
    preference branch to the right. CKY in double precision, O(n^3) per sentence.
    """
    if scores.ndim != 3 or not 2 <= scores.shape[1] == scores.shape[2]:
        raise ValueError(f"scores have shape {scores.shape}, not (B, n + 1, n + 1) with at least one word")
    n = scores.shape[1] - 1
    spans = np.zeros((len(scores), max(n - 2, 0), 2), np.intp)
    for piece in _pieces(len(scores), n):
        spans[piece] = np.argwhere(_best_spans(scores[piece]))[:, 1:].reshape(spans[piece].shape)
    return spans


def _best_spans(scores: NDArray[np.floating | np.integer]) -> NDArray[np.bool_]:
    """Return whether the span [i, j), of two words or more, is inside the best tree, at [b, i, j]."""
    n = scores.shape[1] - 1
    by_start, by_end = np.zeros((2, *scores.shape))  # best sums: over [i, i + w) at [b, i, w], [j - w, j) at [b, j, w]
    split = np.zeros(scores.shape, np.intp)  # at [b, i, w]: how many of the w words from i are in the left part
    for w in range(2, n + 1):
        sums = by_start[:, : n - w + 1, 1:w] + by_end[:, w:, w - 1 : 0 : -1]
        split[:, : n - w + 1, w] = sums.argmax(-1) + 1  # the first maximum
        by_start[:, : n - w + 1, w] = by_end[:, w:, w] = sums.max(-1) + scores.diagonal(w, 1, 2)
    inside = np.zeros(scores.shape, bool)
    b = np.arange(len(scores))
    start, end = np.zeros_like(b), np.full_like(b, n)
    while (wide := end - start > 1).any():  # one level of all trees at a time
        b, start, end = b[wide], start[wide], end[wide]
        middle = start + split[b, start, end - start]
        b, start, end = np.tile(b, 2), np.concatenate([start, middle]), np.concatenate([middle, end])
        inside[b, start, end] = end - start > 1
    return inside


def _counts(trees: Sequence[Tree], weights: Sequence[float]) -> NDArray[np.float64]:
    """Return the sum of the weights of the trees that have the span [i, j), of two words or more, at [i, j]."""
    size = len(trees[0].words) + 1
    for k, tree in enumerate(trees):
        if tree.words != trees[0].words:
            raise ValueError(f"trees 0 and {k} have different words: only trees over the same words can vote")
    cells = [{i * size + j for i, j, _ in tree.nodes if j - i > 1} for tree in trees]
    counts = np.zeros(size * size)
    np.add.at(counts, [cell for some in cells for cell in some], np.repeat(weights, [len(some) for some in cells]))
    return counts.reshape(size, size)


def _checked(weights: Sequence[float] | None, count: int) -> Sequence[float]:
    weights = [1] * count if weights is None else weights
    if not count:
        raise ValueError("no trees to vote")
    if len(weights) != count:
        raise ValueError(f"{len(weights)} weights for {count} trees: give one weight per tree")
    if bad := [weight for weight in weights if not 0 <= weight < math.inf]:
        raise ValueError(f"weight {bad[0]} is not a finite number of 0 or more")
    return weights


def _pieces(count: int, n: int) -> Iterator[slice]:
    step = max(1, (1 << 17) // (n + 1) ** 2)  # sentences at once: a chart's memory, or about 5 MB
    return (slice(start, start + step) for start in range(0, count, step))
