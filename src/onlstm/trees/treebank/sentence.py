"""From the leaves and brackets of one annotated sentence to its gold tree: what every reader of a format ends in."""

from itertools import accumulate, compress
from typing import Literal, NamedTuple

from onlstm.trees.tree import Node, Tree
from onlstm.trees.treebank.profile import Profile, matcher

# Plain tuples: many stay in memory, and the garbage collector skips these.
Leaf = tuple[str, str]  # tag and token
Bracket = tuple[int, int, str]  # the leaves [start, end) and the label


class Sentence(NamedTuple):
    """A sentence as its file has it, and the gold tree of it."""

    leaves: tuple[Leaf, ...]  # all of them, nulls and markup too
    brackets: tuple[Bracket, ...]  # over the leaves, in preorder
    line: int  # where it starts
    gaps: int  # how many nodes were discontinuous
    tree: Tree | None  # without tags among its nodes; None if no word is left
    tags: tuple[str, ...]  # the part of speech of each word of the tree
    length: int  # in words, with punctuation in the tree or without


class Defect(NamedTuple):
    """Something that is not a tree, and the line it starts on."""

    what: str
    line: int
    loses: Literal["sentence", "markup", "line"] = "sentence"  # what the reader leaves out for it


def build(
    leaves: tuple[Leaf, ...], brackets: tuple[Bracket, ...], line: int, gaps: int, profile: Profile, punctuation: bool
) -> Sentence | Defect:
    """Return the sentence of leaves and the nodes over them, in preorder; its tree has punctuation if that is set."""
    roles = [profile.role(tag, token) for tag, token in leaves]
    if all(role == "markup" for role in roles):
        return Defect("markup only", line, "markup")
    text = ("word", "punctuation") if punctuation else ("word",)
    chosen = [role in text for role in roles]
    before = [0, *accumulate(chosen)]  # how many leaves before each are in the tree
    nodes = [Node(before[i], before[j], profile.cut(label)) for i, j, label in brackets if before[i] < before[j]]
    if brackets and (not brackets[0][2] or matcher(profile.roots)(brackets[0][2])):
        nodes = nodes[1:]
    tags = tuple(tag for tag, _ in compress(leaves, chosen))
    words = tuple(profile.spelled(token) for _, token in compress(leaves, chosen))
    try:
        tree = Tree(words=words, nodes=tuple(nodes)) if words else None
    except ValueError as error:
        return Defect(str(error), line)
    return Sentence(leaves, brackets, line, gaps, tree, tags, roles.count("word"))
