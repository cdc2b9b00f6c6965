"""Language modelling as a user types it: one small run, and every command that uses it."""

import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from small_runs import sentences

from helpers import check_bfloat16_is_refused, onlstm
from onlstm.kernels import build
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.paper import language_modelling
from onlstm.paper.language_modelling import Request
from onlstm.recipe import Recipe
from onlstm.train import checkpoint

SETTINGS = {
    "recipe": "tiny",
    "threads": 1,
    "train.epochs": 2,
    "train.batch-size": 8,
    "text.min-count": 1,
    "text.profile": "pretokenized",
    "model.embedding-size": 16,
    "model.hidden-size": 24,
}
SMALL = [word for key, value in SETTINGS.items() for word in (f"--{key}", str(value))]


def answer(*args, **options):
    done = onlstm(*args, **options)
    assert done.code == 0, done.err
    return done.out


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for name, count, seed in (("train", 700, 0), ("valid", 60, 1), ("test", 60, 2)):
        (folder / f"{name}.txt").write_text("\n".join(sentences(count, seed)) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "small"
    said = answer("train", text, "--out", out, *SMALL)
    assert "16→24→16: " in said
    assert said.count("layer 2: (") == 6, "three trees after each of two epochs"
    assert "Perplexity: valid " in said.splitlines()[-1]
    return out


def test_a_run_folder_holds_the_model_the_log_and_the_result(run, text):
    assert {p.name for p in run.iterdir()} == {
        ".lock",
        "config.json",
        "corpus",
        "log.jsonl",
        "model.safetensors",
        "result.json",
        "tokenizer.json",
        "trainer.pt",
    }
    found = json.loads((run / "result.json").read_text())
    assert found.keys() == {
        *("format_version", "kind", "name", "command", "recipe", "versions", "seed", "data", "seconds"),
        *("parameters", "threads", "processes", "machine", "numbers", "curve", "notes"),
    }
    assert found["command"].startswith(f"onlstm train {text} --out")
    assert found["recipe"]["model"]["hidden_size"] == 24
    assert len(found["data"]["train"]["sha256"]) == 64
    assert len(found["curve"]) == 2
    assert 1 < found["numbers"]["test_perplexity"] < 12


def test_eval_gives_the_results_numbers_and_the_originals_way_of_counting(run, text):
    found = json.loads(answer("eval", run, text / "test.txt", "--json", "--threads", "1"))
    result = json.loads((run / "result.json").read_text())
    assert found["perplexity"] == pytest.approx(result["numbers"]["test_perplexity"], rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(found["nll"]))
    assert found["bits_per_word"] == pytest.approx(found["nll"] / math.log(2))
    assert found["tokens"] == result["data"]["test"]["tokens"]
    assert found["unk_rate"] == 0
    assert (found["cache"], found["dynamic"]) == (None, None)
    compat = json.loads(answer("eval", run, text / "test.txt", "--json", "--compat", "original"))
    assert compat["perplexity"] < found["perplexity"]
    assert "test: " in answer("eval", run, text)


def test_eval_warns_of_unknown_words_and_refuses_more_columns_than_the_text_fills(run, tmp_path):
    (tmp_path / "foreign.txt").write_text("eine Eule schläft\n" * 5)
    done = onlstm("eval", run, tmp_path / "foreign.txt", "--json")
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert done.err.startswith(
        "onlstm: 100% of the words are unknown to the model, so this perplexity is mostly that of"
    )
    done = onlstm("eval", run, tmp_path / "foreign.txt", "--batch-size", 11)
    assert (done.code, done.out) == (2, "")
    assert done.err == "onlstm: --batch-size 11: the text has 20 tokens; use at most 10\n"


def test_cache_and_dynamic_evaluation_are_tuned_on_the_runs_validation_text(run, text, tmp_path):
    asked = "eval", run, text / "test.txt", "--cache", "--dynamic", "--threads", "1", "--out", tmp_path / "mine.json"
    found = json.loads(answer(*asked, "--json"))
    assert found["cache"].keys() == {"perplexity", "bits_per_word", "nll", "valid_nll", "theta", "lam", "size"}
    assert found["dynamic"].keys() == {"perplexity", "bits_per_word", "nll", "valid_nll", "lr", "decay", "window"}
    assert found["cache"]["perplexity"] < 1.05 * found["perplexity"]
    assert found["dynamic"]["perplexity"] < 1.05 * found["perplexity"]
    saved = json.loads((tmp_path / "mine.json").read_text())
    assert {key: saved[key] for key in ("kind", "cache", "dynamic")} == {
        "kind": "perplexity",
        "cache": found["cache"],
        "dynamic": found["dynamic"],
    }
    answer("report", tmp_path, "--out", tmp_path / "RESULTS.md", "--docs", tmp_path / "docs")
    (row,) = re.findall(r"\| mine .*", (tmp_path / "docs" / "language-modelling.md").read_text())
    *_, text_cell, _, plain, cached, dynamic, _ = (cell.strip() for cell in row.split("|"))
    numbers = (found["perplexity"], found["cache"]["perplexity"], found["dynamic"]["perplexity"])
    assert [text_cell, plain, cached, dynamic] == ["test.txt", *(f"{value:.2f}" for value in numbers)]


def test_score_prints_tables_and_json_lines_that_agree(run, tmp_path):
    lines = "the cat sees a bird\n\nthe zebra hears\n"
    table = [row.split("\t") for row in answer("score", run, input=lines).splitlines()]
    rows = [json.loads(row) for row in answer("score", run, "-", "--json", input=lines).splitlines()]
    assert table[0] == ["sentence", "position", "word", "surprisal"]
    assert [row.keys() for row in rows] == [{"id", "words", "surprisal", "eos"}] * 3
    assert [row["words"] for row in rows] == [["the", "cat", "sees", "a", "bird"], [], ["the", "zebra", "hears"]]
    flat = [value for row in rows for value in [*row["surprisal"], row["eos"]]]
    assert [float(row[3]) for row in table[1:]] == pytest.approx(flat, abs=1e-5)
    out = tmp_path / "scores.tsv"
    answer("score", run, "-", "--out", out, input=lines)
    assert out.read_text().splitlines() == ["\t".join(row) for row in table]


def test_generate_is_repeatable_and_uses_known_words(run):
    said = answer("generate", run, "the old", "--words", "8", "--count", "2", "--seed", "3")
    assert said == answer("generate", run, "the old", "--words", "8", "--count", "2", "--seed", "3")
    lines = said.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("the old") and "<unk>" not in line for line in lines)
    piped = onlstm("generate", run, "-", "--words", "8", "--count", "2", "--seed", "3", input="the old\n")
    assert piped.out == said


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--model.hidden-size", "32"),
        ("--seed", "5"),
        ("--train.batch-size", "4"),
        ("--train.optimizer", "sgd"),
        ("--train.precision", "float64"),
    ],
)
def test_resume_refuses_what_would_make_it_another_run(run, option, value):
    done = onlstm("train", "--resume", "--out", run, option, value)
    assert done.code == 2
    assert "cannot change with --resume" in done.err
    assert "leave it out" in onlstm("train", "--resume", "--out", run, "--recipe", "tiny").err


