"""The tasks of an induction, in this process: stopped and continued they come to the same end; divergence."""

import math
import shutil

import pytest
import small_induction as small

from helpers import random_model
from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar
from onlstm.induction.spans import Text
from onlstm.induction.tasks import Stopped, Watch, folder_of, load_outcome, perform
from onlstm.text import corpus
from onlstm.train import checkpoint
from onlstm.train.fit import Stop
from onlstm.train.grammar import GrammarTraining


class Calls(Watch):
    """Asks a task to stop after some calls."""

    def __init__(self, left=math.inf):
        self.stop, self.left = Stop(), left

    def note(self, done):
        self.left -= 1
        self.stop.requested |= self.left < 0


def do(run, plan, name, *, calls=math.inf):
    """Do a task; it is asked to stop after some calls to report progress."""
    (task,) = (task for task in plan.tasks if task.name == name)
    folder_of(run, name).mkdir(parents=True, exist_ok=True)
    perform(run, plan, task, Calls(calls))
    return load_outcome(run, name)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose tasks are all done."""
    folder = tmp_path_factory.mktemp("induction")
    run = folder / "run"
    plan = small.planned(run, small.write_text(folder))
    for task in plan.tasks:
        do(run, plan, task.name)
    return run, plan


def test_every_task_says_how_it_ended(finished):
    run, plan = finished
    outcomes = {task.name: load_outcome(run, task.name) for task in plan.tasks}
    assert all(-4 < outcome.likelihood < -1 for outcome in outcomes.values())
    assert all(outcome.seconds > 0 and not outcome.restarted for outcome in outcomes.values())
    assert Grammar.load(folder_of(run, "final")).config.nonterminals == 4


@pytest.mark.parametrize("name", ["language-model-1", "round-1-plain-1", "round-1-tilted-2", "final"])
def test_a_task_that_is_stopped_again_and_again_ends_the_same(finished, tmp_path, name):
    whole, plan = finished
    run = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(folder_of(run, name))
    stops = 0
    while not load_outcome(run, name):
        try:
            do(run, plan, name, calls=11)
        except Stopped:
            stops += 1
    assert stops > 2
    paths = [path for path in folder_of(whole, name).iterdir() if path.suffix in (".npy", ".safetensors")]
    assert len(paths) > 3
    for path in paths:
        assert path.read_bytes() == (folder_of(run, name) / path.name).read_bytes(), path.name


def test_a_grammar_that_diverges_starts_again_with_half_the_learning_rate(finished, tmp_path, monkeypatch):
    whole, plan = finished
    run, name = shutil.copytree(whole, tmp_path / "run"), "round-1-plain-1"
    shutil.rmtree(folder_of(run, name))
    forward, calls, rates = Grammar.forward, [], []

    def once_nan(self, *args, **options):
        total, log_z = forward(self, *args, **options)
        calls.append(args)
        return (total * math.nan if len(calls) == 5 else total), log_z

    class Noted(GrammarTraining):
        def __init__(self, model, train, valid, config, *args, **options):
            rates.append(config.lr)
            super().__init__(model, train, valid, config, *args, **options)

    monkeypatch.setattr(Grammar, "forward", once_nan)
    monkeypatch.setattr("onlstm.induction.tasks.GrammarTraining", Noted)
    assert do(run, plan, name).restarted
    assert rates == [0.002, 0.001]


def test_one_that_diverges_twice_is_given_up(finished, tmp_path, monkeypatch):
    whole, plan = finished
    run, name = shutil.copytree(whole, tmp_path / "run"), "round-1-plain-1"
    shutil.rmtree(folder_of(run, name))
    monkeypatch.setattr(Grammar, "forward", lambda self, *args, **options: (self.words.sum() * math.nan, None))
    with pytest.raises(UserError, match=r"^round-1-plain-1: diverged twice, at last with a learning rate of 0.001$"):
        do(run, plan, name)
    assert not (folder_of(run, name) / checkpoint.NAME).exists()


@pytest.mark.parametrize(
    "network", [{"num_layers": 3}, {"rnn": "prpn", "slots": 3, "lookback": 2}], ids=["onlstm", "prpn"]
)
def test_a_teacher_reads_with_its_own_vocabulary(finished, tmp_path, network):
    whole, _ = finished
    tokenizer = corpus.load(whole / "corpus").tokenizer
    teacher = random_model(type(tokenizer).of_words(["sees", "cat", "the", "bird"]), **network)
    teacher.save(tmp_path / "teacher")
    run = tmp_path / "run"
    plan = small.planned(run, small.write_text(tmp_path), teachers=(str(tmp_path / "teacher"),))
    assert do(run, plan, "teacher-1").likelihood is None
    text = Text.load(run, plan)
    lengths = {len(ids) for ids in text.train}
    assert {path.name for path in folder_of(run, "teacher-1").glob("train-*")} == {f"train-{n:02}.npy" for n in lengths}
