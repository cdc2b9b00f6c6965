"""A small line chart: series over a common axis, with error bands, a legend and a marker line."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

from onlstm.draw.item import ems, xml
from onlstm.draw.picture import GREY, document, number
from onlstm.errors import UserError

_COLOURS = ("#0369a1", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be185d", "#475569")
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_BOTTOM, _LEFT, _RIGHT, _TEXT = 46, 58, 18, 12

Band = Sequence[tuple[float, float]]


def curve(
    series: Mapping[str, Sequence[float]],
    *,
    x: Sequence[float] | None = None,
    bands: Mapping[str, Band] | None = None,
    marker: tuple[float, str] | None = None,
    faint: Mapping[str, str] | None = None,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    y_range: tuple[float, float] | None = None,
    width: int = 640,
    height: int = 340,
) -> str:
    """Return a line chart as an SVG document; lines differ in colour and dashes, values not finite leave gaps.

    Args:
        series: values by name, in the order of the legend.
        x: where the values stand; 1, 2, 3, … by default. Shorter series end sooner.
        bands: (low, high) for each value of a series, by its name: a shade behind the line.
        marker: a place on the x axis and what to write there, as where the lengths seen in training end.
        faint: series that are only there to compare with, in thin lines, each with the name of another whose colour and
            dashes it shares, or "".
        y_range: the ends of the y axis; by default those of the data, rounded.

    >>> curve({"train": [3.0, 2.1, 1.8], "valid": [3.1, 2.4, 2.3]}, x_label="pass").count("<path")
    2
    """
    longest = max(map(len, series.values()), default=0)
    places: list[float] = [*range(1, longest + 1)] if x is None else list(x)
    bands, faint = bands or {}, faint or {}
    _check(series, places, bands)
    for name, other in faint.items():
        if name not in series or (other and (other not in series or other in faint)):
            raise UserError(f"faint {name!r}: {other!r}: names of series are needed, the other not faint, or ''")
    values = [value for row in series.values() for value in row]
    values += [value for band in bands.values() for pair in band for value in pair]
    styles = _styles(series, faint)
    legend, rows = _legend(styles, width) if len(series) > 1 else ("", 0)
    top = 12 + 18 * rows + (22 if title else 0)
    across = [*places, marker[0]] if marker else places
    frame = _Frame(across, values, y_range, (_LEFT, top, width - _RIGHT, height - _BOTTOM))
    body = [frame.axes(x_label, y_label)]
    if title:
        body.append(f'<text x="{_LEFT}" y="20" font-size="14" font-weight="600">{xml(title)}</text>')
    body.append(f'<g font-size="{_TEXT}" transform="translate({_LEFT} {top - 18 * rows + 4})">{legend}</g>')
    body += [frame.series(places, row, bands.get(name, ()), *styles[name]) for name, row in series.items()]
    if marker:
        body.append(frame.marker(*marker))
    return document(width, height, title or ", ".join(series), "".join(body))


class _Frame:
    """The axes, and from values to places in the picture."""

    def __init__(
        self,
        places: list[float],
        values: list[float],
        y_range: tuple[float, float] | None,
        box: tuple[float, float, float, float],
    ) -> None:
        self.left, self.top, self.right, self.bottom = box
        self.x0, self.x1 = _ends(places)
        self.y_ticks = _ticks(*(y_range or _ends(values)), 5)
        self.y0, self.y1 = y_range or (self.y_ticks[0], self.y_ticks[-1])
        whole = all(float(place).is_integer() for place in places)
        ticks = [tick for tick in _ticks(self.x0, self.x1, 8) if self.x0 <= tick <= self.x1]
        self.x_ticks = [tick for tick in ticks if float(tick).is_integer()] if whole else ticks

    def x(self, value: float) -> float:
        return self.left + (value - self.x0) / (self.x1 - self.x0) * (self.right - self.left)

    def y(self, value: float) -> float:
        share = min(1.0, max(0.0, (value - self.y0) / (self.y1 - self.y0)))  # a value out of range stays at the edge
        return self.bottom - share * (self.bottom - self.top)

    def axes(self, x_label: str, y_label: str) -> str:
        grid, texts = [], []
        for tick in self.y_ticks:
            if self.y0 <= tick <= self.y1:
                y = number(self.y(tick))
                grid.append(f'<line x1="{self.left}" x2="{self.right}" y1="{y}" y2="{y}"/>')
                texts.append(f'<text x="{self.left - 8}" y="{y}" dy="4" text-anchor="end">{tick:.6g}</text>')
        for tick in self.x_ticks:
            x = number(self.x(tick))
            texts.append(f'<text x="{x}" y="{self.bottom + 18}" text-anchor="middle">{tick:.6g}</text>')
        middle = number((self.left + self.right) / 2), number((self.top + self.bottom) / 2)
        texts.append(f'<text x="{middle[0]}" y="{self.bottom + 36}" text-anchor="middle">{xml(x_label)}</text>')
        turned = f'transform="translate(14 {middle[1]}) rotate(-90)" text-anchor="middle"'
        texts.append(f"<text {turned}>{xml(y_label)}</text>")
        return f'<g stroke="#e2e8f0">{"".join(grid)}</g><g font-size="{_TEXT}" fill="{GREY}">{"".join(texts)}</g>'

    def series(self, places: Sequence[float], row: Sequence[float], band: Band, colour: str, stroke: str) -> str:
        shade = ""
        kept = [(place, *pair) for place, pair in zip(places, band, strict=False) if all(map(math.isfinite, pair))]
        if kept:
            there = [f"{number(self.x(place))} {number(self.y(high))}" for place, _, high in kept]
            back = [f"{number(self.x(place))} {number(self.y(low))}" for place, low, _ in reversed(kept)]
            shade = f'<polygon fill="{colour}" fill-opacity=".15" points="{" ".join(there + back)}"/>'
        path, pen = [], "M"
        for k, (place, value) in enumerate(zip(places, row, strict=False)):
            if not math.isfinite(value):
                pen = "M"
                continue
            spot = f"{number(self.x(place))} {number(self.y(value))}"
            alone = pen == "M" and (k + 1 == len(row) or not math.isfinite(row[k + 1]))
            path.append(f"{pen}{spot}" + f"L{spot}" * alone)  # a round cap makes a lone point a dot
            pen = "L"
        style = 'fill="none" stroke-linecap="round" stroke-linejoin="round"'
        return f'{shade}<path {style} {stroke} d="{"".join(path)}"/>'

    def marker(self, place: float, text: str) -> str:
        x = self.x(place)
        side, shift = ("end", -6) if x > (self.left + self.right) / 2 else ("start", 6)
        line = f'<line x1="{number(x)}" x2="{number(x)}" y1="{self.top}" y2="{self.bottom}"/>'
        label = f'<text x="{number(x + shift)}" y="{self.bottom - 8}" text-anchor="{side}">{xml(text)}</text>'
        return f'<g stroke="{GREY}" stroke-dasharray="4 4">{line}</g><g font-size="{_TEXT}" fill="{GREY}">{label}</g>'


def _styles(names: Iterable[str], faint: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the colour of each series, and all of how its line looks."""
    unlike = [name for name in names if not faint.get(name)]
    look = dict(zip(unlike, zip(cycle(_COLOURS), cycle(_DASHES)), strict=False))
    found = {}
    for name in names:
        colour, dash = look[faint.get(name) or name]
        width = 1 if name in faint else 2.5
        found[name] = colour, f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash or "none"}"'
    return found


