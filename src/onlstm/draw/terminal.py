"""A tree for the terminal: the root at the left, one line a word; in sections where it would be too wide."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onlstm.draw.item import columns, drawn_nodes, parents, visible

if TYPE_CHECKING:
    from onlstm.trees.tree import Tree

_Node = tuple[int, int, str]
"""Start, end and label, which may be empty."""


def text(tree: "Tree", width: int | None = None) -> Iterator[str]:
    """Yield the lines of a drawing; with `width`, of so many columns at most (at least 20).

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
    words = [visible(word) for word in tree.words]
    nodes = [(start, end, visible(label or "")) for start, end, label in drawn_nodes(tree)]
    if width is None or not nodes:
        yield from _lines(words, nodes)
        return
    width = max(20, width)
    words = [_clipped(word, width // 2) for word in words]
    nodes = [(start, end, _clipped(label, width // 4)) for start, end, label in nodes]
    after, cut = _cuts(words, nodes, width)
    roots = [0]
    for number, root in enumerate(roots):  # each section adds those of the ones cut off from it
        if number:
            yield f"▸{number}"
        yield from _lines(*_section(words, nodes, root, after, cut, roots))


def _section(
    words: Sequence[str], nodes: Sequence[_Node], root: int, after: Sequence[int], cut: set[int], roots: list[int]
) -> tuple[list[str], list[_Node]]:
    """Return the words and nodes under a node, references to the nodes cut off instead of these; add them to roots."""
    shown: list[str] = []
    inside: list[_Node] = []
    place = {}  # from words of the sentence to those of the section
    i, k = nodes[root][0], root
    while i < nodes[root][1]:
        place[i] = len(shown)
        while k < after[root] and nodes[k][0] == i and (k == root or k not in cut):
            inside.append(nodes[k])
            k += 1
        if k < after[root] and nodes[k][0] == i:
            shown.append(f"▸{len(roots)}")
            roots.append(k)
            i, k = nodes[k][1], after[k]
        else:
            shown.append(words[i])
            i += 1
    place[i] = len(shown)
    return shown, [(place[start], place[end], label) for start, end, label in inside]


def _cuts(words: Sequence[str], nodes: Sequence[_Node], width: int) -> tuple[list[int], set[int]]:
    """Return the index after each node's last descendant, and the nodes to draw apart.

    From the words up, a node is cut off as soon as it is too wide for its parent: no other way needs fewer sections.
    """
    of_nodes, of_words = parents(nodes, len(words))
    kids, below = [0] * len(nodes), [0] * len(nodes)
    for k in (*of_nodes, *of_words):
        if k >= 0:
            kids[k] += 1
    for word, k in zip(words, of_words, strict=True):
        if k >= 0:
            below[k] = max(below[k], 1 + columns(word))
    head = [2 * (kids[k] > 1) + (columns(label) + 2 if label else 0) for k, (_, _, label) in enumerate(nodes)]
    after, cut = [k + 1 for k in range(len(nodes))], set()
    reference = len(f" ▸{len(nodes)}")
    for k in reversed(range(len(nodes))):
        up, need = of_nodes[k], head[k] + below[k]
        if up < 0:
            continue
        after[up] = max(after[up], after[k])
        if head[up] + need > width:
            cut.add(k)
            need = reference
        below[up] = max(below[up], need)
    return after, cut


def _lines(words: Sequence[str], nodes: Sequence[_Node]) -> Iterator[str]:
    """Yield the drawing of words and preorder nodes."""
    forks: list[tuple[str, int, int]] = []  # blanks before its column, end of its present child, its own end
    k = 0
    for i, word in enumerate(words):
        opened = []
        while k < len(nodes) and nodes[k][0] == i:
            opened.append(nodes[k])
            k += 1
        ends = [*(end for _, end, _ in opened), i + 1]
        while forks and forks[-1][2] <= i:
            forks.pop()
        if forks:
            pad, _, end = forks.pop()
            forks.append((pad, ends[0], end))
        line = "".join(pad + ("│ " if child < end else "  ") for pad, child, end in forks[:-1])
        line += "".join(pad + ("├─" if child < end else "└─") for pad, child, end in forks[-1:])
        start = len(line)
        for (_, end, label), child in zip(opened, ends[1:], strict=True):
            if label:
                line += " " * bool(line) + label
            if child < end:
                line += " " * bool(label or len(line) > start)
                forks.append((" " * columns(line[start:]), child, end))
                line += "┬─"
                start = len(line)
        yield line + " " * bool(line) + word


def _clipped(text: str, width: int) -> str:
    """Return the text, cut so that it takes no more columns than the width."""
    if columns(text) <= width:
        return text
    while columns(text) >= width:
        text = text[: len(text) - max(1, (columns(text) - width) // 2)]
    return text + "…"
