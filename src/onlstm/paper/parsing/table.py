"""The scores of evaluations for people: the paper's Table 2 by each rule, and the row to report.

`onlstm evaluate` prints what was read and its tables as text; the pages have the same as Markdown (`details`), and on
the front page the paper's table with ours beside it (`summary`). No torch here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from pathlib import PurePath
from typing import get_args

from onlstm.lm.config import RNN
from onlstm.paper.parsing.content import Content, Evaluation, Headline, Row, Score, Short, TableRow
from onlstm.paper.published import published
from onlstm.paper.results import Result
from onlstm.paper.tables import NETWORKS, NONE, Table, models, named, number

MODELS = ("onlstm", "lstm-gates", *get_args(RNN)[2:], "grammar", "vote")
"""Systems that are trained models, and neither baselines nor others' trees."""
LABELS = ("ADJP", "NP", "PP", "INTJ")
"""Of the paper's table."""
_SYSTEMS = NETWORKS | {"lstm-gates": "LSTM gates", "ccm": "CCM", "dmv+ccm": "DMV+CCM"}
_SYSTEMS |= {"left": "left-branching", "right": "right-branching"}
_RULE = "on-lstm"
"""The paper's, by which its table and ours are counted."""
_DEAD = 5  # % of tied distances
_SPACE = "\u00a0"  # a cell is not broken there
Results = Sequence[Result[Content]]


def paired(rows: Sequence[Row]) -> list[TableRow]:
    """Return the rows of a table: those of all sentences, each with the F1 of the short ones."""
    short = {(row.key, row.run): row for row in rows if row.subset != "all"}
    pairs = [(row, short.pop((row.key, row.run))) for row in rows if row.subset == "all"]
    pairs += [(_unscored(row), row) for row in short.values()]
    return [
        TableRow(
            **{field.name: getattr(row, field.name) for field in fields(Score)},
            short=Short(n=few.n, f1=few.f1, deviation=few.deviation, max=few.max),
        )
        for row, few in pairs
    ]


def _unscored(row: Row) -> Row:
    """Return the row of all sentences of a system that was scored on short ones alone."""
    return replace(row, f1=None, precision=None, recall=None, ci95=None, depth=None, f1_to_right=None, tags={})


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
    if bank.outside:
        text += f" Lines outside the trees: {bank.outside:,}."
    if bank.discontinuous:
        text += f" Nodes with gaps, made continuous: {bank.discontinuous:,}."
    if bank.unk_share is not None:
        seen = "unknown" if bank.seen_share is None else f"{bank.seen_share:.1f} %"
        text += f" Mapping `{content.mapping}`: {bank.unk_share:.1f} % of the words are unknown to the model. "
        text += f"Sentences in its training text: {seen}."
    return text + " Distances of the master input gate." * (content.gates == "input")


def below_right(rows: Sequence[Score], chosen: Headline) -> str:
    """Return what to add to a headline that right-branching trees beat by the same rule; else nothing."""
    same = [
        row.f1 for row in rows if (row.rule, row.system, getattr(row, "subset", "all")) == (chosen.rule, "right", "all")
    ]
    if not same or same[0] is None or chosen.f1 is None or chosen.f1 >= same[0]:
        return ""
    return f" Below right-branching ({number(chosen.f1)} < {number(same[0])})."


def headline(row: Headline) -> str:
    """Return the row to report, in a line."""
    layer = "" if row.layer is None else f", layer {_layer(row)}"
    how = f"{_system(row)}{layer}, `{row.decoder}`"
    return f"Headline: {how}, F1 {number(row.f1)} by rule *{row.rule}*. Chosen: {row.chosen}."


def table(rows: Sequence[TableRow], chosen: Headline | None) -> Table:
    """Return the table of one rule."""
    tags = {label: counts for row in reversed(rows) for label, counts in row.tags.items()}
    labels, ways = table_labels(tags), Counter(row.key for row in rows)
    sizes = {"≤10 words": rows[0].short.n, "all": rows[0].n} | {label: tags[label][1] for label in labels}
    lines = []
    for row, mark in zip(rows, _marks(rows, chosen), strict=True):
        line = _cells(row, labels, " " if ways[row.key] > 1 else None) | {"mark": mark}
        lines.append({f"{name} ({sizes[name]:,})" if name in sizes else name: cell for name, cell in line.items()})
    return Table.of(lines)


