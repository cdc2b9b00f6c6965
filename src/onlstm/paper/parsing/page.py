"""Unsupervised parsing on the pages: the paper's Table 2 with ours beside it, then every treebank and rule."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import PurePath

from onlstm.paper.parsing.content import Content, TableRow
from onlstm.paper.parsing.table import (
    LABELS,
    MODELS,
    f1_cell,
    facts,
    headline,
    is_headline,
    joined,
    layer_cell,
    recall_cell,
    system_cell,
    table,
)
from onlstm.paper.published import published
from onlstm.paper.results import Result
from onlstm.paper.tables import NONE, Table, models, named, number

Results = Sequence[Result[Content]]


def summary(results: Results) -> list[str]:
    """Return the paper's Table 2 and ours; the headlines of other treebanks; the headlines by every rule."""
    results = sorted(results, key=_treebank)
    penn = [result for result in results if result.content.treebank.profile == "ptb"]
    others = [result for result in results if result not in penn and result.content.headline]
    blocks = ["WSJ10 and section 23 of the WSJ, by the rule on-lstm:", _quoted().markdown()]
    for _, group in groupby(penn, key=lambda result: (_treebank(result), result.content.treebank.split)):
        blocks += _table2(list(group))
    if others:
        blocks += ["Other treebanks, the headline of every result:", _headlines(others).markdown()]
    many = [result for result in results if len(result.content.rules) > 1 and result.content.headline]
    return blocks + (["By every rule, the headline's layer and decoder:", _by_rule(many).markdown()] if many else [])


def details(results: Results) -> list[str]:
    """Return, treebank by treebank, what was read and every result's models and tables."""
    blocks = []
    for name, group in groupby(sorted(results, key=_treebank), key=_treebank):
        blocks.append(f"### {name}")
        for result in group:
            content = result.content
            blocks += [f"#### {result.file}", facts(content), *models(content.runs)]
            blocks += [headline(content.headline)] if content.headline else []
            for rule, about in content.rules.items():
                if rows := [row for row in content.rows if row.rule == rule]:
                    blocks += [f"Rule *{rule}*: {about}.", table(rows, content.headline).markdown()]
    return blocks


def _treebank(result: Result[Content]) -> str:
    return named(result.content.treebank.path)


def _quoted() -> Table:
    """Return the paper's rows; after each F1 stands the highest of five seeds."""
    rows = []
    for row in published("parsing"):
        if row.source == "Shen et al. 2019, Table 2":
            ten, ten_max, wsj, wsj_max, *rest = row.cells("WSJ10", "WSJ10 max", "WSJ", "WSJ max", "depth", *LABELS)
            f1 = [joined(part for part in pair if part != NONE) for pair in ((ten, ten_max), (wsj, wsj_max))]
            rows.append([row.row, *(cell or NONE for cell in f1), *rest])
    return Table(head=["published", "WSJ10", "WSJ", "depth", *LABELS], rows=rows)


def _table2(results: Results) -> list[str]:
    """Return our Table 2: every layer by the headline's decoder, other models at its layer, the baselines once."""
    lines: list[list[str]] = []
    baselines: list[list[str]] = []
    for result in results:
        content, chosen = result.content, result.content.headline
        rule = chosen.rule if chosen else next(iter(content.rules))
        rows = [row for row in content.rows if row.rule == rule]
        for row in rows:
            same = chosen and row.decoder == chosen.decoder and row.system in MODELS
            if chosen and same and (row.system == "onlstm" or row.layer == chosen.layer):
                lines.append(_line(row, result.file, number(content.treebank.seen_share)))
        baselines = baselines or [_line(row, NONE, NONE) for row in rows if row.layer is None]
    bank = results[0].content.treebank
    size = f"{bank.sentences:,} sentences, {rows[0].short.n:,} of at most 10 words"
    head = ["result", "model", "layer", "≤10 words", "all", "seen %", "depth", *LABELS]
    caption = f"{_treebank(results[0])}, {size}, by the rule {rule}:"
    return [caption, Table(head=head, rows=[*lines, *baselines]).markdown()]


def _line(row: TableRow, name: str, seen: str) -> list[str]:
    run = f": {PurePath(row.run).name}" if row.run and row.system != "vote" else ""
    cells = [name, system_cell(row) + run, layer_cell(row), f1_cell(row.short), f1_cell(row), seen, number(row.depth)]
    return [*cells, *(recall_cell(row, label) for label in LABELS)]


def _headlines(results: Results) -> Table:
    head = ["treebank", "sentences", "result", "runs", "rule", "layer", "decoder", "F1", "right-branching", "random"]
    lines = []
    for result in results:
        content, bank = result.content, result.content.treebank
        for row in _chosen(content):
            line = [_treebank(result), f"{bank.sentences:,}", result.file, str(row.runs), row.rule, layer_cell(row)]
            baselines = [_baseline(content, row.rule, system) for system in ("right", "random", "oracle")]
            lines.append([*line, row.decoder or NONE, f1_cell(row), *baselines, number(bank.seen_share)])
    return Table(head=[*head, "oracle", "seen %"], rows=lines)


def _by_rule(results: Results) -> Table:
    """Return the headlines' rows by rule, with trivial trees and the oracle of the first result."""
    lines = []
    for rule, about in {rule: about for result in results for rule, about in result.content.rules.items()}.items():
        f1 = [next(map(f1_cell, _chosen(result.content, rule)), NONE) for result in results]
        baselines = [_baseline(results[0].content, rule, system) for system in ("right", "oracle")]
        lines.append([rule, *f1, *baselines, about])
    return Table(head=["rule", *(r.file for r in results), "right-branching", "oracle", "what it counts"], rows=lines)


def _chosen(content: Content, rule: str = "") -> Iterator[TableRow]:
    """Yield the headline's row, under its own rule or another."""
    for row in content.rows:
        if content.headline and is_headline(row, content.headline) and row.rule == (rule or content.headline.rule):
            yield row


def _baseline(content: Content, rule: str, system: str) -> str:
    return next((number(row.f1) for row in content.rows if (row.rule, row.system) == (rule, system)), NONE)
