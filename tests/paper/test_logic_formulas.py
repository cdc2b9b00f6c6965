"""Formulas against a naive evaluator, relations against sets, mistakes and bad lines, generated and published pairs."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.paper.logic.formulas import (
    NAMES,
    OPERATORS,
    RELATIONS,
    VARIABLES,
    VOCABULARY,
    Pair,
    check,
    length,
    operators,
    parse,
    published,
    read,
    related,
    relation,
    rename,
    truth,
)
from onlstm.paper.logic.generate import generate, split

SHARED = Path(__file__).parents[3] / "shared" / "data" / "logic"
SWAPPED = {"<": ">", ">": "<", "=": "=", "^": "^", "|": "|", "#": "#", "v": "v"}
WORLDS = [dict(zip(VARIABLES, values, strict=True)) for values in product((False, True), repeat=6)]

formulas = st.recursive(
    st.sampled_from(VARIABLES),
    lambda inner: st.one_of(
        st.builds("( not {} )".format, inner),
        st.builds("( {} ( {} {} ) )".format, inner, st.sampled_from(("and", "or")), inner),
    ),
    max_leaves=9,
)


def holds(formula, world):
    """The naive evaluator: the text itself, read as Python."""
    python = formula.replace("( and ", "and ( ").replace("( or ", "or ( ")
    return eval(python, {}, world)


def models(formula):
    return {k for k, world in enumerate(WORLDS) if holds(formula, world)}


def by_sets(left, right):
    """MacCartney's definitions, for formulas neither always nor never true."""
    if left == right:
        return "="
    if left < right:
        return "<"
    if left > right:
        return ">"
    exclusive, exhaustive = not left & right, len(left | right) == len(WORLDS)
    return {(True, True): "^", (True, False): "|", (False, True): "v", (False, False): "#"}[exclusive, exhaustive]


def written(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@settings(deadline=None)
@given(formulas)
def test_truth_tables_are_those_of_the_naive_evaluator(formula):
    table = truth(formula)
    for world in WORLDS:
        assignment = sum(world[name] << i for i, name in enumerate(VARIABLES))
        assert bool(table >> assignment & 1) == holds(formula, world)
    assert table < 1 << 64


@settings(deadline=None)
@given(formulas, formulas)
def test_relations_are_those_of_the_sets(left, right):
    x, y = models(left), models(right)
    contingent = all(0 < len(side) < len(WORLDS) for side in (x, y))
    assert relation(left, right) == (by_sets(x, y) if contingent else "#")
    assert relation(right, left) == SWAPPED[relation(left, right)]


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        ("( a ( and b ) )", "a", "<"),
        ("a", "( a ( and b ) )", ">"),
        ("a", "( not ( not a ) )", "="),
        ("( a ( or b ) )", "( ( not a ) ( and ( not b ) ) )", "^"),
        ("( a ( and b ) )", "( not a )", "|"),
        ("( a ( or b ) )", "( not a )", "v"),
        ("a", "b", "#"),
        ("( a ( or ( not a ) ) )", "b", "#"),
        ("b", "( a ( and ( not a ) ) )", "#"),
        ("( a ( and ( not a ) ) )", "( b ( and ( not b ) ) )", "#"),
    ],
)
def test_each_relation_and_what_becomes_of_tautologies(left, right, found):
    assert relation(left, right) == found


def test_any_variables_can_be_given():
    assert truth("rain", ["sun", "rain"]) == 0b1100
    assert relation("( p1 ( and Ä ) )", "Ä", ["p1", "Ä"]) == "<"
    for variables in (["a", "a"], ["a", "not"]):
        with pytest.raises(UserError, match="variables are different"):
            truth("a", variables)


def test_words_of_the_language():
    assert len(VOCABULARY) == 11
    assert RELATIONS == tuple(NAMES) == ("<", ">", "=", "^", "|", "#", "v")
    assert NAMES["v"] == "cover"
    assert NAMES["|"] == "alternation"


@settings(deadline=None)
@given(formulas)
def test_blanks_do_not_matter_and_postfix_order_keeps_every_word(formula):
    tight = formula.replace("( ", "(").replace(" )", ")")
    assert check(f"  {tight}\t") == check(formula) == formula
    words = [word for word in formula.split() if word not in "()"]
    assert Counter(parse(tight)) == Counter(words)
    assert operators(formula) == sum(word in OPERATORS for word in words)


def test_very_deep_formulas():
    formula = "( not " * 5001 + "a" + " )" * 5001
    assert truth(formula) == truth("( not a )")


