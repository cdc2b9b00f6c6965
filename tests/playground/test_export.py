"""What is written: the page as it is, each model in two files; and what is refused."""

import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from helpers import onlstm, random_grammar, random_model
from onlstm.errors import UserError
from onlstm.playground import export
from onlstm.playground.export import PAGE, javascript, write
from onlstm.text.tokenizer import Tokenizer

WORDS = Tokenizer.of_words(["the", "cat", "<script>"], "ptb-en")


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "<b>&run"
    random_model(WORDS, weight_dropout=0.25, weight_dropout_scale="original").save(path)
    return path


def tensors(target, name):
    description = json.loads((target / f"{name}.json").read_text("utf-8"))
    data = (target / f"{name}.bin").read_bytes()
    assert (len(data), zlib.crc32(data)) == (description["bytes"], description["crc32"])
    kinds = {"float16": "<f2", "float32": "<f4"}
    return description, {
        entry["name"]: np.frombuffer(data, kinds[entry["type"]], int(np.prod(entry["shape"])), entry["place"])
        for entry in description["tensors"]
    }


def test_the_weights_are_those_of_an_evaluation(run, tmp_path):
    target = tmp_path / "page"
    assert write([run, "en-small"], target).models == ("<b>&run", "en-small")
    listed = json.loads((target / "models.json").read_text())
    assert [(entry["name"], entry["file"]) for entry in listed] == [("<b>&run", "b-run"), ("en-small", "en-small")]
    model = random_model(WORDS)
    description, written = tensors(target, "b-run")
    assert description["vocabulary"] == WORDS.vocabulary
    layer = model.layers[1]
    assert np.array_equal(written["layers.1.w_hh"], (layer.weight_hh_l0 * 0.75).detach().flatten().numpy())
    assert np.array_equal(written["layers.1.bias"], (layer.bias_ih_l0 + layer.bias_hh_l0).detach().numpy())
    small = tensors(target, "en-small")[0]
    assert {entry["name"]: entry["type"] for entry in small["tensors"]}["embedding"] == "float16"


def test_a_grammar_is_normalised(tmp_path):
    grammar = random_grammar(WORDS)
    grammar.save(tmp_path / "grammar")
    write([tmp_path / "grammar"], tmp_path / "page")
    _, written = tensors(tmp_path / "page", "grammar")
    words, preterminals = written["words"].reshape(5, 16), written["preterminals"].reshape(7, 16)
    emissions = words @ preterminals.T - written["normaliser"]
    assert np.allclose(emissions, grammar.emissions().detach().numpy(), atol=1e-5)
    assert np.allclose(np.exp(written["left"].reshape(5, 12)).sum(1), 1)


def test_a_page_is_written_over_a_page_only(run, tmp_path):
    target = tmp_path / "page"
    write([run], target)
    write(["en"], target)
    assert {path.name for path in target.iterdir()} == {"models.json", "en.json", "en.bin"} | {
        path.name for path in PAGE.iterdir()
    }
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    for bad, why in ((tmp_path / "other", "not empty"), (run, "the folder of a run"), (run / "config.json", "a file")):
        with pytest.raises(UserError, match=why):
            write([run], bad)


@pytest.mark.parametrize("name", ["MOST_WORDS", "MOST_BYTES"])
def test_what_is_too_large_is_refused(name, run, tmp_path, monkeypatch):
    monkeypatch.setattr(export, name, 4)
    with pytest.raises(UserError, match=re.escape(str(run)) + ": .* a page can hold"):
        write([run], tmp_path / "page")
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize("options", [{"rnn": "lstm"}, {"mos": 2}, {"softmax": "adaptive", "tied": False}])
def test_other_models_are_refused(options, tmp_path):
    random_model(WORDS, **options).save(tmp_path / "run")
    done = onlstm("playground", tmp_path / "run", "--out", tmp_path / "page")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "the page holds ON-LSTM models" in done.err
    assert not (tmp_path / "page").exists()


def test_the_command_writes_a_folder_or_says_why_not(run, tmp_path):
    done = onlstm("playground", run, "--out", tmp_path / "page")
    assert (done.code, done.out) == (0, "")
    assert "<b>&run" in done.err
    for arguments, line in (
        (["nosuch"], "onlstm: nosuch: no such run; name a run folder, en-small or en\n"),
        (["--port", "99999", "--no-browser"], "onlstm: --port 99999: a number from 0 to 65535 is needed\n"),
    ):
        assert onlstm("playground", *arguments) == (2, "", line)


def test_the_command_serves_until_it_is_stopped(run, monkeypatch):
    seen = []

    def serve(server):
        seen.append(sorted(path.name for path in server.folder.glob("*.bin")))
        raise KeyboardInterrupt

    monkeypatch.setattr("onlstm.playground.server.Server.serve_forever", serve)
    monkeypatch.setattr("webbrowser.open", seen.append)
    done = onlstm("playground", run)
    assert done.code == 0
    address = re.match(r"http://127\.0\.0\.1:\d+/(?= \(Ctrl-C stops\))", done.err)[0]
    assert seen == [address, ["b-run.bin"]]
    assert onlstm("playground", run, "--no-browser").code == 0
    assert seen[2:] == [["b-run.bin"]]


def test_patterns_of_oniguruma_in_javascript():
    assert javascript(r"[-+\x{2212}]?(?>\d+(?:,\d)*)\p{Han}") == (
        r"[\-+\u{2212}]?(?=(?<atom>\p{Nd}+(?:,\p{Nd})*))\k<atom>\p{Script=Han}"
    )
    assert javascript(r"\\/|[.,:/]") == r"\\\/|[.,:\/]"


def test_the_page_is_small_plain_and_asks_nobody():
    sources = {path.name: path.read_text("utf-8") for path in PAGE.iterdir()}
    lines = [line for text in sources.values() for line in text.splitlines()]
    assert len(lines) <= 2500
    assert max(map(len, lines)) <= 120
    code = "\n".join(sources.values())
    assert set(re.findall(r"https?://[^\s\"'`<]+", code)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code) == []
    python = sum(len(path.read_text().splitlines()) for path in Path(export.__file__).parent.glob("*.py"))
    assert python <= 300
