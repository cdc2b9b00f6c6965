"""What models make of minimal pairs: counts pair by pair, McNemar by enumeration, defects in files."""

import json
import math
import zipfile
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import random_model
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import score
from onlstm.paper.published import published
from onlstm.paper.syntax import agreement, blimp, table3
from onlstm.paper.syntax.loading import load
from onlstm.paper.syntax.scoring import contrast, mcnemar
from onlstm.paper.syntax.templates import generate
from onlstm.text.sources import read_lines
from onlstm.text.tokenizer import Tokenizer

SHARED = Path(__file__).parents[3] / "shared" / "data"
WORDS = ["the", "author", "authors", "pilot", "laughs", "laugh", "is", "are", "tall", "old", ".", ","]
WORDS += ["no", "most", "ever", "have", "been", "good", "n't", "does"]


def make(folder, words=WORDS, seed=0, profile="pretokenized", **options):
    random_model(Tokenizer.of_words(words, profile), spread=1.5, seed=seed, **options).save(folder)
    return folder


def quiet(run):
    return partial(run, on_defect=lambda line: None)


syneval, run_blimp, run_agreement = map(quiet, (table3.run, blimp.run, agreement.run))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("run") / "run")


# ------------------------------------------------------------------------------------------------------- small parts


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


# ----------------------------------------------------------------------------------------------------------- syneval

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


def wikitext():
    path = SHARED / "wikitext-2" / "wiki.train.tokens.xz"
    if not path.is_file():
        pytest.skip("no ../shared/data/wikitext-2")
    return {word for line in read_lines(path) for word in line.split()}


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


# ------------------------------------------------------------------------------------------------------------- BLiMP


def line(good, bad, **more):
    named = {"UID": "p1", "linguistics_term": "binding", "field": "syntax", "pairID": "0"}
    return json.dumps({"sentence_good": good, "sentence_bad": bad} | named | more)


@pytest.fixture
def bench(tmp_path):
    folder = tmp_path / "blimp"
    folder.mkdir()
    lines = [line("The author laughs.", "The author laugh."), line("The pilot is old.", "The pilot are old.")]
    lines += [line("the same", "the same"), "{broken", "[1]", json.dumps({"sentence_good": "the author"}), ""]
    lines += [line("the author", ""), line("the author", 3), line("the \ud800", "the author"), line("the author", "…")]
    (folder / "p1.jsonl").write_text("\ufeff" + "\r\n".join(lines), "utf-8")
    other = {"sentence_good": "No author is tall.", "sentence_bad": "Most author is tall."}
    (folder / "p2.jsonl").write_bytes(json.dumps(other).encode() + b"\n\xff\xfe\n")
    (folder / "notes.txt").write_text("not BLiMP")
    (folder / ".hidden.jsonl").write_text("{")
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_blimp_counts_and_names_defects(tmp_path, bench, packed):
    if packed:
        with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
            for file in bench.iterdir():
                archive.write(file, f"blimp/{file.name}")
        bench = tmp_path / "b.zip"
    folder, said = make(tmp_path / "run", profile="generic"), []
    found = run_blimp([folder], bench, on_defect=said.append, scores=tmp_path / "scores.jsonl")
    kinds = [each.split("jsonl:")[1] for each in said]
    assert kinds == [
        "3: identical sentences, a tie",
        "4: broken JSON; left out",
        "5: no JSON object; left out",
        "6: no text in sentence_bad; left out",
        "8: no text in sentence_bad; left out",
        "9: no text in sentence_bad; left out",
        "10: half a character (\\ud…); left out",
        "2: not UTF-8; left out",
        "11: a sentence without words; left out",
    ]
    model = LanguageModel.load(folder)
    judged = [json.loads(each) for each in (tmp_path / "scores.jsonl").read_text().splitlines()]
    for each in judged:
        totals = [-found.total for found in score(model, [each["good"], each["bad"]])]
        assert [each["score_good"], each["score_bad"]] == pytest.approx(totals, abs=1e-5)
    first, second = found.paradigms
    right = [each["score_good"] > each["score_bad"] for each in judged]
    assert (first.uid, first.phenomenon, first.n, first.ties) == ("p1", "binding", 3, 1)
    assert (first.correct, second.correct) == (sum(right[:3]), right[3])
    assert (second.uid, second.phenomenon, second.n) == ("p2", "", 1)
    assert found.mean == pytest.approx((first.accuracy + second.accuracy) / 2)
    assert found.phenomena["binding"] == replace(first, uid=None, phenomenon=None, field="")
    assert (found.all.paradigms, found.all.n, found.all.accuracy) == (2, 4, found.mean)


