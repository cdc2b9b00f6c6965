"""Marvin & Linzen's pairs out of our templates, a user's own phenomena, pairs in files with all that may be wrong."""

import json
import subprocess
import sys
import zipfile
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import onlstm.paper.syntax as package
from onlstm.errors import UserError
from onlstm.paper.syntax import templates
from onlstm.paper.syntax.templates import Item, load

SHARED = Path(__file__).parents[3] / "shared" / "data" / "syneval"
YAML = Path(package.__file__).parent / "marvin-linzen.yaml"

GERMAN = """\
features:
  n: [sg, pl]
  m: [sg, pl]
  g: [masc, fem, neut]
lexicon:
  person: [der/die Koch/Köche, die/die Köchin/Köchinnen]
  verb: [schläft/schlafen, singt/singen]
  article: [der/die/das]
  thing: [Tisch/-/-, -/Lampe/-, -/-/Buch]
  with: [neben, mit]
templates:
  agreement:
    condition: n_subject_m_attractor
    grammatical: person[n] with[] person2[m] verb[n]
    ungrammatical: person[n] with[] person2[m] verb[!n]
  gender:
    grammatical: article[g] thing[g] ist neu
    ungrammatical: article[!g] thing[g] ist neu
"""
TINY = """\
features: {n: [one, many]}
lexicon: {noun: [cat/cats, owl/owls], verb: [naps/nap, is/are up], kind: [big, old]}
templates:
  plain: {grammatical: "noun[n] verb[n]", ungrammatical: "noun[n] verb[!n]"}
"""


def generate(path=None, **options):
    return templates.generate(load(path), **options)


def rows(path=None):
    return load(path).rows


