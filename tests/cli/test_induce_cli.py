"""`onlstm induce` as a user types it: the plan as a table, one line for a mistake, JSON."""

import io
import json
from dataclasses import replace

import pytest

from helpers import onlstm
from onlstm.cli.console import Progress
from onlstm.cli.induce import _shown
from onlstm.induction.config import Settings
from onlstm.induction.plan import Plan, Speeds, divide, tasks
from onlstm.induction.processes import Stage
from onlstm.trees.tree import Tree


def plan(**settings):
    chosen = Settings(**settings)
    numbers = {"tokens": 900_000, "sentences": 35_000, "speeds": Speeds(tokens=5000.0, sentences=500.0)}
    whole = Plan(command="", sources=("a.txt",), settings=chosen, tasks=tasks(chosen, 2), **numbers)
    return divide(whole, 700_000, 2)


def shown(follow):
    stream = io.StringIO()
    with Progress(stream=stream) as progress:
        follow(_shown(progress))
    return stream.getvalue().splitlines()


def test_the_plan_is_a_table():
    lines = shown(lambda listener: listener.planned(plan(), 2))
    head, models, first, second, final, total, text = lines
    assert head.split() == ["stage", "models", "epochs", "minutes"]
    assert models.startswith("language-models  5 language models  ")
    assert first.startswith("round-1          1 plain grammar, 2 tilted grammars  ")
    assert second.startswith("round-2          1 plain grammar, 2 tilted grammars  ")
    assert final.startswith("final            1 grammar")
    minutes = [float(line.split()[-1]) for line in (models, first, second, final)]
    assert float(total.split()[-1]) == pytest.approx(sum(minutes), abs=0.3)
    assert text == "Each language model reads 900,000 tokens. Grammars read 35,000 sentences of 2 to 30 words."
    assert len({len(line) for line in lines[:-1]}) == 1


def test_a_stage_is_a_line_and_its_trees():
    stage = Stage(name="round-1", seconds=61.4, likelihood=-5.8216, agreement=66.66)
    tree = Tree.from_brackets("((a b) c)")
    first, second = shown(lambda listener: listener.finished(stage, [tree]))
    assert first == "round-1: 61 s, -5.822 nats per held-out word, agreement 66.7"
    assert second == "  ( ( a b ) c )"
    bare = replace(stage, likelihood=None, agreement=None)
    assert shown(lambda listener: listener.finished(bare, [])) == ["round-1: 61 s"]


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("word\n" * 600)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    for args, line in (
        (
            [text, "--out", tmp_path / "run"],
            "the text has 0 sentences of 2 to 30 words in 540 lines; at least 500 ",
        ),
        (["--out", tmp_path / "run"], "no text: name a file, a folder or - "),
        ([text, "--out", tmp_path / "other"], f"{tmp_path}/other: not empty: name another folder"),
        (["--resume", "--out", tmp_path / "run"], f"{tmp_path}/run: nothing to resume: no plan.json there"),
        ([text, "--out", tmp_path / "run", "--teacher", tmp_path / "no"], f"{tmp_path}/no: no such model folder"),
        ([text, "--out", tmp_path / "run", "--seeds", 0], "--seeds 0: at least 1 is needed"),
        ([text, "--out", tmp_path / "run", "--minutes", -1], "--minutes -1: a number above 0 is needed"),
    ):
        command = onlstm("induce", *args)
        assert command.code == 2
        assert command.err.splitlines()[-1].startswith(f"onlstm: {line}")
        assert "Traceback" not in command.err
        assert not (tmp_path / "run").exists()


def test_a_finished_run_is_reported_as_json(tmp_path):
    plan(seed=7).save(tmp_path)
    stages = [{"name": "final", "seconds": 3.0, "likelihood": -5.5, "agreement": None}]
    (tmp_path / "result.json").write_text(json.dumps({"stages": stages}))
    command = onlstm("induce", "--resume", "--out", tmp_path, "--json")
    content = json.loads(command.out)
    assert set(content) == {"command", "version", "argv", "seed", "seconds", "stages", "run"}
    assert (content["stages"], content["run"], content["seed"]) == (stages, str(tmp_path), 7)
