"""A tree for the terminal: the root at the left, one line per word; in sections where it would be too wide."""

import re
import sys
from collections.abc import Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size

from onlstm.draw.diagram import fold, tree_of, visible

if TYPE_CHECKING:
    from onlstm.trees.tree import Node, Tree


def text(tree: "Tree", width: int | None = None) -> Iterator[str]:
    """Yield the lines of a drawing; with `width`, of at most that many columns (and at least 20).

    What is too deep for the width stands below as a section of its own: `▸1` in the tree is the tree under `▸1`.
    Without a width the lines of a tree of n words may be 2n columns long.

    >>> from onlstm.trees import Tree
    >>> tree = Tree.from_brackets("(far (down (in (the (deep (dark (and (very (old woods)))))))))")
    >>> print(*text(tree, width=20), sep="\\n")
    ┬─ far
    └─┬─ down
      └─ ▸1
    ▸1
    ┬─ in
    └─┬─ the
      └─┬─ deep
        └─┬─ dark
          └─┬─ and
            └─┬─ very
              └─┬─ old
                └─ woods
    """
    tree = tree_of(tree)
    drawing = _Drawing(tree, sys.maxsize if width is None else max(20, width))
    sections = [fold(tree, drawing.word, drawing.node)]

    def reference(match: re.Match[str]) -> str:
        sections.append(drawing.cut[int(match[1])])
        return f"▸{len(sections) - 1}"

    for number, section in enumerate(sections):
        if number:
            yield f"▸{number}"
        for parts in section.lines:
            line = re.sub("\0(.*)", reference, "".join(reversed(parts)))
            yield line[section.lines[0][-1].startswith(" ") :]


class _Block(NamedTuple):
    """The drawing of a node: the parts of its lines, each from right to left, and its columns."""

    lines: list[list[str]]
    width: int

    def prefix(self, first: str, others: str) -> None:
        for line, part in zip(self.lines, chain([first], repeat(others)), strict=False):
            line.append(part)


class _Drawing:
    """A tree, drawn from the words up: a child that would be too wide for its parent is cut off."""

    def __init__(self, tree: "Tree", limit: int) -> None:
        self.tree, self.limit = tree, limit
        self.cut: list[_Block] = []
        """From below; "\\0k" stands for number k in the drawing."""

    def word(self, i: int) -> _Block:
        text = f" {self._clipped(self.tree.words[i], 2)}"
        return _Block([[text]], cell_len(text))

    def node(self, node: "Node", children: list[_Block]) -> _Block:
        several = len(children) > 1
        touching = children[0].lines[0][-1].startswith("┬")
        head = (f" {self._clipped(node.label, 4)}" + " " * (several or touching)) if node.label else ""
        indent = cell_len(head) + 2 * several
        for k, child in enumerate(children):
            if len(child.lines) > 1 and indent + child.width > self.limit:
                self.cut.append(child)
                space = " " * (several or not touching)
                children[k] = child = _Block([[f"{space}\0{len(self.cut) - 1}"]], len(f" ▸{len(self.tree.nodes)}"))
            if several:
                last = k == len(children) - 1
                child.prefix("┬─" if k == 0 else "└─" if last else "├─", "  " if last else "│ ")
        block = _Block(
            [line for child in children for line in child.lines], indent + max(child.width for child in children)
        )
        if head:
            block.prefix(head, " " * cell_len(head))
        return block

    def _clipped(self, text: str, share: int) -> str:
        """Return the text, cut to a share of the columns."""
        text, most = visible(text), self.limit // share
        return text if cell_len(text) <= most else set_cell_size(text, most - 1).rstrip() + "…"
