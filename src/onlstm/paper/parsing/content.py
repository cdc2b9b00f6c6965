"""The content of a parsing result: what `onlstm evaluate --out` writes and the pages read. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onlstm.paper.results import Model

Layers = int | tuple[int, ...] | None
"""The layer whose distances make trees; several: their average or vote; None: no distances."""


@dataclass(frozen=True, kw_only=True)
class TreebankFacts:
    """What was read of a treebank."""

    path: str
    profile: str
    split: str
    sentences: int
    words: int
    skipped: Mapping[str, int]
    """Sentences by the reason why they were skipped."""
    discontinuous: int = 0
    """Nodes with gaps, made continuous."""
    seen_share: float | None = None
    """Sentences in % that are lines of the model's training text."""
    unk_share: float | None = None
    """Words in % that the model does not know."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One row, and how it was chosen among all."""

    system: str
    run: str | None = None
    layer: Layers = None
    decoder: str | None = None
    rule: str
    f1: float | None = None
    runs: int = 1
    chosen: str


@dataclass(frozen=True, kw_only=True)
class Short:
    """F1 on the sentences of at most 10 words."""

    n: int
    f1: float | None = None
    deviation: float | None = None
    max: float | None = None


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """The score of one system by one rule; of several runs or seeds, their mean with the best one's tags."""

    system: str
    run: str | None = None
    layer: Layers = None
    decoder: str | None = None
    rule: str
    f1: float | None = None
    deviation: float | None = None
    max: float | None = None
    runs: int = 1
    ci95: tuple[float, float] | None = None
    n: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    depth: float | None = None
    ties: float | None = None
    f1_to_right: float | None = None
    tags: Mapping[str, tuple[int, int]]
    """Constituents found and to be found, by label."""
    short: Short


@dataclass(frozen=True, kw_only=True)
class Content:
    """All that one evaluation found."""

    treebank: TreebankFacts
    mapping: str
    gates: str = "forget"
    headline: Choice | None = None
    """Chosen without the labels it is scored by."""
    best: Choice | None = None
    """The highest of the models' rows: selected on test labels."""
    rows: Sequence[TableRow]
    runs: Sequence[Model]
    rules: Mapping[str, str]
    """What each rule counts."""
