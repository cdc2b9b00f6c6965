"""The paper's Table 3: counts pair by pair, McNemar by enumeration, templates and pairs of one's own."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minimal_pairs import SHARED, WORDS, make, runner, wikitext
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.paper.published import published
from onlstm.paper.syntax import table3
from onlstm.paper.syntax.scoring import contrast, mcnemar
from onlstm.paper.syntax.templates import generate, load

syneval = runner(table3.task)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("run") / "run")


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_mcnemar_is_the_two_sided_binomial_test(pairs):
    found = mcnemar([a for a, _ in pairs], [b for _, b in pairs])
    b, c = pairs.count((True, False)), pairs.count((False, True))
    n = b + c
    far = [k for k in range(n + 1) if abs(2 * k - n) >= abs(b - c)]  # as far from n / 2 as b is, or farther
    p = Fraction(sum(math.comb(n, k) for k in far), 2**n)
    assert (found.only_first, found.only_second) == (b, c)
    assert found.p == pytest.approx(float(p), rel=1e-12)


def test_mcnemar_of_many_pairs():
    found = mcnemar([True] * 10_200 + [False] * 10_000, [False] * 10_200 + [True] * 10_000)
    normal = math.erfc((200 - 1) / math.sqrt(2 * 20_200))  # with the correction for continuity
    assert found.p == pytest.approx(normal, rel=1e-3)
    assert mcnemar([], []).p == 1
    assert mcnemar([True] * 3000, [False] * 3000).p == 0  # too small for a float


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_contrast_is_empty_only_for_equal_sentences(first, second):
    found = contrast(first, second)
    assert (not found) == (first == second)
    assert found == contrast(second, first)
    assert found <= {*first, *second}


def test_published_numbers_belong_to_the_rows():
    for row, quoted in zip(load().rows, published("syneval"), strict=True):
        assert quoted.row.lower().endswith(row.name.lower())
        assert row.group.startswith(quoted.values["dependency"])
        first = {"Sub": "Agr", "Ref": "Ref", "Neg": "NPI"}[row.phenomenon[:3]]
        assert quoted.row.startswith(first)


PAIRS = """template\tcondition\tgrammatical\tungrammatical
simple_agrmt\tsing\tthe author laughs\tthe author laugh
simple_agrmt\tsing\tthe pilot is old\tthe pilot are old
simple_agrmt\tplur\tthe authors swim\tthe authors swims
simple_agrmt\tplur\tthe authors laugh\tthe authors snores
mine\t\tthe author is very tall\tthe author are tall
"""
TRIPLES = """template\tcondition\tgrammatical\tintrusive\tungrammatical
simple_npi_anim\tpast\tno authors have ever been good\tthe authors have ever been good\tmost authors have ever been good
"""


@pytest.fixture
def pairs(tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    (folder / "a.tsv").write_text(PAIRS)
    (folder / "b.tsv").write_text(TRIPLES)
    return folder


def by_hand(model, sentence, end):
    ids = model.tokenizer.ids([*sentence.split(), *end])
    with torch.no_grad():
        log_p = model(torch.tensor([model.tokenizer.eos_id, *ids[:-1]])[:, None]).logits[:, 0].log_softmax(-1)
    return sum(log_p[t, id].item() for t, id in enumerate(ids))


@pytest.mark.parametrize("period", [True, False])
def test_rows_are_counted_pair_by_pair(tmp_path, pairs, period):
    words = [word for word in WORDS if period or word != "."]
    folder = make(tmp_path / "run", words)
    found = syneval([folder], pairs, scores=tmp_path / "scores.jsonl")
    assert found.period is period
    assert [row.row for row in found.rows] == [1, 8, 9, 10, 20]
    assert [row.name for row in found.rows][::4] == ["Simple", "mine"]
    assert found.rows[0].files == ("simple_agrmt",)
    assert found.rows[0].published == {"ON-LSTM": 99, "LSTM": 100}
    assert found.rows[4].published is None

    model, records = LanguageModel.load(folder), []
    for line in (tmp_path / "scores.jsonl").read_text().splitlines():
        record = json.loads(line)
        records.append(record)
        for name in ("grammatical", "intrusive", "ungrammatical"):
            if name in record:
                assert record[f"score_{name}"] == pytest.approx(by_hand(model, record[name], ["."] * period), abs=1e-5)
    assert len(records) == found.items == 6
    simple = records[:4]
    right = [each["score_grammatical"] > each["score_ungrammatical"] for each in simple]
    row = found.rows[0]
    assert (row.pairs, row.correct, row.accuracy) == (4, sum(right), 25 * sum(right))
    assert row.ties == 1  # swim and swims are both unknown
    assert simple[2]["score_grammatical"] == simple[2]["score_ungrammatical"]
    assert (row.scorable_pairs, row.scorable_accuracy) == (2, 50 * sum(right[:2]))
    triple = [records[5][f"score_{name}"] for name in ("grammatical", "intrusive", "ungrammatical")]
    expected = [triple[a] > triple[b] for a, b in ((0, 1), (1, 2), (0, 2))]
    assert [row.correct for row in found.rows[1:4]] == expected
    assert found.rows[4].scorable_pairs == 0  # "very"
    pooled = {each.group: each for each in found.pooled}
    assert (pooled["all"].pairs, pooled["short-term"].pairs) == (8, 7)
    assert pooled["all"].correct == sum(row.correct for row in found.rows)


def test_identical_sentences_are_ties(tmp_path, folder, pairs):
    alone = syneval([folder], pairs).rows
    (pairs / "a.tsv").write_text(PAIRS + "simple_agrmt\tsing\tthe pilot is old\tthe pilot is  old .\n")
    (pairs / "b.tsv").write_text(TRIPLES + "simple_npi_anim\tpast\tno author\tthe author\tno author\n")
    said = []
    found = syneval([folder], pairs, on_defect=said.append).rows
    assert said == [f"{pairs}/a.tsv:7: identical sentences, a tie", f"{pairs}/b.tsv:3: identical sentences, a tie"]
    grown = [[after.pairs - before.pairs, after.ties - before.ties] for before, after in zip(alone, found, strict=True)]
    assert grown == [[1, 1], [1, 0], [1, 0], [1, 1], [0, 0]]
    assert [found[k].correct - alone[k].correct for k in (0, 3)] == [0, 0]


def test_two_runs_side_by_side(tmp_path, pairs):
    runs = [make(tmp_path / str(seed), seed=seed, rnn=rnn) for seed, rnn in ((1, "onlstm"), (2, "lstm"))]
    found = syneval(runs, pairs, scores=tmp_path / "scores.tsv")
    alone = [syneval([each], pairs) for each in runs]
    assert found.rows == alone[0].rows
    assert found.compare == replace(alone[1], runs=())
    tests = {(each.row, each.group): each for each in found.tests}
    assert len(tests) == len(found.rows) + len(found.pooled)
    for first, second in zip(found.rows, found.compare.rows, strict=True):
        test = tests[first.row, first.group]
        assert test.only_first - test.only_second == first.correct - second.correct
    head, *lines = (tmp_path / "scores.tsv").read_text().splitlines()
    assert len(lines) == 6
    for line in lines:
        record = dict(zip(head.split("\t"), line.split("\t"), strict=True))
        model = LanguageModel.load(runs[1])
        expected = by_hand(model, record["ungrammatical"], ["."])
        assert float(record["compared_ungrammatical"]) == pytest.approx(expected, abs=1e-5)


def test_templates_of_ones_own_and_words_that_are_known(tmp_path, folder):
    spec = tmp_path / "mine.yaml"
    spec.write_text(
        "features: {n: [sing, plur]}\n"
        "lexicon: {noun: [author/authors, walrus/walruses], verb: [laughs/laugh, is/are tall]}\n"
        "templates: {mine: {grammatical: 'the noun[n] verb[n]', ungrammatical: 'the noun[n] verb[!n]'}}\n"
    )
    every = syneval([folder], spec).rows
    assert [(row.name, row.pairs, row.scorable_pairs, row.published) for row in every] == [("mine", 8, 8, None)]
    known = syneval([folder], spec, lexicon="in-vocabulary").rows
    assert [row.pairs for row in known] == [4]
    own = syneval([folder], lexicon="in-vocabulary")
    assert {row.row: row.pairs for row in own.rows}[1] == 6  # author(s) only; laughs/laugh, is/are tall, old
    assert all(row.scorable_pairs == row.pairs for row in own.rows)
    other = make(tmp_path / "other", ["the", "walrus"])
    with pytest.raises(UserError, match="no pair is left"):
        syneval([folder, other], lexicon="in-vocabulary")


def test_mistakes_are_named_before_the_work(tmp_path, folder, pairs):
    with pytest.raises(UserError, match="lexicon emnlp2018: pairs from a file"):
        syneval([folder], pairs, lexicon="emnlp2018")
    with pytest.raises(UserError, match="no lexicon"):
        syneval([folder], lexicon="emnlp")
    with pytest.raises(UserError, match="no such model folder"):
        syneval([tmp_path / "none"])


@pytest.mark.data
@pytest.mark.slow
def test_the_files_and_the_generator_give_the_same_table(tmp_path):
    """All 158,084 rows; which pairs are scorable is known of WikiText-2's vocabulary."""
    words = wikitext() & {w for item in generate(load()) for each in item.sentences for w in each.split()}
    folder = make(tmp_path / "run", sorted(words | {"."}))
    found = syneval([folder], SHARED / "syneval" / "syneval-data.zip", on_defect=pytest.fail)
    assert [row.scorable_pairs for row in found.rows] == [
        *(100, 1200, 600, 15_960, 15_960, 280, 3360, 264, 264, 264),
        *(400, 17_040, 8000, 18_080, 18_080, 22_400, 10_560, 10_560, 10_560),
    ]
    made = syneval([folder])
    counts = ("row", "pairs", "correct", "ties", "scorable_pairs", "scorable_accuracy")
    assert [[getattr(row, key) for key in counts] for row in made.rows] == [
        [getattr(row, key) for key in counts] for row in found.rows
    ]
