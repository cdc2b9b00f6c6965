"""Published numbers against the paper's own LaTeX."""

import re
from pathlib import Path

import pytest
import yaml

from onlstm.paper import published as module
from onlstm.paper.published import published

PAPER = Path(__file__).parents[3] / "shared" / "paper"
SOURCE = Path(module.__file__).with_suffix(".yaml")


def latex_rows(label: str) -> list[list[str]]:
    """The cells of each data row of the tabular before a label, without mark-up."""
    text = next(PAPER.glob("*.txt")).read_text(encoding="utf-8")
    body = text[: text.index(rf"\label{{{label}}}")].rsplit(r"\begin{tabular}", 1)[1].split(r"\end{tabular}")[0]
    rows = [line.split("&") for line in body.split(r"\midrule", 1)[1].split(r"\\") if "&" in line]
    return [[plain(cell) for cell in row] for row in rows]


def plain(cell: str) -> str:
    """A cell as published.yaml writes it; citations are dropped."""
    cell = re.sub(r"\\(citet|hspace)\{.*?\}|\\(midrule|large|vspace\{.*?\})", "", cell.replace("$-$", "--"))
    cell = re.sub(r"\\(bf|it|textit|textbf)\b|[{}$*]", "", re.sub(r"\s*\\pm\s*", " ± ", cell))
    return " ".join(cell.removeprefix(" - ").split())


@pytest.mark.data
@pytest.mark.parametrize(
    ("label", "source", "count"),
    [
        ("table:PTBresults", "Shen et al. 2019, Table 1", 14),
        ("tab:wsj-table", "Shen et al. 2019, Table 2", 18),
        ("table:syneval", "Shen et al. 2019, Table 3", 19),
    ],
)
def test_the_papers_tables_are_those_of_its_latex_cell_by_cell(label, source, count):
    if not PAPER.is_dir():
        pytest.skip("no ../shared/paper")
    ours, latex = [row for row in published() if row.source == source], latex_rows(label)
    assert all(row.checked for row in ours)
    assert len(latex) == count
    added = {"dependency"}  # a heading in the paper
    assert [[v for c, v in row.values.items() if c not in added] for row in ours] == [cells for _, *cells in latex]
    for row, (name, *_) in zip(ours, latex, strict=True):
        assert set(re.findall(r"\w+", name.casefold())) <= set(re.findall(r"\w+", row.row.casefold()))


def test_published_claims_of_being_checked_are_few_beside_the_papers():
    """Whoever marks another number as checked should have read it and list it here."""
    others = {row.source for row in published() if row.checked and "Shen et al. 2019, Table" not in row.source}
    assert others == {
        "README of salesforce/awd-lstm-lm",
        "Liu et al. 2023 (abstract)",
        "measured on the WSJ sample, not published",
        "measured on the test files, not published",
    }


def test_rows_per_table_and_no_row_name_twice():
    """A YAML mapping swallows a repeated key, so the lines are counted too."""
    rows = published()
    counts = {table: sum(row.table == table for row in rows) for table in dict.fromkeys(row.table for row in rows)}
    assert counts == {"language-modelling": 16, "parsing": 32, "wsj-sample": 9, "syneval": 19, "logic": 6}
    assert len(re.findall(r"^    \S.*: \[", SOURCE.read_text(encoding="utf-8"), re.M)) == len(rows)


def test_well_known_cells_stand_in_their_columns():
    cells = {(row.table, row.row): row for row in published()}
    best = cells["parsing", "ON-LSTM 2nd-layer"]
    assert list(best.values.items())[3:7] == [
        ("WSJ10", "65.1 (1.7)"),
        ("WSJ10 max", "66.8"),
        ("WSJ", "47.7 (1.5)"),
        ("WSJ max", "49.4"),
    ]
    assert cells["language-modelling", "ON-LSTM, 3-layer (tied)"].values["validation"] == "58.29 ± 0.10"
    assert cells["syneval", "NPI: simple (intrusive vs. ungrammatical)"].values["ON-LSTM"] == "0.50"
    assert cells["logic", "ON-LSTM"].values == {"7": "91", "8": "87", "9": "85", "10": "81", "11": "78", "12": "75"}
    assert not cells["logic", "ON-LSTM"].checked
    later = cells["parsing", "Compound PCFG"]
    assert (later.values, later.checked) == ({"WSJ": "55.2", "WSJ max": "60.1"}, False)
    assert later.source == "Kim et al. 2019 (compound PCFG)"


def test_every_block_says_where_how_and_whether():
    for block in yaml.safe_load(SOURCE.read_text(encoding="utf-8")):
        assert set(block) == {"table", "source", "checked", "rule", "columns", "rows"}
        assert isinstance(block["checked"], bool)
        assert all(len(cells) == len(block["columns"]) for cells in block["rows"].values())


def test_an_unknown_table_is_named():
    with pytest.raises(ValueError, match="no published table 'parsnips'; there are language-modelling, logic, parsing"):
        published("parsnips")
