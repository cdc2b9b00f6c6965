"""The tables of `onlstm syneval`, `blimp` and `agreement` from untyped rows; goes away when their rows are typed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onlstm.paper.tables import NONE, number

PARADIGMS = 67
"""Of the whole of BLiMP."""
Row = Mapping[str, Any]


def grid(
    found: Row, rows: Callable[[Row], Sequence[Row]], by: Sequence[str], names: Sequence[str] = ("1", "2")
) -> list[list[str]]:
    """Return the head of a table and its lines of numbers: of one run, or of two and how surely they differ.

    Args:
        found: what a command found, with a second run in "compare" or without.
        rows: from what was found of one run to the lines.
        by: the keys that tell lines, and the tests of them, apart.
        names: what the two runs are called.
    """
    tests = {tuple(test.get(key) for key in by): test["p"] for test in found.get("tests", ())}
    runs = [rows(run) for run in (found, found.get("compare")) if run]
    counts = [[(row["ties"], _known(row)) for row in each] for each in runs]
    apart = len(runs) if counts[0] != counts[-1] else 1  # of how many runs ties and known words are listed
    head = _head(names if len(runs) > 1 else [""], apart)
    lines = zip(*runs, strict=True)
    return [head, *(_cells(line, apart, tests.get(tuple(line[0].get(key) for key in by))) for line in lines)]


def syneval_rows(run: Row) -> list[Row]:
    """Return the rows of the table, then those that are pooled."""
    return [*run["rows"], *run["pooled"]]


def blimp_rows(run: Row) -> list[Row]:
    """Return each phenomenon and then its paradigms, last all together."""
    rows: list[Row] = []
    for name, mean in run["phenomena"].items():
        rows.append({"phenomenon": name} | mean)
        rows += [each for each in run["paradigms"] if each["phenomenon"] == name]
    return [*rows, run["all"]]


def agreement_rows(run: Row) -> list[Row]:
    """Return each set and then its parts."""
    return [row for each in run["sets"] for row in (each, *each["parts"])]


def _head(names: Sequence[str], apart: int) -> list[str]:
    accuracy, on = ([f"{column} {name}".strip() for name in names] for column in ("accuracy", "on known"))
    ties, known = ([f"{column} {name}" for name in names] if apart > 1 else [column] for column in ("ties", "known %"))
    return [*accuracy, *["p"] * (len(names) > 1), "pairs", *ties, *known, *on]


def _cells(rows: Sequence[Row], apart: int, p: float | None) -> list[str]:
    pairs = rows[0].get("n") or rows[0]["pairs"]
    return [
        *(number(row["accuracy"], 1) for row in rows),
        *[NONE if p is None else f"{p:.2g}" if p >= 1e-4 else "<1e-4"] * (len(rows) > 1),
        f"{pairs:,}",
        *(f"{row['ties']:,}" for row in rows[:apart]),
        *(number(100 * _known(row) / pairs, 1) for row in rows[:apart]),
        *(number(row["scorable_accuracy"], 1) for row in rows),
    ]


def _known(row: Row) -> int:
    found: int = row["scorable"] if "scorable" in row else row["scorable_pairs"]
    return found
