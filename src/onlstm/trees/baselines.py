"""Trees that know nothing of the sentence, and the best a binary tree can do: what stands beside every parser."""

import random
from collections.abc import Sequence

from onlstm.trees.decode import tree_from_distances
from onlstm.trees.tree import Tree


def left(words: Sequence[str]) -> Tree:
    """Return the left-branching tree.

    >>> print(left("the cat sat down".split()))
    ( ( ( the cat ) sat ) down )
    """
    return Tree.from_spans(words, [(0, end) for end in range(2, len(words) + 1)])


def right(words: Sequence[str]) -> Tree:
    """Return the right-branching tree.

    >>> print(right("the cat sat down".split()))
    ( the ( cat ( sat down ) ) )
    """
    return Tree.from_spans(words, [(start, len(words)) for start in range(len(words) - 1)])


def balanced(words: Sequence[str]) -> Tree:
    """Return the balanced tree: the right part of n words has 2^(ceil(log2 n) - 1), as in the original code.

    >>> print(balanced("the black cat sat down".split()))
    ( the ( ( black cat ) ( sat down ) ) )
    """
    spans, rest = [], [(0, len(words))]
    while rest:
        start, end = rest.pop()
        if end - start > 1:
            spans.append((start, end))
            middle = end - (1 << (end - start - 1).bit_length() - 1)
            rest += [(start, middle), (middle, end)]
    return Tree.from_spans(words, spans)


def random_tree(words: Sequence[str], rng: random.Random) -> Tree:
    """Return the tree of merging a random adjacent pair until one is left.

    The pairs merged are the inner boundaries in random order, so the rank of a boundary is its height.

    >>> print(random_tree("the cat sat".split(), random.Random(1)))
    ( ( the cat ) sat )
    """
    inner = len(words) - 1
    return tree_from_distances([0, *rng.sample(range(inner), inner)] if words else [], words, "unbiased")


def oracle(gold: Tree) -> Tree:
    """Return a binary tree with all spans of `gold`, wider nodes branching to the right: no binary tree scores better.

    >>> print(oracle(Tree.from_brackets("(S (NP the black cat) (VP sat down))")))
    ( ( the ( black cat ) ) ( sat down ) )
    """
    nodes = iter(gold.unlabelled().nodes)
    node = next(nodes, None)
    ends: list[int] = []  # of open nodes
    spans: set[tuple[int, int]] = set()
    for i in range(len(gold.words)):
        while node and node.start == i:
            spans.add((i, ends[-1] if ends else node.end))
            ends.append(node.end)
            node = next(nodes, None)
        spans.update((i, end) for end in ends[-1:])
        while ends and ends[-1] == i + 1:
            ends.pop()
    return Tree.from_spans(gold.words, [(start, end) for start, end in spans if end - start > 1])
