"""A tree over its words, with distance bars and the master-gate heat map on the words' axis, as SVG.

A tree is laid out in two coordinates: `a` runs along the words, `d` from the root down to the words and past them.
A matrix turns these into x and y: words across the picture or, for long sentences, down it with the root at the side;
mirrored for scripts that run from right to left. Colours are attributes and the ground is white, so that a picture
looks the same alone, inside a page and in a dark notebook.
"""

import math
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from onlstm.draw.diagram import Diagram, Drawable, Spans, ems, f1, fold, listed, right_to_left, xml

if TYPE_CHECKING:
    from onlstm.trees.tree import Node, Tree

FONT = "'Source Sans 3', 'Noto Sans', 'Helvetica Neue', Helvetica, Arial, system-ui, sans-serif"
INK, GREY, WRONG, MISSED, BAR, HEAT = "#1e293b", "#64748b", "#c2410c", "#0369a1", "#94a3b8", "#2b5c94"
_WORD, _LABEL, _PAD = 15, 11, 12
_WIDEST = 1100  # a picture that would be wider has its words down the page
_SHADES = 16


def svg(diagrams: Drawable, *, title: str = "") -> str:
    """Return an SVG document with a row for each sentence: its tree at the left, its gold tree at the right.

    The title is what a screen reader says; by default that of the first sentence.
    """
    rows = listed(diagrams)
    width, height, body = 0.0, 0.0, []
    for diagram in rows:
        x = bottom = 0.0
        for panel in panels(diagram):
            if x and x + panel.width > 2 * _WIDEST:  # no room beside the first
                x, height = 0.0, bottom + _PAD
            body.append(f'<g transform="translate({x:.1f} {height:.1f})">{panel.body()}</g>')
            x += panel.width
            width, bottom = max(width, x), max(bottom, height + panel.height)
        height = bottom
    return document(width, height, title or "; ".join(diagram.name for diagram in rows[:1]), "".join(body))


def document(width: float, height: float, title: str, body: str) -> str:
    """Return a whole SVG on a white ground."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.1f}" height="{height:.1f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}" role="img" font-family="{FONT}" fill="{INK}">'
        f'<title>{xml(title)}</title><rect width="100%" height="100%" rx="6" fill="#fff"/>{body}</svg>'
    )


def panels(diagram: Diagram) -> "list[Panel]":
    """Return the picture of a sentence's tree, and that of its gold tree if it has one: both of the same depth."""
    trees = [diagram.tree, diagram.gold] if diagram.gold else [diagram.tree]
    down = any(_columns(tree)[0][-1] > _WIDEST for tree in trees)
    left = Panel(diagram, down)
    if not diagram.gold:
        return [left]
    right = Panel(Diagram(tree=diagram.gold), down)
    left.name, right.name = f"model · F1 {f1(diagram.tree, diagram.gold):.1f}", "gold"
    left.marked, right.marked = diagram.differing()
    left.colour, right.colour = WRONG, MISSED
    depth = max(math.sqrt(left.depth * right.depth), left.levels * left.least, right.levels * right.least)
    for panel in (left, right):
        panel.top = 20
        if down:
            panel.before = left.before  # the words of both begin at one height
        else:
            panel.depth = depth  # they stand on one line, and neither tree has a gap above it
    return [left, right]


