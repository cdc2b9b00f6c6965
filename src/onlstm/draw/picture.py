"""A tree over its words, with distance bars and the master-gate heat map on the words' axis, as SVG.

One picture is laid out in two coordinates: `a` runs along the words, `d` from the root down to the words and past
them. `_Frame` turns these into x and y: words across the picture, or, for long sentences, down it with the root at the
side; mirrored for scripts that run from right to left. Colours are attributes, and the ground is white, so that a
picture looks the same alone, inside a page and in a dark notebook.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from onlstm.draw.item import Item, drawn_nodes, ems, f1, parents, right_to_left, visible, xml

if TYPE_CHECKING:
    from onlstm.trees.tree import Tree

Direction = Literal["auto", "across", "down"]

FONT = "'Source Sans 3', 'Noto Sans', 'Helvetica Neue', Helvetica, Arial, system-ui, sans-serif"
INK, GREY, WRONG, MISSED, BAR = "#1e293b", "#64748b", "#c2410c", "#0369a1", "#94a3b8"
_WORD, _LABEL, _SMALL, _PAD = 15, 11, 9.5, 12
_WIDEST = 1100  # a picture that would be wider has its words down the page
_SHADES = 16


def svg(
    tree: "Tree",
    *,
    gold: "Tree | None" = None,
    distances: Sequence[float] | None = None,
    gates: Sequence[Sequence[float]] | None = None,
    title: str = "",
    direction: Direction = "auto",
) -> str:
    """Return the picture of a tree, a whole SVG document; the arguments are those of `Item` and `figure`."""
    return figure([Item(tree=tree, gold=gold, distances=distances, gates=gates, title=title)], direction=direction)


def figure(items: Iterable[Item], *, title: str = "", direction: Direction = "auto") -> str:
    """Return one SVG with a row for each sentence: its tree at the left, the gold tree, if there is one, at the right.

    Args:
        title: what a screen reader says; by default that of the first sentence.
        direction: words "across" the picture or "down" it; "auto" takes down where across would be too wide.
    """
    items = list(items)
    width, height, body = 0.0, 0.0, []
    for item in items:
        x = bottom = 0.0
        for panel in panels(item, direction):
            if x and x + panel.width > 2 * _WIDEST:  # beside the first there is no room
                x, height = 0.0, bottom + _PAD
            body.append(f'<g transform="translate({number(x)} {number(height)})">{panel.body}</g>')
            x += panel.width
            width, bottom = max(width, x), max(bottom, height + panel.height)
        height = bottom
    return document(width, height, title or (items[0].name if items else ""), "".join(body))


def document(width: float, height: float, title: str, body: str) -> str:
    """Return a whole SVG on a white ground."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}" '
        f'viewBox="0 0 {number(width)} {number(height)}" role="img" font-family="{FONT}" fill="{INK}">'
        f'<title>{xml(title)}</title><rect width="100%" height="100%" rx="6" fill="#fff"/>{body}</svg>'
    )


class Panel(NamedTuple):
    """One tree, drawn: the inside of an SVG, and its size."""

    width: float
    height: float
    body: str
    name: str


def panels(item: Item, direction: Direction = "auto") -> list[Panel]:
    """Return the picture of a sentence's tree, and that of its gold tree if it has one."""
    trees = [item.tree, *([item.gold] if item.gold else [])]
    down = direction == "down"
    if direction == "auto":
        down = max(sum(_slots(tree)) for tree in trees) > _WIDEST
    if not item.gold:
        return [_Frame(item, item.tree, down).panel("", set(), INK)]
    name = f"model · F1 {f1(item.tree, item.gold):.1f}"
    wrong, missed = item.differing()
    left, right = _Frame(item, item.tree, down), _Frame(Item(tree=item.gold), item.gold, down)
    if down:
        right.before = left.before
    for each in (left, right):  # the words of both stand on one line
        each.top = 20 + (0 if down else max(left.depth, right.depth) - each.depth)
    return [left.panel(name, wrong, WRONG), right.panel("gold", missed, MISSED)]


