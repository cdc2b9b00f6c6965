"""The decoders: golden trees, their recursive definitions, all binary trees, errors, great length."""

import json
import math
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm.trees import Tree, tree_from_distances

CASES = json.loads((Path(__file__).parents[1] / "golden" / "trees.json").read_text())["cases"]
decoders = pytest.mark.parametrize("decoder", ["paper", "unbiased"])
distances = st.lists(st.integers(0, 4) | st.floats(-1, 1), min_size=1, max_size=40)


def first_maximum(d):
    return max(range(len(d)), key=lambda i: (d[i], -i))


def paper(d, words):
    """((x<i) (x_i (x>i))), missing parts left out."""
    if len(words) == 1:
        return words[0]
    i = first_maximum(d)
    right = f"( {words[i]} {paper(d[i + 1 :], words[i + 1 :])} )" if words[i + 1 :] else words[i]
    return f"( {paper(d[:i], words[:i])} {right} )" if i else right


def unbiased(d, words):
    """((x<i) (x>=i)), i not the first."""
    if len(words) == 1:
        return words[0]
    i = 1 + first_maximum(d[1:])
    return f"( {unbiased(d[:i], words[:i])} {unbiased(d[i:], words[i:])} )"


@cache
def binary_trees(i, j):
    """The spans of every binary tree over words [i, j), those with the first split first."""
    if j - i == 1:
        return [frozenset()]
    return [
        left | right | {(i, j)} for k in range(i + 1, j) for left in binary_trees(i, k) for right in binary_trees(k, j)
    ]


@decoders
def test_the_golden_trees_match_exactly(decoder):
    prefix = "" if decoder == "paper" else "unbiased_"
    assert len(CASES) == 200
    for case in CASES:
        tree = tree_from_distances(case["distances"], decoder=decoder)
        assert tree.brackets() == case[prefix + "brackets"].strip()
        assert [list(span) for span in tree.spans()] == case[prefix + "spans"]
        assert Tree.from_brackets(case[prefix + "brackets"]) == tree


@decoders
@settings(deadline=None)
@given(d=distances)
def test_the_tree_is_that_of_the_recursive_definition(decoder, d):
    words = [f"w{i}" for i in range(len(d))]
    assert tree_from_distances(d, words, decoder).brackets() == {"paper": paper, "unbiased": unbiased}[decoder](
        d, words
    )


@settings(deadline=None)
@given(distances, st.floats(-9, 9))
def test_the_unbiased_decoder_does_not_use_the_first_distance(d, other):
    assert tree_from_distances([other, *d[1:]], decoder="unbiased") == tree_from_distances(d, decoder="unbiased")


def test_the_papers_decoder_uses_the_first_distance():
    assert str(tree_from_distances([0.1, 0.3, 0.9])) == "( ( 0 1 ) 2 )"
    assert str(tree_from_distances([1.0, 0.3, 0.9])) == "( 0 ( 1 2 ) )"


def test_the_unbiased_decoder_can_build_every_binary_tree_and_the_papers_cannot():
    every = {Tree.from_spans("01234", spans) for spans in binary_trees(0, 5)}
    assert {tree_from_distances(d, decoder="unbiased") for d in product(range(4), repeat=5)} == every
    built = {tree_from_distances(d) for d in product(range(5), repeat=5)}
    assert every - built == {Tree.from_brackets("((0 1) ((2 3) 4))")}


@decoders
@pytest.mark.parametrize("shape", ["rising", "falling", "constant"])
def test_200_000_words_in_any_order(shape, decoder):
    n = 200_000
    d = {"rising": range(n), "falling": range(n, 0, -1), "constant": [0.5] * n}[shape]
    nodes = tree_from_distances(d, decoder=decoder).nodes
    assert len(nodes) == n - 1
    if shape == "rising":
        assert all(node == (0, n - k, None) for k, node in enumerate(nodes))
    else:
        assert all(node == (k, n, None) for k, node in enumerate(nodes))


@decoders
def test_one_and_two_words(decoder):
    assert str(tree_from_distances([0.5], ["owl"], decoder)) == "owl"
    assert str(tree_from_distances([0.1, 0.9], ["grey", "owl"], decoder)) == "( grey owl )"
    assert str(tree_from_distances([0.9, 0.1], ["grey", "owl"], decoder)) == "( grey owl )"


@decoders
@pytest.mark.parametrize(
    ("d", "words", "message"),
    [
        ([], None, "at least one word"),
        ([], [], "at least one word"),
        ([0.1, 0.2], ["owl"], "1 words but 2 distances"),
        ([0.1, math.nan], ["grey", "owl"], r"distance 1 \('owl'\) is nan"),
        ([math.inf, 0.1], ["grey", "owl"], r"distance 0 \('grey'\) is inf"),
        ([0.1, -math.inf], None, r"distance 1 \('1'\) is -inf"),
    ],
)
def test_bad_distances_are_refused(d, words, message, decoder):
    with pytest.raises(ValueError, match=message):
        tree_from_distances(d, words, decoder)


def test_an_unknown_decoder_is_refused():
    with pytest.raises(ValueError, match="unknown decoder 'greedy': choose one of paper, unbiased"):
        tree_from_distances([0.1], decoder="greedy")
