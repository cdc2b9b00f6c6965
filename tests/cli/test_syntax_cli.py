"""`onlstm syneval`, `blimp` and `agreement` as a user types them: tables, keys of JSON, results kept, mistakes."""

import json
import re
import subprocess
import sys

import pytest

from helpers import onlstm, random_model
from onlstm.text.tokenizer import Tokenizer

COMMON = {"command", "version", "argv", "seed", "seconds"}
WORDS = ["the", "author", "authors", "pilot", "pilots", "laughs", "laugh", "is", "are", "tall", "old", "."]


def answer(*args):
    done = onlstm(*args)
    assert done.code == 0, done.err
    return done.out


def make(folder, words=WORDS, seed=0, **options):
    random_model(Tokenizer.of_words(words), spread=1.5, seed=seed, **options).save(folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return make(folder / "ours"), make(folder / "theirs", WORDS[:-1], 1, rnn="lstm")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of every kind, with a defect in each."""
    folder = tmp_path_factory.mktemp("data")
    pairs = ["template\tcondition\tgrammatical\tungrammatical", "simple_agrmt\ts\tthe author laughs\tthe author laugh"]
    pairs += ["prep_anim\ts\tthe author near the pilots is old\tthe author near the pilots are old", "one field"]
    (folder / "pairs.tsv").write_text("\n".join(pairs))
    blimp = [{"sentence_good": "the pilot laughs .", "sentence_bad": "the pilot laugh ."}] * 8
    blimp = [json.dumps(each | {"UID": "mine", "linguistics_term": "agreement", "field": "f"}) for each in blimp]
    (folder / "mine.jsonl").write_text("\n".join([*blimp, *["{"] * 7, '{"sentence_good": "the"}']))
    (folder / "g.text").write_text("the authors x\nthe pilot x\n" + "the x\n" * 9)
    (folder / "g.gold").write_text("2\tare\tis\t0\n2\tis\n" + "".join(f"{k}\tis\tare\t0\n" for k in range(10, 19)))
    (folder / "g.eval").write_text("2\n2\n" + "1\n" * 9)
    return folder


def test_syneval_table(runs, data, tmp_path):
    done = onlstm("syneval", runs[0], "--pairs", data / "pairs.tsv", "--scores", tmp_path / "scores.tsv")
    assert done.code == 0
    assert done.err.startswith("onlstm: ")
    assert "pairs.tsv:4: 1 fields, but the header has 4" in done.err
    assert "the author laughs/*laugh\n" in done.out
    assert "the author near the pilots is/*are old\n" in done.out
    (simple,) = (line.split() for line in done.out.splitlines() if " Simple " in line)
    assert simple == [
        "short-term",
        "Subject-verb",
        "agreement",
        "Simple",
        "99",
        "100",
        simple[6],
        "1",
        "0",
        "100.0",
        simple[6],
    ]
    assert "without it" not in done.out
    assert len((tmp_path / "scores.tsv").read_text().splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["scores.tsv"]


def test_syneval_side_by_side(runs, data):
    done = onlstm("syneval", runs[0], "--compare", runs[1], "--pairs", data / "pairs.tsv")
    assert "1: " in done.out
    assert "accuracy 1 accuracy 2 p pairs ties known % on known 1 on known 2" in " ".join(done.out.split())
    assert "McNemar" in done.out
    assert "scored without it: 2.\n" in done.out
    few = make(runs[0].parent / "few", ["the", "author", "laugh"])
    out = answer("syneval", runs[0], "--compare", few, "--pairs", data / "pairs.tsv")
    assert "pairs ties 1 ties 2 known % 1 known % 2 on known 1" in " ".join(out.split())


def test_keys_of_json(runs, data):
    found = json.loads(answer("syneval", runs[0], "--compare", runs[1], "--pairs", data / "pairs.tsv", "--json"))
    keys = {"row", "group", "name", "files", "pairs", "correct", "ties", "accuracy", "scorable_pairs"}
    keys |= {"scorable_accuracy"}
    assert COMMON | {"rows", "pooled", "compare", "tests", "period", "run", "model", "items"} == found.keys()
    assert all(keys | {"phenomenon", "example", "published"} == row.keys() for row in found["rows"])
    assert [row["row"] for row in found["rows"]] == [1, 12]
    assert all({"row", "group", "only_first", "only_second", "p"} == test.keys() for test in found["tests"])

    found = json.loads(answer("blimp", runs[0], data, "--json"))
    assert COMMON | {"paradigms", "phenomena", "all", "mean", "run", "model", "reading", "unk_rate"} == found.keys()
    keys = {"uid", "phenomenon", "n", "correct", "ties", "accuracy"}
    assert all(keys | {"field", "scorable_pairs", "scorable_accuracy"} == each.keys() for each in found["paradigms"])

    found = json.loads(answer("agreement", runs[0], data, "--json"))
    assert COMMON | {"sets", "run", "model", "unk_rate"} == found.keys()
    keys = {"name", "n", "correct", "ties", "scorable"}
    keys |= {"accuracy", "scorable_accuracy", "part"}
    assert all(keys | {"parts"} == each.keys() for each in found["sets"])
    assert all(keys == part.keys() for each in found["sets"] for part in each["parts"])


def test_a_second_run_has_the_same_keys_and_is_tested(runs, data):
    for command, tested in (("blimp", {"uid", "phenomenon"}), ("agreement", {"name", "part"})):
        found = json.loads(answer(command, runs[0], data, "--compare", runs[1], "--json"))
        assert found.keys() == COMMON | found["compare"].keys() | {"compare", "tests"}
        tested |= {"only_first", "only_second", "p"}
        assert all(tested | ({"field"} if test.get("uid") else set()) == test.keys() for test in found["tests"])
        out = answer(command, runs[0], data, "--compare", runs[1])
        assert f"1: {runs[0]}, ON-LSTM 8→12→8\n2: {runs[1]}, LSTM 8→12→8\n" in out
        assert "accuracy 1 accuracy 2 p pairs ties" in " ".join(out.split())
        assert re.search(r"Unknown words: [\d.]+ % \(1\), [\d.]+ % \(2\)\.", out)
        assert "McNemar" in out


def test_what_is_kept_becomes_a_page(runs, data, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    asked = {"syneval": ["--pairs", data / "pairs.tsv"], "blimp": [data], "agreement": [data]}
    for command, more in asked.items():
        done = onlstm(command, runs[0], *more, "--compare", runs[1], "--out", results / f"{command}.json")
        assert done.out.endswith(f"; result in {results / command}.json\n")
        kept = json.loads((results / f"{command}.json").read_text())
        assert kept["kind"] == kept["name"] == command
        assert kept["command"].startswith(f"onlstm {command} {runs[0]} ")
        assert [run["rnn"] for run in kept["runs"]] == ["onlstm", "lstm"]
        found = json.loads(answer(command, runs[0], *more, "--compare", runs[1], "--json"))
        assert {key: kept[key] for key in found.keys() & kept.keys() - {"command", "seconds"}} == {
            key: found[key] for key in found.keys() & kept.keys() - {"command", "seconds"}
        }
    assert [path.name for path in results.iterdir() if path.name.startswith(".")] == []
    answer("report", results, "--out", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == ["## Table 3: targeted syntactic evaluation", "## BLiMP", "## Number agreement"]
    assert "| short-term | Subject-verb agreement | Simple " in page
    answer("agreement", runs[1], data, "--out", results / "agreement.json")
    answer("report", results, "--out", tmp_path / "page.md")
    assert re.search(r"\| agreement set +\| part +\| accuracy \| pairs \|", (tmp_path / "page.md").read_text())


def test_blimp_table(runs, data):
    done = onlstm("blimp", runs[0], data)
    assert done.code == 0
    assert "paradigms of 67" in done.out
    assert done.out.index("agreement") < done.out.index("- mine") < done.out.index("\nall ")
    assert done.err.count("broken JSON; left out") == 5 + 1  # five are named, then all are counted
    assert "7 lines in all: broken JSON" in done.err
    assert "mine.jsonl:16: no text in sentence_bad" in done.err
    assert "--reading words" not in done.err
    assert "--reading words" in onlstm("blimp", runs[1], data).err


def test_a_table_of_own_pairs_has_no_empty_columns(runs, tmp_path):
    (tmp_path / "own.tsv").write_text("grammatical\tungrammatical\nthe author laughs\tthe author laugh\n")
    table = answer("syneval", runs[0], "--pairs", tmp_path / "own.tsv")
    assert "\ndependency  row     accuracy  pairs" in table
    assert "McNemar" not in table  # there is nothing to compare


def test_agreement_table(runs, data):
    done = onlstm("agreement", runs[0], data / "g.text")
    assert done.code == 0
    assert "g.gold:2: 2 columns" in done.err
    assert "0 attractors" in done.out
    assert done.err.count("is not one of") == 5 + 1
    assert "9 lines in all: place …" in done.err


def test_mistakes_are_one_line(runs, data, tmp_path):
    (tmp_path / "bad.zip").write_bytes(b"PK\3\4")
    (tmp_path / "empty").mkdir()
    for args in (
        ("syneval", tmp_path / "none"),
        ("syneval", runs[0], "--pairs", tmp_path / "none.tsv"),
        ("syneval", runs[0], "--pairs", tmp_path / "none.yaml"),
        ("syneval", runs[0], "--pairs", tmp_path / "empty"),
        ("syneval", runs[0], "--lexicon", "klingon"),
        ("syneval", runs[0], "--scores", tmp_path),
        ("syneval", runs[0], "--threads", "0"),
        ("syneval", runs[0], "--compare", tmp_path),
        ("blimp", runs[0]),
        ("blimp", runs[0], tmp_path / "empty"),
        ("blimp", runs[0], tmp_path / "bad.zip"),
        ("blimp", runs[0], data / "pairs.tsv"),
        ("blimp", runs[0], data, "--reading", "aloud"),
        ("agreement", runs[0], tmp_path / "none"),
        ("agreement", runs[0], tmp_path / "bad.zip"),
        ("agreement", runs[0], tmp_path / "empty"),
        ("agreement", runs[0], data, "--scores", tmp_path / "none" / "x.tsv"),
        ("agreement", runs[0], data, "--out", tmp_path / "none" / "x.json"),
        ("blimp", runs[0], data, "--out", tmp_path),
        ("blimp", runs[0], data, "--compare", tmp_path),
    ):
        done = onlstm(*args)
        assert (done.code, done.out) == (2, ""), args
        assert done.err.splitlines()[-1].startswith("onlstm: "), args
        assert len(done.err.splitlines()) == 1 or args[-1] == data / "pairs.tsv", done.err


def test_help_loads_no_torch():
    code = "import sys, onlstm.cli.syntax; sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
