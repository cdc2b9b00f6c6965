"""docs/howto: every block of every page, with a small text and a recipe of seconds where the page has an evening's."""

import random
import re
import warnings
from importlib.util import find_spec

import pytest
import yaml

from helpers import onlstm
from onlstm import recipe
from onlstm.paper.demo.grammar import Grammar
from onlstm.trees.tree import read_brackets
from pages import run_page

TINY = [
    "--recipe",
    "tiny",
    "--train.epochs",
    "1",
    "--model.embedding-size",
    "16",
    "--model.hidden-size",
    "16",
    "--model.chunk-size",
    "4",
]


def tiny(words):
    """Train the smallest network for one epoch."""
    if words[0] == "reproduce":
        return [word if word != "quick" else "tiniest.yaml" for word in words]
    if words[0] != "train" or "--resume" in words:
        return words
    at = words.index("--recipe")
    settings = TINY[:-2] if "lstm" in words else TINY  # an LSTM has no chunks
    return [*words[:at], *settings, *words[at + 2 :]]


@pytest.fixture
def folder(tmp_path):
    """A folder with what the pages take for granted: running text, sentences, two treebanks."""
    trees = list(Grammar.load().trees(400, random.Random(0)))
    tagged = [re.sub(r"(?<=\s)([^()\s]+)", r"(NN \1)", f"( {tree} )\n") for tree in trees]
    lines = [" ".join(tree.words) for tree in trees[:300]]
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "raw.txt").write_text(" ".join(f"{line.capitalize()}." for line in lines))
    (tmp_path / "treebank").mkdir()
    (tmp_path / "treebank" / "one.mrg").write_text("".join(tagged[350:]))
    (tmp_path / "test.mrg").write_text("".join(tagged[350:]))
    (tmp_path / "dev.mrg").write_text("".join(tagged[300:350]))
    return tmp_path


def test_layer(tmp_path):
    page = run_page("howto/layer.md", tmp_path)
    assert page.names["logits"].shape == (8, 25, 17)
    assert page.names["gates"].input.shape == (2, 25, 8, 12)
    assert page.names["layer"].weight_hh_l0.grad.abs().sum() > 0


def test_distances(tmp_path):
    page = run_page("howto/distances.md", tmp_path)
    assert page.names["output"].distances.forget.shape == (3, 5, 1)
    assert page.names["output"].logits.shape == (5, 1, 12_000)
    assert page.names["batch"].distances.forget.shape == (3, 4, 1)
    assert page.names["batch"].master_gates[1].forget.shape == (4, 1, 50)
    assert '"distances"' in page.output("parse")
    assert "<svg" in (tmp_path / "tree.svg").read_text()


def test_gpu(folder):
    page = run_page("howto/gpu.md", folder, tiny)
    assert page.names["model"].device.type == "cpu"
    assert "Perplexity" in page.output("train --resume")


def test_spacy(tmp_path):
    pytest.importorskip("spacy", reason="needs the extra spacy", exc_type=ImportError)
    page = run_page("howto/spacy.md", tmp_path)
    assert len(page.names["noun_phrase"]._.labels) == 1
    assert "<svg" in (tmp_path / "tree.svg").read_text()


@pytest.mark.slow
def test_cluster(folder):
    pytest.importorskip("ray", reason="needs the extra ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of Ray
        run_page("howto/cluster.md", folder)
    assert len((folder / "trees" / "part-000000000000.jsonl").read_text().splitlines()) == 300


@pytest.mark.skipif(bool(find_spec("ray")), reason="Ray is installed")
def test_without_ray_one_line_says_what_to_install(tmp_path):
    result = onlstm("score", "the cat", "--ray", "local", "--out", tmp_path)
    assert (result.code, result.err) == (2, "onlstm: --ray: ray is not installed; pip install 'onlstm[ray]'\n")


def test_language(folder):
    page = run_page("howto/language.md", folder, tiny)
    assert len((folder / "trees.txt").read_text().splitlines()) == 300
    assert "profile mine" in page.output("evaluate run test.mrg --dev dev.mrg --profile")
    assert "vote" in page.output("evaluate run1 run2")


def test_table2(folder):
    page = run_page("howto/table2.md", folder, tiny)
    assert "Headline" in page.output("evaluate runs/0 runs/1 runs/2")
    assert "lstm" in page.output("evaluate runs/lstm")
    assert "kim2019-corpus" in page.output("evaluate runs/0 treebank --rule all")
    trees = list(read_brackets((folder / "trees.txt").read_text()))
    lines = (folder / "words.txt").read_text().splitlines()
    assert [len(tree.words) for tree in trees] == [len(line.split()) for line in lines]
    assert (folder / "runs" / "table2.json").exists()
    assert "forest" in (folder / "figure.tex").read_text()


def test_report(folder):
    settings = {key: value for key, value in recipe.read("tiny").items() if key in ("text", "model", "train")}
    settings["model"] |= {"embedding_size": 16, "hidden_size": 16, "chunk_size": 4}
    settings["train"]["epochs"] = 1
    (folder / "tiniest.yaml").write_text(yaml.safe_dump(settings))
    page = run_page("howto/report.md", folder, tiny)
    assert "best on dev.mrg" in page.output("evaluate runs/onlstm runs/lstm")
    written = (folder / "RESULTS.md").read_text()
    assert "## Table 1: language modelling" in written
    assert "## Table 2: unsupervised parsing" in written
    assert "- lstm: `onlstm train text.txt" in written
    assert (
        "- parsing: `onlstm evaluate runs/onlstm runs/lstm test.mrg --dev dev.mrg --out runs/parsing.json`" in written
    )
    assert "[3/3] onlstm evaluate runs/own/onlstm runs/own/lstm test.mrg --dev dev.mrg" in page.output("reproduce")
    assert (folder / "runs" / "own" / "table2" / "table2.md").exists()
