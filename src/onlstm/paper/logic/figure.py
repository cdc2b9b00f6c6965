"""The paper's figure: accuracy against length, ours by encoder and the published, with what was trained on marked."""

import math
import statistics
from collections.abc import Mapping, Sequence

from onlstm.draw import Line, curve
from onlstm.paper.logic.content import LENGTHS, Experiment
from onlstm.paper.tables import network


def svg(experiment: Experiment) -> str:
    """Return the figure; the shades reach from the worst to the best seed."""
    ours = {network(name, ()): [_values(row.by_length) for row in rows] for name, rows in experiment.encoders.items()}
    lines = []
    for name, seeds in ours.items():
        columns = list(zip(*seeds, strict=True))
        band = [(min(column), max(column)) for column in columns] if len(seeds) > 1 else []
        lines.append(Line(name=name, values=[statistics.fmean(column) for column in columns], band=band))
    for name, accuracies in experiment.published.items():
        namesake = next((own for own in ours if _plain(own) == _plain(name.split()[0])), "")
        lines.append(Line(name=f"{name}, published", values=_values(accuracies), like=namesake))
    ops = experiment.data.max_train_ops
    marker = ops + 0.5, f"trained on at most {ops}"
    x_label, y_label = "operators in the longer formula", "accuracy in %"
    return curve(lines, x=LENGTHS, marker=marker, x_label=x_label, y_label=y_label)


def _values(by_length: Mapping[str, float | None]) -> Sequence[float]:
    values = (by_length.get(str(n)) for n in LENGTHS)
    return [math.nan if value is None else value for value in values]


def _plain(name: str) -> str:
    return name.lower().replace("-", "")
