"""JSON and YAML come in through one door each: whatever they hold, the answer is a value or one line."""

import pytest

from helpers import onlstm
from onlstm.cli.shards import Marker
from onlstm.errors import UserError
from onlstm.folder import read_config
from onlstm.induction.plan import Plan
from onlstm.induction.tasks import folder_of, load_outcome
from onlstm.paper import results
from onlstm.records import from_json, from_yaml
from onlstm.text import corpus
from onlstm.trees.tree import Tree

DEEP = {
    "lists": "[" * 100_000 + "]" * 100_000,
    "objects": '{"words": ' * 100_000 + "1" + "}" * 100_000,
    "unclosed": "[" * 100_000,
    "less deep": "[" * 300 + "]" * 300,
}
deep = pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)


def test_what_is_not_too_deep_is_read():
    assert from_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert len(from_json("[" + "[[1], {}]," * 10_000 + "[]]")) == 10_001
    assert from_json("[" * 99 + "]" * 99)
    with pytest.raises(ValueError, match="nested too deeply"):
        from_json("[" * 101 + "]" * 101)
    assert from_yaml("a: &b [1, 2]\nc: [*b, *b]", "x") == {"a": [1, 2], "c": [[1, 2], [1, 2]]}


def load_plan(path):
    (path.parent / "plan.json").write_text(path.read_text())
    Plan.load(path.parent)


def load_config(path):
    (path.parent / "config.json").write_text(path.read_text())
    read_config(path.parent)


def load_corpus(path):
    (path.parent / "corpus.json").write_text(path.read_text())
    corpus.load(path.parent)


def load_stage(path):
    folder_of(path.parent, "one").mkdir(parents=True)
    (folder_of(path.parent, "one") / "result.json").write_text(path.read_text())
    load_outcome(path.parent, "one")


READERS = {
    "plan": load_plan,
    "config": load_config,
    "corpus": load_corpus,
    "stage": load_stage,
    "result": results.read,
    "tree": lambda path: Tree.from_json(path.read_text()),
}


@deep
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_is_too_deep_is_one_line(tmp_path, text, reader):
    path = tmp_path / "deep.json"
    path.write_text(text)
    with pytest.raises((UserError, ValueError)) as error:  # of a tree, both
        reader(path)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 300


def test_a_mark_that_is_too_deep_is_none(tmp_path):
    (tmp_path / "part").write_text("")
    (tmp_path / "part.done").write_text(DEEP["lists"])
    assert not Marker(tmp_path / "part.done", {}).agrees(tmp_path / "part")


@pytest.mark.parametrize("text", ["&a [*a]", "- " * 999 + "x", "a: " + "[" * 300 + "]" * 300, "{a: " * 300 + "}" * 300])
def test_deep_yaml(text):
    with pytest.raises(UserError, match=r"^x\.yaml: nested too deeply; "):
        from_yaml(text, "x.yaml")


@deep
def test_commands(tmp_path, text):
    (tmp_path / "pairs.jsonl").write_text(f'{{"sentence_good": "a", "sentence_bad": {text}}}\n')
    (tmp_path / "parse.jsonl").write_text(f'{{"words": ["a"], "spans": {text}}}\n')
    (tmp_path / "r.yaml").write_text(DEEP["less deep"])  # the YAML reader is slow
    for words in (
        ["blimp", "en-small", tmp_path / "pairs.jsonl"],
        ["draw", tmp_path / "parse.jsonl"],
        ["train", tmp_path / "pairs.jsonl", "--recipe", tmp_path / "r.yaml", "--out", tmp_path / "run"],
    ):
        done = onlstm(*words)
        assert (done.code, done.out) == (2, "")
        assert "Traceback" not in done.err
