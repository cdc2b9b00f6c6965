"""Induced labels and confidence against gold trees: worked examples, limits, plain definitions."""

import math
import random

import pytest

from onlstm.trees import baselines
from onlstm.trees.calibration import Calibration, calibration
from onlstm.trees.f1 import RULES, score
from onlstm.trees.labels import labelled_score, many_to_one
from onlstm.trees.tree import Tree

GOLD = [
    Tree.from_brackets("(S (NP the cat) (VP saw (NP the dog)))"),
    Tree.from_brackets("(S (NP (NP a dog) (PP on it)) (VP slept here))"),
    Tree.from_brackets("(S (VP (NP old dogs) bark))"),
]
OURS = [
    Tree.from_brackets("(N1 (N2 the cat) (N3 saw (N2 the dog)))"),
    Tree.from_brackets("(N1 (N2 (N2 a dog) (N2 on it)) (N4 slept here))"),
    Tree.from_brackets("(N1 old (N3 dogs bark))"),
]


def test_a_label_stands_for_what_most_of_its_correct_brackets_are():
    assert many_to_one(GOLD, OURS) == {"N2": "NP", "N3": "VP", "N4": "VP"}
    assert many_to_one(GOLD, OURS, "evalb-onlstm") == {"N1": "S", "N2": "NP", "N3": "VP", "N4": "VP"}
    assert many_to_one(GOLD, [tree.unlabelled() for tree in OURS]) == {}
    assert many_to_one([GOLD[1]], [OURS[1].from_brackets("(X (A (B a dog) (A on it)) (A slept here))")])["A"] == "NP"


def test_labelled_scores_count_by_hand():
    meaning = many_to_one(GOLD, OURS)
    f1, accuracy = labelled_score(GOLD, OURS, meaning, "kim2019-corpus")
    assert accuracy == pytest.approx(100 * 6 / 7)  # "on it" is no NP; the third tree has no correct bracket
    assert f1 == pytest.approx(100 * 2 * 6 / (9 + 8), abs=1e-4)  # the whole third sentence is repeated in gold
    assert labelled_score(GOLD, OURS, {}).accuracy == 0
    assert math.isnan(labelled_score(GOLD[2:], OURS[2:], meaning).accuracy)


@pytest.mark.parametrize("rule", RULES)
def test_right_labels_change_nothing(rule):
    rng = random.Random(0)
    guesses = [baselines.random_tree(tree.words, rng) for tree in GOLD]
    named = [Tree.from_spans(tree.words, [(*node[:2], "X") for node in tree.nodes]) for tree in guesses]
    gold = [Tree.from_spans(tree.words, [(*node[:2], "NP") for node in tree.nodes]) for tree in GOLD]
    assert many_to_one(gold, named, rule).get("X", "NP") == "NP"
    assert labelled_score(gold, named, {"X": "NP"}, rule).f1 == pytest.approx(score(gold, guesses, rule).f1)
    assert labelled_score(gold, gold, {"NP": "NP"}, rule) == (pytest.approx(100, abs=1e-5), 100)


def test_calibration_compares_spans_of_equal_length():
    gold = [Tree.from_brackets("((a b) (c d))")] * 2
    pairs = [(0, 2), (2, 4)]
    good = [Tree.from_spans("abcd", pairs, [0.9, 0.8]), Tree.from_spans("abcd", [(1, 3), (1, 4)], [0.1, 0.5])]
    # of two words: 0.1 wrong, 0.8 (in the middle) left out, 0.9 right; of three words: only one, left out
    assert calibration(gold, good) == Calibration(upper=100, lower=0, gap=100)
    tied = [Tree.from_spans("abcd", pairs, [0.5, 0.5]), Tree.from_spans("abcd", [(1, 3)], [0.5])]
    assert calibration(gold, tied) == Calibration(upper=pytest.approx(200 / 3), lower=pytest.approx(200 / 3), gap=0)


def test_calibration_of_trees_that_are_not_sure_is_none():
    assert calibration(GOLD, OURS) is None
    assert calibration(GOLD[:1], [Tree.from_spans(GOLD[0].words, [], [])]) is None
