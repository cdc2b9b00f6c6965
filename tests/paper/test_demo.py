"""The demo as a user runs it, on a grammar that is learned in seconds: scores, report, bounds, and no process left."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onlstm import LanguageModel
from onlstm.errors import UserError
from onlstm.paper.demo import run as demo
from onlstm.paper.demo.grammar import Grammar
from onlstm.paper.demo.page import Headline
from onlstm.trees.f1 import score

TINY = """
S -> NP VP
NP -> Det N 3 | NP PP
VP -> V NP
PP -> of NP
Det -> the | a | this
N -> cat | dog | bird | fish
V -> saw | met
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    file = tmp_path_factory.mktemp("grammar") / "tiny.txt"
    file.write_text(TINY)
    return file


@pytest.fixture(scope="module")
def ran(tiny, tmp_path_factory):
    said = []
    out = tmp_path_factory.mktemp("out") / "new" / "demo"
    return demo.run(tiny, seed=1, minutes=0.03, out=out, say=said.append), said, out


def test_every_system_is_scored_on_the_same_sentences(ran):
    found, _, _ = ran
    ways = {(row.system, row.layer, row.decoder) for row in found.rows}
    models = {
        (system, layer, decoder)
        for system in ("onlstm", "lstm-gates", "untrained")
        for layer in (1, 2)
        for decoder in ("paper", "unbiased")
    }
    assert ways == models | {(name, None, None) for name in ("left", "right", "balanced", "random", "oracle")}
    assert len({row.n for row in found.rows}) == 1
    f1 = {row.system: row.f1 for row in found.rows}
    assert found.best_trivial == max(f1[name] for name in ("left", "right", "balanced", "random"))
    assert f1["oracle"] == max(row.f1 for row in found.rows)
    assert found.headline == Headline(layer=1, decoder="paper", f1=found.rows[0].f1)
    assert [float(row[3]) for row in found.table().rows] == [round(row.f1, 1) for row in found.rows]


def test_trees_appear_after_each_pass(ran):
    _, said, _ = ran
    (gold,) = [line for line in said if "gold" in line]
    shown = [line for line in said if re.match(r"F1 +[\d.]+  \( ", line)]
    assert shown
    assert {re.sub(r"[() ]", "", line.split("  ")[-1]) for line in shown} == {
        re.sub(r"[() ]", "", gold.split("  ")[-1])
    }


def test_the_report_stands_alone_and_the_model_parses(ran):
    found, _, out = ran
    page = (out / "report.html").read_text("utf-8")
    assert page.count("<svg") >= 2 + 2 * 8
    assert f"F1 {found.headline.f1:.1f} (rule on-lstm)" in page
    assert "master gate" in page
    assert page.count('class="number"') >= 4 * len(found.rows), "layer, F1, ties, F1 to right-branching"
    assert page.count('<div class="half">') == 2, "scores and curves stand side by side"
    assert not re.search(r"<script|<link|src=|https?://(?!www\.w3\.org)", page)
    assert sorted(path.name for path in out.iterdir()) == ["model", "report.html"]
    assert LanguageModel.load(out / "model").config.parse_layer == demo.LAYER


def test_the_parts_have_no_sentence_in_common(tiny):
    for grammar in (Grammar.load(), Grammar.load(tiny)):
        data = demo.Corpus.of_grammar(grammar, 5, count=3000)
        valid, test = ({tree.words for tree in trees} for trees in (data.valid, data.test))
        assert len(valid) == len(data.valid) == len(test) == len(data.test) > 50
        assert not valid & test
        assert not (valid | test) & set(data.train)
        assert data == demo.Corpus.of_grammar(grammar, 5, count=3000)
        assert score(data.test, data.test).f1 == pytest.approx(100)


def test_too_few_sentences_are_told():
    with pytest.raises(UserError, match="g: 4 distinct sentences are too few"):
        demo.Corpus.of_grammar(Grammar.of_text("S -> A A\nA -> a | b", "g"), 0, count=1000)


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_minutes_are_above_0(minutes, tmp_path):
    with pytest.raises(UserError, match=r"minutes .*: a number above 0"):
        demo.run(minutes=minutes, out=tmp_path)


def test_the_seed_is_checked_before_anything_else(tmp_path):
    with pytest.raises(UserError, match="seed -1: a number from 0"):
        demo.run(tmp_path / "no-such-grammar", seed=-1, out=tmp_path)


def test_out_is_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: File exists"):
        demo.run(minutes=0.01, out=tmp_path / "file")


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc for the child")
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_lstms_process_never_outlives_the_demo(number, tiny, tmp_path):
    command = [
        Path(sys.executable).with_name("onlstm"),
        "demo",
        "--grammar",
        tiny,
        "--minutes",
        "0.3",
        "--out",
        tmp_path,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "epoch" not in process.stdout.readline():  # both are at work
            assert process.poll() is None
        children = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        (child,) = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert errors in ("", "onlstm: interrupted\n")
    ends = time.monotonic() + 30
    while Path(f"/proc/{child}/cmdline").exists() and b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < ends
        time.sleep(0.1)