@pytest.mark.parametrize(
    ("text", "token", "character", "what"),
    [
        ("", 1, 1, 'a variable or "(" expected, found the end'),
        ("a b", 2, 3, 'the end expected, found "b"'),
        ("( a and b )", 3, 5, '"(" expected, found "and"; write ( a ( and b ) )'),
        ("a or b", 2, 3, 'the end expected, found "or"; write ( a ( or b ) )'),
        ("(and a b)", 2, 2, '"not", a variable or "(" expected, found "and"; write ( a ( and b ) )'),
        ("( not not a )", 3, 7, 'a variable or "(" expected, found "not"; each "not" has its own brackets: ( not a )'),
        ("( not a", 4, 8, '")" expected, found the end'),
        ("( not a ) )", 5, 11, 'the end expected, found ")"'),
        ("(a (b))", 4, 5, '"and" or "or" expected, found "b"'),
        ("( a )", 3, 5, '"(" expected, found ")"; these brackets hold one formula alone'),
        ("( a ( and ) )", 5, 11, 'a variable or "(" expected, found ")"'),
        ("( a ( and b c ) )", 6, 13, '")" expected, found "c"'),
        ("( a ( and b ) c )", 7, 15, '")" expected, found "c"'),
        ("( a   (AND b) )", 4, 8, 'unknown word "AND"; the variables are a b c d e f'),
        ("( g ( and b ) )", 2, 3, 'unknown word "g"; the variables are a b c d e f'),
    ],
)
def test_mistakes_are_named_with_their_place(text, token, character, what):
    for use in (parse, check, truth, lambda text: relation("a", text)):
        with pytest.raises(UserError) as error:
            use(text)
        assert str(error.value) == f"token {token} (character {character}): {what}"


def holds_strictly(text):
    """A recursive reader of the same language, raising SyntaxError, that knows nothing of expectations."""
    words = text.split()

    def formula(i):
        if words[i : i + 1] == ["("] and words[i + 1 : i + 2] == ["not"]:
            value, i = formula(i + 2)
            return not value, close(i)
        if words[i : i + 1] == ["("]:
            left, i = formula(i + 1)
            if words[i : i + 1] != ["("] or words[i + 1 : i + 2] not in (["and"], ["or"]):
                raise SyntaxError
            right, j = formula(i + 2)
            value = (left and right) if words[i + 1] == "and" else (left or right)
            return value, close(close(j))
        if i < len(words) and words[i] in VARIABLES:
            return WORLDS[21][words[i]], i + 1
        raise SyntaxError

    def close(i):
        if words[i : i + 1] != [")"]:
            raise SyntaxError
        return i + 1

    value, end = formula(0)
    if end != len(words):
        raise SyntaxError
    return value


@settings(deadline=None)
@given(formulas, st.data())
def test_with_one_word_exchanged_it_is_still_a_formula_or_refused(formula, data):
    words = formula.split()
    words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from(VOCABULARY))
    text = " ".join(words)
    try:
        parse(text)
    except UserError:
        with pytest.raises(SyntaxError):
            holds_strictly(text)
    else:
        assert holds_strictly(text) in (True, False)


@settings(deadline=None)
@given(
    st.lists(st.tuples(formulas, formulas), min_size=1, max_size=4), st.permutations(["p", "q", "x1", "v", "T", "é"])
)
def test_renamed_pairs_keep_their_relation(sides, names):
    pairs = [Pair(relation(left, right), left, right) for left, right in sides]
    to = dict(zip(VARIABLES, names, strict=True))
    foreign = [Pair(r, *(" ".join(to.get(w, w) for w in side.split()) for side in both)) for r, *both in pairs]
    renamed, mapping = rename(foreign)
    assert [relation(left, right) for _, left, right in renamed] == [pair.relation for pair in pairs]
    assert [pair.relation for pair in renamed] == [pair.relation for pair in pairs]
    appeared = dict.fromkeys(word for pair in foreign for word in " ".join(pair[1:]).split() if word in names)
    assert mapping == dict(zip(appeared, VARIABLES, strict=False))


def test_known_names_stay_and_seven_are_too_many():
    pairs = [Pair("#", "f", "c")]
    assert rename(pairs) == (pairs, {})
    with pytest.raises(UserError, match=r"7 variables \(p q r s t u w\); there may be 6"):
        rename([Pair("#", name, name) for name in "pqrstuw"])


