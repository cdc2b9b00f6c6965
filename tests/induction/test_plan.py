"""The plan: every task has its turn, and all of them fit into the time."""

from dataclasses import replace

import pytest

from onlstm.errors import UserError
from onlstm.induction.config import Settings
from onlstm.induction.plan import NAME, Plan, Speeds, divide, finish_times, ready, tasks

TEXT = {"tokens": 900_000, "sentences": 35_000, "speeds": Speeds(tokens=5000.0, sentences=500.0)}


def plan(threads=2, text=TEXT, **settings):
    chosen = Settings(**settings)
    whole = Plan(command="", sources=("a.txt",), settings=chosen, tasks=tasks(chosen, threads), **text)
    return divide(whole, 20 * whole.sentences, threads)


def epochs(plan):
    return {task.name: task.epochs for task in plan.tasks}


def test_language_models_teach_the_first_round_and_all_grammars_so_far_the_next():
    names = {task.name: task for task in tasks(Settings(seeds=2, rounds=2), 2)}
    assert list(names)[:2] == ["language-model-1", "language-model-2"]
    assert names["round-1-plain-1"].needs == ()
    assert names["round-1-tilted-2"].needs == ("language-model-1", "language-model-2")
    first = tuple(name for name in names if name.startswith("round-1"))
    assert names["round-2-tilted-2"].needs == first
    assert names["round-2-plain-1"].needs == ()
    assert names["final"].needs == tuple(name for name in names if name.startswith("round"))
    assert len({(task.kind == "language-model", task.seed) for task in names.values()}) == len(names)


def test_teachers_take_the_place_of_language_models():
    first, second, *_ = tasks(Settings(teachers=("x", "y")), 2)
    assert [(task.kind, task.run, task.stage) for task in (first, second)] == [
        ("teacher", "x", "teachers"),
        ("teacher", "y", "teachers"),
    ]


@pytest.mark.parametrize("minutes", [10, 60, 120])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_time_is_used_and_kept(minutes, threads):
    divided = plan(threads, minutes=minutes)
    end = max(finish_times(divided.tasks, threads).values()) / 60
    assert 0.75 * minutes < end <= minutes or max(epochs(divided).values()) == 40
    assert all(count >= 1 for count in epochs(divided).values())


def test_more_time_means_more_epochs_up_to_a_limit():
    short, long, endless = (epochs(plan(minutes=minutes)) for minutes in (60, 180, 9999))
    assert short["language-model-1"] < long["language-model-1"] < endless["language-model-1"] == 12
    assert short["final"] < endless["final"] == 40


def test_a_text_too_long_for_the_least_epochs_is_cut():
    divided = plan(text=TEXT | {"tokens": 10**9, "sentences": 4 * 10**7}, minutes=30)
    assert [epochs(divided)[name] for name in ("language-model-1", "round-1-tilted-2")] == [2, 3]
    assert divided.tokens < 10**6
    assert 500 <= divided.sentences < 10**5


def test_a_task_waits_for_what_it_needs_and_for_threads():
    divided = plan(threads=2, seeds=2, rounds=1)
    by_name = {task.name: task for task in divided.tasks}

    def startable(finished, active=()):
        running = {name: by_name[name] for name in active}
        return [task.name for task in ready(divided.tasks, finished, running, 2)]

    assert startable([]) == ["language-model-1", "language-model-2"]
    assert startable(["language-model-1"], ["language-model-2"]) == ["round-1-plain-1"]
    rest = [name for name in by_name if name != "final"]
    assert startable(rest[:-1], []) == rest[-1:]
    assert startable(rest) == ["final"]
    assert by_name["final"].threads == 2


def test_the_plan_comes_back_from_its_file(tmp_path):
    divided = plan(teachers=("x",), minutes=5)
    divided.save(tmp_path)
    assert Plan.load(tmp_path) == divided


def test_a_damaged_plan_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"nothing to resume: no plan.json there"):
        Plan.load(tmp_path)
    (tmp_path / NAME).write_text("{")
    with pytest.raises(UserError, match=r"plan.json: damaged: not JSON"):
        Plan.load(tmp_path)
    (tmp_path / NAME).write_text("{}")
    with pytest.raises(UserError, match=r"plan.json: command is missing"):
        Plan.load(tmp_path)


@pytest.mark.parametrize(("name", "value"), [("seeds", 0), ("rounds", 0), ("minutes", 0), ("seed", -1)])
def test_settings_are_checked(name, value):
    with pytest.raises(UserError, match=rf"{name} {value}: "):
        replace(Settings(), **{name: value})