class Panel:
    """One tree and what belongs to it: the size of the picture, and the drawing of each part."""

    def __init__(self, diagram: Diagram, down: bool) -> None:
        self.tree, self.words = diagram.tree, diagram.tree.words
        self.distances, self.gates, self.weights = diagram.distances, diagram.gates, diagram.weights()
        self.down, self.rtl = down, right_to_left(self.words)
        self.edges, self.middles = _rows(self.tree) if down else _columns(self.tree)
        self.levels = fold(self.tree, lambda i: 0, lambda node, levels: 1 + max(levels))
        label = max((ems(node.label or "") for node in self.tree.nodes), default=0) * _LABEL
        self.least = (label + 12 if down else 19) if label else 7
        """Room that a level takes at least."""
        self.depth = self.levels * max(self.least, min(30.0, 420 / max(1, self.levels)))
        """Of the words; below them come the bars, and then the heat map."""
        self.before = (16 if down else 66) if self.distances or self.gates else 0  # room for captions
        whole = [ems(node.label or "") for node in self.tree.nodes if node.end - node.start == len(self.words)]
        self.lead = max(whole, default=0) * _LABEL / 2 if down else 0  # room for half of the root's label
        self.top, self.name, self.colour = 0.0, "", INK
        self.marked: Spans = set()

    @property
    def step(self) -> float:
        return self.depth / max(1, self.levels)

    @property
    def bars(self) -> float:
        return self.depth + (max(map(ems, self.words)) * _WORD + 15 if self.down else 29)

    @property
    def heat(self) -> float:
        return self.bars + ((100 if self.down else 56) if self.distances else 0)

    @property
    def end(self) -> float:
        return self.heat + (4 + min(90.0, max(48.0, 4.0 * len(self.gates))) if self.gates else 0)

    @cached_property
    def matrix(self) -> tuple[float, ...]:
        mirror, start = (-1, self.end if self.down else self.edges[-1]) if self.rtl else (1, 0)
        return (0, 1, mirror, 0, start, 0) if self.down else (mirror, 0, 0, 1, start, 0)

    @property
    def width(self) -> float:
        return 2 * _PAD + (self.lead + self.end if self.down else self.before + self.edges[-1])

    @property
    def height(self) -> float:
        return 2 * _PAD + self.top + (self.before + self.edges[-1] if self.down else self.end)

    def body(self) -> str:
        """Return the inside of an SVG, with the marked brackets in another colour and dashed."""
        x, anchor = (self.width - _PAD, "end") if self.rtl else (_PAD, "start")
        name = f'<text x="{x:.1f}" y="18" text-anchor="{anchor}" font-size="12" fill="{GREY}">{xml(self.name)}</text>'
        right = 0 if self.rtl else self.lead if self.down else self.before
        below = self.before if self.down else 0
        inside = self._tree() + self._words() + self._bars() + self._heat()
        return f'{name}<g transform="translate({_PAD + right:.1f} {_PAD + self.top + below:.1f})">{inside}</g>'

    def _shapes(self, style: str, shapes: str) -> str:
        """Return a group of shapes whose coordinates are `a` and `d`."""
        return f'<g transform="matrix{self.matrix}" {style}>{shapes}</g>'

    def _text(self, a: float, d: float, text: str, style: str = "") -> str:
        """Return a text, its height centred."""
        xa, ya, xd, yd, x, y = self.matrix
        return f'<text x="{xa * a + xd * d + x:.1f}" y="{ya * a + yd * d + y:.1f}" dy=".35em"{style}>{xml(text)}</text>'

    def _tree(self) -> str:
        """Return the lines, a path for the brackets of either kind, and the labels."""
        dashed, labels = list[str](), list[str]()
        plain: dict[str, list[str]] = {"1.2": []}  # by the weight of the lines

        def draw(node: "Node", children: list[tuple[float, float]]) -> tuple[float, float]:
            a, d = (children[0][0] + children[-1][0]) / 2, min(d for _, d in children) - self.step
            marked = node[:2] in self.marked
            ends = [(a, below + 3 * (below == self.depth)) for a, below in children]
            weight = f"{0.5 + 1.6 * self.weights[node[:2]]:.1f}" if node[:2] in self.weights else "1.2"
            (dashed if marked else plain.setdefault(weight, [])).append(_fork(d, ends, self.step))
            style = f' fill="{self.colour}" font-weight="700"' if marked else ""
            labels.append(self._text(a, d, node.label, style) if node.label else "")
            return a, d

        fold(self.tree, lambda i: (self.middles[i], self.depth), draw)
        lines = "".join(
            f'<g stroke="{INK}" stroke-width="{weight}"><path d="{"".join(forks)}"/></g>'
            for weight, forks in plain.items()
        )
        if dashed:
            path = f'<path stroke-dasharray="5 3" d="{"".join(dashed)}"/>'
            lines += f'<g stroke="{self.colour}" stroke-width="1.7">{path}</g>'
        halo = 'stroke="#fff" stroke-width="5" stroke-linejoin="round" paint-order="stroke"'
        return (
            self._shapes('fill="none"', lines)
            + f'<g font-size="{_LABEL}" fill="{GREY}" text-anchor="middle" {halo}>{"".join(labels)}</g>'
        )

    def _words(self) -> str:
        side, d = ("start", self.depth + 9) if self.down else ("middle", self.depth + 13)
        words = "".join(self._text(a, d, word) for a, word in zip(self.middles, self.words, strict=True))
        direction = ' direction="rtl"' if self.rtl else ""
        return f'<g font-size="{_WORD}" text-anchor="{side}"{direction}>{words}</g>'

    def _bars(self) -> str:
        if not self.distances:
            return ""
        low, high = min(0.0, *self.distances), max(0.0, *self.distances)
        scale = (60 if self.down else -34) / ((high - low) or 1)
        zero = self.bars - low * scale + (0 if self.down else 38)
        bars, values = f'<path d="{_box(0, zero, self.edges[-1], zero + 0.7)}"/>', ""
        for a, value, word in zip(self.middles, self.distances, self.words, strict=True):
            tip = f"<title>{xml(f'{word}: {value:.4g}')}</title>"
            bars += f'<path d="{_box(a - 5.5, zero, a + 5.5, zero + value * scale)}">{tip}</path>'
            d = zero + max(0.0, value) * scale + 5 if self.down else self.bars + 45
            values += self._text(a, d, f"{value:.2f}")
        side = ("end" if self.rtl else "start") if self.down else "middle"
        values = f'<g font-size="9.5" fill="{GREY}" text-anchor="{side}">{values}</g>'
        return self._shapes(f'fill="{BAR}"', bars) + values + self._caption("distance", self.bars, 20)

    def _heat(self) -> str:
        """Return the heat map, one path per shade."""
        if not self.gates:
            return ""
        size, bottom = (self.end - 4 - self.heat) / len(self.gates), self.end - 4
        shades = [""] * (_SHADES + 1)
        for m, row in enumerate(self.gates):
            for value, (left, right) in zip(row, pairwise(self.edges), strict=True):
                box = _box(left + 1, bottom - m * size, right - 1, bottom - (m + 1) * size)
                shades[round(_SHADES * min(1.0, max(0.0, value)))] += box
        paths = (f'<path fill-opacity="{0.06 + 0.94 * k / _SHADES:.2f}" d="{d}"/>' for k, d in enumerate(shades) if d)
        shapes = self._shapes(f'fill="{HEAT}" shape-rendering="crispEdges"', "".join(paths))
        return shapes + self._caption("master gate", self.heat, (bottom - self.heat) / 2)

    def _caption(self, text: str, d: float, middle: float) -> str:
        side = "start" if self.down != self.rtl else "end"
        a, d = (-10, d) if self.down else (-8, d + middle)
        return self._text(a, d, text, f' text-anchor="{side}" font-size="10.5" fill="{GREY}"')


