"""Formulas against a naive evaluator, relations against sets, mistakes and bad lines, generated and published pairs."""

import zipfile
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.paper.logic.config import Source
from onlstm.paper.logic.data import Data
from onlstm.paper.logic.formulas import (
    NAMES,
    OPERATORS,
    RELATIONS,
    VARIABLES,
    VOCABULARY,
    Pair,
    operators,
    parse,
    read,
    rename,
    truth,
)

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
    true = Pair("", left, right).truth
    assert true == (by_sets(x, y) if contingent else "#")
    assert Pair("", right, left).truth == SWAPPED[true]


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
    assert Pair("", left, right).truth == found


def test_words_of_the_language():
    assert len(VOCABULARY) == 11
    assert RELATIONS == tuple(NAMES) == ("<", ">", "=", "^", "|", "#", "v")
    assert NAMES["v"] == "cover"
    assert NAMES["|"] == "alternation"


@settings(deadline=None)
@given(formulas)
def test_blanks_do_not_matter_and_postfix_order_keeps_every_word(formula):
    tight = formula.replace("( ", "(").replace(" )", ")")
    assert Pair.checked("#", f"  {tight}\t", formula) == Pair("#", formula, formula)
    words = [word for word in formula.split() if word not in "()"]
    assert Counter(parse(tight)) == Counter(words)
    assert operators(formula) == sum(word in OPERATORS for word in words)


def test_very_deep_formulas():
    formula = "( not " * 5001 + "a" + " )" * 5001
    assert truth(formula) == truth("( not a )")


WRITE = "is no formula; write ( not F ), ( F ( and F ) ) or ( F ( or F ) )"


@pytest.mark.parametrize(
    ("text", "token", "what"),
    [
        ("", 0, f"nothing {WRITE}"),
        ("a b", 2, f"F F {WRITE}"),
        ("( a and b )", 5, f"( F and F ) {WRITE}"),
        ("a or b", 3, f"F or F {WRITE}"),
        ("(and a b)", 5, f"( and F F ) {WRITE}"),
        ("( not not a )", 5, f"( not not F ) {WRITE}"),
        ("( not a", 3, f"( not F {WRITE}"),
        ("( not a ) )", 5, f") {WRITE}"),
        ("(a (b))", 5, f"( F ) {WRITE}"),
        ("( a ( and ) )", 5, f"( and ) {WRITE}"),
        ("( a ( and b c ) )", 7, f"( and F F ) {WRITE}"),
        ("( and b )", 4, f"( and F ) {WRITE}"),
        ("( a   (AND b) )", 6, f"( F F ) {WRITE}"),
    ],
)
def test_mistakes_are_named_with_their_place(text, token, what):
    for use in (parse, truth):
        with pytest.raises(UserError) as error:
            use(text)
        assert str(error.value) == f"token {token}: {what}"


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
    pairs = [Pair(Pair("", *both).truth, *both) for both in sides]
    to = dict(zip(VARIABLES, names, strict=True))
    foreign = [Pair(r, *(" ".join(to.get(w, w) for w in side.split()) for side in both)) for r, *both in pairs]
    renamed, mapping = rename(foreign)
    assert [pair.truth for pair in renamed] == [pair.relation for pair in pairs]
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
    assert read(path) == {"any name.txt": [Pair("<", "( a ( and b ) )", "a"), Pair("#", "p", "q")]}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"#\ta", "relation, left and right formula with tabs between are needed, not 2 field(s)"),
        (b"# a b", "relation, left and right formula with tabs between are needed, not 1 field(s)"),
        (b"#\ta\tb\tc", "relation, left and right formula with tabs between are needed, not 4 field(s)"),
        (b"entails\ta\tb", 'unknown relation "entails"; one of < > = ^ | # v is needed'),
        (b"#\t( a\tb", f"left formula, token 2: ( F {WRITE}"),
        (b"#\ta\t", f"right formula, token 0: nothing {WRITE}"),
        (b"#\ta\t\xff", "not UTF-8"),
        (b"#\tg\t( h ( or ( j ( and k ) ) ) )", "7 variables (a b c g h j k); there may be 6"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, what):
    path = tmp_path / "test3"
    path.write_bytes("\n".join(GOOD).encode() + b"\n" + line + b"\n#\te\tf\n")
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value) == f"{path}:4: {what}"


def test_a_seventh_name_has_its_place(tmp_path):
    path = written(tmp_path / "x", *(f"=\t{name}\t{name}" for name in "pqrstu"), "#\tp\t( not g )")
    with pytest.raises(UserError, match=r"x:7: 7 variables \(p q r s t u g\)"):
        read(path)


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
    written(tmp_path / "zipped" / "README.md", "here neither")
    files = read(folder)
    assert list(files) == ["train0", "train2", "train10", "test9", "test10"]
    assert all(pair.length == int(name.lstrip("tesrain")) for name, pairs in files.items() for pair in pairs)
    for path in (tmp_path / "zipped", tmp_path / "zipped" / "data.zip"):
        assert list(read(path).items()) == list(files.items())


def test_folders_that_will_not_do(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*nowhere: No such file"):
        read(tmp_path / "nowhere")
    with pytest.raises(UserError, match="none there"):
        read(tmp_path)
    written(tmp_path / "one" / "train1", *GOOD)
    with pytest.raises(UserError, match="no pairs in files test0, test1"):
        Data.load(Source(path=str(tmp_path)))
    written(tmp_path / "two" / "train1", *GOOD)
    with pytest.raises(UserError, match="several sets of them, in one, two: name one"):
        read(tmp_path)
    with pytest.raises(UserError, match=r"cannot read .*broken\.zip: File is not a zip file"):
        read(written(tmp_path / "broken.zip", "no zip"))
    written(tmp_path / "two" / "train2", "#\t( d ( or e ) )\tf")
    written(tmp_path / "two" / "test1", "#\tp\tq")
    with pytest.raises(UserError, match=r"test1:1: 8 variables \(a b c d e f p q\)"):
        read(tmp_path / "two")
