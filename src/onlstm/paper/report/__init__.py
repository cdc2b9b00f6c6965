"""RESULTS.md out of the committed results, with published numbers beside ours, marked as published.

`collect` reads results/*.json: copies of the result.json that every run writes, and what other commands wrote with
`--out`; `render` makes the page; `write` does both. A new kind of result is a module with a `Section` and one entry in
`_SECTIONS`. The commands import this; it never imports torch.
"""

from collections.abc import Sequence
from pathlib import Path

from onlstm import files
from onlstm.errors import UserError
from onlstm.paper.published import Published, published
from onlstm.paper.report import tables
from onlstm.paper.report.language_modelling import LANGUAGE_MODELLING
from onlstm.paper.report.logic import LOGIC
from onlstm.paper.report.parsing import PARSING
from onlstm.paper.report.result import Result, read
from onlstm.paper.report.syntax import AGREEMENT, BLIMP, SYNEVAL

__all__ = ["Published", "Result", "collect", "published", "render", "write"]

_SECTIONS = {
    "language-model": LANGUAGE_MODELLING,
    "parsing": PARSING,
    "syneval": SYNEVAL,
    "blimp": BLIMP,
    "agreement": AGREEMENT,
    "logic": LOGIC,
}


def collect(folder: Path) -> list[Result]:
    """Return the results in a folder, by file name; a broken or foreign file is the user's mistake."""
    paths = sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))
    if not paths:
        way = f"get some with `onlstm train ... --out RUN` and copy RUN/result.json to {folder / 'NAME.json'}"
        raise UserError(f"{folder}: no results (*.json) there; {way}")
    return [read(path, _SECTIONS) for path in paths]


def render(results: Sequence[Result], quoted: Sequence[Published]) -> str:
    """Return RESULTS.md: a section for every kind of result at hand, with the published rows of its tables."""
    marks = "*Published, not run here* heads what is quoted from others; † marks what was not checked at its source."
    blocks = ["# Results", f"Made by `onlstm report`; do not edit. {marks}"]
    for kind, section in _SECTIONS.items():
        if runs := [each for each in results if each["kind"] == kind]:
            blocks += [f"## {section.title}", *section.paragraphs(runs)]
            blocks += ["### Published, not run here"] * bool(section.tables)
            for table, line in section.tables.items():
                blocks += [line] * bool(line) + _quoted([each for each in quoted if each.table == table])
    return "\n\n".join(blocks) + "\n"


def write(folder: Path, out: Path) -> None:
    """Write the page of a folder's results to `out`, whole or not at all."""
    files.write(out, render(collect(folder), published()))


def _quoted(rows: Sequence[Published]) -> list[str]:
    """Return the paragraphs that quote published rows: one table, then how each source counted."""
    columns = list(dict.fromkeys(column for row in rows for column in row.values))
    lines, rules = [], dict[str, dict[str, None]]()
    for row in rows:
        values = (row.values.get(column, tables.NONE) for column in columns)
        lines.append([row.row + " †" * (not row.checked), *values, row.source])
        rules.setdefault(row.rule, {})[row.source] = None
    counted = "\n".join(f"- {', '.join(sources)}: {rule}." for rule, sources in rules.items())
    return [tables.table(["published", *columns, "source"], lines), counted]