def published_ccm() -> str:
    """Return the published F1 of CCM and DMV+CCM, and what it was counted on."""
    quoted = {row.row: row.values["WSJ10 max"] for row in published("parsing") if row.row in ("CCM", "DMV+CCM")}
    values = ", ".join(f"{system} {f1}" for system, f1 in quoted.items())
    return (
        f"Published: {values}, on the full WSJ10 (7,422 sentences; Klein and Manning's own rule), learnt from its tags."
    )


def summary(results: Results) -> list[str]:
    """Return the paper's Table 2 with ours in it; the headlines of other treebanks; the headlines by every rule."""
    results = sorted(results, key=_treebank)
    penn = [result for result in results if result.content.treebank.profile == "ptb" and _RULE in result.content.rules]
    others = [result for result in results if result not in penn and result.content.headline]
    blocks = _table2(penn)
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
            if chosen := content.headline:
                blocks.append(headline(chosen) + below_right(content.rows, chosen))
            for rule, about in content.rules.items():
                if rows := [row for row in content.rows if row.rule == rule]:
                    blocks += [f"Rule *{rule}*: {about}.", table(rows, content.headline).markdown()]
    return blocks


def _treebank(result: Result[Content]) -> str:
    return named(result.content.treebank.path)


def _cells(row: TableRow, labels: Sequence[str], run: str | None = None) -> dict[str, str]:
    """Return the cells of a row by column; `run` goes between the system and the run's name, None: without that."""
    name = f"{run}{PurePath(row.run).name}" if run and row.run and row.system != "vote" else ""
    recall = {label: row.tags.get(label, (0, 0)) for label in labels}
    return {
        "system": _system(row) + name,
        "layer": _layer(row),
        "decoder": row.decoder or NONE,
        "≤10 words": _f1(row.short),
        "all": _f1(row),
        "95 %": "{:.1f}–{:.1f}".format(*row.ci95) if row.ci95 and row.runs == 1 else NONE,
        "depth": number(row.depth),
        **{label: number(100 * right / total if total else None) for label, (right, total) in recall.items()},
        "tied %": number(row.ties),
        "to right": number(row.f1_to_right),
    }


def _system(row: TableRow | Headline) -> str:
    run = row.run or ""
    if row.system == "vote":
        count, _, kind = run.partition(" ")
        return f"vote of {count} {'grammars' if kind == 'grammar' else _SYSTEMS.get(kind, kind)}"
    name = f"trees {PurePath(run).name}" if row.system == "trees" else _SYSTEMS.get(row.system, row.system)
    return name if row.runs == 1 else f"{name}, {row.runs} {'seeds' if row.system == 'random' else 'runs'}"


def _layer(row: TableRow | Headline) -> str:
    return NONE if row.layer is None else ",".join(map(str, row.layer if isinstance(row.layer, tuple) else [row.layer]))


def _f1(row: TableRow | Short) -> str:
    """Return F1; of several runs their mean, deviation and maximum."""
    return number(row.f1) + ("" if row.deviation is None else f"{_SPACE}({row.deviation:.1f}){_SPACE}{number(row.max)}")


def _marks(rows: Sequence[TableRow], chosen: Headline | None) -> list[str]:
    """Return which row to report and which not to, and which layers are dead."""
    marks = ["headline" if chosen and _is_headline(row, chosen) else "" for row in rows]
    scores = {k: row.f1 or 0 for k, row in enumerate(rows) if row.system in MODELS}
    best = max(scores, key=scores.__getitem__, default=0)
    if len(scores) > 1 and all(scores[best] > scores[k] for k in scores if marks[k]):
        marks[best] = "selected on test labels"
    dead = ["ties: no parser" if (row.ties or 0) >= _DEAD else "" for row in rows]
    return [", ".join(filter(None, pair)) for pair in zip(marks, dead, strict=True)]


def _is_headline(row: TableRow, chosen: Headline) -> bool:
    """Return whether the row is the headline's, by its rule or another."""
    return (row.run, *row.key[1:]) == (chosen.run, *chosen.key[1:])


