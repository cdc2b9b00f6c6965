"""What an evaluation finds, in typed rows: for `onlstm evaluate`, its result file and the pages. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onlstm.paper.results import Model
from onlstm.trees.calibration import Calibration

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
    defects: int = 0
    """Those of them that could not be read."""
    outside: int = 0
    """Lines that belong to no tree."""
    discontinuous: int = 0
    """Nodes with gaps, made continuous."""
    seen_share: float | None = None
    """Sentences in % that are lines of the model's training text."""
    unk_share: float | None = None
    """Words in % that the model does not know."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One system's trees and their F1 by one rule."""

    system: str
    """onlstm, lstm-gates or another network, grammar, untrained, vote, trees, ccm, dmv+ccm, left, right, …, oracle."""
    run: str | None = None
    layer: Layers = None
    decoder: str | None = None
    rule: str
    f1: float | None = None

    @property
    def key(self) -> tuple[str, str, Layers, str | None]:
        """What rows of different runs and subsets have in common."""
        return self.rule, self.system, self.layer, self.decoder


@dataclass(frozen=True, kw_only=True)
class Choice(Scored):
    """One row, and how it was chosen among all."""

    chosen: str


@dataclass(frozen=True, kw_only=True)
class Headline(Choice):
    """The row to report, its layer and decoder chosen without the labels it is scored by."""

    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Score(Scored):
    """The score of one system by one rule; of several runs or seeds, their mean with the details of the best one."""

    deviation: float | None = None
    """Of the runs' F1, n - 1 in the denominator."""
    max: float | None = None
    runs: int = 1
    ci95: tuple[float, float] | None = None
    """Bootstrap over sentences; None for a mean."""
    n: int
    """Sentences scored."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Sentences that the rule does not score, by reason."""
    depth: float | None = None
    ties: float | None = None
    f1_to_right: float | None = None
    """F1 of the trees against right-branching ones: 100 is no parser at all."""
    tags: Mapping[str, tuple[int, int]]
    """Constituents found and to be found, by label."""
    labelled_f1: float | None = None
    """Of a grammar: F1 of brackets whose label is right too, each standing for the gold label that was most frequent
    on another treebank; None without one."""
    label_accuracy: float | None = None
    """Of the correct brackets, the share in % whose label is right too."""
    confidence: Calibration | None = None
    """Precision of the surer spans and of the others, where trees say how sure they are."""


@dataclass(frozen=True, kw_only=True)
class Row(Score):
    """A score on some of the sentences."""

    subset: str
    """"all" or "len<=10", in words."""
    precision: float | None = None
    recall: float | None = None
    by_length: Sequence[tuple[int, int, float, int]] = ()
    """(shortest, longest, F1, sentences) of sentences by length."""


@dataclass(frozen=True, kw_only=True)
class Short:
    """F1 on the sentences of at most 10 words."""

    n: int
    f1: float | None = None
    deviation: float | None = None
    max: float | None = None


@dataclass(frozen=True, kw_only=True)
class TableRow(Score):
    """A score on all sentences, and on the short ones."""

    short: Short


@dataclass(frozen=True, kw_only=True)
class _Findings:
    treebank: TreebankFacts
    mapping: str
    gates: str = "forget"
    headline: Headline | None = None
    best: Choice | None = None
    """The highest of the models' rows: selected on test labels."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(_Findings):
    """What `onlstm evaluate --json` prints."""

    rows: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class Content(_Findings):
    """What a result file has: rows for tables, of several runs the mean alone."""

    rows: Sequence[TableRow]
    runs: Sequence[Model]
    rules: Mapping[str, str]
    """What each rule counts."""
