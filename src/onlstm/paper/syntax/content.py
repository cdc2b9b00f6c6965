"""What the syntactic tasks return, `--json` prints and result files hold. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from onlstm.paper.results import Model
from onlstm.records import plain


@dataclass(frozen=True, kw_only=True)
class Test:
    """McNemar's exact test of two runs on the pairs of a row; the other fields are those that identify the row."""

    only_first: int = 0
    """Pairs that only the first run has right."""
    only_second: int = 0
    p: float
    row: int | None = None
    group: str | None = None
    uid: str | None = None
    phenomenon: str | None = None
    field: str = ""
    name: str | None = None
    part: str | None = None


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How often the right sentence is strictly likelier than the wrong one; a tie is wrong."""

    KEYS: ClassVar[tuple[str, ...]]
    """The fields that identify a row, and the test of it."""
    SIZES: ClassVar[tuple[str, str]]
    """The fields with the number of pairs, and of those whose differing words are all known."""
    correct: int
    ties: int
    accuracy: float
    """In %."""
    scorable_accuracy: float | None = None
    """On pairs whose differing words are all known."""

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of pairs, and of those whose differing words are all known."""
        pairs, known = (getattr(self, name) for name in self.SIZES)
        return pairs, known


@dataclass(frozen=True, kw_only=True)
class SynevalRow(Counts):
    """One row of the paper's Table 3, or several pooled (without a number)."""

    KEYS, SIZES = ("row", "group"), ("pairs", "scorable_pairs")
    row: int | None = None
    group: str
    phenomenon: str = ""
    name: str = ""
    files: Sequence[str] = ()
    """The templates that are counted together."""
    example: Sequence[str] = ()
    published: Mapping[str, float] | None = None
    pairs: int
    scorable_pairs: int


@dataclass(frozen=True, kw_only=True)
class BlimpRow(Counts):
    """A paradigm (with `uid`), or several: the counts of all their pairs, but the mean of their accuracies."""

    KEYS, SIZES = ("uid", "phenomenon"), ("n", "scorable_pairs")
    uid: str | None = None
    phenomenon: str | None = None
    field: str = ""
    paradigms: int = 1
    n: int
    scorable_pairs: int


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
class Outcome:
    """What a task says of a run; a subclass has a second run in `compare`."""

    run: str
    model: str
    runs: Sequence[Model] = ()
    """Facts of both models, for result files."""
    tests: Sequence[Test] = ()


@dataclass(frozen=True, kw_only=True)
class Syneval(Outcome):
    """On Marvin & Linzen's pairs, or on your own."""

    period: bool
    """Whether the model has a word for the period; else sentences are read without it."""
    items: int
    rows: Sequence[SynevalRow]
    pooled: Sequence[SynevalRow]
    compare: "Syneval | None" = None


@dataclass(frozen=True, kw_only=True)
class Blimp(Outcome):
    """On BLiMP."""

    reading: str
    unk_rate: float
    paradigms: Sequence[BlimpRow]
    phenomena: Mapping[str, BlimpRow]
    all: BlimpRow
    mean: float
    compare: "Blimp | None" = None


@dataclass(frozen=True, kw_only=True)
class Agreement(Outcome):
    """On sets of number agreement."""

    unk_rate: float
    """Of the words before the verbs."""
    sets: Sequence[AgreementRow]
    compare: "Agreement | None" = None


Content = Syneval | Blimp | Agreement


def printed(content: Content) -> dict[str, Any]:
    """Return JSON data, without the fields that say nothing of a row, and of a second run where there is none."""
    data = {key: value for key, value in plain(content).items() if value or key not in ("runs", "compare", "tests")}
    keys: tuple[str, ...] = ("row", "group")
    if isinstance(content, Syneval):
        data["pooled"] = [_only(row, *keys) for row in content.pooled]
    elif isinstance(content, Blimp):
        keys = ("uid", "phenomenon", "field")
        data["paradigms"] = [_only(row, *keys) for row in content.paradigms]
        data["phenomena"] = {name: _only(row, "paradigms") for name, row in content.phenomena.items()}
        data["all"] = _only(content.all, "paradigms")
    else:
        keys = ("name", "part")
        sets = [(row, [_only(part, *keys) for part in row.parts]) for row in content.sets]
        data["sets"] = [_only(row, *keys) | {"parts": parts} for row, parts in sets]
    if content.compare:
        names = (*keys, "only_first", "only_second", "p")
        tests = [
            {name: getattr(test, name) for name in names if name != "field" or test.field} for test in content.tests
        ]
        data |= {"compare": printed(content.compare), "tests": tests}
    return data | ({"runs": plain(content.runs, sparse=True)} if content.runs else {})


def _only(row: Counts, *names: str) -> dict[str, Any]:
    counts = (*row.SIZES, "correct", "ties", "accuracy", "scorable_accuracy")
    return {name: getattr(row, name) for name in (*names, *counts)}