def test_other_words_about_a_recipe_do_not_stop_its_run(run, tmp_path):
    again = shutil.copytree(run, tmp_path / "again")
    recipe = Recipe.of(checkpoint.load(again)["about"]["recipe"])
    later = replace(recipe, expected="another result", train=replace(recipe.train, epochs=3))
    done = language_modelling.run(Request(recipe=later, out=again, resume=True, sources=(), command="onlstm train"))
    assert done.numbers.epochs == 3


def test_precision_bfloat16_is_refused_where_it_is_not_there(run, tmp_path):
    again = shutil.copytree(run, tmp_path / "again")
    asked = "train", "--resume", "--out", str(again), "--train.epochs", "3", "--train.precision", "bfloat16"
    check_bfloat16_is_refused(*asked)


@pytest.mark.skipif(not build.has_bfloat16(), reason="this processor does not multiply in bfloat16")
def test_a_run_may_go_on_in_the_other_precision(run, tmp_path):
    again = shutil.copytree(run, tmp_path / "again")
    for epochs, precision in ((3, "bfloat16"), (4, "float32")):
        options = "--train.epochs", epochs, "--train.precision", precision
        assert "Continuing from step" in answer("train", "--resume", "--out", again, *options, "--threads", "1")
    assert json.loads((again / "result.json").read_text())["numbers"]["epochs"] == 4