def test_a_zip_and_the_folder_it_was_unpacked_to_count_once(tmp_path, bench, folder):
    alone = run_blimp([folder], bench)
    for name in ("a.zip", "b.zip"):
        with zipfile.ZipFile(bench / name, "w") as archive:
            archive.write(bench / "p2.jsonl", "blimp/p2.jsonl")
            if name == "b.zip":
                archive.writestr("p3.jsonl", line("the author", "the authors", UID="p3"))
    (bench / "c.zip").write_bytes(b"no zip")
    said = []
    found = run_blimp([folder], bench, on_defect=said.append)
    assert found.paradigms[:2] == alone.paradigms
    assert [each.uid for each in found.paradigms] == ["p1", "p2", "p3"]
    assert [each for each in said if ".zip" in each] == [
        f"cannot read {bench}/c.zip: File is not a zip file; left out",
        f"{bench}/a.zip/blimp/p2.jsonl: the same as {bench}/p2.jsonl; left out",
        f"{bench}/b.zip/blimp/p2.jsonl: the same as {bench}/p2.jsonl; left out",
    ]


def test_two_runs_on_blimp(tmp_path, bench):
    runs = [make(tmp_path / str(seed), seed=seed, profile="generic") for seed in (1, 4)]
    found = run_blimp(runs, bench, scores=tmp_path / "scores.jsonl")
    alone = [run_blimp([folder], bench) for folder in runs]
    assert replace(found, runs=(), compare=None, tests=()) == replace(alone[0], runs=())
    assert found.compare == replace(alone[1], runs=())
    records = [json.loads(each) for each in (tmp_path / "scores.jsonl").read_text().splitlines()]
    wins = [(each["score_good"] > each["score_bad"], each["compared_good"] > each["compared_bad"]) for each in records]
    tests = {(each.uid, each.phenomenon): each for each in found.tests}
    assert tests.keys() == {("p1", "binding"), ("p2", ""), (None, "binding"), (None, ""), (None, None)}
    expected = mcnemar([a for a, _ in wins], [b for _, b in wins])
    assert (tests[None, None].only_first, tests[None, None].p) == (expected.only_first, expected.p)
    assert len(set(wins)) > 1
    assert [each.path for each in found.runs] == [str(each) for each in runs]


def test_a_pair_that_one_run_finds_no_words_in_counts_for_none(tmp_path, bench):
    (bench / "p3.jsonl").write_text(line("the author", "; !", UID="p3"))
    runs = [make(tmp_path / name, profile=name) for name in ("pretokenized", "generic")]
    said = []
    found = run_blimp(runs, bench, on_defect=said.append)
    assert [each.uid for each in found.paradigms] == ["p1", "p2"]
    assert f"{bench}/p3.jsonl:1: a sentence without words; left out" in said
    assert "p3" in {each.uid for each in run_blimp([runs[0]], bench).paradigms}


def test_blimp_reads_for_models_of_tokenised_text(tmp_path):
    model = LanguageModel.load(make(tmp_path / "run"))
    names = dict(enumerate(model.tokenizer.vocabulary))

    def words(reading, *texts):
        return [[names[id] for id in ids] for ids in blimp.encoder(model, reading)(texts)]

    assert words("own", "The author, doesn't laugh.") == [["<unk>", "<unk>", "<unk>", "<unk>"]]
    assert words("words", "The author, doesn't laugh.") == [["the", "author", ",", "does", "n't", "laugh", "."]]
    assert words("words", "Pilot’s “old”?") == [["pilot", "<unk>", "old"]]
    other = LanguageModel.load(make(tmp_path / "other", ["doesn", "'t", "The", "the"]))
    ids = blimp.encoder(other, "words")(["The doesn't the"])[0]
    assert [other.tokenizer.vocabulary[id] for id in ids] == ["The", "doesn", "'t", "the"]


def test_blimp_without_pairs(tmp_path, folder):
    for path in (tmp_path, tmp_path / "none", tmp_path / "bad.zip"):
        (tmp_path / "bad.zip").write_bytes(b"PK\3\4nothing")
        with pytest.raises(UserError, match=str(path)):
            run_blimp([folder], path)


@pytest.mark.data
def test_blimp_files():
    path = SHARED / "blimp" / "blimp-half-a.zip"
    if not path.is_file():
        pytest.skip("no ../shared/data/blimp")
    said = []
    found = list(blimp.read(path, said.append))
    assert len(found) == 34_000
    assert len({pair.uid for pair in found}) == 34
    assert {pair.field for pair in found} == {"syntax", "morphology", "semantics", "syntax_semantics"}
    assert [sum(name in each for each in said) for name in ("principle_A_case_2", "passive_1", "")] == [5, 2, 7]


# --------------------------------------------------------------------------------------------------------- agreement

GOLD = "x\t1\t{}\t{}\tVERB\tm\t{}\t{}\tlemma\t1\tNOUN\tprefix"


