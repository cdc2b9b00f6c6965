"""Scores: by hand under every rule, by property, and against the golden figures of the WSJ sample."""

import json
import math
import random
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.trees import Tree, tree_from_distances
from onlstm.trees.baselines import balanced, left, oracle, random_tree, right
from onlstm.trees.f1 import RULES, Counts, Rule, score, tied
from onlstm.trees.treebank import read_treebank

GOLDEN = Path(__file__).parents[1] / "golden" / "parsing_metrics.json"
ALL, SHORT = "rest_fileid_mod3_ne0", "rest_fileid_mod3_ne0|wsj10"
SYSTEMS = {
    "left": lambda gold: left(gold.words),
    "right": lambda gold: right(gold.words),
    "balanced": lambda gold: balanced(gold.words),
    "oracle_right_binarized": oracle,
}

# Unary chains over all words and over two, a one-word node; two words; one word under two nodes; a flat tree.
GOLD = [
    Tree.from_spans(
        "abcde",
        [(0, 5, "S"), (0, 5, "VP"), (0, 2, "NP"), (2, 3, "NP"), (2, 5, "PP"), (3, 5, "NP"), (3, 5, "QP")],
    ),
    Tree.from_spans("ab", [(0, 2, "S")]),
    Tree.from_spans("a", [(0, 1, "FRAG"), (0, 1, "NP")]),
    Tree.from_spans("abc", [(0, 3, "S")]),
]
RIGHT = [right(tree.words) for tree in GOLD]
BY_HAND = {  # precision, recall, F1; [correct, gold, predicted] brackets of each sentence
    "on-lstm": (200 / 3, 275 / 3, 200 / 3, [(2, 3, 3), (0, 0, 0), (0, 0, 0), (0, 0, 1)]),
    "punct": (200 / 3, 275 / 3, 200 / 3, [(2, 3, 3), (0, 0, 0), (0, 0, 0), (0, 0, 1)]),
    "kim2019": (500 / 9, 250 / 3, 1100 / 21, [(2, 4, 3), (0, 0, 0), None, (0, 0, 1)]),
    "kim2019-corpus": (50, 50, 50, [(2, 4, 3), (0, 0, 0), None, (0, 0, 1)]),
    "evalb": (75, 600 / 11, 1200 / 19, [(3, 7, 4), (1, 1, 1), (1, 2, 1), (1, 1, 2)]),
    "evalb-onlstm": (500 / 7, 500 / 6, 1000 / 13, [(3, 4, 4), (1, 1, 1), (0, 0, 0), (1, 1, 2)]),
}
rules = st.sampled_from(sorted(RULES))


@st.composite
def trees(draw, n):
    """Some spans of a binary tree, with labels, some of them twice, and nodes around single words."""
    spans = tree_from_distances(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), decoder="unbiased").spans()
    spans = [*spans, (0, n), *((i, i + 1) for i in range(n))]
    chosen = [span for span in spans for _ in range(draw(st.integers(0, 2)))]
    return Tree.from_spans(["w"] * n, [(i, j, draw(st.sampled_from(["S", "NP", "VP"]))) for i, j in chosen])


@st.composite
def tree_pairs(draw):
    pairs = [(draw(trees(n)), draw(trees(n))) for n in draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))]
    return [gold for gold, _ in pairs], [guess for _, guess in pairs]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_by_hand(rule):
    precision, recall, f1, counts = BY_HAND[rule]
    found = score(GOLD, RIGHT, rule)
    assert (found.precision, found.recall, found.f1) == pytest.approx((precision, recall, f1), abs=1e-5)
    assert list(found.counts) == counts
    assert found.n == 4 - counts.count(None)
    assert found.lengths == (5, 2, 1, 3)
    assert found.skipped == ({"fewer than 2 words": 1} if None in counts else {})
    assert [value is None for value in found.per_sentence] == [value is None for value in counts]
    assert found.rule is RULES[rule]
    assert found.rule.name == rule


def test_sentence_scores_by_hand():
    assert score(GOLD, RIGHT).per_sentence == pytest.approx((200 / 3, 100, 100, 0), abs=1e-5)
    nothing = Tree.from_spans("abcde", [])
    assert score(GOLD[:1], [nothing]).f1 == 0
    assert score([nothing], [nothing]).f1 == pytest.approx(100)


def test_tags_and_depth_by_hand():
    found = score(GOLD, RIGHT)
    assert found.tags == {"NP": (1, 2), "PP": (1, 1), "QP": (1, 1), "S": (3, 3), "VP": (1, 1)}
    assert found.depth == pytest.approx((14 / 5 + 2 / 2 + 0 + 5 / 3) / 4)
    assert score(GOLD, RIGHT, "kim2019").depth == pytest.approx((14 / 5 + 2 / 2 + 5 / 3) / 3)
    twice = Tree.from_spans("abc", [(0, 2, "NP"), (0, 2, "NP"), (0, 2, "X")])
    assert score([twice], [left("abc")]).tags == {"NP": (1, 1), "X": (1, 1)}


