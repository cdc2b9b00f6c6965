"""Symmetries of pairs: what they make of formulas, and that the truth tables agree with the labels."""

from collections import Counter

import numpy as np
import pytest

from formulas import ids
from onlstm.paper.logic.classifier import Problems
from onlstm.paper.logic.formulas import RELATIONS, VARIABLES, VOCABULARY, Pair, operators
from onlstm.paper.logic.generate import generate
from onlstm.paper.logic.symmetries import NAMES, varied

PAIRS = [pair for pairs in generate(400, seed=3).values() for pair in pairs]


def texts(batch):
    return [" ".join(VOCABULARY[k] for k in formula) for formula in batch.formulas]


def pairs(batch):
    formulas = texts(batch)
    sides = zip(*batch.sides.tolist(), batch.labels.tolist(), strict=True)
    return [Pair(RELATIONS[label], formulas[left], formulas[right]) for left, right, label in sides]


@pytest.mark.parametrize("kinds", [*((name,) for name in NAMES), NAMES], ids="+".join)
def test_relations_are_those_of_the_truth_tables(kinds):
    batch = Problems.of(PAIRS).batch(np.arange(len(PAIRS)))
    variants = [pairs(varied(batch, kinds, np.random.default_rng(seed))) for seed in range(6)]
    for variant in variants:
        assert [pair.truth for pair in variant] == [pair.relation for pair in variant]
        assert [pair.length for pair in variant] == [pair.length for pair in PAIRS]
        assert set(RELATIONS) == {pair.relation for pair in variant}
    assert len(set(map(tuple, variants))) == (2 if kinds == ("dual",) else 6)
    assert varied(batch, kinds, np.random.default_rng(0)).sides.shape == batch.sides.shape


def test_without_symmetries_a_batch_stays():
    batch = Problems.of(PAIRS).batch(np.arange(len(PAIRS)))
    assert pairs(varied(batch, (), np.random.default_rng(0))) == PAIRS


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("commute", "( ( not a ) ( and ( b ( or c ) ) ) )", 4),
        ("commute", "( not ( not a ) )", 1),
        ("rename", "( a ( and b ) )", 30),
        ("dual", "( a ( and ( b ( or c ) ) ) )", 2),
    ],
)
def test_all_variants_of_a_formula_occur_equally_often(kind, text, expected):
    batch = Problems.of([Pair("#", text, text)]).batch(np.arange(1))
    draws = 100 * expected
    seen = Counter(texts(varied(batch, (kind,), np.random.default_rng(seed)))[0] for seed in range(draws))
    assert len(seen) == expected
    assert all(60 <= count <= 145 for count in seen.values())
    assert {operators(variant) for variant in seen} == {operators(text)}


def test_commuted_operands_are_swapped_as_a_whole():
    text = "( ( ( not a ) ( and b ) ) ( or ( not ( c ( and d ) ) ) ) )"
    batch = Problems.of([Pair("#", text, text)]).batch(np.arange(1))
    seen = {texts(varied(batch, ("commute",), np.random.default_rng(seed)))[0] for seed in range(100)}
    left = "( ( not a ) ( and b ) )", "( b ( and ( not a ) ) )"
    right = "( not ( c ( and d ) ) )", "( not ( d ( and c ) ) )"
    orders = [sides for a in left for b in right for sides in ((a, b), (b, a))]
    assert seen == {f"( {first} ( or {second} ) )" for first, second in orders}


def test_variables_are_swapped_alike_in_a_batch():
    batch = Problems.of([Pair("#", name, "a") for name in VARIABLES]).batch(np.arange(6))
    assert sorted(texts(varied(batch, ("rename",), np.random.default_rng(1)))) == list(VARIABLES)
    assert ids("a") == batch.formulas[batch.sides[1, 0]]
