"""Tree averaging against all binary trees, a slow chart, golden votes; shares, confidence, ties, errors, length."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_files import GOLDEN
from onlstm.trees import Tree, tree_from_distances, vote
from onlstm.trees.average import best_trees, shares, votes

CASES = json.loads((GOLDEN / "treeaverage.json").read_text())
distances = st.lists(st.integers(0, 4) | st.floats(-1, 1), min_size=1, max_size=40)
any_weight = st.integers(0, 3) | st.floats(0.01, 2) | st.sampled_from([0.1, 0.2, 0.3, 0.7])


def all_binary(i, j):
    """The spans of every binary tree over words [i, j), those with the first split first."""
    if j - i == 1:
        return [frozenset()]
    pairs = [(left, right) for k in range(i + 1, j) for left in all_binary(i, k) for right in all_binary(k, j)]
    return [left | right | {(i, j)} for left, right in pairs]


ALL_BINARY = {n: all_binary(0, n) for n in range(1, 8)}


def slow_best(counts, n):
    """The spans of the best binary tree by a chart in plain Python, the first of equally good splits."""
    best = {(i, i + 1): (0, frozenset()) for i in range(n)}
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            j = i + width
            total, k = max((best[i, k][0] + best[k, j][0], -k) for k in range(i + 1, j))
            best[i, j] = total + counts[i, j], best[i, -k][1] | best[-k, j][1] | {(i, j)}
    return best[0, n][1]


def slow_counts(trees, weights):
    counts = Counter()
    for tree, weight in zip(trees, weights or [1] * len(trees), strict=True):
        for span in tree.spans():
            counts[span] += weight
    return counts


@st.composite
def ballots(draw, sizes):
    """1 to 5 trees over the same words, some of them not binary, and weights."""
    n = draw(sizes)
    columns = draw(st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=1, max_size=5))
    spans = [
        [span for span in tree_from_distances(d, None, "unbiased").spans() if draw(st.integers(0, 9))] for d in columns
    ]
    trees = [Tree.from_spans(map(str, range(n)), some) for some in spans]
    return trees, draw(st.none() | st.lists(any_weight, min_size=len(trees), max_size=len(trees)))


@settings(deadline=None)
@given(ballots(st.integers(1, 7)).filter(lambda ballot: all(w % 1 == 0 for w in ballot[1] or ())))
def test_vote_is_the_first_best_of_all_binary_trees(ballot):
    trees, weights = ballot
    counts = slow_counts(trees, weights)
    best = max(ALL_BINARY[len(trees[0].words)], key=lambda spans: sum(counts[span] for span in spans))
    assert vote(trees, weights) == Tree.from_spans(trees[0].words, best)


@settings(deadline=None)
@given(ballots(st.integers(1, 20)))
def test_vote_is_that_of_the_slow_chart_and_its_confidence_is_the_share_of_votes(ballot):
    trees, weights = ballot
    n, counts, tree = len(trees[0].words), slow_counts(*ballot), vote(trees, weights)
    assert tree == Tree.from_spans(trees[0].words, slow_best(counts, n))
    total = sum(weights or [1] * len(trees))
    assert tree.confidence == pytest.approx([counts[span] / total if total else 0 for span in tree.spans()])
    share = shares(trees, weights)
    assert share.shape == (n + 1, n + 1)
    assert tree.confidence == tuple(share[span] for span in tree.spans())
    expected = {span: count / total for span, count in counts.items() if count} | {(0, n): 1}
    assert {tuple(span): share[tuple(span)] for span in np.argwhere(share).tolist()} == pytest.approx(expected)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=12), st.randoms())
def test_many_sentences_vote_as_one_by_one(columns, random):
    forests = [[tree_from_distances(random.sample(d, len(d)), None, "unbiased") for d in columns] for _ in range(3)]
    weights = [random.random() for _ in forests]
    expected = [vote(trees, weights) for trees in zip(*forests, strict=True)]
    elected = votes(forests, weights)
    assert elected == expected
    assert [tree.confidence for tree in elected] == [tree.confidence for tree in expected]


def test_batches_larger_than_a_piece_stay_in_order():
    scores = np.random.default_rng(0).random((700, 17, 17))
    together = best_trees(scores)
    assert together.shape == (700, 14, 2)
    for k in range(0, 700, 23):
        spans = slow_best(scores[k], 16) - {(0, 16)}
        assert list(map(tuple, together[k].tolist())) == sorted(spans)


@settings(deadline=None)
@given(distances)
def test_one_binary_tree_elects_itself(d):
    tree = tree_from_distances(d)
    assert vote([tree]) == tree
    assert set(vote([tree]).confidence) <= {1.0}
    assert vote([tree, tree_from_distances(d[::-1])], [2, 1]) == tree


def test_unanimous_votes_of_uneven_weights_have_confidence_one():
    tree = Tree.from_brackets("((a b) (c d))")
    assert vote([tree] * 10, [0.1] * 10).confidence == (1.0, 1.0)


def test_without_votes_the_tree_branches_to_the_right():
    tree = vote([Tree.from_brackets("((a b) (c d))")], [0])
    assert (str(tree), tree.confidence) == ("( a ( b ( c d ) ) )", (0.0, 0.0))
    assert best_trees(np.zeros((1, 5, 5))).tolist() == [[[1, 4], [2, 4]]]


def test_labels_and_unary_chains_do_not_vote():
    gold = Tree.from_brackets("(S (NP (NP (DT the) (NN owl))) (VP (VBD sat)))")
    assert vote([gold]) == gold.unlabelled()
    assert shares([gold]).sum() == 2


@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_words_have_no_spans(n):
    words = ["grey", "owl"][:n]
    tree = vote([Tree.from_spans(words, [])] * 2)
    assert (tree.words, tree.spans(), tree.confidence) == (tuple(words), (), ())
    assert best_trees(np.ones((3, n + 1, n + 1))).shape == (3, 0, 2)
    assert np.argwhere(shares([tree])).tolist() == [[0, n]]


def test_no_sentences_and_no_batch():
    assert votes([[], []]) == []
    assert best_trees(np.ones((0, 4, 4))).shape == (0, 1, 2)


def test_scores_may_be_negative_or_of_any_type():
    scores = np.full((1, 4, 4), -1, np.float16)
    scores[0, 0, 2] = -0.5
    assert best_trees(scores).tolist() == best_trees((4 * scores).astype(int)).tolist() == [[[0, 2]]]


def test_a_thousand_words():
    rng = np.random.default_rng(0)
    tree = tree_from_distances(rng.random(1000).tolist(), None, "unbiased")
    noisy = shares([tree]) + rng.random((1001, 1001)) / 2000
    assert tuple(map(tuple, best_trees(noisy[None])[0].tolist())) == tree.spans()


def golden_tree(n, spans):
    return Tree.from_spans(map(str, range(n)), spans)


@pytest.mark.parametrize("case", CASES["groups"])
def test_golden_votes(case):
    trees = [golden_tree(case["n"], spans) for spans in case["trees"]]
    counts = slow_counts(trees, None)
    scores = [sum(counts[span] for span in tree.spans()) for tree in [vote(trees), *trees]]
    assert scores[0] == case["score"]
    assert (max(scores[1:]), scores[1:].index(max(scores[1:]))) == (case["best_input_score"], case["best_input"])
    assert sum(vote(trees).confidence) * len(trees) == pytest.approx(case["score"])


@pytest.mark.parametrize("case", CASES["weighted"])
def test_golden_weighted_votes(case):
    n, weights = case["n"], case["weights"]
    trees = [golden_tree(n, spans) for spans in case["trees"]]
    counts = shares(trees, weights) * sum(weights)
    counts[counts < case["ignore_at_most"] + 0.1] = 0  # the counts are multiples of 0.5
    starts, ends = best_trees(counts[None])[0].T
    assert counts[starts, ends].sum() == pytest.approx(case["score"], abs=1e-9)
    if not case["ignore_at_most"]:
        assert sum(vote(trees, weights).confidence) * sum(weights) == pytest.approx(case["score"], abs=1e-9)


@pytest.mark.data
def test_the_golden_file_is_a_copy(shared):
    original = shared / "golden" / "treeaverage" / "treeaverage.json"
    assert (GOLDEN / "treeaverage.json").read_bytes() == original.read_bytes()


@pytest.mark.parametrize("function", [vote, shares])
@pytest.mark.parametrize(
    ("texts", "weights", "message"),
    [
        ([], None, "no trees"),
        (["(a (b c))", "(a (b d))"], None, "trees 0 and 1 have different words"),
        (["(a b)"], [1, 2], "2 weights for 1 trees"),
        (["(a b)"], [], "0 weights for 1 trees"),
        (["(a b)"], [-1], "weight -1"),
        (["(a b)"], [math.nan], "weight nan"),
        (["(a b)"], [math.inf], "weight inf"),
    ],
)
def test_bad_votes_are_refused(function, texts, weights, message):
    with pytest.raises(ValueError, match=message):
        function([Tree.from_brackets(text) for text in texts], weights)


@pytest.mark.parametrize("shape", [(4, 4), (1, 4, 5), (1, 1, 1), (2, 3, 4, 4)])
def test_scores_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="scores have shape"):
        best_trees(np.zeros(shape))
