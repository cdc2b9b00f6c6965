"""`induce`: one line for a mistake, a run folder like any other, and kills that change nothing."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import small_induction as small

from helpers import random_model
from onlstm import Grammar, induce
from onlstm.errors import UserError
from onlstm.induction.plan import Plan, trials
from onlstm.induction.processes import Interrupted, Listener
from onlstm.induction.tasks import Watch, folder_of, load_outcome, perform
from onlstm.text.tokenizer import Tokenizer
from onlstm.train.fit import Stop


class Notes(Listener):
    def __init__(self):
        self.lines, self.stages, self.shares = [], [], []

    def say(self, line):
        self.lines.append(line)

    def progress(self, done, note):
        self.shares.append(done)

    def finished(self, stage, trees):
        self.stages.append((stage, trees))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return small.write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, text):
    """A run that was made by processes, and what was heard of it."""
    run, notes = tmp_path_factory.mktemp("induction") / "run", Notes()
    small.planned(run, text, numbers=small.numbers(round=("plain", "tilted")))
    return induce((), run, resume=True, keep=True, threads=2, listener=notes), notes


def test_the_run_is_a_grammar_with_its_result(finished):
    induction, _ = finished
    run = induction.run
    assert Grammar.load(run).config.preterminals == 6
    assert [stage.name for stage in induction.stages] == ["language-models", "round-1", "final"]
    assert [stage.agreement is None for stage in induction.stages] == [True, False, True]
    assert all(-4 < stage.likelihood < -1 for stage in induction.stages)
    stored = json.loads((run / "result.json").read_text())
    assert (stored["kind"], stored["command"], stored["name"]) == ("induction", "test", "run")
    names = {path.name for path in run.iterdir()} - {".lock"}
    model = {"config.json", "model.safetensors", "tokenizer.json"}
    assert names == model | {"plan.json", "corpus", "log.jsonl", "result.json", "members"}
    members = sorted((run / "members").iterdir())
    assert [member.name for member in members] == ["round-1-plain-1", "round-1-tilted-2"]
    assert all(Grammar.load(member).tokenizer for member in members)


def test_the_listener_hears_of_stages_trees_and_progress(finished):
    induction, notes = finished
    assert tuple(stage for stage, _ in notes.stages) == induction.stages
    assert all(len(trees) == 3 and all(5 < len(tree.words) < 13 for tree in trees) for _, trees in notes.stages)
    assert notes.shares == sorted(notes.shares)
    assert notes.shares[-1] == 1


def test_a_finished_run_is_not_done_again(finished):
    induction, _ = finished
    before = (induction.run / "model.safetensors").stat().st_mtime_ns
    assert induce((), induction.run, resume=True) == induction
    assert (induction.run / "model.safetensors").stat().st_mtime_ns == before


def test_speeds_are_measured(tmp_path, text):
    run = tmp_path / "run"
    plan = small.planned(run, text, minutes=0.2)
    folder_of(run, "speed-1").mkdir(parents=True)
    perform(run, plan, trials(1)[0], Watch(folder_of(run, "speed-1"), os.getppid(), Stop()))
    speeds = load_outcome(run, "speed-1").speeds
    assert speeds.tokens > 100
    assert speeds.sentences > 10


@pytest.mark.parametrize("line", ["word", "word " * 31])
def test_a_text_without_enough_sentences_is_refused(tmp_path, line):
    path = tmp_path / "text.txt"
    path.write_text(f"{line}\n" * 1000 + "two words\n" * 100)
    with pytest.raises(UserError, match=r"the text has \d+ sentences of 2 to 30 words in \d+ lines; at least 500"):
        induce(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_teachers_are_language_models_that_know_the_text(tmp_path, text, finished):
    induction, _ = finished
    with pytest.raises(UserError, match=r"not a language model"):
        induce(text, tmp_path / "run", teachers=[induction.run])
    random_model(Tokenizer.of_words(["the", "a", "dog"])).save(tmp_path / "teacher")
    with pytest.raises(UserError, match=r"teacher.*: does not know \d\d% of the text's words, more than 30%"):
        induce(text, tmp_path / "run", teachers=[tmp_path / "teacher"], text=small.TEXT)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_and_other_settings_are_refused(tmp_path, text, finished):
    induction, _ = finished
    with pytest.raises(UserError, match=r"there is an induction already: resume it, or name another folder"):
        induce(text, induction.run)
    (tmp_path / "mine").touch()
    with pytest.raises(UserError, match=r"not empty: name another folder"):
        induce(text, tmp_path)
    with pytest.raises(UserError, match=r"nothing to resume: no plan.json there"):
        induce((), tmp_path, resume=True)
    with pytest.raises(UserError, match=r"seeds: cannot change when a run is resumed \(it was 1\)"):
        induce((), induction.run, resume=True, seeds=3)
    with pytest.raises(UserError, match=r"has its text \(.*text.txt\): leave it out"):
        induce("other.txt", induction.run, resume=True)
    with pytest.raises(UserError, match=r"threads 0: at least 1"):
        induce(text, tmp_path / "run", threads=0)


def test_a_task_that_fails_ends_it_with_one_line(tmp_path, text):
    run = tmp_path / "run"
    small.planned(run, text, teachers=(str(tmp_path / "gone"),))
    with pytest.raises(UserError, match=r"^teacher-1: .*gone: no such model folder"):
        induce((), run, resume=True, threads=1)


def test_a_signal_stops_all_processes(tmp_path, text):
    run = tmp_path / "run"
    small.planned(run, text, epochs=500)

    class Ends(Listener):
        def progress(self, done, note):
            if done > 0:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted) as stopped:
        induce((), run, resume=True, threads=2, listener=Ends())
    assert stopped.value.signal == signal.SIGTERM
    assert list(run.glob("stages/*/trainer.pt"))
    assert not (run / "config.json").exists()


RESUME = "import sys; from onlstm import induce; induce((), sys.argv[1], resume=True, threads=2)"


@pytest.mark.slow
def test_kills_of_the_parent_change_nothing(tmp_path, text):
    whole, killed, rng = tmp_path / "whole", tmp_path / "killed", random.Random(0)
    small.planned(whole, text, epochs=15)
    shutil.copytree(whole, killed)
    induce((), whole, resume=True, threads=2)
    for _ in range(6):
        before, started = written(killed), time.time()
        process = subprocess.Popen([sys.executable, "-c", RESUME, killed])
        while written(killed) == before and time.time() - started < 60:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 1))
        assert process.poll() is None
        process.kill()
        process.wait()
    induce((), killed, resume=True, threads=2)
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert Plan.load(killed) == Plan.load(whole)


def written(run):
    """The checkpoints and results of all tasks, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in run.glob("stages/*/[tr]*.[pj]*")}