def own(folder, text, name="mine.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def items():
    return list(generate())


@pytest.mark.data
def test_the_pairs_are_those_of_the_data(items):
    archive = SHARED / "syneval-data.zip"
    if not archive.exists():
        pytest.skip("no ../shared/data/syneval")
    ours = {name: set[Item]() for name in Counter(item.template for item in items)}
    for item in items:
        ours[item.template].add(item)
    theirs = {}
    with zipfile.ZipFile(archive) as opened:
        for name in filter(lambda name: name.endswith(".tsv"), opened.namelist()):
            lines = [line.split("\t") for line in opened.read(name).decode().splitlines()[1:]]
            theirs[Path(name).stem] = {Item(template, case, tuple(rest)) for template, case, *rest in lines}
    assert ours == theirs
    assert len(ours) == 22
    assert sum(map(len, ours.values())) == len(items) == 158_084


def test_the_counts_of_the_paper_s_version():
    found = list(generate(lexicon="emnlp2018"))
    counts = Counter(item.template for item in found)
    pooled = [sum(counts[name] for name in row.templates) for row in rows()]
    short = [140, 1680, 840, 22400, 22400, 280, 3360, 264, 264, 264]
    assert pooled == [*short, 400, 22400, 11200, 22400, 22400, 22400, 10560, 10560, 10560]
    texts = [item.sentences[0] for item in found if item.template == "npi_across_anim"]
    for words, noun in [("security guards", "guards"), ("taxi drivers", "drivers")]:
        assert sum(words in text for text in texts) == sum(noun in text for text in texts) == len(texts) // 10


def test_pairs_are_distinct_and_minimal(items):
    assert len(set(items)) == len(items)
    for item in items[::7]:
        good, *others = (sentence.split() for sentence in item.sentences)
        assert [sum(a != b for a, b in zip(good, other, strict=True)) for other in others] in ([1], [1, 1], [2, 1])


def test_rows_are_those_of_the_paper(items):
    assert [row.number for row in rows()] == [*range(1, 20)]
    assert [row.group for row in rows()] == ["short-term"] * 10 + ["long-term"] * 9
    assert {row.phenomenon for row in rows()} == {
        "Subject-verb agreement",
        "Reflexive anaphora",
        "Negative polarity items",
    }
    assert Counter(name for row in rows() if row.compare == (0, -1) for name in row.templates) == Counter(
        {item.template for item in items}
    )
    triples = [row for row in rows() if row.phenomenon.startswith("Neg")]
    assert [row.compare for row in triples] == [(0, 1), (1, -1), (0, -1)] * 2
    assert triples[0].name == "Simple (grammatical vs. intrusive)"
    assert triples[0].templates == ("simple_npi_anim", "simple_npi_inanim")


def test_the_data_are_short_and_hold_no_sentence(items):
    text = YAML.read_text()
    assert len(text.splitlines()) <= 400
    assert "MIT" in text.split("features:")[0]
    assert not any(sentence in text for item in items[::500] for sentence in item.sentences)


def test_no_torch_is_imported():
    code = "import sys, onlstm.paper.syntax.pairs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_known_words_only(items):
    names = {"simple_agrmt", "long_vp_coord", "prep_inanim", "subj_rel", "simple_npi_anim"}
    spec = load()._replace(templates=[each for each in load().templates if each.name in names])
    some = [item for item in items if item.template in names]
    every = {word for item in some for sentence in item.sentences for word in sentence.split()}
    assert list(templates.generate(spec, known=every)) == some
    left = list(templates.generate(spec, known=list(every - {"laugh", "guards", "twenty", "most", "loves"})))
    gone = {"laugh", "laughs", "guard", "guards", "twenty", "most", "no", "loves", "love"}  # with all their forms
    assert left == [item for item in some if not gone & set(" ".join(item.sentences).split())]
    assert Counter(item.template for item in left)["simple_agrmt"] == 10 * 6 * 2
    assert list(generate(known=())) == []


def test_a_language_of_one_s_own_in_twenty_lines(tmp_path):
    assert len(GERMAN.splitlines()) <= 20
    found = list(generate(own(tmp_path, GERMAN)))
    agreement = [item for item in found if item.template == "agreement"]
    assert len(agreement) == 4 * 2 * 2 * 2  # numbers, ordered couples, prepositions, verbs
    assert agreement[0] == Item(
        "agreement",
        "sg_subject_sg_attractor",
        ("der Koch neben die Köchin schläft", "der Koch neben die Köchin schlafen"),
    )
    assert [(item.condition, *item.sentences) for item in found if item.template == "gender"] == [
        ("masc", "der Tisch ist neu", "die Tisch ist neu"),
        ("masc", "der Tisch ist neu", "das Tisch ist neu"),
        ("fem", "die Lampe ist neu", "der Lampe ist neu"),
        ("fem", "die Lampe ist neu", "das Lampe ist neu"),
        ("neut", "das Buch ist neu", "der Buch ist neu"),
        ("neut", "das Buch ist neu", "die Buch ist neu"),
    ]
    assert [(row.number, row.name, row.templates) for row in rows(tmp_path / "mine.yaml")] == [
        (1, "agreement", ("agreement",)),
        (2, "gender", ("gender",)),
    ]


def test_forms_that_are_the_same_make_no_pair_and_none_comes_twice(tmp_path):
    text = TINY.replace("cat/cats", "sheep/sheep").replace("is/are up", "slept/slept").replace("naps/nap", "a/b")
    found = list(generate(own(tmp_path, text)))
    assert [item.sentences for item in found] == [
        ("sheep a", "sheep b"),
        ("owl a", "owl b"),
        ("sheep b", "sheep a"),
        ("owls b", "owls a"),
    ]
    text = TINY.replace("[one, many]", "[one, two, many]").replace("cat/cats, owl/owls", "fox/foxes/foxes")
    found = list(generate(own(tmp_path, text.replace("naps/nap, is/are up", "yes/no/no"))))
    assert [(item.condition, *item.sentences) for item in found] == [
        ("one", "fox yes", "fox no"),
        ("two", "foxes no", "foxes yes"),
        ("many", "foxes no", "foxes yes"),
    ]


def test_a_final_period_is_left_to_the_scorer(tmp_path):
    plain = list(generate(own(tmp_path, TINY)))
    assert (
        list(generate(own(tmp_path, TINY.replace('verb[n]"', 'verb[n] ."').replace('verb[!n]"', 'verb[!n] ."'))))
        == plain
    )


def test_a_triple_has_three_rows(tmp_path):
    text = TINY.replace('{grammatical: "noun[n]', '{intrusive: "noun[n] kind[] verb[n]", grammatical: "noun[n]')
    spec = load(own(tmp_path, text))
    assert [row.compare for row in spec.rows] == [(0, 1), (1, -1), (0, -1)]
    assert next(templates.generate(spec)).sentences == ("cat naps", "cat big naps", "cat nap")


WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)


@given(st.integers(2, 3), WORDS, WORDS)
def test_all_of_a_small_template_by_hand(tmp_path_factory, size, nouns, verbs):
    marks = "xyz"[:size]
    spec = {
        "features": {"f": list(marks)},
        "lexicon": {
            "noun": ["/".join(noun + mark for mark in marks) for noun in nouns],
            "verb": ["/".join(verb + mark for mark in marks) for verb in verbs],
        },
        "templates": {"t": {"grammatical": "the noun[f] verb[f]", "ungrammatical": "the noun[f] verb[!f]"}},
    }
    found = generate(own(tmp_path_factory.mktemp("spec"), json.dumps(spec)))
    assert {(item.condition, *item.sentences) for item in found} == {
        (mark, f"the {noun}{mark} {verb}{mark}", f"the {noun}{mark} {verb}{other}")
        for noun, verb, mark, other in product(nouns, verbs, marks, marks)
        if mark != other
    }


