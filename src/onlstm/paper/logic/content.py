"""The content of a logic result: what `onlstm logic` writes and the pages read. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Where the pairs of formulas come from."""

    path: str | None = None
    """None: they were generated."""
    pairs: int
    max_train_ops: int
    """Operators of the longest formula that was trained on."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One encoder of one seed, tested by the number of operators."""

    seed: int | None = None
    epochs: int
    best_epoch: int | None = None
    valid: float
    by_length: Mapping[str, float | None]
    n: int
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds_per_epoch: float
    seconds: float = 0.0
    parameters: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those that are not the authors'."""
    command: str = ""
    """The one that began the training."""
    relation: str | None = None
    """What the majority class answers."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """All encoders of a run folder that are finished."""

    data: Pairs
    encoders: Mapping[str, Sequence[Row]]
    published: Mapping[str, Mapping[str, float]]
    figure: str | None = None
    """A picture of the curves, relative to the repository."""