def _fork(d: float, ends: list[tuple[float, float]], step: float) -> str:
    """Return the path from a node at `d` down to its children: round corners, straight lines between them."""
    (a0, d0), *inner, (a1, d1) = ends if len(ends) > 1 else ends * 2
    r = min(6.0, 0.6 * step, (a1 - a0) / 2)
    left = f"M{a0:.1f} {d0:.1f}V{d + r:.1f}Q{a0:.1f} {d:.1f} {a0 + r:.1f} {d:.1f}"
    right = f"H{a1 - r:.1f}Q{a1:.1f} {d:.1f} {a1:.1f} {d + r:.1f}V{d1:.1f}"
    return left + right + "".join(f"M{a:.1f} {d:.1f}V{below:.1f}" for a, below in inner)


def _box(a0: float, d0: float, a1: float, d1: float) -> str:
    return f"M{a0:.1f} {d0:.1f}H{a1:.1f}V{d1:.1f}H{a0:.1f}z"


def _rows(tree: "Tree") -> tuple[list[float], list[float]]:
    """Return the edges of the rows of words that run down, and their middles."""
    edges = [21.0 * k for k in range(len(tree.words) + 1)]
    return edges, [edge + 10.5 for edge in edges[:-1]]


def _columns(tree: "Tree") -> tuple[list[float], list[float]]:
    """Return the edges of the words' columns, and where in them the words stand.

    Every label fits between the edges of its span, so that it touches neither another label nor another span's lines.
    """
    left = [max(28.0, ems(word) * _WORD + 12) / 2 for word in tree.words]
    right = list(left)

    def widen(node: "Node", children: list[tuple[float, float]]) -> tuple[float, float]:
        """Return how far the node's columns reach to the left and to the right of its middle."""
        width = sum(map(sum, children))
        before = (children[0][0] + width - children[-1][1]) / 2
        half = (ems(node.label) * _LABEL + 10) / 2 if node.label else 0.0
        missing = max(0.0, half - before), max(0.0, half - (width - before))
        left[node.start] += missing[0]
        right[node.end - 1] += missing[1]
        return before + missing[0], width - before + missing[1]

    fold(tree, lambda i: (left[i], right[i]), widen)
    edges = [0.0, *accumulate(map(sum, zip(left, right, strict=True)))]
    return edges, [edge + room for edge, room in zip(edges, left, strict=False)]
