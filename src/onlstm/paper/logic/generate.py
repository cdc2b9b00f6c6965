"""Random pairs of formulas, distributed as those of Bowman, Manning & Potts (2015). No torch here.

A formula is a variable with probability 5/9, else two formulas with `and` or `or` between; either is then negated with
probability 1/3. Binary operators nest three deep at most, deeper only for lengths from 16. The number of operators is
drawn first, then a formula among those of as many: the distribution is the same, and any length can be asked for.
"""

import random
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice

import numpy as np

from onlstm.errors import UserError
from onlstm.paper.logic.formulas import VARIABLES, Pair, related, tables

_BINARY, _NEGATED = 4 / 9, 1 / 3
_MOST = 500  # operators; far beyond, their odds are too small for a float
_TINY = np.finfo(float).tiny
_PATIENCE = 10_000  # pairs in a row that are not new before a length is held to be used up


def generate(
    count: int | Mapping[int, int],
    *,
    seed: int,
    longest: int = 12,
    variables: Sequence[str] = VARIABLES,
    most_variables: int = 4,
) -> dict[int, list[Pair]]:
    """Return different pairs by length, the number of operators in the longer side, each in the order of drawing.

    No formula is always true or always false; the relation is that of the truth tables.

    Args:
        count: pairs to draw, with lengths as they come and before duplicates are removed, as in the published data
            (500,000); or how many different ones there shall be of each length, as {7: 1000, 20: 500}.
        seed: the same pairs for the same seed.
        longest: where lengths are as they come, pairs of as many operators or more are put together under it.
        variables: their names.
        most_variables: different ones in a pair, at most.

    >>> generate({1: 1}, seed=1)
    {1: [Pair(relation='#', left='( not c )', right='a')]}
    """
    sizes = count if isinstance(count, Mapping) else {longest: count}
    if any(pairs < 0 or not 0 <= n <= _MOST for n, pairs in sizes.items()):
        raise UserError(f"pairs are 0 or more and their lengths 0 to {_MOST}, not {dict(sizes)}")
    if not 1 <= most_variables <= len(variables):
        raise UserError(f"most_variables {most_variables} is not from 1 to {len(variables)}, the number of variables")
    draw = _Draw(max(sizes, default=0), variables, most_variables, random.Random(seed))
    if isinstance(count, Mapping):
        return {n: _different(draw.pairs(n), wanted, n) for n, wanted in sorted(count.items())}
    groups: dict[int, dict[Pair, None]] = {n: {} for n in range(longest + 1)}
    for n, pair in islice(draw.pairs(), count):
        groups[min(n, longest)][pair] = None
    return {n: list(pairs) for n, pairs in groups.items()}


def split(groups: Mapping[int, Sequence[Pair]], train: float = 0.85) -> dict[str, dict[int, list[Pair]]]:
    """Return {"train": …, "test": …}, as `published` does: of each length the first 85 %, and the rest.

    >>> pairs = split(generate({3: 20}, seed=1))
    >>> len(pairs["train"][3]), len(pairs["test"][3])
    (17, 3)
    """
    if not 0 <= train <= 1:
        raise UserError(f"the share of training pairs is from 0 to 1, not {train}")
    ends = {n: int(train * len(pairs)) for n, pairs in groups.items()}
    return {
        "train": {n: list(pairs[: ends[n]]) for n, pairs in groups.items()},
        "test": {n: list(pairs[ends[n] :]) for n, pairs in groups.items()},
    }


def _different(drawn: Iterator[tuple[int, Pair]], wanted: int, n: int) -> list[Pair]:
    """Return so many different pairs; raise if there seem to be fewer of that length."""
    found: dict[Pair, None] = {}
    patience = _PATIENCE
    while len(found) < wanted:
        known = len(found)
        found[next(drawn)[1]] = None
        patience = _PATIENCE if len(found) > known else patience - 1
        if not patience:
            raise UserError(f"{wanted} pairs of length {n} are too many: there seem to be {known} different ones")
    return list(found)


def _depth(longest: int) -> int:
    """Return how deep binary operators nest."""
    return max(3, longest.bit_length() - 1)


class _Draw:
    """Draws formulas and pairs of as many operators as asked for."""

    def __init__(self, longest: int, variables: Sequence[str], most_variables: int, rng: random.Random) -> None:
        self.rng, self.variables = rng, variables
        of, self.every = tables(tuple(variables[:most_variables]))
        self.tables = list(of.values())  # of a pair's variables, whichever they are
        self.odds = [np.array([1 - _NEGATED, _NEGATED])]  # by depth, then operators: how likely so many are
        self.negated = [[0.0, 1.0]]  # that a formula of so many is a negation
        self.left: list[list[list[float]]] = [[]]  # that the left part of a binary one has 0, 1, …; summed up
        for _ in range(_depth(longest)):
            self._deepen()

    def _deepen(self) -> None:
        part = self.odds[-1]
        plain = np.concatenate(([1 - _BINARY], _BINARY * np.convolve(part, part), [0]))
        odds = (1 - _NEGATED) * plain
        odds[1:] += _NEGATED * plain[:-1]
        self.left.append([])
        for rest in range(2 * len(part) - 1):  # operators of the two parts
            first, last = max(0, rest - len(part) + 1), min(rest, len(part) - 1)
            shares = [0.0] * first + [part[i] * part[rest - i] for i in range(first, last + 1)]
            self.left[-1].append([float(share) for share in accumulate(shares)])
        self.negated.append([0.0, *(_NEGATED * plain[:-1] / np.maximum(odds[1:], _TINY)).tolist()])
        self.odds.append(odds)

    def pairs(self, n: int | None = None) -> Iterator[tuple[int, Pair]]:
        """Yield pairs without end, and their length: `n`, or as they come."""
        depth, every = len(self.odds) - 1 if n is None else _depth(n), self.every
        odds = self.odds[depth]
        if n is None:
            shapes = [(i, j) for i in range(len(odds)) for j in range(len(odds))]
        else:
            shapes = [(n, j) for j in range(n + 1)] + [(i, n) for i in range(n)]
        weights = list(accumulate(float(odds[i] * odds[j]) for i, j in shapes))
        while True:
            i, j = shapes[bisect(weights, self.rng.random() * weights[-1])]
            names = list(zip(self.rng.sample(self.variables, len(self.tables)), self.tables, strict=True))
            left, x = self._formula(depth, i, names)
            right, y = self._formula(depth, j, names)
            if 0 < x < every and 0 < y < every:
                yield max(i, j), Pair(related(x, y, every), left, right)

    def _formula(self, depth: int, n: int, names: list[tuple[str, int]]) -> tuple[str, int]:
        """Return a formula of n operators, binary ones nested as deep at most, and its truth table."""
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
        return (f"( not {text} )", table ^ self.every) if negated else (text, table)
