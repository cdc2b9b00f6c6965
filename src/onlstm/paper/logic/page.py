"""Logical inference on the pages: the paper's Figure 3 in numbers, ours beside the published."""

import statistics
from collections.abc import Sequence

from onlstm.paper.logic.content import Content, Row
from onlstm.paper.published import Published, published
from onlstm.paper.results import Result
from onlstm.paper.sections import Section
from onlstm.paper.tables import NONE, Table, named, network, number

ABOUT = """\
Accuracy in % at telling which of seven relations holds of two propositional formulas (Bowman et al. 2015), by the \
operators in the longer one; 12 means 12 or more. Models learn from short pairs alone. *ON-LSTM* and *LSTM* read \
brackets as words; *Tree-LSTM* is given the trees; *majority* answers with the commonest relation in training. \
*published*: from a later paper of the same authors (Ordered Memory), since the paper itself prints only a curve.

The weights are those of the epoch that is best in validation (on every tenth of the short pairs). Of several seeds: \
the mean, and below it the lowest and the highest."""
PUBLISHED = {"logic": ""}
_LENGTHS = [str(n) for n in range(1, 13)]
_PUBLISHED_OPS = 6  # operators that the published models were trained on
Results = Sequence[Result[Content]]


def summary(results: Results) -> list[str]:
    """Return accuracies by length, and the figure if a result names one."""
    blocks = []
    for pairs, group in _by_pairs(results):
        blocks += [f"{pairs}:", _accuracies(group).markdown()]
        blocks += [f"![Accuracy by length: {r.file}]({r.content.figure})" for r in group if r.content.figure]
    return blocks


def details(results: Results) -> list[str]:
    """Return how the models of each set of pairs were trained."""
    return [block for pairs, group in _by_pairs(results) for block in (f"### {pairs}", _trained(group).markdown())]


def commands(result: Result[Content]) -> list[str]:
    """Return the commands that began the trainings: those that continued them name no settings."""
    rows = [row for rows in result.content.encoders.values() for row in rows]
    return list(dict.fromkeys(row.command for row in rows if row.command)) or [result.origin.command]


def _by_pairs(results: Results) -> list[tuple[str, list[Result[Content]]]]:
    """Return the results on each set of pairs, those with most encoders first."""
    sets: dict[str, list[Result[Content]]] = {}
    for result in sorted(results, key=lambda result: -len(result.content.encoders)):
        data, rows = result.content.data, [row for rows in result.content.encoders.values() for row in rows]
        name = named(data.path) if data.path else f"{data.pairs:,} generated pairs"
        tested = " or ".join(f"{n:,}" for n in sorted({row.n for row in rows}))
        about = f"{name}: trained on at most {data.max_train_ops} operators, tested on {tested} pairs"
        sets.setdefault(about, []).append(result)
    return list(sets.items())


def _encoders(group: Results) -> list[tuple[str, str, Sequence[Row]]]:
    """Return the name, the file and the seeds' rows of every encoder; the majority once, and last."""
    names = {"tree-lstm": "Tree-LSTM"}
    models = [
        (names.get(encoder) or network(encoder, ()), result.file, rows)
        for result in group
        for encoder, rows in result.content.encoders.items()
    ]
    return [model for model in models if model[0] != "majority"] + [m for m in models if m[0] == "majority"][:1]


def _accuracies(group: Results) -> Table:
    """Return accuracies by length, ours and then the published, if those were trained on the same lengths."""
    lines = []
    for name, file, rows in _encoders(group):
        lengths = [[value for row in rows if (value := row.by_length.get(n)) is not None] for n in _LENGTHS]
        trained = [str(len(rows)), _range([row.epochs for row in rows])] if name != "majority" else ["", ""]
        lines.append([name, file, *trained, *(number(statistics.fmean(v)) if v else NONE for v in lengths)])
        if len(rows) > 1:
            lines.append(["lowest–highest", "", "", "", *(_range(values, 1) for values in lengths)])
    if group[0].content.data.max_train_ops == _PUBLISHED_OPS:
        lines += [[f"{row.row} †", "published", "", "", *row.cells(*_LENGTHS)] for row in _published()]
    return Table(head=["model", "result", "seeds", "epochs", *_LENGTHS], rows=lines)


def _published() -> list[Published]:
    return [row for row in published("logic") if not row.checked]  # the others were measured here


def _trained(group: Results) -> Table:
    """Return how models were trained."""
    head = ["model", "result", "seeds", "epochs", "best", "parameters", "s/epoch", "validation"]
    lines = []
    for name, file, rows in _encoders(group):
        if name != "majority":
            line = [name, file, ", ".join(str(row.seed) for row in rows)]
            line += [_range([getattr(row, key) for row in rows]) for key in ("epochs", "best_epoch", "parameters")]
            line += [_range([row.seconds_per_epoch for row in rows]), _range([row.valid for row in rows], 1)]
            lines.append([*line, "; ".join(dict.fromkeys(map(_settings, rows)))])
    return Table(head=[*head, "settings other than the authors'"], rows=lines)


def _settings(row: Row) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.settings.items() if key != "epochs") or "none"


def _range(values: Sequence[float | None], digits: int = 0) -> str:
    """Return the lowest and the highest, as one number if they are the same."""
    known = [value for value in values if value is not None]
    ends = (min(known), max(known)) if known else ()
    return "–".join(dict.fromkeys(f"{value:,.{digits}f}" for value in ends)) or NONE


SECTION = Section(
    kind="logic",
    content=Content,
    title="Figure 3: logical inference",
    page="logic",
    about=ABOUT,
    summary=summary,
    details=details,
    published=PUBLISHED,
    commands=commands,
)
