"""The plan of an induction: its tasks, what each of them needs, and how the time is divided. No torch here.

A task is a pure function of the run's files; its own are in RUN/stages/NAME, the last of them result.json. Tasks of
one stage are reported together.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from onlstm import files
from onlstm.errors import UserError
from onlstm.induction.config import Settings
from onlstm.records import from_json, plain, typed

NAME, STAGES = "plan.json", "stages"
_STARTING = 4.0
"""Seconds before a task's process is at work."""
_VALIDATION = 1.05
"""Time of an epoch with its validation, compared with that of its training."""
_READING, _PARSING = 4.0, 0.8
"""How many times as fast as its training a language model reads and a grammar parses."""

Kind = Literal["speed", "language-model", "teacher", "plain", "tilted", "final"]
LANGUAGE_MODELS = ("language-model", "teacher")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one process does."""

    name: str
    stage: str
    kind: Kind
    needs: tuple[str, ...] = ()
    """The tasks whose models teach it together."""
    seed: int = 0
    epochs: int = 0
    threads: int = 1
    run: str = ""
    """The folder of a language model that was given."""
    seconds: float = 0.0
    """How long it is expected to take."""


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """What a processor core does in a second of training."""

    tokens: float = 0.0
    """Of a language model."""
    sentences: float = 0.0
    """Of a grammar."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What came out of the tasks of a stage."""

    name: str
    seconds: float
    """Time their processes took, added up."""
    likelihood: float | None = None
    """Mean log-probability of a held-out word, in nats; the mean over the stage's models."""
    agreement: float | None = None
    """Mean F1 between the trees of two of the models for held-out sentences, from 0 to 100."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that an induction depends on; plan.json."""

    command: str
    sources: tuple[str, ...]
    settings: Settings
    tokens: int = 0
    """How much of the training text a language model reads; each reads another part."""
    sentences: int = 0
    """How many of its sentences grammars are trained on; a sample if they are not all."""
    speeds: Speeds | None = None
    """None while they are being measured."""
    tasks: tuple[Task, ...] = ()

    @property
    def stages(self) -> dict[str, list[Task]]:
        """The tasks of each stage, in order."""
        stages: dict[str, list[Task]] = {}
        for task in self.tasks:
            stages.setdefault(task.stage, []).append(task)
        return stages

    def save(self, run: Path) -> None:
        """Write RUN/plan.json."""
        files.write(run / NAME, files.json_text(plain(self)) + "\n")

    @classmethod
    def load(cls, run: Path) -> "Plan":
        """Return the plan of a run."""
        if not (run / NAME).is_file():
            raise UserError(f"{run}: nothing to resume: no {NAME} there")
        try:
            content = from_json(files.read(run / NAME))
        except ValueError:
            raise UserError(f"{run / NAME}: damaged: not JSON") from None
        return typed(cls, content, str(run / NAME))


def trials(threads: int) -> tuple[Task, ...]:
    """Return the tasks that measure speed, all at once, as the others will run."""
    return tuple(Task(name=f"speed-{k}", stage="speed", kind="speed") for k in range(1, threads + 1))


def tasks(settings: Settings, threads: int) -> tuple[Task, ...]:
    """Return the tasks, their epochs still 0: language models, rounds of grammars, the final one.

    The language models teach the first round, all grammars so far the next one and the final grammar.
    """
    seed, numbers = 1000 * settings.seed, settings.numbers
    if settings.teachers:
        members = [
            Task(name=f"teacher-{k}", stage="teachers", kind="teacher", run=run)
            for k, run in enumerate(settings.teachers, 1)
        ]
    else:
        members = [
            Task(name=f"language-model-{k + 1}", stage="language-models", kind="language-model", seed=seed + k)
            for k in range(settings.seeds)
        ]
    grammars: list[Task] = []
    for number in range(1, settings.rounds + 1):
        teachers = tuple(task.name for task in grammars or members)
        for k, kind in enumerate(numbers.round, 1):
            name, needs = f"round-{number}-{kind}-{k}", () if kind == "plain" else teachers
            grammar = Task(name=name, stage=f"round-{number}", kind=kind, needs=needs, seed=seed + 100 * number + k)
            grammars.append(grammar)
    teachers = tuple(task.name for task in grammars)
    final = Task(name="final", stage="final", kind="final", needs=teachers, seed=seed, threads=min(threads, 4))
    return (*members, *grammars, final)


def divide(plan: Plan, words: int, threads: int) -> Plan:
    """Return the plan with epochs for every task such that all is done in the time given, as far as that can be.

    If the least epochs take longer than their share of the time, less text is read.

    Args:
        words: of all the sentences that grammars could be trained on.
    """
    assert plan.speeds
    low, high = 0.0, 60 * plan.settings.minutes * threads
    for _ in range(50):
        middle = (low + high) / 2
        fits = max(finish_times(_divided(plan, words, middle).tasks, threads).values()) <= 60 * plan.settings.minutes
        low, high = (middle, high) if fits else (low, middle)
    return _divided(plan, words, low)


def _divided(plan: Plan, words: int, unit: float) -> Plan:
    """Return the plan with `unit` seconds of training, times its weight, for every model."""
    numbers, speeds = plan.settings.numbers, plan.speeds
    assert speeds
    time = {kind: unit * effort.weight for kind, effort in numbers.efforts.items()}
    once = {kind: time[kind] / effort.least_epochs / _VALIDATION for kind, effort in numbers.efforts.items()}
    tokens = max(20_000, min(plan.tokens, int(speeds.tokens * once["language-model"])))
    sentences = max(numbers.least_sentences, min(plan.sentences, int(speeds.sentences * once["tilted"])))
    words = words * sentences // plan.sentences
    planned = []
    for task in plan.tasks:
        epochs, seconds = 0, _STARTING
        if task.kind in numbers.efforts:
            lm = task.kind == "language-model"
            epoch = _VALIDATION * (tokens / speeds.tokens if lm else sentences / speeds.sentences / task.threads**0.7)
            epochs = max(1, min(numbers.efforts[task.kind].most_epochs, int(time[task.kind] / epoch + 0.01)))
            seconds += epochs * epoch
        if task.kind in ("language-model", "teacher"):
            seconds += words / _READING / (speeds.tokens or 5000.0)
        elif task.kind in ("plain", "tilted"):
            seconds += sentences / _PARSING / speeds.sentences
        planned.append(replace(task, epochs=epochs, seconds=seconds))
    return replace(
        plan, tokens=min(plan.tokens, tokens), sentences=min(plan.sentences, sentences), tasks=tuple(planned)
    )


def ready(tasks: Sequence[Task], finished: Collection[str], active: Mapping[str, Task], threads: int) -> Iterator[Task]:
    """Yield the tasks that can start now, in order, as long as there are threads for them."""
    free = threads - sum(task.threads for task in active.values())
    for task in tasks:
        if task.name not in finished and task.name not in active and all(name in finished for name in task.needs):
            if min(task.threads, threads) > free:
                return
            free -= task.threads
            yield task


def finish_times(tasks: Sequence[Task], threads: int) -> dict[str, float]:
    """Return when each task is expected to be done, in seconds from the start."""
    finished: dict[str, float] = {}
    active: dict[str, Task] = {}
    ends: dict[str, float] = {}
    now = 0.0
    while len(finished) < len(tasks):
        for task in list(ready(tasks, finished, active, threads)):
            active[task.name], ends[task.name] = task, now + task.seconds
        name = min(active, key=ends.__getitem__)
        now = finished[name] = ends[name]
        del active[name]
    return finished
