"""Forests and their scores: against the parser and the metrics they are made of."""

import statistics
from functools import partial

import pytest
import torch

from helpers import random_model
from onlstm.paper.parsing.alignment import Reading
from onlstm.paper.parsing.rows import Forest, baselines, forests, rows, untrained, votes
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees import Tree, vote
from onlstm.trees import baselines as branching
from onlstm.trees.f1 import score, tied

GOLD = [
    Tree.from_brackets(text)
    for text in (
        "(S (NP the (ADJP very old) cat) (VP slept (PP on (NP the mat))))",
        "(S (NP (NP dogs) (SBAR that (VP saw (NP the cat)))) (VP slept))",
        "(INTJ oh dear)",
        "(S (NP a dog) (VP saw (NP the cat (PP on (NP the old mat (PP in (NP the very old house)))))))",
        "(X yes)",
    )
]
WORDS = sorted({word for tree in GOLD for word in tree.words})
model = partial(random_model, Tokenizer.of_words(WORDS), torch.float64, spread=1.5, num_layers=3, chunk_size=2)


READS = [Reading.plain(tree) for tree in GOLD]


def test_forests_are_the_parsers_trees():
    small = model()
    made = forests(Parser(small), READS, system="onlstm", layers=[1, 3, (1, 2)], decoders=("paper", "unbiased"))
    assert [(each.layer, each.decoder) for each in made] == [
        (layer, decoder) for layer in (1, 3, (1, 2)) for decoder in ("paper", "unbiased")
    ]
    for each in made:
        parses = Parser(small, layer=each.layer, decoder=each.decoder).parse([tree.words for tree in GOLD])
        assert each.trees == [parse.tree for parse in parses]
        assert each.distances == [pytest.approx(parse.distances) for parse in parses]


def test_words_that_are_read_but_not_scored_leave_no_trace_in_the_tree():
    """The model reads "the cat $ slept"; the tree is that of the three other words' distances in it."""
    small = model()
    gold = Tree.from_brackets("(S (NP the cat) slept)")
    read = ["the", "cat", "mat", "slept"]
    [d] = Parser(small).distances([read])
    [made] = forests(Parser(small), [Reading(gold, read, [0, 1, 3])], system="x", layers=[1], decoders=("unbiased",))
    first, last = d[0][1], d[0][3]
    assert made.trees[0].words == ("the", "cat", "slept")
    assert made.trees[0].spans() == (((1, 3),) if first >= last else ((0, 2),))


def test_vote_is_over_all_layers_and_decoders():
    made = forests(Parser(model()), READS, system="onlstm", decoders=("paper", "unbiased", "vote"))
    *each, agreed = made
    assert (agreed.layer, agreed.decoder, agreed.distances, len(each)) == ((1, 2, 3), "vote", None, 6)
    assert (
        agreed.trees == [vote(trees) for trees in zip(*(forest.trees for forest in each), strict=True)] == votes(each)
    )


def test_vote_can_stand_alone():
    asked = {"system": "onlstm", "layers": [1, 2]}
    [agreed] = forests(Parser(model()), READS, **asked, decoders=("vote",))
    assert agreed.trees == forests(Parser(model()), READS, **asked, decoders=("paper", "unbiased", "vote"))[-1].trees


def test_baselines_are_all_there():
    made = baselines(GOLD)
    assert [each.system for each in made] == ["left", "right", "balanced", *["random"] * 5, "oracle"]
    assert made[1].trees == [branching.right(tree.words) for tree in GOLD]
    assert len({tuple(each.trees) for each in made[3:8]}) == 5
    assert {tree.words for tree in made[-1].trees} == {tree.words for tree in GOLD}


@pytest.mark.parametrize("rule", ["on-lstm", "kim2019-corpus"])
def test_rows_are_scores(rule):
    made = forests(Parser(model()), READS, system="onlstm", run="run", decoders=("paper",))
    found = rows(GOLD, made, rule)
    assert [(row.layer, row.subset) for row in found] == [(k, s) for s in ("all", "len<=10") for k in (1, 2, 3)]
    for row, forest in zip(found, made * 2, strict=True):
        keep = [i for i, tree in enumerate(GOLD) if row.subset == "all" or len(tree.words) <= 10]
        trees = [forest.trees[i] for i in keep]
        expected = score([GOLD[i] for i in keep], trees, rule)
        assert (row.f1, row.precision, row.recall, row.n) == (
            expected.f1,
            expected.precision,
            expected.recall,
            expected.n,
        )
        assert row.skipped == expected.skipped == ({} if rule == "on-lstm" else {"fewer than 2 words": 1})
        assert (row.tags, row.depth, row.ci95) == (expected.tags, expected.depth, expected.interval())
        assert row.f1_to_right == score([branching.right(tree.words) for tree in trees], trees, rule).f1
        assert (row.system, row.run, row.rule) == ("onlstm", "run", rule)
        assert row.ties == tied(forest.distances[i] for i in keep)
    assert found[0].n == found[3].n + 1 == len(GOLD) - (rule != "on-lstm")


def test_rows_of_several_runs_get_a_mean_with_the_best_ones_tags():
    made = [
        forest
        for seed in range(3)
        for forest in forests(Parser(model(seed=seed)), READS, system="onlstm", run=f"seed {seed}", decoders=("paper",))
    ]
    found = [row for row in rows(GOLD, made, subsets=["all"]) if row.layer == 2]
    each, mean = found[:3], found[3]
    values = [row.f1 for row in each]
    assert [row.run for row in found] == ["seed 0", "seed 1", "seed 2", None]
    assert (mean.runs, mean.f1, mean.max) == (3, pytest.approx(statistics.mean(values)), max(values))
    assert mean.deviation == pytest.approx(statistics.stdev(values))
    assert mean.tags == each[values.index(max(values))].tags
    assert mean.ci95 is None
    for k, (_, _, f1, n) in enumerate(mean.by_length):
        assert f1 == pytest.approx(statistics.mean(row.by_length[k][2] for row in each))
        assert n == each[0].by_length[k][3]


def test_rows_of_random_trees_are_one_mean():
    [row] = rows(GOLD, [each for each in baselines(GOLD) if each.system == "random"], subsets=["all"])
    values = [
        score(GOLD, each.trees).f1 for each in baselines(GOLD) if each.system == "random"
    ]  # made again: the same seeds
    assert (row.runs, row.f1) == (5, pytest.approx(statistics.mean(values)))


def test_rows_of_no_sentence_are_undefined():
    long = [GOLD[3]]
    [row] = rows(long, [Forest(system="trees", trees=[branching.left(long[0].words)])], subsets=["len<=10"])
    assert (row.f1, row.ci95, row.n, row.depth) == (None, None, 0, None)


def test_untrained_is_the_same_shape_and_does_not_touch_the_random_numbers():
    small = model(parse_layer=3).float()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    blank = untrained(small)
    assert torch.equal(before, torch.get_rng_state())
    assert blank.config == small.config
    assert blank.tokenizer is small.tokenizer
    assert not torch.equal(blank.embedding.weight, small.embedding.weight)
    assert torch.equal(blank.embedding.weight, untrained(small).embedding.weight)
