"""`onlstm reproduce`: every line it would run is a command that exists; the small scale on a tiny text, to the page."""

import json
import random
import re
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
import yaml

from helpers import onlstm
from onlstm.cli.main import app, joined, load_commands
from onlstm.errors import UserError
from onlstm.paper import report
from onlstm.paper.demo.grammar import Grammar
from onlstm.paper.logic.generate import generate
from onlstm.paper.published import published
from onlstm.paper.reproduce import Own, Step, plan, targets

load_commands()
SCALES = ("small", "paper")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of corpora as --data wants it, all invented."""
    folder = tmp_path_factory.mktemp("data")
    trees = list(Grammar.load().trees(150, random.Random(0)))
    for name in ("ptb-lm", "wsj-sample"):
        (folder / name).mkdir()
    for k, part in enumerate(("train", "valid", "test")):
        lines = [" ".join(tree.words) for tree in trees[50 * k : 50 * (k + 1)]]
        (folder / "ptb-lm" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    gold = "".join(re.sub(r"(?<=\s)([^()\s]+)", r"(NN \1)", f"( {tree} )\n") for tree in trees[:130])
    with zipfile.ZipFile(folder / "wsj-sample" / "wsj-sample-nltk-layout.zip", "w") as archive:
        archive.writestr("treebank/combined/wsj_0001.mrg", gold)
    (folder / "logic").mkdir()
    with zipfile.ZipFile(folder / "logic" / "logic.zip", "w") as archive:
        for part, seed, count in (("train", 0, 5), ("test", 1, 2)):
            for n, pairs in generate(600, seed=seed).items():
                archive.writestr(f"{part}{n}", "".join("\t".join(pair) + "\n" for pair in pairs[:count]))
    return folder


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("target", targets())
def test_every_line_is_a_command_with_a_recipe_and_a_place_for_its_result(target, scale, tmp_path):
    done = onlstm("reproduce", target, "--scale", scale, "--dry-run", "--threads", 1, "--out", "o u t", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert list(tmp_path.iterdir()) == []
    for line in done.out.splitlines():
        name, *words = shlex.split(line)
        command, bound, _ = app.parse_args(list(joined(words)), exit_on_error=False, print_error=False)
        assert (name, command.__name__) == ("onlstm", {"eval": "evaluate"}.get(words[0], words[0]))
        assert (bound.arguments.get("threads") or bound.arguments["options"].threads) == 1
        step = Step(words=tuple(words))
        assert step.out is None or step.out.parts[0] == "o u t"
        if words[0] == "train":
            assert bound.arguments["recipe"].endswith(("paper", "paper-lstm")) == (scale == "paper")
    assert "{" not in done.out


def test_runs_are_shared_and_the_cost_is_said(tmp_path):
    plans = {(t, s): plan(t, s, tmp_path, tmp_path) for t in targets() for s in SCALES}
    assert all(each.cost for each in plans.values())
    for scale in SCALES:
        first, *_ = plans["table2", scale].steps
        assert scale == "small" or first in plans["table1", scale].steps
        assert first in plans["figure-a1", scale].steps
    seeds = [step for step in plans["table2", "paper"].steps if step.words[0] == "train"]
    assert len({step.out for step in seeds}) == 5


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            ["tabel9"],
            "reproduce tabel9: did you mean table3? There are table1, table2, table3, figure-logic, figure-a1\n",
        ),
        (["table2", "--text", "{data}/ptb-lm"], "table2: name a treebank too: --treebank\n"),
        (["table2", "--treebank", "x.mrg"], "--treebank: name your own text too: --text\n"),
        (["table1", "--recipe", "quick"], "--recipe: name your own text too: --text\n"),
        (["table1", "--text", "{data}/ptb-lm", "--treebank", "x.mrg"], "--treebank x.mrg: table1 reads none\n"),
        (
            ["figure-logic", "--text", "x"],
            "--text: figure-logic is not made from text; table1, table2, table3, figure-a1",
        ),
        (["table1", "--text", "-"], "--text -: it is read more than once; name files\n"),
        (["table1", "--text", "nowhere"], "--text nowhere: no such file or folder"),
        (
            ["table1", "--text", "{data}/ptb-lm", "--recipe", "qick"],
            "--recipe qick: no such recipe; did you mean quick?",
        ),
        (["table2", "--text", "{data}/ptb-lm", "--treebank", "x.mrg"], "--treebank x.mrg: no such file or folder"),
        (
            ["table2", "--text", "{data}/ptb-lm", "--treebank", "{data}/ptb-lm/train.txt"],
            "{data}/ptb-lm/train.txt: no trees of profile ptb",
        ),
        (["table1", "--data", "nowhere"], "nowhere/ptb-lm: not there; needed: the Penn Treebank's text"),
        (
            ["table2", "--data", "{data}", "--scale", "paper"],
            "{data}/wsj: not there; needed: the Wall Street Journal's",
        ),
        (["table3", "--data", "{data}"], "{data}/wikitext-2: not there; needed: WikiText-2"),
        (["table1", "--scale", "large"], 'Invalid value "large" for --scale'),
    ],
)
def test_a_mistake_is_one_line_and_nothing_begins(args, line, data, tmp_path):
    done = onlstm("reproduce", *(arg.format(data=data) for arg in args), cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"onlstm: {line.format(data=data)}")
    assert list(tmp_path.iterdir()) == []


def test_what_is_done_is_not_done_again_and_what_was_begun_goes_on(tmp_path):
    step = Step(words=("train", "x", "--recipe", "quick", "--out", str(tmp_path / "run"), "--threads", "1"))
    assert step.now() == step.words
    (tmp_path / "run").mkdir()
    assert step.now() == step.words
    (tmp_path / "run" / "trainer.pt").touch()
    assert step.now() == ("train", "--resume", "--out", str(tmp_path / "run"), "--threads", "1")
    (tmp_path / "run" / "result.json").touch()
    assert step.now() == ()
    logic = Step(words=("logic", "--out", str(tmp_path / "logic")))
    (tmp_path / "logic" / "lstm-0").mkdir(parents=True)
    assert logic.now() == logic.words
    (tmp_path / "logic" / "lstm-0" / "trainer.pt").touch()
    assert logic.now() == (*logic.words, "--resume")
    assert Step(words=("draw", "x")).now() == ("draw", "x")


def test_one_s_own_data_in_place_of_the_paper_s(data, tmp_path):
    bank = data / "wsj-sample" / "wsj-sample-nltk-layout.zip"
    own = Own(text=("a.txt", "b c.txt"), recipe="quick", treebank=bank, dev=bank)
    made = plan("table2", "small", data, tmp_path / "out", 1, own)
    train, lstm, evaluate = (step.words for step in made.steps)
    threads = ("--threads", "1")
    assert train == ("train", "a.txt", "b c.txt", "--recipe", "quick", "--out", f"{tmp_path}/out/onlstm", *threads)
    assert lstm[3:7] == ("--recipe", "quick", "--model.rnn", "lstm")
    assert evaluate[:6] == ("evaluate", f"{tmp_path}/out/onlstm", f"{tmp_path}/out/lstm", str(bank), "--dev", str(bank))
    assert evaluate[7] == f"{tmp_path}/out/table2/wsj-sample-nltk-layout.json"
    alone = plan("table2", "small", data, tmp_path / "out", own=replace(own, dev=None))
    assert "--dev" not in alone.steps[-1].words
    assert (made.data, alone.kind) == ({}, "parsing")
    first, *_ = plan("figure-a1", "small", data, tmp_path / "out", 1, replace(own, dev=None)).steps
    assert first == made.steps[0]


def test_results_of_other_data_are_not_taken_for_these(data, tmp_path):
    text, other = data / "ptb-lm" / "train.txt", data / "ptb-lm" / "valid.txt"
    out = tmp_path / "out"
    mine = plan("table1", "small", data, out, own=Own(text=(str(text),), recipe="quick"))
    mine.check()
    mine.begin()
    mine.check()
    for own in (Own(text=(str(other),), recipe="quick"), Own(text=(str(text),), recipe="tiny")):
        with pytest.raises(
            UserError, match=r"its runs have another text or recipe \(.*train\.txt\); name another --out"
        ):
            plan("table1", "small", data, out, own=own).check()
    (out / "onlstm").mkdir()
    words = " ".join(mine.steps[0].words)
    for command, fits in ((f"onlstm {words} --threads 2", True), (f"onlstm {words} --seed 1", False)):
        (out / "onlstm" / "result.json").write_text(json.dumps({"format_version": 1, "command": command}))
        with nullcontext() if fits else pytest.raises(UserError, match="the result of another command"):
            plan("table1", "small", data, out, 1, mine.own).check()


@pytest.fixture(scope="module")
def begun(data, tmp_path_factory):
    """What Ctrl-C in the first training leaves, and the options to go on with."""
    out = tmp_path_factory.mktemp("reproduced") / "out"
    args = ["--data", data, "--threads", "1", "--out", out]
    command = [sys.executable, "-m", "onlstm", "reproduce", "table2", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        while not (out / "ptb-quick-onlstm" / "trainer.pt").exists():
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        said, errors = child.communicate()
    assert child.returncode == 130
    assert b"Traceback" not in errors
    assert b"onlstm: stopped; the same command continues from here\n" in errors
    assert b"Still missing: ptb-quick-onlstm, ptb-quick-lstm, wsj-sample.json" in said
    assert b"[2/3]" not in said
    assert not (out / "ptb-quick-onlstm" / "result.json").exists()
    return args


def test_an_interrupt_loses_nothing_and_the_end_is_tables_and_a_figure(begun, data):
    """The recipes of the small scale, on a text of 50 sentences."""
    out = begun[-1]
    done = onlstm("reproduce", "table2", *begun)
    assert done.code == 0, done.err
    assert done.out.count("Continuing from step") == 1
    page = (out / "table2" / "table2.md").read_text()
    assert page in done.out
    result = json.loads((out / "ptb-quick-lstm" / "result.json").read_text())
    assert "49.4" in page
    assert result["command"].startswith(f"onlstm train {data}/ptb-lm --recipe quick")
    again = onlstm("reproduce", "table2", *begun)
    assert again.out.count("(finished)") == 3
    assert page in again.out
    parsing = onlstm("reproduce", "table2", *begun, "--json")
    found = json.loads(parsing.out)
    assert (found["command"], found["target"], found["scale"]) == ("reproduce", "table2", "small")
    assert found["results"]["wsj-sample"]["treebank"]["sentences"] == 130
    assert len(found["published"]) == len(published())
    assert parsing.err.count("(finished)") == 3
    figure = onlstm("reproduce", "figure-a1", *begun)
    assert figure.code == 0, figure.err
    assert figure.out.count("\ngold\n") == 6
    assert (out / "figure-a1" / "figure-a1.html").exists()


@pytest.mark.slow
def test_the_figure_of_logic_from_pairs_to_page(data, tmp_path):
    args = ["reproduce", "figure-logic", "--data", data, "--threads", 1, "--out", tmp_path / "out"]
    done = onlstm(*args)
    assert done.code == 0, done.err
    assert done.out.count("epoch  10") == 3
    assert (tmp_path / "out" / "logic-renamed" / "logic.svg").exists()
    (tmp_path / "out" / "logic-renamed" / "result.json").unlink()  # as if cut off before the end
    again = onlstm(*args)
    assert (again.code, len(re.findall("done already|finished", again.out))) == (0, 4), (
        "three encoders, and the step of the others"
    )
    page = (tmp_path / "out" / "figure-logic" / "figure-logic.md").read_text()
    assert page in again.out
    assert "## Figure 3: logical inference" in page
    assert "| ON-LSTM †" in page


def test_the_report_knows_every_kind_of_page(tmp_path):
    kinds = {plan(target, scale, tmp_path, tmp_path).kind for target in targets() for scale in SCALES}
    assert kinds - {None} <= set(report.EXPERIMENTS)
    assert len(kinds) == 5


def test_the_file_names_only_what_there_is():
    described = yaml.safe_load((resources.files("onlstm.paper") / "reproduce.yaml").read_text("utf-8"))
    used = {
        name
        for target in targets()
        for scale in SCALES
        for name in described["data"]
        if f"{{{name}}}" in str(described[target][scale])
    }
    assert used == set(described["data"])


def test_table_1_at_one_budget(data, tmp_path, monkeypatch):
    """Two rows of tiny networks: rates are tried, the best is trained for the time, published rows stand beside."""
    from onlstm.paper import reproduce

    described = deepcopy(reproduce.bundled("reproduce.yaml"))
    small = described["table1"]["small"]
    assert list(small["rows"]) == [Path(line.split()[-1]).stem for line in small["steps"]]
    known = {row.row for row in published("language-modelling")}
    assert set(small["rows"].values()) <= known | {""}
    tiny = "--model.embedding-size 8 --model.hidden-size 8 --model.num-layers 1 --minutes 0.001"
    train = "train {ptb} --recipe table1-small --try-lr 2e-3 8e-3"
    small["steps"] = [f"{train} --model.rnn {rnn} {tiny} --out {{out}}/table1-{rnn}" for rnn in ("rhn", "nas")]
    monkeypatch.setattr(reproduce, "bundled", lambda name: described)
    args = ["--data", data, "--threads", 1, "--out", tmp_path / "out"]
    done = onlstm("reproduce", "table1", *args)
    assert done.code == 0, done.err
    assert "Still missing: table1-rhn, table1-nas" in done.out
    assert done.out.count("Trying learning rate") == 4
    assert done.out.count(" on test …") == 2, "no trial reads the test text"
    page = (tmp_path / "out" / "table1" / "table1.md").read_text()
    result = json.loads((tmp_path / "out" / "table1-nas" / "result.json").read_text())
    assert {trial["lr"] for trial in result["grid"]} == {0.002, 0.008}
    train, numbers = result["recipe"]["train"], result["numbers"]
    assert train["last_epoch"] < 1, "the time is not a number of whole epochs"
    tokens = result["data"]["train"]["tokens"] * (train["epochs"] - 1 + train["last_epoch"])
    assert numbers["tokens_per_second"] * result["seconds"] == pytest.approx(tokens)
    line = next(line for line in page.splitlines() if "NAS Cell (tied)" in line and "NAS cell 8→8" in line)
    assert [cell.strip() for cell in line.split("|")[2:5]] == ["54M", "–", "62.4"]
    assert f"{result['numbers']['test_perplexity']:.2f}" in line
    assert "| ON-LSTM, 3-layer (tied) " in page
    again = onlstm("reproduce", "table1", *args)
    assert again.out.count("(finished)") == 2
    assert not (tmp_path / "out" / "table1-nas.trials" / "lr-0.002").exists()