def test_resume_of_a_finished_run_takes_more_epochs_and_survives_a_lost_log(run, tmp_path):
    again = shutil.copytree(run, tmp_path / "again")
    (again / "log.jsonl").unlink()
    said = answer("train", "--resume", "--out", again, "--train.epochs", "3", "--train.lr", "0.001", "--threads", "1")
    assert "Continuing from step" in said
    found = json.loads((again / "result.json").read_text())
    assert found["numbers"]["epochs"] == 3
    assert [each["epoch"] for each in found["curve"]] == [3]
    began, went_on = found["command"].split(" && ")
    assert began == json.loads((run / "result.json").read_text())["command"]
    assert went_on.startswith("onlstm train --resume ")


def test_epochs_that_are_added_are_whole(text, tmp_path):
    def last_epoch(*words):
        answer("train", *words, "--out", tmp_path / "run")
        return json.loads((tmp_path / "run" / "result.json").read_text())["recipe"]["train"]["last_epoch"]

    assert last_epoch(text, *SMALL, "--train.last-epoch", "0.5") == 0.5
    assert last_epoch("--resume", "--train.epochs", "3") == 1
    assert last_epoch("--resume", "--train.epochs", "4", "--train.last-epoch", "0.5") == 0.5


def test_a_run_with_every_word_of_its_text_can_be_resumed(text, tmp_path):
    sizes = "--model.embedding-size", "16", "--model.hidden-size", "24"
    answer(
        "train",
        text,
        "--recipe",
        "table1-small",
        *sizes,
        "--train.epochs",
        "1",
        "--threads",
        "1",
        "--out",
        tmp_path / "run",
    )
    said = answer("train", "--resume", "--out", tmp_path / "run", "--train.epochs", "2", "--threads", "1")
    assert "Continuing from step" in said


def test_a_folder_with_other_files_is_not_touched(text, tmp_path):
    (tmp_path / ".notes.2024").write_text("mine")
    done = onlstm("train", text, "--out", tmp_path, *SMALL)
    assert done.code == 2
    assert "not empty: name another --out" in done.err
    assert {p.name for p in tmp_path.iterdir()} <= {".notes.2024", ".lock"}
    assert (tmp_path / ".notes.2024").read_text() == "mine"


def test_a_run_that_was_killed_in_its_first_write_can_be_started_again(text, tmp_path):
    (tmp_path / ".trainer.pt.4242").write_bytes(b"the first half of a checkpoint")
    answer("train", text, "--out", tmp_path, *SMALL)
    assert not list(tmp_path.glob(".trainer.pt.*"))


def test_doctor_reads_with_a_runs_vocabulary(run, text):
    found = json.loads(answer("doctor", text / "test.txt", "--run", run, "--json"))
    assert found["lines"] == 60
    assert found["unknown"] == 0
    assert "Words per line" in answer("doctor", text)


