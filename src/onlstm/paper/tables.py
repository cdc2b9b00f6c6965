"""Tables: built once from typed rows, printed as text by a command, and as Markdown or HTML by a page."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import PurePath
from typing import Any

import yaml
from rich.cells import cell_len

from onlstm.paper.results import Model

NONE = "–"
"""A cell without a value."""
NETWORKS = {"onlstm": "ON-LSTM", "lstm": "LSTM", "variational": "variational LSTM", "rhn": "RHN", "nas": "NAS cell"}
NETWORKS |= {"melis": "skip LSTM", "prpn": "PRPN", "clockwork": "clockwork RNN", "nested": "nested dropout LSTM"}
"""What tables call a network."""
_NUMBER = re.compile(r"[-+<]*\d|–$|inf")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A head and rows of cells; a row of a single cell is a heading that spans the table.

    >>> print(Table(head=["system", "F1"], rows=[["ours", "51.8"], ["right-branching", "40.2"]]).text())
    system             F1
    ours             51.8
    right-branching  40.2
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]], *columns: str) -> "Table":
        """Return the table of rows whose cells are named by column: the columns given, or all of the first row."""
        head = columns or tuple(rows[0])
        return cls(head=head, rows=[[row[column] for column in head] for row in rows])

    def text(self) -> str:
        """Return aligned lines for a terminal."""
        widths, right = self._columns([list(row) for row in (self.head, *self.rows)])
        lines = []
        for row in (self.head, *self.rows):
            cells = row if len(row) == 1 else map(_padded, row, widths, right)
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def markdown(self) -> str:
        """Return a Markdown table that is aligned as plain text too."""
        cells = [[cell.replace("|", "\\|") for cell in row] for row in (self.head, *self.rows)]
        widths, right = self._columns(cells)
        rules = ["-" * (max(3, width) - 1) + (":" if side else "-") for width, side in zip(widths, right, strict=True)]
        rows = [[*row, *[""] * (len(self.head) - len(row))] for row in (cells[0], rules, *cells[1:])]
        widths = [max(3, width) for width in widths]
        return "\n".join(f"| {' | '.join(map(_padded, row, widths, right))} |" for row in rows)

    def html(self) -> str:
        """Return an HTML table; the cells of numbers have the class `number`.

        >>> Table(head=["system", "F1"], rows=[["a < b", "51.8"]]).html().partition("</tr>")[2]
        '<tr><td>a &lt; b</td><td class="number">51.8</td></tr></table>'
        """
        _, right = self._columns([list(row) for row in (self.head, *self.rows)])
        lines = []
        for tag, row in [("th", self.head), *(("td", row) for row in self.rows)]:
            kinds = [f' colspan="{len(right)}"'] if len(row) == 1 else [' class="number"' * side for side in right]
            lines.append("".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True)))
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

    def _columns(self, cells: Sequence[Sequence[str]]) -> tuple[list[int], list[bool]]:
        """Return each column's width, and whether its cells are all numbers and go to the right."""
        full = [row for row in cells if len(row) == len(self.head)]
        columns = list(zip(*full, strict=True))
        right = [any(column[1:]) and all(not cell or _NUMBER.match(cell) for cell in column[1:]) for column in columns]
        return [max(map(cell_len, column)) for column in columns], right


def _padded(cell: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space


def number(value: float | None, digits: int = 1) -> str:
    """Return a number for a cell.

    >>> number(51.84), number(None), number(3.2, 0)
    ('51.8', '–', '3')
    """
    if value is None or math.isnan(value):
        return NONE
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.1e}"


def network(rnn: str, sizes: Sequence[int]) -> str:
    """Return the kind and the sizes of a network.

    >>> network("onlstm", [256, 400, 256])
    'ON-LSTM 256→400→256'
    """
    return f"{NETWORKS.get(rnn, rnn)} {'→'.join(map(str, sizes))}".rstrip()


def models(runs: Sequence[Model]) -> list[str]:
    """Return the table of the models of a result, or nothing if it has none."""
    head = ["run", "model", "parameters", "validation perplexity", "test perplexity"]
    rows = []
    for run in runs:
        perplexities = [number(value, 2) for value in (run.valid_perplexity, run.test_perplexity)]
        rows.append([run.name, network(run.rnn, run.sizes), f"{run.parameters / 1e6:.2f}M", *perplexities])
    return [Table(head=head, rows=rows).markdown()] if rows else []


@cache
def bundled(name: str) -> Any:
    """Return the content of a YAML file that comes with this package."""
    return yaml.safe_load((resources.files("onlstm.paper") / name).read_text(encoding="utf-8"))


def named(path: str) -> str:
    """Return what data is called, by the end of its path.

    >>> named("../runs/icon/icon/test.txt"), named("../my.zip")
    ('ICON (Indonesian)', 'my.zip')
    """
    folder, name = PurePath(path).parent.name, PurePath(path).name
    names = bundled("names.yaml")
    return str(names.get(f"{folder}/{name}") or names.get(name, name))