@pytest.fixture
def sets(tmp_path):
    folder = tmp_path / "sets"
    (folder / "deep").mkdir(parents=True)
    text = ["the author of are tall . <eos>", "the authors x . <eos>", "the pilot y <eos>"]
    gold = [GOLD.format(0, 3, "is", "are"), GOLD.format(4, 2, "laugh", "laughs"), GOLD.format(1, 2, "swims", "swim")]
    for suffix, lines in ((".text", text), (".gold", gold), (".eval", ["3", "2", "2"])):
        (folder / f"generated{suffix}").write_text("\n".join(lines) + "\n")
    text = ["the author is <eos>", "the pilot z <eos>", "the <eos>", "the y <eos>", "the y <eos>", "over <eos>"]
    gold = ["2\tis\tare\t0", "2\tis\tis\t1", f"{'9' * 5000}\tis\tare\t0", "1\tis", "1\tis\tare\t0"]
    for suffix, lines in ((".text", text), (".gold", gold), (".eval", ["2", "2", "9" * 5000, "1", "0"])):
        (folder / "deep" / f"linzen{suffix}").write_text("\n".join(lines) + "\n")
    (folder / "lost.text").write_text("the\n")
    return folder


def test_agreement_counts_and_names_defects(tmp_path, folder, sets):
    said = []
    found = run_agreement([folder], sets, on_defect=said.append, scores=tmp_path / "scores.tsv")
    assert [each.rpartition("/")[2] for each in said] == [
        "linzen: the numbers of lines differ (.text 6, .gold 5, .eval 5); what is over is left out",
        "linzen.gold:2: identical forms, a tie",
        f"linzen.gold:3: place '{'9' * 20}' is not one of the sentence's 2 words, counted from 0; left out",
        "linzen.gold:4: 2 columns, not the 4 or 12 of the known layouts; left out",
        "linzen.gold:5: place 1, but 0 in .eval; left out",
        "lost.gold: no such file; the set is left out",
    ]
    linzen, generated = found.sets
    assert (generated.name, generated.n, generated.ties, generated.scorable) == ("generated", 3, 1, 2)
    assert (linzen.name, linzen.n, linzen.ties, linzen.scorable) == ("linzen", 2, 1, 2)
    assert {part.part: part.n for part in generated.parts} == {"original": 1, "nonsense": 2}
    for key in ("correct", "ties", "scorable"):
        assert sum(getattr(part, key) for part in generated.parts) == getattr(generated, key)
    model = LanguageModel.load(folder)
    head, *lines = (tmp_path / "scores.tsv").read_text().splitlines()
    records = [dict(zip(head.split("\t"), each.split("\t"), strict=True)) for each in lines]
    assert records[2]["before"] == "the author of"
    for record in records:
        for form in ("right", "wrong"):
            with_it = score(model, [[*record["before"].split(), record[form]]])[0]
            assert float(record[f"score_{form}"]) == pytest.approx(-with_it.surprisal[-1], abs=1e-5)
    right = [float(record["score_right"]) > float(record["score_wrong"]) for record in records]
    assert (linzen.correct, generated.correct) == (sum(right[:2]), sum(right[2:]))


def test_two_runs_on_agreement(tmp_path, sets):
    runs = [make(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    found = run_agreement(runs, sets, scores=tmp_path / "s.jsonl")
    assert found.compare == replace(run_agreement([runs[1]], sets), runs=())
    records = [json.loads(each) for each in (tmp_path / "s.jsonl").read_text().splitlines()]
    tests = {(each.name, each.part): each for each in found.tests}
    assert len(tests) == 2 + 2 + 2
    for (name, part), test in tests.items():
        some = [each for each in records if each["set"] == name and part in (None, each["kind"])]
        wins = [[each[f"{run}_right"] > each[f"{run}_wrong"] for each in some] for run in ("score", "compared")]
        assert test == replace(mcnemar(*wins), name=name, part=part)


def test_one_file_stands_for_its_set(tmp_path, folder, sets):
    alone = run_agreement([folder], sets / "generated.gold").sets
    assert alone == run_agreement([folder], sets, on_defect=list).sets[1:]
    (sets / "generated.eval").unlink()
    assert run_agreement([folder], sets / "generated.text").sets == alone
    for path in (sets / "none.gold", tmp_path / "none"):
        with pytest.raises(UserError, match="cannot read"):
            run_agreement([folder], path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no sentences"):
        run_agreement([folder], tmp_path / "empty")


@pytest.mark.data
def test_agreement_files(tmp_path):
    path = SHARED / "agreement-en" / "agreement-en.zip"
    if not path.is_file():
        pytest.skip("no ../shared/data/agreement-en")
    said = []
    sets = agreement.read(path, said.append)
    assert {name: len(tasks) for name, tasks in sets.items()} == {"generated": 410, "subj_agr_filtered": 7489}
    assert len(said) == 4  # identical forms
    kinds = [task.part for task in sets["subj_agr_filtered"]]
    assert [kinds.count(f"{k} attractors") for k in range(5)] == [1972, 1957, 1943, 1287, 330]
    known = wikitext()
    assert [sum({t.right, t.wrong} <= known for t in tasks) for tasks in sets.values()] == [391, 7464]