GOOD = ("<\t( a ( and b ) )\ta", "#\ta\tb", "=\t( not ( not c ) )\tc")


def test_a_file_with_windows_line_ends_blank_lines_and_tight_brackets(tmp_path):
    path = tmp_path / "any name.txt"
    path.write_bytes("\ufeff<\t(a (and b))\ta\r\n\r\n \n#\tp \tq".encode())
    assert list(read(path)) == [Pair("<", "( a ( and b ) )", "a"), Pair("#", "p", "q")]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"#\ta", "relation, left and right formula with tabs between are needed, not 2 field(s)"),
        (b"# a b", "relation, left and right formula with tabs between are needed, not 1 field(s)"),
        (b"#\ta\tb\tc", "relation, left and right formula with tabs between are needed, not 4 field(s)"),
        (b"entails\ta\tb", 'unknown relation "entails"; one of < > = ^ | # v is needed'),
        (b"#\t( a\tb", 'left formula, token 3 (character 4): "(" expected, found the end'),
        (b"#\ta\t", 'right formula, token 1 (character 1): a variable or "(" expected, found the end'),
        (b"#\ta\t\xff", "not UTF-8"),
        (b"#\tg\t( h ( or ( j ( and k ) ) ) )", "7 variables (a b c g h j k); there may be 6"),
    ],
)
def test_bad_lines_are_raised_or_reported_and_left_out(tmp_path, line, what):
    path = tmp_path / "test3"
    path.write_bytes("\n".join(GOOD).encode() + b"\n" + line + b"\n#\te\tf\n")
    with pytest.raises(UserError) as error:
        list(read(path))
    assert str(error.value) == f"{path}:4: {what}"
    said = []
    assert [pair.left for pair in read(path, said.append)][-1] == "e"
    assert said == [f"{path}:4: {what}"]


def test_a_seventh_name_has_its_place(tmp_path):
    path = written(tmp_path / "x", *(f"=\t{name}\t{name}" for name in "pqrstu"), "#\tp\t( not g )")
    with pytest.raises(UserError, match=r"x:7: right formula, token 3 \(character 7\): unknown word \"g\""):
        list(read(path))


def layout(folder):
    for name in ("test10", "test9", "train0", "train10", "train2"):
        written(folder / name, f"#\ta\t{'( not ' * int(name.lstrip('tesrain'))}b{' )' * int(name.lstrip('tesrain'))}")
    written(folder / "README.md", "nothing to read")
    return folder