MISTAKES = [
    ("features:", "feature:", "feature: no such setting; did you mean features?"),
    ("{n: [one, many]}", "{n: [one]}", "features.n: two different values or more are needed"),
    ("{n: [one, many]}", "{n: [one, one]}", "features.n: two different values or more are needed"),
    ("{n: [one, many]}", "{n: one}", "features.n: a list is needed"),
    ("{n: [one, many]}", "{n: [one, many], m: [many, one]}", "features.m: many has another meaning, or another place"),
    ("{n: [one, many]}", "{n: [one, many], one: [a, b]}", "features.one: one has another meaning"),
    ("{n: [one, many]}", "{m: [x, y]}", "templates.plain.grammatical: noun[n]: no feature n; "),
    ("cat/cats", "cat/cats/cattery", "templates.plain.grammatical: noun[n]: cat/cats/cattery has 3 forms, not 2"),
    ("cat/cats", "cat/", "lexicon.noun: cat/: as many forms in each word"),
    ("cat/cats", '" "', "lexicon.noun:  : as many forms in each word"),
    ("is/are up", "is/are up/down/out", "lexicon.verb: is/are up/down/out: as many forms in each word"),
    ("[cat/cats, owl/owls]", "cat/cats", "lexicon.noun: "),
    ("[cat/cats, owl/owls]", "[]", "templates.plain: makes no sentences that differ"),
    ("cat/cats", "cat: cats", "lexicon.noun"),
    ("naps/nap, is/are up", "nap, up", "templates.plain: makes no sentences that differ"),
    ("verb[!n]", "vreb[!n]", "templates.plain.ungrammatical: vreb[!n]: vreb is not in lexicon; did you mean verb?"),
    ("verb[!n]", "verb[]", "templates.plain.ungrammatical: verb[]: naps/nap has 2 forms, not 1"),
    ("verb[!n]", "verb[!one]", "templates.plain.ungrammatical: verb[!one]: no feature one"),
    ("verb[!n]", "verb[!]", "templates.plain.ungrammatical: verb[!]: no feature"),
    ("verb[!n]", "verb[n", "templates.plain.ungrammatical: verb[n: a kind of words needs a feature in brackets"),
    ("verb[!n]", "verb", "templates.plain.ungrammatical: verb: a kind of words needs a feature in brackets"),
    ("verb[!n]", "verb2[!n] verb3[n]", "templates.plain: makes no sentences"),
    ("verb[!n]", "verb[n]", "templates.plain: makes no sentences that differ"),
    ("ungrammatical", "ungramatical", "templates.plain: ungramatical: no such setting; did you mean ungrammatical?"),
    (
        "{grammatical",
        "{intrusiv: x, grammatical",
        "templates.plain: intrusiv: no such setting; did you mean intr",
    ),
    ("ungrammatical", "intrusive", "templates.plain: ungrammatical is missing"),
    ('"noun[n] verb[!n]"', "[noun]", "templates.plain: ungrammatical: text is needed"),
    ("templates:", "rows:\n  plain: x\ntemplates:", "rows.plain: "),
    ("templates:", "rows: {a: {b: {c: [plane]}}}\ntemplates:", "rows.a.b.c: no template plane; did you mean plain?"),
    ("templates:", "rows: {a: {b: {c: []}}}\ntemplates:", "rows.a.b.c: the name of a template is needed"),
    ("templates:", "rows: {a: {b: {c: [plain, intrusive > ungrammatical]}}}\ntemplates:", "plain has no intrusive"),
    ("templates:", "rows: {a: {b: {c: [plain, good > bad]}}}\ntemplates:", "rows.a.b.c: good > bad: two of"),
    ("templates:", "lexicons: {other: {nuon: [a/b]}}\ntemplates:", "lexicons.other.nuon: not in lexicon; did you mean"),
    ("templates:", "lexicons: {other: {noun: [a/b/c]}}\ntemplates:", "noun[n]: a/b/c has 3 forms, not 2"),
    ("templates:", "lexicon: {}\ntemplates:", "mine.yaml:3: not YAML: lexicon stands here twice"),
    ("features:", "\tfeatures: {", "mine.yaml:1: not YAML: "),
    ("features:", "? [a, b]\n: c\nfeatures:", "mine.yaml:1: not YAML: found unhashable key"),
    ('"noun[n] verb[n]"', "noun[n] verb[n]", "texts with [ or : may need quotes"),
    (TINY[TINY.index("  plain") :], "  {}", "templates: at least one is needed"),
    (TINY, "", "mine.yaml: a mapping is needed"),
    (TINY[TINY.index("templates") :], "", "templates is missing"),
    (TINY[TINY.index("lexicon") :], "", "lexicon is missing"),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES)
def test_a_mistake_is_told_in_one_line(tmp_path, old, new, message):
    assert old in TINY
    path = own(tmp_path, TINY.replace(old, new))
    with pytest.raises(UserError) as error:
        generate(path)
    told = str(error.value)
    assert told.startswith(str(path))
    assert message in told
    assert "\n" not in told


def test_files_and_lexicons_that_are_not_there(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*none\.yaml: No such file"):
        generate(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes("é".encode("latin-1"))
    with pytest.raises(UserError, match=r"cannot read .*latin\.yaml: not UTF-8"):
        generate(tmp_path / "latin.yaml")
    with pytest.raises(UserError, match=r"no lexicon 'emnlp'; there is emnlp2018"):
        generate(lexicon="emnlp")
    with pytest.raises(UserError, match="there is none but its own"):
        generate(own(tmp_path, TINY), lexicon="x")