class _Frame:
    """The layout of one tree, and the drawing of each of its parts."""

    def __init__(self, item: Item, tree: "Tree", down: bool) -> None:
        self.tree, self.down, self.rtl = tree, down, right_to_left(tree.words)
        self.distances, self.gates = item.distances, item.gates or None
        self.nodes = drawn_nodes(tree)
        slots = [21.0] * len(tree.words) if down else _slots(tree)
        self.edges = [0.0]
        for slot in slots:
            self.edges.append(self.edges[-1] + slot)
        self.middles = [(a + b) / 2 for a, b in zip(self.edges, self.edges[1:], strict=False)]
        self._place_nodes()
        self.word = self.depth + 5
        self.bar = self.word + (max(ems(word) for word in tree.words) * _WORD + 10 if down else 24)
        self.heat = self.bar + ((100 if down else 56) if self.distances else 0)
        self.rows = min(90.0, max(48.0, 4.0 * len(self.gates))) if self.gates else 0.0
        self.length, self.end = self.edges[-1], self.heat + self.rows + (4 if self.gates else 0)
        captions = bool(self.distances or self.gates)
        self.before = (16 if down else 66) if captions else 0  # room for captions at the words' start
        self.top = 0.0

    def _place_nodes(self) -> None:
        """Set each node over the middle of its children, one level above the highest of them."""
        of_nodes, of_words = parents(self.nodes, len(self.tree.words))
        count = len(self.nodes)
        self.kids: list[list[tuple[float, int]]] = [[] for _ in range(count)]  # (a, level), words at level 0
        for i, k in enumerate(of_words):
            if k >= 0:
                self.kids[k].append((self.middles[i], 0))
        self.levels, self.at = [0] * count, [0.0] * count
        for k in reversed(range(count)):
            self.kids[k].sort()
            self.levels[k] = 1 + max(level for _, level in self.kids[k])
            self.at[k] = (self.kids[k][0][0] + self.kids[k][-1][0]) / 2
            if of_nodes[k] >= 0:
                self.kids[of_nodes[k]].append((self.at[k], self.levels[k]))
        height = max(self.levels, default=0)
        label = max((ems(node.label or "") for node in self.nodes), default=0)
        least = (label * _LABEL + 12 if self.down else 19) if label else 7
        self.step = max(least, min(30.0, 420 / max(1, height)))
        self.depth = height * self.step

    def panel(self, name: str, off: set[tuple[int, int]], colour: str) -> Panel:
        """Return the drawing; the brackets `off` in another colour and dashed."""
        across = (self.before + self.length, self.end)
        width, height = (self.end, self.before + self.length) if self.down else across
        self.width = width + 2 * _PAD
        title = ""
        if name:
            x, anchor = (self.width - _PAD, "end") if self.rtl else (_PAD, "start")
            title = (
                f'<text x="{number(x)}" y="18" text-anchor="{anchor}" font-size="12" fill="{GREY}">{xml(name)}</text>'
            )
        body = (
            title + self._edges(off, colour) + self._labels(off, colour) + self._words() + self._bars() + self._heat()
        )
        return Panel(self.width, height + self.top + 2 * _PAD, body, name)

    def _xy(self, a: float, d: float) -> tuple[float, float]:
        x, y = (d, a + self.before) if self.down else (a + self.before, d)
        return (self.width - x - _PAD if self.rtl else x + _PAD), y + _PAD + self.top

    def _p(self, a: float, d: float) -> str:
        x, y = self._xy(a, d)
        return f"{number(x)} {number(y)}"

    def _box(self, a0: float, d0: float, a1: float, d1: float) -> str:
        """Return the rectangle between two corners as a path."""
        (x0, y0), (x1, y1) = self._xy(a0, d0), self._xy(a1, d1)
        return f"M{number(x0)} {number(y0)}H{number(x1)}V{number(y1)}H{number(x0)}z"

    def _text(self, a: float, d: float, text: str, side: str, shift: float = 0, more: str = "") -> str:
        x, y = self._xy(a, d)
        anchor = "" if side == "middle" else f' text-anchor="{side}"'
        return f'<text x="{number(x)}" y="{number(y + shift)}"{anchor}{more}>{xml(text)}</text>'

    def _edges(self, off: set[tuple[int, int]], colour: str) -> str:
        """Return the lines, one path for the brackets of either kind, and a ring on those that are off."""
        paths: dict[bool, list[str]] = {False: [], True: []}
        rings = []
        for k, node in enumerate(self.nodes):
            d, wrong = self.depth - self.levels[k] * self.step, node[:2] in off
            ends = [(a, self.depth - level * self.step + (3 if not level else 0)) for a, level in self.kids[k]]
            (a0, d0), (a1, d1) = ends[0], ends[-1]
            r = min(6.0, 0.6 * self.step, (a1 - a0) / 2)
            if len(ends) > 1:
                left = f"M{self._p(a0, d0)}L{self._p(a0, d + r)}Q{self._p(a0, d)} {self._p(a0 + r, d)}"
                right = f"L{self._p(a1 - r, d)}Q{self._p(a1, d)} {self._p(a1, d + r)}L{self._p(a1, d1)}"
                paths[wrong].append(left + right)
            for a, below in ends[1:-1] if len(ends) > 1 else ends:
                paths[wrong].append(f"M{self._p(a, d)}L{self._p(a, below)}")
            if wrong and not node.label:
                x, y = self._xy(self.at[k], d)
                rings.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="3.2" fill="#fff"/>')
        dashed = f'<g stroke="{colour}" stroke-width="1.7"><path stroke-dasharray="5 3" d="{{}}"/>{"".join(rings)}</g>'
        return (
            f'<g fill="none" stroke="{INK}" stroke-width="1.2"><path d="{"".join(paths[False])}"/>'
            + (dashed.format("".join(paths[True])) if paths[True] else "")
            + "</g>"
        )

    def _labels(self, off: set[tuple[int, int]], colour: str) -> str:
        found = []
        for k, node in enumerate(self.nodes):
            if node.label:
                more = f' fill="{colour}" font-weight="700"' if node[:2] in off else ""
                d = self.depth - self.levels[k] * self.step
                found.append(self._text(self.at[k], d, node.label, "middle", 4, more))
        style = f'font-size="{_LABEL}" fill="{GREY}" text-anchor="middle" stroke="#fff" stroke-width="5"'
        return f'<g {style} stroke-linejoin="round" paint-order="stroke">{"".join(found)}</g>' if found else ""

    def _words(self) -> str:
        side, shift, into = ("start", 5.0, 4.0) if self.down else ("middle", 13.0, 0.0)
        pairs = zip(self.middles, self.tree.words, strict=True)
        words = "".join(self._text(a, self.word + into, word, "middle", shift) for a, word in pairs)
        way = ' direction="rtl"' if self.rtl else ""
        return f'<g font-size="{_WORD}" text-anchor="{side}"{way}>{words}</g>'

    def _bars(self) -> str:
        if not self.distances:
            return ""
        low, high = min(0.0, *self.distances), max(0.0, *self.distances)
        scale = (60 if self.down else 34) / ((high - low) or 1)
        zero = self.bar - low * scale if self.down else self.bar + 38 + low * scale
        sign = scale if self.down else -scale
        bars, values = [], []
        for a, value, word in zip(self.middles, self.distances, self.tree.words, strict=True):
            tip = f"<title>{xml(f'{word}: {value:.4g}')}</title>"
            bars.append(f'<path d="{self._box(a - 5.5, zero, a + 5.5, zero + value * sign)}">{tip}</path>')
            place = zero + max(0.0, value) * sign + 5 if self.down else self.bar + 40
            values.append(self._text(a, place, f"{value:.2f}", "middle", 3.5 if self.down else 8))
        side = ("end" if self.rtl else "start") if self.down else "middle"
        line = f'<path stroke="{BAR}" stroke-width=".7" d="M{self._p(0, zero)}L{self._p(self.length, zero)}"/>'
        return (
            f'<g fill="{BAR}">{"".join(bars)}{line}</g>'
            f'<g font-size="{_SMALL}" fill="{GREY}" text-anchor="{side}">{"".join(values)}</g>'
            + self._caption("distance", self.bar, 24)
        )

    def _heat(self) -> str:
        """Return the heat map: one path a shade, in which like neighbours are one box."""
        if not self.gates:
            return ""
        size, bottom = self.rows / len(self.gates), self.heat + self.rows
        shades: list[list[str]] = [[] for _ in range(_SHADES + 1)]
        for i, column in enumerate(zip(*self.gates, strict=True)):
            steps = [round(_SHADES * min(1.0, max(0.0, value))) for value in column]
            first = 0
            for m in range(1, len(steps) + 1):
                if m == len(steps) or steps[m] != steps[first]:
                    box = self._box(self.edges[i] + 1, bottom - first * size, self.edges[i + 1] - 1, bottom - m * size)
                    shades[steps[first]].append(box)
                    first = m
        drawn = "".join(
            f'<path fill-opacity="{number(0.06 + 0.94 * k / _SHADES, 2)}" d="{"".join(boxes)}"/>'
            for k, boxes in enumerate(shades)
            if boxes
        )
        caption = self._caption("master gate", self.heat, self.rows / 2 + 3)
        return f'<g fill="#2b5c94" shape-rendering="crispEdges">{drawn}</g>{caption}'

    def _caption(self, text: str, d: float, middle: float) -> str:
        side = "start" if self.down != self.rtl else "end"
        style = f' font-size="{_SMALL + 1}" fill="{GREY}"'
        place = (-6, d) if self.down else (-8, d + middle)
        return self._text(*place, text, side, more=style)


def _slots(tree: "Tree") -> list[float]:
    """Return the room each word takes across, its label's too."""
    room = [max(28.0, ems(visible(word)) * _WORD + 12) for word in tree.words]
    for node in tree.nodes:
        if node.label and node.end - node.start == 1:
            room[node.start] = max(room[node.start], ems(node.label) * _LABEL + 12)
    return room


def number(value: float, digits: int = 1) -> str:
    """Return a coordinate as it is written."""
    return f"{round(value, digits):.10g}"
