"""A small line chart: lines over a common axis, with error bands, a legend and a marker."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from onlstm.draw.diagram import ems, xml
from onlstm.draw.svg import GREY, document

_COLOURS = ("#0369a1", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be185d", "#475569", "#0f766e")
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
_WIDTH, _TEXT, _LINE = 760, 12, 18
_LEFT, _TOP, _PLOT = 58, 12, 362


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart; values that are not finite leave gaps."""

    name: str
    values: Sequence[float]
    band: Sequence[tuple[float, float]] = ()
    """(low, high) of each value: a shade behind the line."""
    like: str | None = None
    """Drawn thin, in the colour and dashes of the line of this name; "" for those of its own."""
    group: str = ""
    """Heads the lines of the group in the legend; lines of a group follow each other."""


def curve(
    lines: Sequence[Line],
    *,
    x: Sequence[float] | None = None,
    marker: tuple[float, str] | None = None,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
) -> str:
    """Return a line chart as an SVG document; lines differ in colour and dashes, and the legend stands at the right.

    Args:
        x: where the values stand; 1, 2, 3, … by default. Shorter lines end sooner.
        marker: a place on the x axis and its label, such as the end of the lengths seen in training.

    >>> curve([Line(name="train", values=[3.0, 2.1, 1.8]), Line(name="valid", values=[3.1, 2.4])]).count("<path")
    2
    """
    places = list(x or range(1, 1 + max((len(line.values) for line in lines), default=0)))
    chart = _Chart(lines, places, [marker[0]] if marker else [], title)
    body, looks = chart.axes(x_label, y_label), dict[object, int]()
    for line in lines:
        own = line.name if line.like is None else (line.group, line.name)
        look = looks.setdefault(line.like or own, len(looks))
        colour, dashes = _COLOURS[look % len(_COLOURS)], _DASHES[look % len(_DASHES)]
        stroke = f'stroke="{colour}" stroke-width="{2.5 if line.like is None else 1}" stroke-dasharray="{dashes}"'
        body += chart.shade(line, colour) + chart.path(line, stroke) + chart.legend(line, stroke)
    body += chart.marker(*marker) if marker else ""
    return document(_WIDTH, chart.height, title or ", ".join(line.name for line in lines), body)


class _Chart:
    """The axes, and what is drawn between and beside them."""

    def __init__(self, lines: Sequence[Line], places: Sequence[float], more: Sequence[float], title: str) -> None:
        values = [value for line in lines for value in (*line.values, *(end for pair in line.band for end in pair))]
        self.places, self.ticks = places, _ticks(*_ends(values), 5)
        self.first, self.last = _ends([*places, *more])
        legend = [
            max(70 + _TEXT * ems(line.name), 34 + 1.1 * _TEXT * ems(line.group)) for line in lines
        ]  # bold is wide
        self.right = _WIDTH - max(legend, default=70)
        self.title, self.top = title, _TOP + 28 * bool(title)
        self.bottom = self.top + _PLOT
        self.height = self.bottom + 46
        self.listed, self.group = self.top + 8, ""  # where the legend goes on, and its group

    def x(self, value: float) -> str:
        return f"{_LEFT + (value - self.first) / (self.last - self.first) * (self.right - _LEFT):.1f}"

    def y(self, value: float) -> str:
        low, high = self.ticks[0], self.ticks[-1]
        return f"{self.bottom - (value - low) / (high - low) * _PLOT:.1f}"

    def points(self, pairs: Iterable[tuple[float, float]]) -> list[str]:
        return [f"{self.x(place)} {self.y(value)}" for place, value in pairs]

    def axes(self, x_label: str, y_label: str) -> str:
        """Return the grid and what is written at the axes."""
        shown = self.places[:: 1 + len(self.places) // 15]
        texts = [f'<text x="{self.x(tick)}" y="{self.bottom + 18}">{tick:.6g}</text>' for tick in shown]
        for tick in self.ticks:
            y = self.y(tick)
            texts.append(f'<line stroke="#e2e8f0" x1="{_LEFT}" x2="{self.right:.1f}" y1="{y}" y2="{y}"/>')
            texts.append(f'<text x="{_LEFT - 8}" y="{y}" dy=".35em" text-anchor="end">{tick:.6g}</text>')
        texts.append(f'<text x="{(_LEFT + self.right) / 2:.1f}" y="{self.bottom + 36}">{xml(x_label)}</text>')
        texts.append(f'<text transform="translate(14 {self.top + _PLOT / 2}) rotate(-90)">{xml(y_label)}</text>')
        axes = f'<g font-size="{_TEXT}" fill="{GREY}" text-anchor="middle">{"".join(texts)}</g>'
        return f'{axes}<text x="{_LEFT}" y="24" font-size="15" font-weight="600">{xml(self.title)}</text>'

    def legend(self, line: Line, stroke: str) -> str:
        """Return the line's entry in the legend, below those before it; the first of a group has a heading."""
        x, heading = f"{self.right + 18:.1f}", ""
        if line.group != self.group:
            self.listed += 8 * bool(self.group)
            place = f'x="{x}" y="{self.listed}" dy=".35em"'
            heading = f'<text {place} font-size="{_TEXT}" font-weight="600">{xml(line.group)}</text>'
            self.listed, self.group = self.listed + _LINE, line.group
        sample = f'<line x2="26" {stroke}/><text x="34" dy=".35em" font-size="{_TEXT}">{xml(line.name)}</text>'
        entry = f'<g transform="translate({x} {self.listed})">{sample}</g>'
        self.listed += _LINE
        return heading + entry

    def shade(self, line: Line, colour: str) -> str:
        ends = [(x, *pair) for x, pair in zip(self.places, line.band, strict=False) if all(map(math.isfinite, pair))]
        points = self.points((x, high) for x, _, high in ends) + self.points((x, low) for x, low, _ in reversed(ends))
        return f'<polygon fill="{colour}" fill-opacity=".15" points="{" ".join(points)}"/>' if points else ""

    def path(self, line: Line, stroke: str) -> str:
        path = ""
        for finite, run in groupby(
            zip(self.places, line.values, strict=False), key=lambda pair: math.isfinite(pair[1])
        ):
            if finite:
                points = self.points(run)
                path += "M" + "L".join(points[:1] + points)  # a lone point becomes a dot, by its round cap
        return f'<path fill="none" stroke-linecap="round" stroke-linejoin="round" {stroke} d="{path}"/>'

    def marker(self, place: float, text: str) -> str:
        x = self.x(place)
        line = f'<line stroke="{GREY}" stroke-dasharray="4 4" x1="{x}" x2="{x}" y1="{self.bottom}" y2="{self.top}"/>'
        halo = 'stroke="#fff" stroke-width="4" paint-order="stroke"'  # legible where lines pass
        style = f'font-size="{_TEXT}" fill="{GREY}" {halo}'
        return f'{line}<text x="{x}" dx="6" y="{self.bottom - 8}" {style}>{xml(text)}</text>'


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
