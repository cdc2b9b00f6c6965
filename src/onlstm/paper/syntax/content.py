"""The contents of syntax results: what `onlstm syneval`, `blimp` and `agreement` write with --out. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from onlstm.paper.results import Model


@dataclass(frozen=True, kw_only=True)
class Test:
    """McNemar's exact test of two runs on the same pairs; the other fields are those that identify a row."""

    only_first: int = 0
    only_second: int = 0
    p: float
    row: int | None = None
    group: str | None = None
    uid: str | None = None
    phenomenon: str | None = None
    field: str | None = None
    name: str | None = None
    part: str | None = None


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How often the grammatical sentence is strictly likelier; a tie is wrong."""

    correct: int
    ties: int
    accuracy: float
    scorable_accuracy: float | None = None
    """On pairs whose differing words are all known."""

    KEYS: ClassVar[tuple[str, ...]]
    """The fields that identify a row, and the test of it."""
    SIZES: ClassVar[tuple[str, str]]
    """The fields with the number of pairs, and of those whose differing words are all known."""

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of pairs, and of those whose differing words are all known."""
        pairs, known = (getattr(self, name) for name in self.SIZES)
        return pairs, known


@dataclass(frozen=True, kw_only=True)
class SynevalRow(Counts):
    """One row of the paper's Table 3, or of several pooled (without a number)."""

    KEYS, SIZES = ("row", "group"), ("pairs", "scorable_pairs")
    row: int | None = None
    group: str
    phenomenon: str = ""
    name: str = ""
    files: Sequence[str] = ()
    example: Sequence[str] = ()
    published: Mapping[str, float] | None = None
    pairs: int
    scorable_pairs: int


@dataclass(frozen=True, kw_only=True)
class Syneval:
    """One run on Marvin and Linzen's pairs."""

    run: str
    model: str
    period: bool
    """Sentences end in a period."""
    items: int
    rows: Sequence[SynevalRow]
    pooled: Sequence[SynevalRow]


@dataclass(frozen=True, kw_only=True)
class SynevalContent(Syneval):
    """One run, or two."""

    runs: Sequence[Model]
    compare: Syneval | None = None
    tests: Sequence[Test] = ()


@dataclass(frozen=True, kw_only=True)
class BlimpRow(Counts):
    """A paradigm (with `uid`), or the mean of several."""

    KEYS, SIZES = ("uid", "phenomenon"), ("n", "scorable_pairs")
    uid: str | None = None
    phenomenon: str | None = None
    field: str | None = None
    paradigms: int = 1
    n: int
    scorable_pairs: int


@dataclass(frozen=True, kw_only=True)
class Blimp:
    """One run on BLiMP."""

    run: str
    model: str
    reading: str
    unk_rate: float
    paradigms: Sequence[BlimpRow]
    phenomena: Mapping[str, BlimpRow]
    all: BlimpRow
    mean: float


@dataclass(frozen=True, kw_only=True)
class BlimpContent(Blimp):
    """One run, or two."""

    runs: Sequence[Model]
    compare: Blimp | None = None
    tests: Sequence[Test] = ()


@dataclass(frozen=True, kw_only=True)
class AgreementRow(Counts):
    """A set of sentences, or a part of it."""

    KEYS, SIZES = ("name", "part"), ("n", "scorable")
    name: str
    part: str | None = None
    n: int
    scorable: int
    parts: Sequence["AgreementRow"] = ()


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One run on sets of number agreement."""

    run: str
    model: str
    unk_rate: float
    sets: Sequence[AgreementRow]


@dataclass(frozen=True, kw_only=True)
class AgreementContent(Agreement):
    """One run, or two."""

    runs: Sequence[Model]
    compare: Agreement | None = None
    tests: Sequence[Test] = ()
