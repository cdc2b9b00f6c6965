"""The decoders: from one distance per word to a binary tree.

A top-down parser splits at the largest distance, then again in either part; the parts that arise are the subtrees of
the Cartesian tree of the distances, and those are found from left to right with one stack, in O(n) and any depth.
Of equal distances the first wins.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from onlstm.trees.tree import Tree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


def spans_from_distances(distances: "NDArray[np.floating]", decoder: Decoder) -> "NDArray[np.bool_]":
    """Return which spans of two words or more are in the trees of sentences of n words, (B, n + 1, n + 1).

    These are the trees of `tree_from_distances`, for distances (B, n), but thousands of times as fast: a span is in the
    tree if the distances at both of its ends exceed those inside it.
    """
    import numpy as np

    count, n = distances.shape
    inside = np.zeros((count, n + 1, n + 1), bool)
    edges = np.pad(distances, ((0, 0), (1, 1)), constant_values=np.inf)  # that of word i at [i + 1]
    if decoder == "paper":
        before, top = edges, distances
    else:
        before, top = distances.copy(), np.full_like(distances, -np.inf)
        before[:, 0] = np.inf
    for width in range(2, n + 1):  # top: the largest distance inside
        starts = n - width + 1
        top = np.maximum(top[:, :starts], distances[:, width - 1 :])
        fits = before[:, :starts] >= top
        if decoder == "paper":
            fits |= distances[:, :starts] == top  # the word with the largest one, and all that follows
        inside[:, range(starts), range(width, n + 1)] = fits & (edges[:, width + 1 :] > top)
    return inside


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
