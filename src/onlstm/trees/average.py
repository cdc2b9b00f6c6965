"""Tree averaging: from several trees over the same words to the one binary tree that agrees with them most."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import add

from onlstm.trees.tree import Tree


def vote(trees: Sequence[Tree], weights: Sequence[float] | None = None) -> Tree:
    """Return the binary tree that shares most spans with `trees`, each counted with its weight (1 by default).

    The trees may come from layers, checkpoints or seeds, and need not be binary; labels and one-word nodes do not
    count. CKY over the span counts, O(n^3); of equally good splits the first wins.

    >>> trees = [Tree.from_brackets(text) for text in ("((a b) (c d))", "(a (b (c d)))", "(((a b) c) d)")]
    >>> print(vote(trees))
    ( ( a b ) ( c d ) )
    """
    if not trees:
        raise ValueError("no trees to vote")
    words = trees[0].words
    for k, tree in enumerate(trees):
        if tree.words != words:
            raise ValueError(f"trees 0 and {k} have different words: only trees over the same words can vote")
    if weights is not None and len(weights) != len(trees):
        raise ValueError(f"{len(weights)} weights for {len(trees)} trees: give one weight per tree")
    counts: defaultdict[tuple[int, int], float] = defaultdict(int)
    for tree, weight in zip(trees, weights or [1] * len(trees), strict=True):
        if not 0 <= weight < math.inf:
            raise ValueError(f"weight {weight} is not a finite number of 0 or more")
        for span in tree.spans():
            counts[span] += weight
    return Tree.from_spans(words, _best_spans(counts, len(words)))


def _best_spans(counts: Mapping[tuple[int, int], float], n: int) -> list[tuple[int, int]]:
    """Return the spans of the binary tree over n words with the largest sum of counts."""
    by_start: list[list[float]] = [[0] for _ in range(n)]  # by_start[i][k]: the best sum over words [i, i + 1 + k)
    by_end: list[list[float]] = [[0] for _ in range(n + 1)]  # by_end[j][k]: over [j - 1 - k, j)
    split: dict[tuple[int, int], int] = {}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length
            sums = list(map(add, by_start[i], reversed(by_end[j])))
            best = max(sums)
            split[i, j] = i + 1 + sums.index(best)
            best += counts.get((i, j), 0)
            by_start[i].append(best)
            by_end[j].append(best)
    spans, rest = [], [(0, n)]
    while rest:
        i, j = rest.pop()
        if j - i > 1:
            spans.append((i, j))
            rest += [(i, split[i, j]), (split[i, j], j)]
    return spans
