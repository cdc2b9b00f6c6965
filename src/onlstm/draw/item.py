"""What is drawn of one sentence, checked, and how wide its words come out without a font at hand."""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from onlstm.errors import UserError

if TYPE_CHECKING:
    from onlstm.trees.tree import Node, Tree

_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_JOINER, _AS_EMOJI = "\u200d", "\ufe0f"
_NARROW, _SLIM, _BROAD = frozenset("ijl.,:;'|!`"), frozenset('ftrI()[]{}-/\\"* '), frozenset("mwMW@%—…")


@dataclass(frozen=True, kw_only=True)
class Item:
    """One sentence to draw."""

    tree: "Tree"
    """The tree; with `gold`, the one to compare with it."""
    gold: "Tree | None" = None
    """The right tree of the same words: drawn beside, and brackets that only one of the two has are marked."""
    distances: Sequence[float] | None = None
    """One per word, drawn as bars."""
    gates: Sequence[Sequence[float]] | None = None
    """M rows, lowest-ranking neurons first, of a value from 0 to 1 per word; drawn as a heat map, high ranks on top."""
    mark: bool = True
    """Whether to mark the brackets that differ from gold."""
    title: str = ""
    """What to call it; the sentence if empty."""

    def __post_init__(self) -> None:
        n = len(self.tree.words)
        if self.gold and len(self.gold.words) != n:
            raise UserError(f"the gold tree has {len(self.gold.words)} words, the other one {n}: {self.name[:60]}")
        for name, row in [("distances", self.distances), *(("gates", row) for row in self.gates or ())]:
            if row is not None and (len(row) != n or not all(map(math.isfinite, row))):
                raise UserError(f"{name}: one finite number for each of {n} words is needed, not {list(row)!r:.60}")

    def differing(self) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Return the brackets to mark: those of the tree that gold has not, and those of gold that it has not."""
        if not self.gold or not self.mark:
            return set(), set()
        ours, theirs = set(self.tree.spans()), set(self.gold.spans())
        return ours - theirs, theirs - ours

    @property
    def name(self) -> str:
        """The title, or the sentence."""
        return self.title or " ".join(self.tree.words)


def f1(tree: "Tree", gold: "Tree") -> float:
    """Return the F1 of a tree's brackets, 0 to 100, by the rule `on-lstm`."""
    ours, theirs = set(tree.spans()), set(gold.spans())
    return 100 * 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 100.0


def drawn_nodes(tree: "Tree") -> "list[Node]":
    """Return the nodes, in preorder, without those that show nothing: no label, and one child or one word."""
    below = [*tree.nodes[1:], None]
    return [
        node
        for node, child in zip(tree.nodes, below, strict=False)
        if node.label or not (node.end - node.start == 1 or (child and child[:2] == node[:2]))
    ]


def parents(nodes: Sequence[tuple[int, int, Any]], n: int) -> tuple[list[int], list[int]]:
    """Return the parent of each node in preorder and of each of n words, as an index into the nodes; -1 for none."""
    of_nodes, of_words, k = [], [], 0
    path: list[int] = []
    for i in range(n):
        while path and nodes[path[-1]][1] <= i:
            path.pop()
        while k < len(nodes) and nodes[k][0] == i:
            of_nodes.append(path[-1] if path else -1)
            path.append(k)
            k += 1
        of_words.append(path[-1] if path else -1)
    return of_nodes, of_words


def right_to_left(words: Sequence[str]) -> bool:
    """Return whether most letters of a sentence are of a script that runs from right to left."""
    kinds = [unicodedata.bidirectional(char) for word in words for char in word]
    return sum(kind in ("R", "AL") for kind in kinds) > kinds.count("L")


def visible(text: str) -> str:
    """Return the text with what XML forbids, and what would steer a terminal, made visible."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text).replace("\u2028", " ").replace("\u2029", " ")


def xml(text: str) -> str:
    """Return the text as XML and HTML have it, in elements and attributes."""
    return escape(visible(text))


def columns(text: str) -> int:
    """Return how many columns of a terminal the text takes.

    >>> columns("cat"), columns("貓"), columns("cafe\u0301"), columns("👩‍🚀")
    (3, 2, 4, 2)
    """
    return len(text) if text.isascii() else sum(2 if wide else 1 for _, wide in _bases(text))


def ems(text: str) -> float:
    """Return about how wide the text is in a sans-serif font, in units of the font's size; rather more than less."""
    return sum(_em(char, wide) for char, wide in _bases(text))


def _em(char: str, wide: bool) -> float:
    if wide:
        return 1.0 if char.isalpha() else 1.3  # ideographs and kana; emoji
    for width, some in ((0.29, _NARROW), (0.38, _SLIM), (0.92, _BROAD)):
        if char in some:
            return width
    return 0.72 if char.isupper() else 0.59 if char < "\u0250" else 0.66


def _bases(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the characters that take room, and whether double: marks, joined emoji, halves of flags take none."""
    text = unicodedata.normalize("NFC", text)
    joined = half_flag = False
    for char, after in zip(text, text[1:] + " ", strict=False):
        category = unicodedata.category(char)
        flag = "\U0001f1e6" <= char <= "\U0001f1ff"
        if category in ("Mn", "Me", "Cf") or "\U0001f3fb" <= char <= "\U0001f3ff":
            joined = char == _JOINER
            continue
        if (joined and category == "So") or half_flag:
            joined = half_flag = False
            continue
        joined, half_flag = False, flag and "\U0001f1e6" <= after <= "\U0001f1ff"
        yield char, flag or after == _AS_EMOJI or unicodedata.east_asian_width(char) in "WF"
