"""Commands with the run of a grammar: parse, draw, inspect; commands that need a language model; the default model."""

import json
import xml.etree.ElementTree as ET
from importlib import import_module

import pytest

from helpers import onlstm, random_grammar
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer

WORDS = ["the", "a", "cat", "dog", "saw", "slept", "old"]
TEXT = ["The old cat saw a dog.", "", "Dog!", "The cat slept.", "A dog saw the old cat."]
BANK = """
( (S (NP (DT The) (JJ old) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog))) (. .)) )
( (S (NP (DT The) (NN cat)) (VP (VBD slept)) (. .)) )
"""


@pytest.fixture
def run(tmp_path):
    random_grammar(Tokenizer.of_words(WORDS, "generic")).save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(TEXT) + "\n")
    return tmp_path / "text.txt"


def records(*args):
    done = onlstm("parse", *args, "--json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("decoder", ["mbr", "viterbi"])
def test_brackets_with_and_without_labels(run, text, decoder):
    for labels in (False, True):
        parser = Parser.load(run, decoder=decoder, labels=labels)
        trees = "".join(f"{parser.parse(line).tree or ''}\n" for line in TEXT)
        done = onlstm("parse", run, text, "--decoder", decoder, *["--labels"] * labels)
        assert (done.code, done.out) == (0, trees)
    assert "N" in trees


def test_json_has_what_was_asked_for(run, text):
    plain = records(run, text)
    assert [list(record) for record in plain] == [
        ["id", "text", "words", "offsets", "distances", "spans", "layer", "decoder"]
    ] * len(TEXT)
    assert {(record["distances"], record["layer"], record["decoder"]) for record in plain} == {(None, None, "mbr")}
    rich = records(run, text, "--labels", "--confidence")
    for line, before, record in zip(TEXT, plain, rich, strict=True):
        parse = Parser.load(run).parse(line)
        assert record == before | {"labels": [*parse.labels], "confidence": [*parse.confidence]}
    for seed in (1, 2):
        random_grammar(Tokenizer.of_words(WORDS, "generic"), seed=seed).save(run / "members" / str(seed))
    voted = records(run, text, "--confidence")
    assert [record["votes"] for record in voted] == [[*Parser.load(run, votes=True).parse(line).votes] for line in TEXT]
    assert "votes" not in records(run, text)[0]


def test_shards_and_pictures(run, text, tmp_path):
    whole = onlstm("parse", run, text, "--labels").out
    for part in ("1/2", "2/2"):
        assert onlstm("parse", run, text, "--labels", "--shard", part, "--out", tmp_path / "parts").code == 0
    assert "".join(path.read_text() for path in sorted((tmp_path / "parts").glob("*.txt"))) == whole
    again = onlstm("parse", run, text, "--labels", "--shard", "1/2", "--out", tmp_path / "parts")
    assert "already finished" in again.err
    other = onlstm("parse", run, text, "--shard", "1/2", "--out", tmp_path / "parts")
    assert (other.code, "other settings (labels)" in other.err) == (2, True)
    for format in ("svg", "html", "latex", "tree"):
        done = onlstm("parse", run, text, "--format", format)
        assert done.code == 0, done.err
        assert "slept" in done.out
    pictures = [onlstm("parse", run, text, "--format", "svg", *more).out for more in ([], ["--confidence"])]
    widths = [_line_weights(picture) for picture in pictures]
    assert widths[0] == {"1.2"}
    assert len(widths[1]) > 1


def _line_weights(svg):
    groups = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
    return {group.get("stroke-width") for group in groups if group.get("stroke") == "#1e293b"}


def test_draw(run, tmp_path):
    (tmp_path / "bank.mrg").write_text(BANK)
    done = onlstm("draw", run, tmp_path / "bank.mrg")
    assert (done.code, done.out.count("model, F1"), done.out.count("gold")) == (0, 2, 2)
    picture = onlstm("draw", run, "The old cat saw a dog.", "--format", "svg")
    assert len(_line_weights(picture.out)) > 1
    assert _line_weights(onlstm("draw", run, TEXT[0], "--format", "svg", "--plain").out) == {"1.2"}
    assert onlstm("draw", run, TEXT[3], "--labels").out.startswith("N")
    parsed = tmp_path / "parses.jsonl"
    parsed.write_text(onlstm("parse", run, TEXT[0], "--json").out)
    assert onlstm("draw", parsed).out == onlstm("draw", run, TEXT[0]).out


def test_inspect(run, text, tmp_path):
    (tmp_path / "bank.mrg").write_text(BANK)
    assert "Rules, by probability" in onlstm("inspect", run).out
    done = onlstm("inspect", run, text, "--gold", tmp_path / "bank.mrg")
    assert done.code == 0, done.err
    assert "3 sentences of two words or more, 15 words" in done.out
    assert "Labels against gold:" in done.out
    record = json.loads(onlstm("inspect", run, text, "--gold", tmp_path / "bank.mrg", "--json").out)
    keys = {"run", "grammar", "sentences", "words", "more", "nats_per_word", "rules", "preterminals", "labels"}
    assert record.keys() >= keys
    assert record["rules"][0].keys() == {"parent", "left", "right", "probability", "uses"}
    assert record["preterminals"][0].keys() == {"name", "uses", "words"}
    assert record["labels"][0].keys() == {"label", "spans", "gold"}
    assert sum(label["spans"] for label in record["labels"]) == 5 + 2
    assert sum(label["gold"].get("NP", 0) for label in record["labels"]) <= 3
    assert json.loads(onlstm("inspect", run, "--json").out)["labels"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["parse", "RUN", "x y", "--layer", "2"], "--layer 2: a grammar has none; only a language model has"),
        (["parse", "RUN", "x y", "--decoder", "paper"], "--decoder paper: there are mbr, viterbi"),
        (["parse", "RUN", "x y", "--gates", "input"], "--gates input: a grammar has none; only a language model has"),
        (["parse", "RUN", "x y", "--confidence"], "--confidence: brackets cannot show it; choose --format json, "),
        (["parse", "en-small", "x y", "--labels"], "--labels: en-small is a language model and has none; name the run"),
        (["parse", "en-small", "x y", "--decoder", "mbr"], "--decoder 'mbr': there are paper, unbiased"),
        (["inspect", "RUN", "x y", "--layer", "1"], "--layer: RUN is a grammar, which has no gates to show"),
        (["inspect", "en-small", "x y", "--gold", "b"], "--gold: en-small is a language model, which has no labels; "),
        (["draw", "en-small", "x y", "--labels"], "--labels: a language model has none; only a grammar has"),
    ],
)
def test_mistakes_are_one_line(run, words, message):
    done = onlstm(*(str(run) if word == "RUN" else word for word in words))
    assert done.code == 2
    assert done.err.startswith(f"onlstm: {message.replace('RUN', str(run))}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", [["score"], ["generate"], ["eval"], ["syneval"], ["blimp"], ["agreement"]])
