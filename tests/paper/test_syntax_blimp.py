"""BLiMP: counts by paradigm and phenomenon, defects in files, two ways to read."""

import json
import zipfile
from dataclasses import replace

import pytest

from minimal_pairs import SHARED, make, runner
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import score
from onlstm.paper.syntax import blimp
from onlstm.paper.syntax.scoring import mcnemar

run_blimp = runner(blimp.task)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("run") / "run")


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