@given(st.data(), rules)
def test_a_tree_matches_itself(data, rule):
    gold = [data.draw(trees(n)) for n in data.draw(st.lists(st.integers(2, 9), min_size=1, max_size=4))]
    found = score(gold, gold, rule)
    assert (found.f1, found.precision, found.recall) == pytest.approx((100, 100, 100), abs=1e-5)
    assert all(correct == total for correct, total in found.tags.values())


@given(tree_pairs(), rules, st.randoms())
def test_order_words_and_labels_do_not_matter_to_f1(pairs, rule, rng):
    gold, guess = pairs
    found = score(gold, guess, rule)
    order = list(range(len(gold)))
    rng.shuffle(order)

    def changed(tree):
        return Tree.from_spans([f"x{i}" for i, _ in enumerate(tree.words)], [(i, j, "Z") for i, j, _ in tree.nodes])

    again = score([changed(gold[k]) for k in order], [changed(guess[k]) for k in order], rule)
    assert again.f1 == pytest.approx(found.f1, nan_ok=True)
    assert again.depth == pytest.approx(found.depth, nan_ok=True)
    assert all(again.counts[i] == found.counts[k] for i, k in enumerate(order))


@given(tree_pairs(), st.sampled_from(["on-lstm", "punct", "evalb-onlstm"]))
def test_unary_chains_and_tags_among_the_nodes_matter_to_evalb_alone(pairs, rule):
    gold, guess = pairs
    plain = score([tree.unlabelled() for tree in gold], [tree.unlabelled() for tree in guess], rule)
    assert score(gold, guess, rule).counts == plain.counts
    assert score(gold, guess, rule).depth == pytest.approx(plain.depth)


@given(tree_pairs(), rules)
def test_counts_agree_with_lists_of_brackets(pairs, rule):
    """The definition: cross brackets off one by one."""
    kind = RULES[rule]
    for target, guess, found in zip(*pairs, score(*pairs, rule).counts, strict=True):
        n, lists = len(target.words), []
        for tree in (target, guess):
            every = [node[:2] for node in tree.nodes] or [(0, n)]
            if not any(span == (0, n) for span in every):
                every.append((0, n))
            if not kind.unaries:
                wholes = every.count((0, n))
                every = [span for span in dict.fromkeys(every) if span[1] - span[0] > 1 and span != (0, n)]
                every += [(0, n)] * (n > 1 and wholes >= {"never": 99, "repeated": 2, "always": 1}[kind.whole])
            lists.append(every)
        if found is None:
            assert n < kind.shortest
            continue
        rest, correct = list(lists[1]), 0
        for span in lists[0]:
            if span in rest:
                rest.remove(span)
                correct += 1
        assert found == Counts(correct, len(lists[0]), len(lists[1]))


@pytest.mark.parametrize("rule", ["on-lstm", "evalb"])
def test_interval(rule):
    rng = random.Random(3)
    gold = [random_tree("abcdefghij", rng) for _ in range(300)]
    found = score(gold, [random_tree("abcdefghij", rng) for _ in gold], rule)
    low, high = found.interval()
    assert low < found.f1 < high
    assert (low, high) == found.interval() != found.interval(seed=1)
    # every sentence has as many brackets, so that both averages have the error of a mean
    error = 1.96 * statistics.stdev(found.per_sentence) / len(gold) ** 0.5
    assert (low, high) == pytest.approx((found.f1 - error, found.f1 + error), abs=0.15 * error)
    assert score(gold[:5], gold[:5], rule).interval() == pytest.approx((100, 100))


@pytest.mark.parametrize("rule", RULES)
def test_by_length(rule):
    found = score(GOLD, RIGHT, rule).by_length(width=2)
    expected = {}
    for lengths, few in (((1, 2), (1, 2)), ((3, 4), (3,)), ((5, 6), (0,))):
        part = score([GOLD[k] for k in few], [RIGHT[k] for k in few], rule)
        expected[lengths] = (pytest.approx(part.f1), part.n)
    assert found == expected
    assert list(found) == sorted(found)


def test_nothing_to_score_is_nan():
    found = score(GOLD[2:3], RIGHT[2:3], "kim2019")
    assert found.n == 0
    assert found.skipped == {"fewer than 2 words": 1}
    assert found.by_length() == {}
    assert all(map(math.isnan, (found.f1, found.precision, found.recall, found.depth, *found.interval())))
    assert math.isnan(tied([]))


