"""Markdown that every section of RESULTS.md is made of."""

import re
from collections.abc import Iterable, Sequence

from onlstm.paper.report.result import Result

NONE = "--"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table that is aligned as plain text too; columns of numbers to the right."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    columns = []
    for top, *column in zip(*cells, strict=True):
        width = max(3, *map(len, (top, *column)))
        right = all(re.match(r"[-+*]*\d|--$|inf|nan", cell) for cell in column)
        line = "-" * (width - 1) + ":" if right else "-" * width
        columns.append([f"{cell:{'>' if right else '<'}{width}}" for cell in (top, line, *column)])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))


def number(value: float | None, digits: int = 2) -> str:
    """Return a number for a cell."""
    return NONE if value is None else f"{value:.{digits}f}" if value < 1e6 else f"{value:.1e}"


def network(rnn: str, sizes: Sequence[object]) -> str:
    """Return a model's kind and sizes.

    >>> network("onlstm", [256, 400, 256])
    'ON-LSTM 256→400→256'
    """
    return f"{ {'onlstm': 'ON-LSTM', 'lstm': 'LSTM'}.get(rnn, rnn) } {'→'.join(map(str, sizes))}"


def commands(runs: Sequence[Result]) -> str:
    """Return the commands that made the results."""
    return "\n".join(["```sh", *(f"{run['command']}  # {run.name}" for run in runs), "```"])


def origin(run: Result, *more: str) -> str:
    """Return on what a result was made, as a line of a list."""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    facts = [f"{run['machine']}, threads: {run['threads']}, {versions}", *more, *map(str, run["notes"])]
    return f"- {run.name}: {'; '.join(facts)}"
