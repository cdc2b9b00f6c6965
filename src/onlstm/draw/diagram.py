"""What is drawn of one sentence, checked, and what all formats ask about its words: width, direction, escapes."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar, Union

from rich.cells import cell_len

from onlstm.errors import UserError

if TYPE_CHECKING:
    from onlstm.trees.tree import Node, Tree

T = TypeVar("T")
Drawable = Union["Tree", "Diagram", Iterable[Union["Tree", "Diagram"]]]
Spans = set[tuple[int, int]]

_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EMS = dict.fromkeys("fijlrtI.,:;'|!`()[]{}-/\\\"* ", 0.38) | dict.fromkeys("mwMW@%—…", 0.92)


@dataclass(frozen=True, kw_only=True)
class Diagram:
    """One sentence to draw."""

    tree: "Tree"
    gold: "Tree | None" = None
    """The correct tree of the same words: drawn beside, and brackets that only one of the two has are marked."""
    distances: Sequence[float] | None = None
    """One per word, drawn as bars."""
    gates: Sequence[Sequence[float]] | None = None
    """M rows, lowest-ranking neurons first, of a value from 0 to 1 per word; drawn as a heat map, high ranks on top."""
    mark: bool = True
    """Whether to mark the brackets that differ from gold."""
    sure: bool = True
    """Whether the lines of a tree with `confidence` are the heavier the surer the bracket is."""
    title: str = ""
    """The sentence if empty."""
    number: int | None = None
    """Stands before the title on a page; by default the place among those drawn, from 1."""

    def __post_init__(self) -> None:
        n = len(self.tree.words)
        if self.gold and len(self.gold.words) != n:
            raise UserError(f"the gold tree has {len(self.gold.words)} words, the other one {n}: {self.name[:60]}")
        for name, row in [("distances", self.distances), *(("gates", row) for row in self.gates or ())]:
            if row is not None and (len(row) != n or not all(map(math.isfinite, row))):
                raise UserError(f"{name}: one finite number for each of {n} words is needed, not {list(row)!r:.60}")

    def differing(self) -> tuple[Spans, Spans]:
        """Return the brackets to mark: those that only the tree has, and those that only gold has."""
        if not self.gold or not self.mark:
            return set(), set()
        ours, theirs = set(self.tree.spans()), set(self.gold.spans())
        return ours - theirs, theirs - ours

    def weights(self) -> dict[tuple[int, int], float]:
        """Return how sure each bracket inside the tree is, 0 to 1; nothing if that is not known or not to be shown."""
        return dict(zip(self.tree.spans(), self.tree.confidence or (), strict=False)) if self.sure else {}

    @property
    def name(self) -> str:
        """The title, or the sentence."""
        return self.title or " ".join(self.tree.words)


def listed(diagrams: Drawable) -> list[Diagram]:
    """Return what is drawn as a list, whatever form it comes in."""
    several: Any = diagrams if isinstance(diagrams, Iterable) and not hasattr(diagrams, "_") else [diagrams]
    return [item if isinstance(item, Diagram) else Diagram(tree=tree_of(item)) for item in several]


def tree_of(drawn: Any) -> "Tree":
    """Return the tree of a constituent in spaCy, a `Span` with attributes in `_`; a tree is its own."""
    return drawn._.tree if hasattr(drawn, "_") else drawn  # type: ignore[no-any-return]


def f1(tree: "Tree", gold: "Tree") -> float:
    """Return the F1 of a tree's brackets, 0 to 100, by the rule `on-lstm`."""
    ours, theirs = set(tree.spans()), set(gold.spans())
    return 100 * 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 100.0


def fold(tree: "Tree", word: Callable[[int], T], node: "Callable[[Node, list[T]], T]") -> T:
    """Return the root's value, computed from the words up: `word(index)`, and `node(node, values of its children)`.

    Nodes that show nothing are left out: those without a label that have one child or one word. Any depth will do.
    """
    shown = [
        current
        for current, child in zip(tree.nodes, [*tree.nodes[1:], None], strict=False)
        if current.label or not (current.end - current.start == 1 or (child and child[:2] == current[:2]))
    ]
    tops: list[tuple[int, T]] = []  # start and value of what has no parent yet, from right to left
    first = len(tree.words)
    for current in reversed(shown):
        tops += [(i, word(i)) for i in reversed(range(current.start, first))]
        first = min(first, current.start)
        children = []
        while tops and tops[-1][0] < current.end:
            children.append(tops.pop()[1])
        tops.append((current.start, node(current, children)))
    return tops[0][1] if tops else word(0)


def right_to_left(words: Sequence[str]) -> bool:
    """Return whether most letters of a sentence are of a script that runs from right to left."""
    kinds = [unicodedata.bidirectional(char) for word in words for char in word]
    return sum(kind in ("R", "AL") for kind in kinds) > kinds.count("L")


def visible(text: str) -> str:
    """Return the text with a replacement character for what XML forbids and what would control a terminal."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text).replace("\u2028", " ").replace("\u2029", " ")


def xml(text: str) -> str:
    """Return the text escaped for elements and attributes of XML and HTML."""
    return escape(visible(text))


def ems(text: str) -> float:
    """Return an upper estimate of the text's width in a sans-serif font, in units of the font's size."""
    return sum(cell_len(char) * _EMS.get(char, 0.66) for char in text)
