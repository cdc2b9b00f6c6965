"""What `onlstm logic` measures: rows for its JSON, its table, its figure and the pages. No torch here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from onlstm.paper.logic.config import Source
from onlstm.records import plain

LENGTHS = range(1, 13)
MAJORITY = "majority"
_TRAINED = ("best_epoch", "seconds", "parameters", "settings", "command", "trees")


@dataclass(frozen=True, kw_only=True)
class Tested:
    """Accuracy in % by the number of operators."""

    by_length: Mapping[str, float | None]
    """None where there is no pair."""
    n: int
    counts: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(lengths: np.ndarray, right: np.ndarray, shown: Iterable[int] = LENGTHS) -> dict[str, Any]:
        """Return the fields, from the length of each pair and whether its relation was found."""
        parts = {str(n): right[lengths == n] for n in shown}
        counts = {n: len(part) for n, part in parts.items()}
        by_length = {n: 100 * float(part.mean()) if len(part) else None for n, part in parts.items()}
        return {"by_length": by_length, "n": sum(counts.values()), "counts": counts}


@dataclass(frozen=True, kw_only=True)
class Induced:
    """F1 of trees against the brackets of formulas."""

    layer: int | None = None
    """Of an ON-LSTM, from 1."""
    decoder: str
    """Of an ON-LSTM: paper or unbiased; own: the encoder's trees; left, right, random: trees without an encoder."""
    f1: float | None
    """None if there is no formula, as in the next."""
    by_length: Mapping[str, float | None]
    """By the number of operators of the formula."""
    n: int


@dataclass(frozen=True, kw_only=True)
class Row(Tested):
    """One encoder of one seed."""

    seed: int | None
    epochs: int
    best_epoch: int = 0
    valid: float
    seconds_per_epoch: float
    seconds: float = 0.0
    parameters: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those that are not the authors'."""
    command: str = ""
    """The one that began the training."""
    trees: Sequence[Induced] = ()
    """Empty if the encoder has none."""
    relation: str = ""
    """What the majority class answers."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All encoders of a run folder that are finished."""

    data: Source
    encoders: Mapping[str, Sequence[Row]]
    published: Mapping[str, Mapping[str, float]]
    trees: Sequence[Induced] = ()
    """Those without an encoder."""
    figure: str | None = None
    """Of a result file: a picture of the curves, relative to the repository."""

    def plain(self) -> dict[str, Any]:
        """Return JSON data: the majority's row has nothing of a training, the others have no relation."""
        data: dict[str, Any] = plain(self)
        for name, rows in data["encoders"].items():
            for row, key in product(rows, _TRAINED if name == MAJORITY else ("relation",)):
                del row[key]
        return {key: value for key, value in data.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class OtherRow(Tested):
    """One classifier on other files of pairs."""

    seed: int
    run: str
    accuracy: float
    trees: Sequence[Induced] = ()


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The classifiers of a run on other files of pairs."""

    files: Sequence[str]
    renamed: Mapping[str, str]
    """The new name of each variable, if the files have others than a to f."""
    wrong_labels: int
    """Relations in the files that are not those of the truth tables."""
    encoders: Mapping[str, Sequence[OtherRow]]
    trees: Sequence[Induced] = ()
    """Those without an encoder."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The relation of two formulas, as the best classifier of a run and as the truth tables have it."""

    relation: str
    name: str
    probability: float
    truth: str
    truth_name: str
    probabilities: Mapping[str, float]
    renamed: Mapping[str, str]
    run: str
