"""Random pairs of formulas, distributed as those of Bowman, Manning & Potts (2015). No torch here.

A formula is a variable with probability 5/9, else two formulas with `and` or `or` between; either is then negated with
probability 1/3. Binary operators nest three deep at most. The number of operators of both sides is drawn first, then
the formulas: the distribution is the same.
"""

import random
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate, islice

import numpy as np

from onlstm.paper.logic.formulas import EVERYWHERE, TABLES, VARIABLES, Pair, relation

_BINARY, _NEGATED, _DEPTH = 4 / 9, 1 / 3, 3


def generate(count: int, *, seed: int) -> dict[int, list[Pair]]:
    """Return different pairs by length, each in the order of drawing.

    No formula is always true or always false, a pair has up to four variables, and its relation is that of the truth
    tables. `count` is before duplicates are removed: 500,000 for the published data.

    >>> generate(5, seed=1)[0]
    [Pair(relation='#', left='c', right='a')]
    """
    groups: dict[int, dict[Pair, None]] = {n: {} for n in range(13)}
    for n, pair in islice(_Draw(random.Random(seed)).pairs(), count):
        groups[min(n, 12)][pair] = None
    return {n: list(pairs) for n, pairs in groups.items()}


class _Draw:
    """Draws pairs: first the numbers of operators, then formulas with that many."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.odds = np.array([1 - _NEGATED, _NEGATED])  # of each number of operators
        self.negated = [[0.0, 1.0]]  # by depth, then operators: odds that a formula is a negation
        self.left: list[list[list[float]]] = [[]]  # that the left part of a binary one has 0, 1, …; summed up
        for _ in range(_DEPTH):
            self._deepen()

    def _deepen(self) -> None:
        part = self.odds
        plain = np.concatenate(([1 - _BINARY], _BINARY * np.convolve(part, part), [0]))
        self.odds = (1 - _NEGATED) * plain
        self.odds[1:] += _NEGATED * plain[:-1]
        self.left.append([])
        for rest in range(2 * len(part) - 1):  # operators of the two parts
            first, last = max(0, rest - len(part) + 1), min(rest, len(part) - 1)
            shares = [0.0] * first + [part[i] * part[rest - i] for i in range(first, last + 1)]
            self.left[-1].append([float(share) for share in accumulate(shares)])
        self.negated.append([0.0, *(_NEGATED * plain[:-1] / self.odds[1:]).tolist()])

    def pairs(self) -> Iterator[tuple[int, Pair]]:
        """Yield pairs without end, and their length."""
        shapes = [(i, j) for i in range(len(self.odds)) for j in range(len(self.odds))]
        weights = list(accumulate(float(self.odds[i] * self.odds[j]) for i, j in shapes))
        while True:
            i, j = shapes[bisect(weights, self.rng.random() * weights[-1])]
            names = list(zip(self.rng.sample(VARIABLES, 4), TABLES.values(), strict=False))
            left, x = self._formula(_DEPTH, i, names)
            right, y = self._formula(_DEPTH, j, names)
            if 0 < x < EVERYWHERE and 0 < y < EVERYWHERE:
                yield max(i, j), Pair(relation(x, y), left, right)

    def _formula(self, depth: int, n: int, names: list[tuple[str, int]]) -> tuple[str, int]:
        """Return a formula of n operators, binary ones nested at most this deep, and its truth table."""
        random = self.rng.random
        negated = random() < self.negated[depth][n]
        rest = n - 1 - negated  # operators of the two parts
        if rest < 0:
            text, table = names[int(random() * len(names))]
        else:
            shares = self.left[depth][rest]
            i = bisect(shares, random() * shares[-1])
            left, x = self._formula(depth - 1, i, names)
            right, y = self._formula(depth - 1, rest - i, names)
            if random() < 0.5:
                text, table = f"( {left} ( and {right} ) )", x & y
            else:
                text, table = f"( {left} ( or {right} ) )", x | y
        return (f"( not {text} )", table ^ EVERYWHERE) if negated else (text, table)