@pytest.mark.parametrize("with_text", [True, False])
def test_convert_makes_a_run_of_an_original_checkpoint(text, tmp_path, with_text):
    words = list(dict.fromkeys(word for line in sentences(700) for word in [*line.split(), "<eos>"]))
    torch.manual_seed(0)
    config = LMConfig(vocab_size=len(words), embedding_size=8, hidden_size=12, num_layers=2, chunk_size=4)
    model = LanguageModel(config).eval()
    theirs = {"encoder.weight": model.embedding.weight, "decoder.weight": model.embedding.weight}
    theirs["decoder.bias"] = model.decoder.bias
    for k, layer in enumerate(model.layers):
        for kind in ("weight", "bias"):
            theirs[f"rnn.cells.{k}.ih.0.{kind}"] = getattr(layer, f"{kind}_ih_l0")
            theirs[f"rnn.cells.{k}.hh.{kind}"] = getattr(layer, f"{kind}_hh_l0")
    torch.save({name: value.detach() for name, value in theirs.items()}, tmp_path / "old.pt")
    more = ["--text", text / "train.txt"] if with_text else []
    said = answer("convert", tmp_path / "old.pt", "--out", tmp_path / "new", "--weight-dropout", "0.45", *more)
    assert "8→12→8, chunk 4" in said
    assert ("word0, word1" in said) != with_text
    again = LanguageModel.load(tmp_path / "new")
    ids = torch.randint(len(words), (6, 2))
    assert torch.allclose(again(ids).logits[..., :-1], model(ids).logits, atol=1e-6)
    assert again.tokenizer.vocabulary[-1] == "<unk>"  # which this text lacks
    if with_text:
        assert again.tokenizer.vocabulary[:-1] == words


def test_report_writes_the_page(run, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "small.json").write_text((run / "result.json").read_text())
    answer("report", cwd=tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    number = json.loads((run / "result.json").read_text())["numbers"]["test_perplexity"]
    assert f"{number:.2f}" in page
    assert "56.17" in page


def test_torchrun_trains_as_one_process(run, text, tmp_path):
    out = tmp_path / "two"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*torchrun, "-m", "onlstm", "train", str(text), "--out", str(out), *SMALL],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    one, two = (json.loads((folder / "result.json").read_text()) for folder in (run, out))
    assert two["processes"] == 2
    assert two["numbers"]["valid_perplexity"] == pytest.approx(one["numbers"]["valid_perplexity"], rel=1e-4)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["train", "nowhere.txt"], "nowhere.txt: no such file or folder"),
        (["train"], "no text: name a file"),
        (["train", "{text}", "--foo", "3"], "Unknown option: --foo."),
        (["train", "{text}", "--recipe", "tinny"], "--recipe tinny: no such recipe; did you mean tiny?"),
        (["train", "{text}", "--model.hiddn-size", "3"], "Unknown option: --model.hiddn-size=3. Did you mean"),
        (["train", "{text}", "--out", "{run}"], "{run}: there is a run already: continue it with --resume"),
        (
            ["train", "{text}", "--out", "x", "--text.min-count", "10000"],
            "--text.min-count 10000: no word of the training text",
        ),
        (["train", "--resume", "--out", "nowhere"], "nowhere: nothing to resume"),
        (["eval", "nowhere", "{text}"], "nowhere: no such model folder"),
        (["eval", "{text}", "{text}"], "{text}: not a model folder: no config.json"),
        (["score", "{run}", "nowhere.txt"], "nowhere.txt: no such file; check the name"),
        (["generate", "{run}", "--top-p", "2"], "--top-p 2.0: "),
        (["generate", "{run}", "--threads", "0"], "--threads 0: at least 1 is needed"),
        (["convert", "{text}/test.txt", "--out", "x"], "{text}/test.txt: is not a file that torch.save wrote"),
        (["report", "nowhere"], "nowhere: no results"),
        (["recipes", "nope"], "recipe nope: no such recipe"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(args, line, run, text, tmp_path):
    filled = [arg.format(run=run, text=text) for arg in args]
    done = onlstm(*filled, cwd=tmp_path)
    assert done.code == 2
    assert done.err.startswith(f"onlstm: {line.format(run=run, text=text)}"), done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
