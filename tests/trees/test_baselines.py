"""Baseline trees against short recursive definitions; the oracle against all binary trees."""

import random
from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm.trees import Tree, tree_from_distances
from onlstm.trees.baselines import balanced, left, oracle, random_tree, right


def words(n):
    return [f"w{i}" for i in range(n)]


def halves(start, end):
    """The spans of the balanced tree, from the definition."""
    n = end - start
    if n < 2:
        return set()
    part = 1
    while 2 * part < n:
        part *= 2
    return {(start, end)} | halves(start, end - part) | halves(end - part, end)


@cache
def binary(start, end):
    """The sets of spans of all binary trees over the words [start, end)."""
    if end - start == 1:
        return (frozenset(),)
    return tuple(
        {(start, end)} | a | b for k in range(start + 1, end) for a in binary(start, k) for b in binary(k, end)
    )


def merged(parts):
    """The probability of each tree of merging a random adjacent pair, by following every choice."""
    if len(parts) == 1:
        return Counter({parts[0]: 1.0})
    found = Counter()
    for k in range(len(parts) - 1):
        for tree, p in merged((*parts[:k], (parts[k], parts[k + 1]), *parts[k + 2 :])).items():
            found[tree] += p / (len(parts) - 1)
    return found


@st.composite
def gold_trees(draw, most=7):
    """Any tree is a binary one without some of its spans."""
    distances = draw(st.lists(st.integers(0, 9), min_size=1, max_size=most))
    spans = tree_from_distances(distances, decoder="unbiased").spans()
    return Tree.from_spans(words(len(distances)), [span for span in spans if draw(st.booleans())])


@pytest.mark.parametrize("n", range(1, 70))
def test_shapes(n):
    whole = {(0, n)} if n > 1 else set()
    assert set(left(words(n)).spans()) | whole == {(0, k) for k in range(2, n + 1)}
    assert set(right(words(n)).spans()) | whole == {(k, n) for k in range(n - 1)}
    assert set(balanced(words(n)).spans()) | whole == halves(0, n)


@given(n=st.integers(1, 40), seed=st.integers(0, 99))
def test_random_trees_are_binary_and_follow_the_seed(n, seed):
    tree = random_tree(words(n), random.Random(seed))
    assert tree.words == tuple(words(n))
    assert len(tree.spans()) == max(0, n - 2)
    assert tree == random_tree(words(n), random.Random(seed))


def test_random_trees_have_the_frequencies_of_random_merges():
    rng, times = random.Random(7), 4000
    seen = Counter(str(random_tree("abcde", rng)) for _ in range(times))
    expected = {
        str(tree).replace("'", "").replace(",", "").replace("(", "( ").replace(")", " )"): p
        for tree, p in merged(tuple("abcde")).items()
    }
    assert len(expected) == 14
    assert set(seen) == set(expected)
    for tree, p in expected.items():
        assert abs(seen[tree] - times * p) < 4.5 * (times * p * (1 - p)) ** 0.5


@given(gold_trees())
def test_no_binary_tree_shares_more_spans_than_the_oracle(gold):
    n, best = len(gold.words), oracle(gold)
    assert best.words == gold.words
    assert len(best.spans()) == max(0, n - 2)
    assert set(gold.spans()) <= set(best.spans())
    assert len(set(gold.spans()) & set(best.spans())) == max(len(set(gold.spans()) & tree) for tree in binary(0, n))


def test_oracle_ignores_labels_and_unary_chains_and_leans_right():
    gold = Tree.from_spans("abcde", [(0, 5, "S"), (0, 5, "VP"), (1, 2, "NP"), (2, 4, "PP"), (2, 4, "X")])
    assert oracle(gold).spans() == ((1, 5), (2, 4), (2, 5))
    assert oracle(Tree.from_spans("a", [(0, 1, "NP")])) == Tree.from_spans("a", [])


def test_long_sentences_need_no_recursion():
    n = 20_000
    for tree in (left(words(n)), right(words(n)), balanced(words(n)), random_tree(words(n), random.Random(0))):
        assert len(tree.nodes) == n - 1
    assert oracle(left(words(n))) == left(words(n))


@pytest.mark.parametrize("build", [left, right, balanced, lambda words: random_tree(words, random.Random(0))])
def test_no_words(build):
    with pytest.raises(ValueError, match="at least one word"):
        build([])