def test_what_needs_word_probabilities_names_the_grammar(run, text, command):
    extra = [] if command[0] in ("generate", "syneval") else [text]
    done = onlstm(*command, run, *extra)
    assert done.code == 2
    assert done.err == f"onlstm: {run}/config.json: the folder of a grammar; a language model is needed\n"


def test_commands_that_need_only_trees_use_it(run, tmp_path, monkeypatch):
    (tmp_path / "bank.mrg").write_text(BANK)
    for name in ("parse", "draw", "evaluate"):
        monkeypatch.setattr(import_module(f"onlstm.cli.{name}"), "TREES", str(run))
    assert onlstm("parse", TEXT[0]).out == onlstm("parse", run, TEXT[0]).out
    assert onlstm("parse", TEXT[0], "--layer", "2").out == onlstm("parse", "en-small", TEXT[0], "--layer", "2").out
    assert onlstm("draw", TEXT[0]).out == onlstm("draw", run, TEXT[0]).out
    assert onlstm("draw", TEXT[0], "--decoder", "paper").out == onlstm("draw", "en-small", TEXT[0]).out
    rows = json.loads(onlstm("evaluate", tmp_path / "bank.mrg", "--json").out)["rows"]
    assert {row["run"] for row in rows if row["system"] == "grammar"} == {str(run)}
    assert onlstm("score", TEXT[0]).out == onlstm("score", "en-small", TEXT[0]).out
