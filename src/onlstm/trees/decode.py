"""The decoders: from one distance per word, or from several trees over the same words, to one binary tree.

A top-down parser splits at the largest distance, then again in either part; the parts that arise are the subtrees of
the Cartesian tree of the distances, and those are found from left to right with one stack, in O(n) and any depth.
Of equal distances, and in `vote` of equally good splits, the first wins.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import add
from typing import Literal, get_args

from onlstm.trees.tree import Tree

Decoder = Literal["paper", "unbiased"]


def tree_from_distances(
    distances: Iterable[float], words: Sequence[str] | None = None, decoder: Decoder = "paper"
) -> Tree:
    """Return the binary tree that top-down splitting at the largest distance builds, in O(n).

    Args:
        distances: one finite number per word: how high the boundary before the word is.
        words: as many; by default "0", "1", …
        decoder: "paper" makes ((x<i) (x_i (x>i))) of the words around the largest distance, the first word's own
            among them; it leans to the right and cannot build every tree. "unbiased" makes ((x<i) (x>=i)) and never
            looks at the distance of the first word of a part (Dyer et al. 2019).

    >>> print(tree_from_distances([0.9, 0.1, 0.5, 0.2], "the cat sat down".split(), "unbiased"))
    ( ( the cat ) ( sat down ) )
    >>> print(tree_from_distances([0.9, 0.1, 0.5, 0.2], "the cat sat down".split()))
    ( the ( cat ( sat down ) ) )
    """
    d = [float(x) for x in distances]
    if words is None:
        words = [str(i) for i in range(len(d))]
    if decoder not in get_args(Decoder):
        raise ValueError(f"unknown decoder {decoder!r}: choose one of {', '.join(get_args(Decoder))}")
    if not d:
        raise ValueError("no distances: a tree needs at least one word")
    if len(words) != len(d):
        raise ValueError(f"{len(words)} words but {len(d)} distances: give one distance per word")
    for i, x in enumerate(d):
        if not math.isfinite(x):
            raise ValueError(f"distance {i} ({words[i]!r}) is {x}: distances are finite")
    if decoder == "unbiased":
        return Tree.from_spans(words, [(left + 1, right + 1) for _, left, right in _reach(d[1:])])
    reach = _reach(d)
    parts = [(left + 1, right) for _, left, right in reach if right - left > 2]
    parts += [(i, right) for i, left, right in reach if left + 1 < i < right - 1]
    return Tree.from_spans(words, parts)


def _reach(d: Sequence[float]) -> list[tuple[int, int, int]]:
    """Return for each i: i, the nearest j < i with d[j] >= d[i] or -1, the nearest j > i with d[j] > d[i] or len(d).

    Strictly between the two lies the part whose first maximum is i.
    """
    left, right = [-1] * len(d), [len(d)] * len(d)
    falling: list[int] = []
    for i, x in enumerate(d):
        while falling and d[falling[-1]] < x:
            right[falling.pop()] = i
        if falling:
            left[i] = falling[-1]
        falling.append(i)
    return list(zip(range(len(d)), left, right, strict=True))


def vote(trees: Sequence[Tree], weights: Sequence[float] | None = None) -> Tree:
    """Return the binary tree that shares most spans with `trees`, each counted with its weight (1 by default).

    The trees may come from layers, checkpoints or seeds, and need not be binary; labels and one-word nodes do not
    count. CKY over the span counts, O(n^3).

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
    for tree, weight in zip(trees, repeat(1) if weights is None else weights, strict=False):
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
