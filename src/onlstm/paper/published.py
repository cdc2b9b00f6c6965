"""Numbers of the paper and of later work that stand beside ours, read from published.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

import yaml

from onlstm.paper.tables import NONE


@dataclass(frozen=True, kw_only=True)
class Published:
    """One row of a published table, as printed there."""

    table: str
    """`language-modelling`, `parsing`, `wsj-sample`, `syneval` or `logic`."""
    row: str
    """The model or the test case."""
    values: Mapping[str, str]
    """Text by column; `--` where the source gives nothing."""
    source: str
    checked: bool
    """Read in the source itself, not quoted second-hand or from memory."""
    rule: str
    """How it was counted."""

    def cells(self, *columns: str) -> list[str]:
        """Return the values of columns for a table."""
        return [self.values.get(column, "--").replace("--", NONE) for column in columns]


def published(table: str | None = None) -> list[Published]:
    """Return the published rows of a table (default: of all), in the order of published.yaml.

    >>> [row.values["test"] for row in published("language-modelling") if row.row.startswith("ON-LSTM")]
    ['56.17 ± 0.12']
    """
    text = resources.files("onlstm.paper").joinpath("published.yaml").read_text(encoding="utf-8")
    rows = []
    for block in yaml.load(text, Loader=yaml.BaseLoader):  # every scalar as text: 0.50 stays 0.50
        for name, cells in block["rows"].items():
            values = dict(zip(block["columns"], cells, strict=True))
            source, checked = (values.pop(key, block[key]) for key in ("source", "checked"))
            about = {"table": block["table"], "row": name, "source": source, "rule": block["rule"]}
            rows.append(Published(**about, values=values, checked=checked == "true"))
    tables = sorted({row.table for row in rows})
    if table and table not in tables:
        raise ValueError(f"no published table {table!r}; there are {', '.join(tables)}")
    return [row for row in rows if table in (None, row.table)]