def test_folder_zip_and_a_zip_in_a_folder_are_the_same(tmp_path):
    folder = layout(tmp_path / "plain")
    (tmp_path / "zipped").mkdir()
    with zipfile.ZipFile(tmp_path / "zipped" / "data.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"some/folder/{file.name}")
        archive.writestr("some/folder/deeper/train0", "not read")
    written(tmp_path / "zipped" / "README.md", "here neither")
    found = published(folder)
    assert {kind: list(groups) for kind, groups in found.items()} == {"train": [0, 2, 10], "test": [9, 10]}
    assert all(length(pair) == n for groups in found.values() for n, pairs in groups.items() for pair in pairs)
    for path in (tmp_path / "zipped", tmp_path / "zipped" / "data.zip"):
        assert published(path) == found
        assert list(read(path)) == list(read(folder))
    assert [length(pair) for pair in read(folder)] == [0, 2, 10, 9, 10]


def test_folders_that_will_not_do(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the pairs in .*nowhere: No such file"):
        list(read(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="has none"):
        list(read(tmp_path))
    written(tmp_path / "one" / "train1", *GOOD)
    with pytest.raises(UserError, match="no pairs in files test0, test1"):
        published(tmp_path)
    written(tmp_path / "two" / "train1", *GOOD)
    with pytest.raises(UserError, match="several sets of them, in one, two: name one"):
        published(tmp_path)
    with pytest.raises(UserError, match="damaged zip"):
        published(written(tmp_path / "broken.zip", "no zip"))
    written(tmp_path / "two" / "train2", "#\t( d ( or e ) )\tf")
    written(tmp_path / "two" / "test1", "#\tp\tq")
    with pytest.raises(UserError, match=r'test1:1: left formula, token 1 \(character 1\): unknown word "p"'):
        published(tmp_path / "two")


def kept(groups):
    return [(n, pair) for n, pairs in groups.items() for pair in pairs]


@pytest.fixture(scope="module")
def drawn():
    return generate(20_000, seed=3)


def test_generated_pairs_are_what_they_should_be(drawn):
    assert list(drawn) == list(range(13))
    assert Counter(pair.relation for _, pair in kept(drawn)).keys() == set(RELATIONS)
    for n, pair in kept(drawn):
        assert length(pair) == n
        assert check(pair.left) == pair.left
        assert check(pair.right) == pair.right
        assert pair.relation == relation(pair.left, pair.right)
        assert {0, (1 << 64) - 1}.isdisjoint((truth(pair.left), truth(pair.right)))
        assert len(set(f"{pair.left} {pair.right}".split()) & set(VARIABLES)) <= 4
    assert all(len(set(pairs)) == len(pairs) for pairs in drawn.values())
    assert {name for _, pair in kept(drawn) for name in pair.left.split()} == set(VOCABULARY)


def test_seeds(drawn):
    assert generate(300, seed=1) == generate(300, seed=1) != generate(300, seed=2)
    assert [kept(generate(50, seed=3))[0]] == kept(drawn)[:1]


def test_split_takes_the_first_of_each_length(drawn):
    parts = split(drawn)
    for n, pairs in drawn.items():
        assert parts["train"][n] + parts["test"][n] == pairs
        assert len(parts["train"][n]) == int(0.85 * len(pairs))
    assert not any(split(drawn, 1)["test"].values())
    with pytest.raises(UserError, match="from 0 to 1, not 85"):
        split(drawn, 85)


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


def test_the_distribution_is_that_of_drawing_straightforwardly():
    n, rng = 30_000, random.Random(5)
    theirs = []
    while len(theirs) < n:
        left, right = straightforward(rng, 3), straightforward(rng, 3)
        if {0, 65535}.isdisjoint((truth(left, "abcd"), truth(right, "abcd"))):
            theirs.append((left, right))
    names = [f"n{i}" for i in range(10**6)]  # so many that hardly a pair is drawn twice
    ours = [pair[1:] for _, pair in kept(generate(n, seed=5, variables=names))]
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


def test_any_sizes_and_lengths():
    sizes = {20: 30, 0: 36, 7: 50, 3: 0, 60: 4}
    groups = generate(sizes, seed=1)
    assert {n: len(set(pairs)) for n, pairs in groups.items()} == sizes
    for n, pair in kept(groups):
        assert max(operators(pair.left), operators(pair.right)) == n
        assert pair.relation == relation(pair.left, pair.right)
    assert list(generate(500, seed=1, longest=4)) == [0, 1, 2, 3, 4]
    longer = generate(2_000, seed=1, longest=20)
    assert all(max(operators(p.left), operators(p.right)) == n for n, p in kept(longer) if n < 20)
    assert longer[15]
    two = generate(300, seed=1, variables="pqr", most_variables=2)
    assert max(len(set(f"{p.left} {p.right}".split()) & set("pqr")) for _, p in kept(two)) == 2


@pytest.mark.parametrize(
    ("count", "options", "what"),
    [
        ({0: 37}, {}, "37 pairs of length 0 are too many: there seem to be 36 different ones"),
        (-1, {}, "pairs are 0 or more"),
        ({-2: 5}, {}, "lengths 0 to 500"),
        ({501: 5}, {}, "lengths 0 to 500"),
        (5, {"most_variables": 7}, "most_variables 7 is not from 1 to 6"),
        (5, {"most_variables": 0}, "most_variables 0 is not from 1 to 6"),
        (5, {"variables": "aabc"}, "variables are different"),
    ],
)
def test_wishes_that_cannot_be_met(count, options, what):
    with pytest.raises(UserError, match=what):
        generate(count, seed=1, **options)


def test_no_torch_is_needed():
    code = "import sys, onlstm.paper.logic.formulas, onlstm.paper.logic.generate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.data
def test_every_published_label_is_that_of_the_truth_tables():
    if not SHARED.exists():
        pytest.skip("no published pairs in ../shared/data/logic")
    found = published(SHARED)
    assert {kind: sum(map(len, groups.values())) for kind, groups in found.items()} == {
        "train": 211_702,
        "test": 37_367,
    }
    assert {kind: list(groups) for kind, groups in found.items()} == {
        "train": list(range(13)),
        "test": list(range(13)),
    }
    table, every = cache(truth), (1 << 64) - 1  # many formulas return
    for n, pair in (each for groups in found.values() for each in kept(groups)):
        assert related(table(pair.left), table(pair.right), every) == pair.relation
        assert length(pair) == n


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
