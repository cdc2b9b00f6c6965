"""The scores of an evaluation for people: what was read, the paper's Table 2 by each rule, the row to report.

`onlstm evaluate` prints this as text, the pages have it as Markdown.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import PurePath

from onlstm.paper.parsing.content import Content, Evaluation, Headline, Row, Score, Short, TableRow
from onlstm.paper.tables import NONE, Table, number

MODELS = ("onlstm", "lstm-gates", "vote")
"""Systems that are trained models, and neither baselines nor others' trees."""
LABELS = ("ADJP", "NP", "PP", "INTJ")
"""Of the paper's table."""
_SYSTEMS = {"onlstm": "ON-LSTM", "lstm-gates": "LSTM gates", "left": "left-branching", "right": "right-branching"}
_DEAD = 5  # % of tied distances


def paired(rows: Sequence[Row]) -> list[TableRow]:
    """Return the rows of a table: those of all sentences, each with the F1 of the short ones."""
    short = {(row.key, row.run): row for row in rows if row.subset != "all"}
    pairs = [(row, short[row.key, row.run]) for row in rows if row.subset == "all"]
    return [
        TableRow(
            **{field.name: getattr(row, field.name) for field in fields(Score)},
            short=Short(n=few.n, f1=few.f1, deviation=few.deviation, max=few.max),
        )
        for row, few in pairs
    ]


def table_labels(tags: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the labels of the paper's table; if the treebank has not most of them, its four most frequent ones."""
    paper = [label for label in LABELS if label in tags]
    return paper if len(paper) > 2 else sorted(tags, key=lambda label: -tags[label][1])[:4]


def facts(content: Content | Evaluation) -> str:
    """Return what was read, what of it is unknown to the model, and what it had seen."""
    bank = content.treebank
    skipped = ", ".join(f"{count:,} {why}" for why, count in bank.skipped.items()) or "none"
    size = f"{bank.sentences:,} sentences, {bank.words:,} words; skipped: {skipped}"
    text = f"`{PurePath(bank.path).name}`, profile `{bank.profile}`, split `{bank.split}`: {size}."
    if bank.discontinuous:
        text += f" Nodes with gaps, made continuous: {bank.discontinuous:,}."
    if bank.unk_share is not None:
        seen = "unknown" if bank.seen_share is None else f"{bank.seen_share:.1f} %"
        text += f" Mapping `{content.mapping}`: {bank.unk_share:.1f} % of the words are unknown to the model. "
        text += f"Sentences in its training text: {seen}."
    return text + " Distances of the master input gate." * (content.gates == "input")


def headline(row: Headline) -> str:
    """Return the row to report, in a line."""
    how = f"{system_cell(row)}, layer {layer_cell(row)}, `{row.decoder}`"
    return f"Headline: {how}, F1 {number(row.f1)} by rule *{row.rule}*. Chosen: {row.chosen}."


def table(rows: Sequence[TableRow], chosen: Headline | None) -> Table:
    """Return the table of one rule."""
    tags = {label: counts for row in reversed(rows) for label, counts in row.tags.items()}
    labels, ways = table_labels(tags), Counter(row.key for row in rows)
    head = ["system", "layer", "decoder", f"≤10 words ({rows[0].short.n:,})", f"all ({rows[0].n:,})", "95 %", "depth"]
    head += [*(f"{label} ({tags[label][1]:,})" for label in labels), "tied %", "to right", "mark"]
    lines = []
    for row, mark in zip(rows, _marks(rows, chosen), strict=True):
        run = f" {PurePath(row.run).name}" if row.run and ways[row.key] > 1 and row.system != "vote" else ""
        interval = "{:.1f}–{:.1f}".format(*row.ci95) if row.ci95 and row.runs == 1 else NONE
        line = [
            system_cell(row) + run,
            layer_cell(row),
            row.decoder or NONE,
            f1_cell(row.short),
            f1_cell(row),
            interval,
        ]
        line += [number(row.depth), *(recall_cell(row, label) for label in labels)]
        lines.append([*line, number(row.ties), number(row.f1_to_right), mark])
    return Table(head=head, rows=lines)


def _marks(rows: Sequence[TableRow], chosen: Headline | None) -> list[str]:
    """Return which row to report and which not to, and which layers are dead."""
    marks = ["headline" if chosen and is_headline(row, chosen) else "" for row in rows]
    scores = {k: row.f1 or 0 for k, row in enumerate(rows) if row.system in MODELS}
    best = max(scores, key=scores.__getitem__, default=0)
    if len(scores) > 1 and all(scores[best] > scores[k] for k in scores if marks[k]):
        marks[best] = "selected on test labels"
    dead = ["ties: no parser" if (row.ties or 0) >= _DEAD else "" for row in rows]
    return [", ".join(filter(None, pair)) for pair in zip(marks, dead, strict=True)]


def is_headline(row: TableRow, chosen: Headline) -> bool:
    """Return whether the row is the headline's, by its rule or another."""
    return (row.system, row.run, row.layer, row.decoder) == (chosen.system, chosen.run, chosen.layer, chosen.decoder)


def system_cell(row: TableRow | Headline) -> str:
    run = row.run or ""
    if row.system == "vote":
        count, _, kind = run.partition(" ")
        return f"vote of {count} {_SYSTEMS.get(kind, kind)}"
    name = f"trees {PurePath(run).name}" if row.system == "trees" else _SYSTEMS.get(row.system, row.system)
    return name if row.runs == 1 else f"{name}, {row.runs} {'seeds' if row.system == 'random' else 'runs'}"


def layer_cell(row: TableRow | Headline) -> str:
    return NONE if row.layer is None else ",".join(map(str, row.layer if isinstance(row.layer, tuple) else [row.layer]))


def f1_cell(row: TableRow | Short) -> str:
    """Return F1; of several runs their mean, deviation and maximum."""
    spread = [] if row.deviation is None else [f"({row.deviation:.1f})", number(row.max)]
    return joined([number(row.f1), *spread])


def joined(parts: Iterable[str]) -> str:
    return "\u00a0".join(parts)  # a cell that is not broken


def recall_cell(row: TableRow, label: str) -> str:
    """Return the share of a label's constituents that were found."""
    right, total = row.tags.get(label, (0, 0))
    return number(100 * right / total) if total else NONE
