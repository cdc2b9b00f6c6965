"""A small line chart: lines over a common axis, with error bands, a legend and a marker."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from onlstm.draw.diagram import ems, xml
from onlstm.draw.svg import GREY, document

_COLOURS = ("#0369a1", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be185d", "#475569")
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
_WIDTH, _HEIGHT, _TEXT = 760, 420, 12


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart; values that are not finite leave gaps."""

    name: str
    values: Sequence[float]
    band: Sequence[tuple[float, float]] = ()
    """(low, high) of each value: a shade behind the line."""
    like: str | None = None
    """Drawn thin, in the colour and dashes of the line of this name; "" for those of its own."""


def curve(
    lines: Sequence[Line],
    *,
    x: Sequence[float] | None = None,
    marker: tuple[float, str] | None = None,
    x_label: str = "",
    y_label: str = "",
) -> str:
    """Return a line chart as an SVG document; lines differ in colour and dashes.

    Args:
        x: where the values stand; 1, 2, 3, … by default. Shorter lines end sooner.
        marker: a place on the x axis and its label, such as the end of the lengths seen in training.

    >>> curve([Line(name="train", values=[3.0, 2.1, 1.8]), Line(name="valid", values=[3.1, 2.4])]).count("<path")
    2
    """
    places = list(x or range(1, 1 + max((len(line.values) for line in lines), default=0)))
    values = [value for line in lines for value in (*line.values, *(end for pair in line.band for end in pair))]
    ticks = _ticks(*_ends(values), 5)
    legend = _WIDTH - 58 - max((ems(line.name) for line in lines), default=0) * _TEXT
    across = _Axis(*_ends([*places, *([marker[0]] if marker else [])]), 58, legend - 12)
    up = _Axis(ticks[0], ticks[-1], _HEIGHT - 46, 12)
    body = _frame(across, up, places[:: 1 + len(places) // 15], ticks, x_label, y_label)
    looks: dict[str, int] = {}
    for k, line in enumerate(lines):
        look = looks.setdefault(line.like or line.name, len(looks))
        colour, dashes = _COLOURS[look % len(_COLOURS)], _DASHES[look % len(_DASHES)]
        stroke = f'stroke="{colour}" stroke-width="{2.5 if line.like is None else 1}" stroke-dasharray="{dashes}"'
        body += _shade(across, up, places, line, colour) + _path(across, up, places, line, stroke)
        sample = f'<line x2="26" {stroke}/><text x="34" dy=".35em" font-size="{_TEXT}">{xml(line.name)}</text>'
        body += f'<g transform="translate({legend:.1f} {20 + 18 * k})">{sample}</g>'
    body += _marker(across, up, *marker) if marker else ""
    return document(_WIDTH, _HEIGHT, ", ".join(line.name for line in lines), body)


@dataclass(frozen=True)
class _Axis:
    """From values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> str:
        share = (value - self.low) / (self.high - self.low)
        return f"{self.start + share * (self.end - self.start):.1f}"


def _frame(
    across: _Axis, up: _Axis, x_ticks: Iterable[float], y_ticks: Iterable[float], x_label: str, y_label: str
) -> str:
    """Return the grid and what is written at the axes."""
    texts = [f'<text x="{across.at(tick)}" y="{up.start + 18}">{tick:.6g}</text>' for tick in x_ticks]
    for tick in y_ticks:
        y, left = up.at(tick), across.start
        texts.append(f'<line stroke="#e2e8f0" x1="{left}" x2="{across.end:.1f}" y1="{y}" y2="{y}"/>')
        texts.append(f'<text x="{left - 8}" y="{y}" dy=".35em" text-anchor="end">{tick:.6g}</text>')
    texts.append(f'<text x="{(across.start + across.end) / 2:.1f}" y="{up.start + 36}">{xml(x_label)}</text>')
    turned = f"translate(14 {(up.start + up.end) / 2:.1f}) rotate(-90)"
    texts.append(f'<text transform="{turned}">{xml(y_label)}</text>')
    return f'<g font-size="{_TEXT}" fill="{GREY}" text-anchor="middle">{"".join(texts)}</g>'


def _shade(across: _Axis, up: _Axis, places: Sequence[float], line: Line, colour: str) -> str:
    ends = [(place, *pair) for place, pair in zip(places, line.band, strict=False) if all(map(math.isfinite, pair))]
    points = [f"{across.at(place)} {up.at(high)}" for place, _, high in ends]
    points += [f"{across.at(place)} {up.at(low)}" for place, low, _ in reversed(ends)]
    return f'<polygon fill="{colour}" fill-opacity=".15" points="{" ".join(points)}"/>' if points else ""


def _path(across: _Axis, up: _Axis, places: Sequence[float], line: Line, stroke: str) -> str:
    path = ""
    for finite, run in groupby(zip(places, line.values, strict=False), key=lambda point: math.isfinite(point[1])):
        if finite:
            points = [f"{across.at(place)} {up.at(value)}" for place, value in run]
            path += "M" + "L".join(points[:1] + points)  # a lone point becomes a dot, by its round cap
    return f'<path fill="none" stroke-linecap="round" stroke-linejoin="round" {stroke} d="{path}"/>'


def _marker(across: _Axis, up: _Axis, place: float, text: str) -> str:
    x = across.at(place)
    side, shift = ("end", -6) if float(x) > (across.start + across.end) / 2 else ("start", 6)
    line = f'<line stroke="{GREY}" stroke-dasharray="4 4" x1="{x}" x2="{x}" y1="{up.start}" y2="{up.end}"/>'
    style = f'text-anchor="{side}" font-size="{_TEXT}" fill="{GREY}"'
    return f'{line}<text x="{x}" dx="{shift}" y="{up.start - 8}" {style}>{xml(text)}</text>'


def _ends(values: Iterable[float]) -> tuple[float, float]:
    """Return the lowest and highest of the finite values, not the same."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers, in steps of 1, 2 or 5, that hold low and high between them.

    >>> _ticks(0.13, 0.88, 5)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(step for step in (unit, 2 * unit, 5 * unit, 10 * unit) if step >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]
