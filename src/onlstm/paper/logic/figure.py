"""The paper's figure, accuracy against length: in numbers, for the command and the pages alike, and as a picture."""

import math
import statistics
from collections.abc import Mapping, Sequence

from onlstm.draw import Line, curve
from onlstm.paper.logic.content import LENGTHS, Evaluation, Experiment, Induced, Row
from onlstm.paper.tables import NONE, Table, network, number

_PUBLISHED_OPS = 6  # operators that the published models were trained on
_NAMES = {
    "tree-lstm": "Tree-LSTM",
    "ordered-memory": "Ordered Memory",
    "gumbel-tree-lstm": "Gumbel Tree-LSTM",
    "rrnet": "RRNet",
    "rl-spinn": "RL-SPINN",
}
Experiments = Mapping[str, Experiment]
"""By the name of the run or of the result file."""


def accuracies(experiments: Experiments) -> Table:
    """Return accuracies by length, ours and then the published, if those were trained on the same lengths.

    Of several seeds: the mean, and below it the standard deviation.
    """
    lines = []
    for name, run, rows in _encoders(experiments):
        columns = [[value for row in rows if (value := row.by_length.get(str(n))) is not None] for n in LENGTHS]
        trained = ["", ""] if name == "majority" else [str(len(rows)), _range([row.epochs for row in rows])]
        lines.append([name, run, *trained, *(number(statistics.fmean(c)) if c else NONE for c in columns)])
        if len(rows) > 1:
            lines.append(["deviation", "", "", "", *(_deviation(column) for column in columns)])
    first = next(iter(experiments.values()))
    if first.data.max_train_ops == _PUBLISHED_OPS:
        for name, quoted in first.published.items():
            lines.append([f"{name} †", "published", "", "", *(number(quoted.get(str(n)), 0) for n in LENGTHS)])
    return Table(head=["model", "result", "seeds", "epochs", *map(str, LENGTHS)], rows=lines)


def trainings(experiments: Experiments) -> Table:
    """Return how the models were trained."""
    head = ["model", "result", "seeds", "epochs", "best", "parameters", "s/epoch", "validation"]
    lines = []
    for name, run, rows in _encoders(experiments):
        if name != "majority":
            line = [name, run, ", ".join(str(row.seed) for row in rows)]
            line += [_range([getattr(row, key) for row in rows]) for key in ("epochs", "best_epoch", "parameters")]
            line += [_range([row.seconds_per_epoch for row in rows]), _range([row.valid for row in rows], 1)]
            lines.append([*line, "; ".join(dict.fromkeys(map(_settings, rows)))])
    return Table(head=[*head, "settings other than the authors'"], rows=lines)


def trees(experiments: Mapping[str, Experiment | Evaluation]) -> Table:
    """Return F1 of induced trees, the mean of the seeds, and of those without an encoder; no rows without results."""
    lines: dict[tuple[str, ...], list[Induced]] = {}
    for run, experiment in experiments.items():
        for encoder, rows in experiment.encoders.items():
            for tree in (tree for row in rows for tree in row.trees):
                lines.setdefault((_name(encoder), run, str(tree.layer or ""), tree.decoder), []).append(tree)
    for experiment in experiments.values():
        for tree in experiment.trees:
            lines.setdefault((tree.decoder, "", "", ""), [tree])  # of the same formulas in every run
    head = ["trees", "result", "layer", "decoder", "F1", *map(str, LENGTHS)]
    return Table(head=head, rows=[[*key, *_means(seeds)] for key, seeds in lines.items()])


def _means(seeds: Sequence[Induced]) -> list[str]:
    columns = [[tree.f1 for tree in seeds], *([tree.by_length.get(str(n)) for tree in seeds] for n in LENGTHS)]
    values = [[value for value in column if value is not None] for column in columns]
    return [number(statistics.fmean(column)) if column else NONE for column in values]


def others(evaluation: Evaluation) -> Table:
    """Return accuracies by length on other files."""
    rows = [(name, row) for name, rows in evaluation.encoders.items() for row in rows]
    counts = {n: count for n, count in rows[0][1].counts.items() if count}
    lines = [["pairs", "", *(f"{count:,}" for count in counts.values()), f"{sum(counts.values()):,}"]]
    for name, row in rows:
        lines.append([name, str(row.seed), *(number(row.by_length[n]) for n in counts), number(row.accuracy)])
    return Table(head=["operators", "seed", *counts, "all"], rows=lines)


def svg(experiment: Experiment) -> str:
    """Return the figure: ours, then the published; the shades reach from the worst to the best seed."""
    ours = {_name(encoder): [_values(row.by_length) for row in rows] for encoder, rows in experiment.encoders.items()}
    lines = []
    for name, seeds in ours.items():
        columns = list(zip(*seeds, strict=True))
        band = [(min(column), max(column)) for column in columns] if len(seeds) > 1 else []
        lines.append(Line(name=name, values=[statistics.fmean(column) for column in columns], band=band, group="ours"))
    published = {_alike(name): accuracies for name, accuracies in experiment.published.items()}
    for name in sorted(published, key=[*ours, *published].index):  # in one order in both groups
        like = name if name in ours else ""
        lines.append(Line(name=name, values=_values(published[name]), like=like, group="published"))
    ops = experiment.data.max_train_ops
    marker = ops + 0.5, f"trained on at most {ops}"
    x_label, y_label = "operators in the longer formula", "accuracy in %"
    title = "Logical inference: accuracy by length"
    return curve(lines, x=LENGTHS, marker=marker, x_label=x_label, y_label=y_label, title=title)


def _encoders(experiments: Experiments) -> list[tuple[str, str, Sequence[Row]]]:
    """Return the name, the run and the seeds' rows of every encoder; the majority once, and last."""
    models = [
        (_name(encoder), run, rows)
        for run, experiment in experiments.items()
        for encoder, rows in experiment.encoders.items()
    ]
    return [model for model in models if model[0] != "majority"] + [m for m in models if m[0] == "majority"][:1]


def _name(encoder: str) -> str:
    return _NAMES.get(encoder) or network(encoder, ())


def _alike(published: str) -> str:
    """Return the name of ours for a published model: all Tree-LSTMs read gold trees."""
    return published.split(" (")[0].replace("TreeLSTM", "Tree-LSTM")


def _settings(row: Row) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.settings.items() if key != "epochs") or "none"


def _deviation(seeds: Sequence[float]) -> str:
    return number(statistics.stdev(seeds)) if len(seeds) > 1 else NONE


def _range(values: Sequence[float], digits: int = 0) -> str:
    """Return the lowest and the highest, as one number if they are the same."""
    ends = (min(values), max(values)) if values else ()
    return "–".join(dict.fromkeys(f"{value:,.{digits}f}" for value in ends)) or NONE


def _values(by_length: Mapping[str, float | None]) -> Sequence[float]:
    values = (by_length.get(str(n)) for n in LENGTHS)
    return [math.nan if value is None else value for value in values]
