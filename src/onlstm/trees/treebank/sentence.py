"""From the leaves and brackets of one annotated sentence to its gold tree: what every reader of a format ends in."""

from collections.abc import Sequence
from itertools import accumulate, compress
from typing import NamedTuple

from onlstm.trees.tree import Node, Tree
from onlstm.trees.treebank.profile import Profile, matcher

Leaf = tuple[str, str]  # tag and token


class Sentence(NamedTuple):
    """A gold tree without tags among its nodes, and what it was made of."""

    tree: Tree | None
    """None where no word is left."""
    tags: tuple[str, ...]
    """One per word."""
    length: int
    """In words, whether the tree holds more or not."""
    line: int
    """Where it starts."""
    leaves: Sequence[Leaf]
    """All there were."""
    gaps: int
    """How many nodes were discontinuous."""


class Defect(NamedTuple):
    """Something that is not a tree; the line it starts on."""

    what: str
    line: int


def sentence(
    leaves: Sequence[Leaf],
    brackets: Sequence[Node],
    line: int,
    profile: Profile,
    punctuation: bool,
    gaps: int = 0,
) -> Sentence | Defect:
    """Return the sentence of leaves and the nodes over them, in preorder."""
    roles = [profile.role(tag, token) for tag, token in leaves]
    if all(role == "markup" for role in roles):
        return Defect("markup only", line)
    kept = ("word", "punctuation") if punctuation else ("word",)
    keeps = [role in kept for role in roles]
    before = [0, *accumulate(keeps)]  # how many leaves are kept before each
    nodes = [Node(before[i], before[j], profile.cut(label or "")) for i, j, label in brackets if before[i] < before[j]]
    if brackets and (not brackets[0].label or matcher(profile.roots)(brackets[0].label)):
        nodes = nodes[1:]
    tags = tuple(tag for tag, _ in compress(leaves, keeps))
    words = tuple(profile.spelled(token) for _, token in compress(leaves, keeps))
    try:
        tree = Tree(words=words, nodes=tuple(nodes)) if words else None
    except ValueError as error:
        return Defect(str(error), line)
    return Sentence(tree, tags, roles.count("word"), line, leaves, gaps)