def _quoted() -> list[dict[str, str]]:
    """Return the paper's rows; after each F1 stands the highest of five seeds."""
    lines = []
    for row in published("parsing"):
        if row.source == "Shen et al. 2019, Table 2":
            f1 = [_SPACE.join(row.cells(column, f"{column} max")) for column in ("WSJ10", "WSJ")]
            short, every = (cell.removeprefix(NONE + _SPACE).removesuffix(_SPACE + NONE) for cell in f1)
            about = {"result": "published", "model": row.row, "≤10 words": short, "all": every}
            lines.append(about | dict(zip(("depth", *LABELS), row.cells("depth", *LABELS), strict=True)))
    return lines


def _table2(results: Results) -> list[str]:
    """Return the paper's Table 2, then ours: every layer by the headline's decoder, other models at its layer."""
    sizes, lines = [], _quoted()
    for bank, group in groupby(results, key=lambda result: (_treebank(result), result.content.treebank.split)):
        some = list(group)
        content = some[0].content
        short = content.rows[0].short.n
        sizes.append(f"{bank[0]}, {content.treebank.sentences:,} sentences, {short:,} of at most 10 words")
        lines += _ours(some)
    where = (
        "*published*: WSJ10 (7,422 sentences) and section 23 of the WSJ (2,416); ST-Gumbel and RL-SPINN all sections"
    )
    columns = ("result", "model", "layer", "≤10 words", "all", "seen %", "depth", *LABELS)
    table = Table.of([dict.fromkeys(columns, NONE) | line for line in lines], *columns)
    return [f"By the rule {_RULE}. {'; '.join([where, *sizes])}:", table.markdown()]


def _ours(results: Results) -> list[dict[str, str]]:
    """Return the lines of the results on one treebank, the baselines once."""
    lines, baselines = list[dict[str, str]](), list[dict[str, str]]()
    for result in results:
        content, chosen, trivial = result.content, result.content.headline, list[dict[str, str]]()
        for row in (row for row in content.rows if row.rule == _RULE):
            cells = _cells(row, LABELS, ": ")
            line = cells | {"model": cells["system"], "result": result.file}
            line["seen %"] = number(content.treebank.seen_share) if row.system in MODELS else NONE
            if row.system in ("grammar", "ccm", "dmv+ccm"):
                lines.append(line)
            elif row.system not in MODELS and row.layer is None:
                trivial.append(line | {"result": NONE})
            elif chosen and row.decoder == chosen.decoder and row.system in MODELS:
                lines += [line] if row.system == "onlstm" or row.layer == chosen.layer else []
        baselines = baselines or trivial
    return lines + baselines


def _headlines(results: Results) -> Table:
    lines = []
    for result in results:
        content, bank = result.content, result.content.treebank
        for row in _chosen(content):
            about = {"treebank": _treebank(result), "sentences": f"{bank.sentences:,}", "result": result.file}
            made = {"runs": str(row.runs), "rule": row.rule, "layer": _layer(row), "decoder": row.decoder or NONE}
            f1 = {"F1": _f1(row)} | _baselines(content, row.rule, "right", "random", "oracle")
            lines.append(about | made | f1 | {"seen %": number(bank.seen_share)})
    return Table.of(lines)


def _by_rule(results: Results) -> Table:
    """Return the headlines' rows by rule, with trivial trees and the oracle of the first result."""
    lines = []
    for rule, about in {rule: about for result in results for rule, about in result.content.rules.items()}.items():
        f1 = {result.file: next(map(_f1, _chosen(result.content, rule)), NONE) for result in results}
        baselines = _baselines(results[0].content, rule, "right", "oracle")
        lines.append({"rule": rule} | f1 | baselines | {"what it counts": about})
    return Table.of(lines)


def _chosen(content: Content, rule: str = "") -> list[TableRow]:
    """Return the headline's row, under its own rule or another; there may be none."""
    chosen = content.headline
    own = [row for row in content.rows if chosen and _is_headline(row, chosen)]
    return [row for row in own if chosen and row.rule == (rule or chosen.rule)]


def _baselines(content: Content, rule: str, *systems: str) -> dict[str, str]:
    f1 = {row.system: number(row.f1) for row in reversed(content.rows) if row.rule == rule}
    return {_SYSTEMS.get(system, system): f1.get(system, NONE) for system in systems}
