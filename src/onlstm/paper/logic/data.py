"""The pairs of an experiment, and accuracy by length."""

import statistics
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onlstm.errors import UserError
from onlstm.paper.logic import formulas
from onlstm.paper.logic.formulas import Pair
from onlstm.paper.logic.generate import generate, split

LENGTHS = range(1, 13)
_VALID = 10
"""Every so many-th training pair is for validation."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where pairs come from."""

    path: str | None = None
    """Folder or zip with files train0 …, test0 …; None: they are generated."""
    pairs: int = 500_000
    """To draw, before duplicates are removed and some are set apart for the test; so many gave the published files."""
    max_train_ops: int = 6
    """Operators of the longest pairs to train on."""

    def __post_init__(self) -> None:
        for option, value in {"--max-train-ops": self.max_train_ops, "--pairs": self.pairs}.items():
            if value < 1:
                raise UserError(f"{option} {value}: at least 1 is needed")


@dataclass(frozen=True, kw_only=True)
class Data:
    """Pairs to train on, to choose weights by, and to test."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]

    @classmethod
    def load(cls, source: Source, say: Say = lambda line: None) -> "Data":
        """Return the pairs of a source; variables with other names are renamed, and said."""
        if source.path is None:
            say(f"Drawing {source.pairs:,} pairs …")
            groups = split(generate(source.pairs, seed=0))
        else:
            groups = formulas.published(source.path)
        short = [pair for n in sorted(groups["train"]) if n <= source.max_train_ops for pair in groups["train"][n]]
        test = [pair for n in sorted(groups["test"]) for pair in groups["test"][n] if formulas.length(pair) in LENGTHS]
        renamed, names = formulas.rename([*short, *test])
        if names:
            say(said(names))
        short, test = renamed[: len(short)], renamed[len(short) :]
        train = [pair for k, pair in enumerate(short, 1) if k % _VALID]
        if len(short) < _VALID:
            raise UserError(
                f"--max-train-ops {source.max_train_ops}: {len(short)} pairs to train on; {_VALID} are needed at least"
            )
        return cls(train=train, valid=short[_VALID - 1 :: _VALID], test=test)

    def digest(self) -> int:
        """Return a number that tells these training pairs from others."""
        return zlib.crc32("\n".join("\t".join(pair) for pair in (*self.train, *self.valid)).encode())


def majority(data: Data) -> dict[str, Any]:
    """Return the row of the answer that is right most often in training."""
    common = Counter(pair.relation for pair in data.train).most_common(1)[0][0]
    right = np.array([pair.relation == common for pair in data.test])
    lengths = np.array([formulas.length(pair) for pair in data.test])
    valid = 100 * statistics.mean(pair.relation == common for pair in data.valid)
    row = {"seed": None, "epochs": 0, "valid": valid, "relation": common, "seconds_per_epoch": 0.0}
    return row | by_length(lengths, right)


def by_length(lengths: np.ndarray, right: np.ndarray, shown: Iterable[int] = LENGTHS) -> dict[str, Any]:
    """Return accuracies in % by length, null where there is no pair, and the number of pairs tested."""
    parts = {str(n): right[lengths == n] for n in shown}
    by_length = {n: 100 * float(part.mean()) if len(part) else None for n, part in parts.items()}
    return {"by_length": by_length, "n": sum(map(len, parts.values())), "counts": {n: len(p) for n, p in parts.items()}}


def said(names: Mapping[str, str]) -> str:
    return "Variables renamed: " + ", ".join(f"{old} is {new}" for old, new in names.items())
