"""Whether the confidence of predicted spans says which of them are right."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from onlstm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Precision, 0 to 100, of the surer and of the less sure half of the predicted spans of each length."""

    upper: float
    lower: float
    gap: float
    """The former minus the latter; 0 if confidence says nothing."""


def calibration(gold: Sequence[Tree], predicted: Sequence[Tree]) -> Calibration | None:
    """Return how much more precise surer spans are; None if there are too few, or a tree has no confidence.

    Short spans are right more often and surer anyway: spans of each number of words are divided for themselves, the
    middle one of an odd number left out. Equally sure ones count as the mean of them. Whole sentences do not count.

    >>> gold = [Tree.from_brackets("((a b) (c d))")]
    >>> calibration(gold, [Tree.from_spans("abcd", [(0, 2), (2, 4)], [0.9, 0.8])])
    Calibration(upper=100.0, lower=100.0, gap=0.0)
    """
    spans: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for target, guess in zip(gold, predicted, strict=True):
        if guess.confidence is None:
            return None
        right = set(target.spans())
        for span, sure in zip(guess.spans(), guess.confidence, strict=True):
            spans[span[1] - span[0]].append((sure, span in right))
    halves: tuple[list[float], list[float]] = ([], [])
    for pairs in spans.values():
        shares = _shares(pairs)
        half = len(shares) // 2
        halves[0].extend(shares[:half])
        halves[1].extend(shares[len(shares) - half :])
    if not halves[0]:
        return None
    lower, upper = (100 * fmean(half) for half in halves)
    return Calibration(upper=upper, lower=lower, gap=upper - lower)


def _shares(pairs: Iterable[tuple[float, bool]]) -> list[float]:
    """Return, from the least sure, for each span whether it is right; of equally sure ones the mean."""
    shares: list[float] = []
    for _, group in groupby(sorted(pairs), key=lambda pair: pair[0]):
        right = [pair[1] for pair in group]
        shares += [fmean(right)] * len(right)
    return shares