def _legend(styles: Mapping[str, tuple[str, str]], width: float) -> tuple[str, int]:
    """Return a sample of each line with its name, and how many rows these take."""
    found, x, row = [], 0.0, 0
    for name, (_, stroke) in styles.items():
        need = 34 + ems(name) * _TEXT + 18
        if x and x + need > width - _LEFT - _RIGHT:
            x, row = 0.0, row + 1
        line = f'<line x2="26" {stroke}/>'
        found.append(
            f'<g transform="translate({number(x)} {18 * row})">{line}<text x="34" y="4">{xml(name)}</text></g>'
        )
        x += need
    return "".join(found), row + 1


def _check(series: Mapping[str, Sequence[float]], places: Sequence[float], bands: Mapping[str, Band]) -> None:
    for name, row in series.items():
        if len(row) > len(places):
            raise UserError(f"series {name!r}: {len(row)} values but {len(places)} places on the x axis")
    for name, band in bands.items():
        if name not in series or len(band) != len(series[name]):
            raise UserError(f"band {name!r}: a (low, high) for each value of a series of that name is needed")


def _ends(values: Iterable[float]) -> tuple[float, float]:
    """Return the lowest and highest of the finite values, not the same."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Return about so many round numbers, in steps of 1, 2 or 5, that hold low and high between them.

    >>> _ticks(0.13, 0.88, 5)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(step for step in (unit, 2 * unit, 5 * unit, 10 * unit) if step >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(k * step, digits) for k in range(first, last + 1)]
