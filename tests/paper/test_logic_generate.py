"""Generated pairs of formulas: what they are, their distribution, and the published ones."""

import random
import re
import subprocess
import sys
import zipfile
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from onlstm.paper.logic import generate as generator
from onlstm.paper.logic.formulas import (
    EVERYWHERE,
    OPERATORS,
    RELATIONS,
    VARIABLES,
    VOCABULARY,
    operators,
    read,
    relation,
    truth,
)
from onlstm.paper.logic.generate import generate

SHARED = Path(__file__).parents[3] / "shared" / "data" / "logic"


def kept(groups):
    return [(n, pair) for n, pairs in groups.items() for pair in pairs]


@pytest.fixture(scope="module")
def drawn():
    return generate(20_000, seed=3)


def test_generated_pairs_are_what_they_should_be(drawn):
    assert list(drawn) == list(range(13))
    assert Counter(pair.relation for _, pair in kept(drawn)).keys() == set(RELATIONS)
    for n, pair in kept(drawn):
        assert pair.length == n
        assert pair.relation == pair.truth
        assert {0, EVERYWHERE}.isdisjoint((truth(pair.left), truth(pair.right)))
        assert len(set(f"{pair.left} {pair.right}".split()) & set(VARIABLES)) <= 4
    assert all(len(set(pairs)) == len(pairs) for pairs in drawn.values())
    assert {name for _, pair in kept(drawn) for name in pair.left.split()} == set(VOCABULARY)


def test_seeds(drawn):
    assert generate(300, seed=1) == generate(300, seed=1) != generate(300, seed=2)
    assert [kept(generate(50, seed=3))[0]] == kept(drawn)[:1]


def straightforward(rng, depth):
    """The distribution as it is told: one formula, as text."""
    if depth and rng.random() < 4 / 9:
        text = (
            f"( {straightforward(rng, depth - 1)} ( {rng.choice(('and', 'or'))} {straightforward(rng, depth - 1)} ) )"
        )
    else:
        text = rng.choice("abcd")
    return f"( not {text} )" if rng.random() < 1 / 3 else text


def shape(left, right):
    """The pair with its variables in order of appearance, as one text."""
    names = {}
    words = f"{left} ; {right}".split()
    return " ".join(w if w in (*OPERATORS, "(", ")", ";") else f"x{names.setdefault(w, len(names))}" for w in words)


def test_the_distribution_is_that_of_drawing_straightforwardly(monkeypatch):
    n, rng = 30_000, random.Random(5)
    theirs = []
    while len(theirs) < n:
        left, right = straightforward(rng, 3), straightforward(rng, 3)
        if {0, EVERYWHERE}.isdisjoint((truth(left), truth(right))):
            theirs.append((left, right))
    # so many names that hardly a pair is drawn twice
    monkeypatch.setattr(generator, "VARIABLES", [f"n{i}" for i in range(10**6)])
    ours = [pair[1:] for _, pair in kept(generate(n, seed=5))]
    assert len(ours) > 0.999 * n
    lengths = [Counter(max(map(operators, sides)) for sides in pairs) for pairs in (ours, theirs)]
    shapes = [Counter(shape(*sides) for sides in pairs) for pairs in (ours, theirs)]
    for seen, known in (lengths, shapes):
        for what in known:
            assert abs(seen[what] - known[what]) < 4.5 * (2 * known[what] + 9) ** 0.5, what
    means = [sum(k * pairs for k, pairs in counts.items()) / n for counts in lengths]
    assert means[0] == pytest.approx(means[1], abs=0.08)
    distinct = [
        sum(len(set(re.findall(r"x\d", key))) * pairs for key, pairs in counts.items()) / n for counts in shapes
    ]
    assert distinct[0] == pytest.approx(distinct[1], abs=0.02)


def test_no_torch_is_needed():
    code = "import sys, onlstm.paper.logic.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.data
def test_published_labels_are_those_of_the_truth_tables():
    """Every fourth of them, of all lengths: all 249,069 take nine seconds."""
    if not SHARED.exists():
        pytest.skip("no published pairs in ../shared/data/logic")
    files = read(SHARED)
    assert list(files) == [f"{part}{n}" for part in ("train", "test") for n in range(13)]
    assert sum(len(pairs) for name, pairs in files.items() if name.startswith("train")) == 211_702
    assert sum(len(pairs) for name, pairs in files.items() if name.startswith("test")) == 37_367
    table = cache(truth)  # many formulas return
    for name, pair in kept(files)[::4]:
        assert relation(table(pair.left), table(pair.right)) == pair.relation
        assert pair.length == int(name.lstrip("tesrain"))


@pytest.mark.data
def test_generated_lengths_and_relations_resemble_the_published_ones():
    """The published pairs are 500,000 draws; of 50,000 fewer are duplicates, so only long lengths are compared."""
    if not SHARED.exists():
        pytest.skip("no published pairs in ../shared/data/logic")
    ours = generate(50_000, seed=2)
    theirs = {n: [] for n in ours}
    with zipfile.ZipFile(SHARED / "logic.zip") as archive:
        for kind, n in product(("train", "test"), ours):
            theirs[n] += [line[:1] for line in archive.read(f"logic/{kind}{n}").decode().splitlines()]
    for n in range(8, 13):
        assert len(ours[n]) == pytest.approx(len(theirs[n]) / 10, rel=0.15)
    labels = Counter(pair.relation for n in range(8, 13) for pair in ours[n])
    known = Counter(label for n in range(8, 13) for label in theirs[n])
    for name in RELATIONS:
        assert labels[name] / labels.total() == pytest.approx(known[name] / known.total(), abs=0.02)
