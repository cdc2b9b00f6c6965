"""A tree over some of its words: what is left of it if a parser reads more words than are scored."""

from bisect import bisect_left
from collections.abc import Sequence

from onlstm.trees.tree import Node, Tree


def restricted(tree: Tree, positions: Sequence[int], words: Sequence[str] | None = None) -> Tree:
    """Return the tree over the words at `positions`, in order; `words` replaces how they are written.

    Of nodes that then have the same words the outermost stays, with the largest of their `confidence`.

    >>> tree = Tree.from_brackets("(S (NP it) (VP cost (QP $ (N 10 million))))", labelled=True)
    >>> print(restricted(tree, [0, 1, 3, 4]))
    (S (NP it) (VP cost (QP 10 million)))
    """
    if len(positions) == len(tree.words) and words is None:
        return tree
    sure = dict(zip(tree.spans(), tree.confidence or (), strict=False))
    nodes: dict[tuple[int, int], str | None] = {}
    confidence: dict[tuple[int, int], float] = {}
    for start, end, label in tree.nodes:  # in preorder: the outermost first
        span = bisect_left(positions, start), bisect_left(positions, end)
        if span[0] < span[1]:
            nodes.setdefault(span, label)
            confidence[span] = max(confidence.get(span, 0.0), sure.get((start, end), 0.0))
    kept = Tree(
        words=tuple(words if words is not None else (tree.words[i] for i in positions)),
        nodes=tuple(Node(*span, label) for span, label in nodes.items()),
    )
    if tree.confidence is None:
        return kept
    return Tree(words=kept.words, nodes=kept.nodes, confidence=tuple(confidence[span] for span in kept.spans()))
