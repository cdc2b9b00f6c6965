"""The paper's figure: accuracy against length, ours by encoder and the published, with what was trained on marked."""

import importlib
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onlstm import files
from onlstm.draw import Line, curve
from onlstm.paper.logic.data import LENGTHS

_X, _Y = "operators in the longer formula", "accuracy in %"


def lines(found: Mapping[str, Any]) -> dict[str, list[list[float]]]:
    """Return the accuracies of each row of the table at every length: of each seed, or the published one."""
    ours = {name: [_values(row["by_length"]) for row in rows] for name, rows in found["encoders"].items()}
    return ours | {f"{name}, published": [_values(row)] for name, row in found["published"].items()}


def _values(by_length: Mapping[str, float | None]) -> list[float]:
    found = (by_length.get(str(n)) for n in LENGTHS)
    return [math.nan if value is None else value for value in found]


def _summary(found: Mapping[str, Any]) -> Iterator[tuple[str, list[float], list[tuple[float, float]]]]:
    """Yield each line's name, its mean over the seeds, and the least and most of them (none of a single one)."""
    for name, seeds in lines(found).items():
        columns = list(zip(*seeds, strict=True))
        spread = [(min(column), max(column)) for column in columns] if len(seeds) > 1 else []
        yield name, [statistics.fmean(column) for column in columns], spread


def _model(name: str) -> str:
    """Return what a line has in common with its namesake, published or ours."""
    return name.lower().replace("-", "").replace(",", " ").split()[0]


def _quoted(name: str) -> bool:
    return name.endswith(", published")


def _boundary(found: Mapping[str, Any]) -> tuple[float, str]:
    ops = found["data"]["max_train_ops"]
    return ops + 0.5, f"trained on at most {ops}"


def svg(found: Mapping[str, Any]) -> str:
    """Return the figure of a result; the shades reach from the worst to the best seed."""
    rows = list(_summary(found))
    ours = {_model(name): name for name, *_ in rows if not _quoted(name)}
    lines = [
        Line(name=name, values=mean, band=spread, like=ours.get(_model(name), "") if _quoted(name) else None)
        for name, mean, spread in rows
    ]
    return curve(lines, x=LENGTHS, marker=_boundary(found), x_label=_X, y_label=_Y)


def png(found: Mapping[str, Any], path: Path) -> bool:
    """Write the same with matplotlib; return whether that is installed."""
    try:
        Figure = importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        return False
    picture = Figure(figsize=(9, 4.8), layout="constrained")
    axes = picture.add_subplot(xlabel=_X, ylabel=_Y, xticks=LENGTHS)
    colours: dict[str, str] = {}  # the same for a model of ours and its published namesake
    for name, mean, spread in _summary(found):
        style = {"color": colours.setdefault(_model(name), f"C{len(colours)}")}
        axes.plot(LENGTHS, mean, label=name, linestyle="--" if _quoted(name) else "-", **style)
        if spread:
            axes.fill_between(LENGTHS, *zip(*spread, strict=True), alpha=0.15, **style)
    place, text = _boundary(found)
    axes.axvline(place, color="grey", linestyle=":")
    axes.annotate(f" {text}", (place, 0), xycoords=axes.get_xaxis_transform(), va="bottom")
    picture.legend(loc="outside right upper", fontsize="small")
    files.write(path, lambda file: picture.savefig(file, format="png", dpi=150))
    return True