def test_a_rule_of_ones_own():
    rule = Rule(name="mine", average="corpus", shortest=3)
    found = score(GOLD, RIGHT, rule)
    assert found.counts == ((2, 3, 3), None, None, (0, 0, 1))
    assert found.tags["S"] == (2, 2)  # not those of skipped sentences
    assert found.skipped == {"fewer than 3 words": 2}


def test_tied():
    assert tied([[1.0, 1.0, 1.0], [0.0, 0.5, 1.0]]) == 50
    assert tied([[0.1, 0.2], [0.1, 0.2]]) == 0


def test_mistakes():
    with pytest.raises(UserError, match="rule f1: there are on-lstm, kim2019"):
        score(GOLD, RIGHT, "f1")
    with pytest.raises(UserError, match="4 gold trees but 3 predicted"):
        score(GOLD, RIGHT[:3])
    with pytest.raises(UserError, match="sentence 2: the gold tree has 2 words, the predicted one 1"):
        score(GOLD[1:2] + GOLD[1:2], [RIGHT[1], RIGHT[2]])


@pytest.fixture(scope="module")
def sample(shared):
    return read_treebank(shared / "data" / "wsj-sample" / "wsj-sample-ldc-layout.zip").trees


@pytest.fixture(scope="module")
def per_sentence(shared):
    with np.load(shared / "golden" / "parsing_per_sentence.npz") as arrays:
        return dict(arrays)


@pytest.mark.data
@pytest.mark.parametrize("part", [ALL, SHORT])
@pytest.mark.parametrize("system", SYSTEMS)
def test_golden(sample, system, part):
    gold = [tree for tree in sample if part == ALL or len(tree.words) <= 10]
    guess = [SYSTEMS[system](tree) for tree in gold]
    golden = json.loads(GOLDEN.read_text())
    found, own = score(gold, guess), golden["onlstm_convention"][part][system]
    assert found.n == own["n_sentences"]
    assert found.f1 / 100 == pytest.approx(own["mean_sentence_f1"], abs=1e-12)
    assert found.depth == pytest.approx(own["avg_depth"], abs=1e-9)
    assert {label: list(found.tags[label]) for label in own["label_correct_total"]} == own["label_correct_total"]
    assert (f"{found.precision / 100:.4f}", f"{found.recall / 100:.4f}") == (
        f"{own['mean_prec_printed']:.4f}",
        f"{own['mean_reca_printed']:.4f}",
    )
    evalb = score(gold, guess, "evalb-onlstm")
    printed = [round(value, 2) for value in (evalb.precision, evalb.recall, evalb.f1)]
    assert printed == [own["evalb_prec"], own["evalb_reca"], own["evalb_f1"]]
    kim = golden["kim2019_convention"][part][system]
    assert round(score(gold, guess, "kim2019").f1, 2) == kim["sentence_f1"]
    assert round(score(gold, guess, "kim2019-corpus").f1, 2) == kim["corpus_f1"]
    if part == ALL:
        evalb, own = score(gold, guess, "evalb"), golden["evalb_unlabeled_prm"][part][system]
        printed = [round(value, 2) for value in (evalb.precision, evalb.recall, evalb.f1)]
        assert printed == [own["precision"], own["recall"], own["f1"]]
        assert evalb.n == own["n_sentences"]


@pytest.mark.data
@pytest.mark.parametrize("system", SYSTEMS)
def test_golden_of_each_sentence(sample, per_sentence, system):
    found = score(sample, [SYSTEMS[system](tree) for tree in sample])
    assert list(found.lengths) == per_sentence["length"].tolist()
    columns = [per_sentence[key].tolist() for key in (f"tp.{system}", "n_gold_spans", "n_pred_spans")]
    assert list(found.counts) == list(zip(*columns, strict=True))
    assert np.allclose(np.array(found.per_sentence) / 100, per_sentence[f"f1.{system}"], rtol=0, atol=1e-12)


@pytest.mark.data
def test_golden_random_trees_on_average(sample):
    golden = json.loads(GOLDEN.read_text())["onlstm_convention"][ALL]
    found = [score(sample, [random_tree(tree.words, rng) for tree in sample]) for rng in map(random.Random, range(5))]
    for value, key, scale, margin in (("f1", "mean_sentence_f1", 100, 0.25), ("depth", "avg_depth", 1, 0.02)):
        theirs = statistics.mean(golden[f"random_s{seed}"][key] for seed in range(5))
        assert statistics.mean(getattr(one, value) for one in found) == pytest.approx(scale * theirs, abs=margin)


@pytest.mark.data
def test_the_golden_file_is_a_copy(shared):
    assert GOLDEN.read_bytes() == (shared / "golden" / GOLDEN.name).read_bytes()
