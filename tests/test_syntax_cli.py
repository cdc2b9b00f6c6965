"""`onlstm syneval`, `blimp` and `agreement` as a user types them: tables, keys of JSON, one line for a mistake."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest
import torch

import onlstm.cli.syntax  # noqa: F401  (registers the commands)
from onlstm.cli import main
from onlstm.lm.model import LanguageModel, LMConfig
from onlstm.text.tokenizer import Tokenizer

COMMON = {"command", "version", "argv", "seed", "seconds"}
WORDS = ["the", "author", "authors", "pilot", "pilots", "laughs", "laugh", "is", "are", "tall", "old", "."]


class Done(NamedTuple):
    code: int
    out: str
    err: str


def onlstm_(*args):
    """Run a command in this process, which has torch loaded already."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["onlstm", *map(str, args)])
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Done(code, out.getvalue(), err.getvalue())


def answer(*args):
    done = onlstm_(*args)
    assert done.code == 0, done.err
    return done.out


def make(folder, words=WORDS, seed=0, **options):
    torch.manual_seed(seed)
    tokenizer = Tokenizer.of_words(words)
    config = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 12, "num_layers": 2, "chunk_size": 4}
    model = LanguageModel(LMConfig(**config | options), tokenizer)
    with torch.no_grad():
        for p in model.parameters():
            p.uniform_(-1.5, 1.5)
    model.save(folder)
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
    done = onlstm_("syneval", runs[0], "--pairs", data / "pairs.tsv", "--scores", tmp_path / "scores.tsv")
    assert done.code == 0
    assert done.err.startswith("onlstm: ")
    assert "pairs.tsv:4: 1 fields, but the header has 4" in done.err
    assert "short-term: Subject-verb agreement" in done.out
    assert "long-term: Subject-verb agreement" in done.out
    assert "the author laughs/*laugh\n" in done.out
    assert "the author near the pilots is/*are old\n" in done.out
    (simple,) = (line.split() for line in done.out.splitlines() if line.startswith("   1 Simple"))
    assert simple[3:] == ["1", "0", "100.0", simple[2], "99", "100"]
    assert "without it" not in done.out
    assert len((tmp_path / "scores.tsv").read_text().splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["scores.tsv"]


def test_syneval_side_by_side(runs, data):
    done = onlstm_("syneval", runs[0], "--compare", runs[1], "--pairs", data / "pairs.tsv")
    assert "1: " in done.out
    assert "accuracy 1 accuracy 2 p pairs ties known on known 1 on known 2" in " ".join(done.out.split())
    assert "McNemar" in done.out
    (note,) = (line for line in done.out.splitlines() if "without it" in line)
    assert str(runs[1]) in note
    assert str(runs[0]) not in note
    few = make(runs[0].parent / "few", ["the", "author", "laugh"])
    out = answer("syneval", runs[0], "--compare", few, "--pairs", data / "pairs.tsv")
    assert "pairs ties 1 ties 2 known 1 known 2 on known 1" in " ".join(out.split())


def test_keys_of_json(runs, data):
    found = json.loads(answer("syneval", runs[0], "--compare", runs[1], "--pairs", data / "pairs.tsv", "--json"))
    keys = {"row", "group", "name", "files", "pairs", "correct", "ties", "accuracy", "scorable_pairs"}
    keys |= {"scorable_accuracy"}
    assert COMMON | {"rows", "pooled", "compare", "tests", "period", "run", "model", "items"} == found.keys()
    assert all(keys | {"phenomenon", "example", "published"} == row.keys() for row in found["rows"])
    assert [row["row"] for row in found["rows"]] == [1, 12]
    assert all({"row", "group", "only_first", "only_second", "p"} == test.keys() for test in found["tests"])

    found = json.loads(answer("blimp", runs[0], data, "--json"))
    assert COMMON | {"paradigms", "phenomena", "mean", "run", "model", "reading", "unk_rate"} == found.keys()
    keys = {"uid", "phenomenon", "n", "correct", "ties", "accuracy"}
    assert all(keys | {"field", "scorable_pairs", "scorable_accuracy"} == each.keys() for each in found["paradigms"])

    found = json.loads(answer("agreement", runs[0], data, "--json"))
    assert COMMON | {"sets", "run", "model", "unk_rate"} == found.keys()
    keys = {"name", "n", "correct", "ties", "scorable"}
    assert all(keys | {"accuracy", "scorable_accuracy", "parts"} == each.keys() for each in found["sets"])


def test_blimp_table(runs, data):
    done = onlstm_("blimp", runs[0], data)
    assert done.code == 0
    assert "Mean over 1 of 67 paradigms: " in done.out
    assert done.out.index("agreement") < done.out.index("  mine")
    assert done.err.count("broken JSON; left out") == 5 + 1  # five are named, then all are counted
    assert "7 lines in all: broken JSON" in done.err
    assert "mine.jsonl:16: no sentence_bad" in done.err
    assert "--reading words" not in done.out
    assert "--reading words" in answer("blimp", runs[1], data)


def test_agreement_table(runs, data):
    done = onlstm_("agreement", runs[0], data / "g.text")
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
    ):
        done = onlstm_(*args)
        assert (done.code, done.out) == (2, ""), args
        assert done.err.splitlines()[-1].startswith("onlstm: "), args
        assert len(done.err.splitlines()) == 1 or args[-1] == data / "pairs.tsv", done.err


def test_help_loads_no_torch():
    code = "import sys, onlstm.cli.syntax; sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
