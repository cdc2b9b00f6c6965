"""The processes of an induction: one for each task, as many at once as there are threads."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import onlstm
from onlstm import files
from onlstm.errors import UserError
from onlstm.induction import plan as planning
from onlstm.induction import spans
from onlstm.induction.plan import Plan, Task
from onlstm.induction.stages import Outcome, folder_of, load_outcome
from onlstm.induction.worker import PROGRESS
from onlstm.train.fit import Stop
from onlstm.trees.average import best_trees
from onlstm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What came out of a stage."""

    name: str
    seconds: float
    """Time its processes took, added up."""
    likelihood: float | None
    """Mean log-probability of a held-out word, in nats, over its models."""
    agreement: float | None
    """Mean F1 between the trees of two of its models for held-out sentences."""


class Interrupted(KeyboardInterrupt):
    """An induction was stopped by a signal, and can be resumed."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.signal = number


class Listener:
    """What follows an induction; override what you want to know."""

    def say(self, line: str) -> None:
        """Called with decisions and incidents."""

    def planned(self, plan: Plan, threads: int) -> None:
        """Called before the work starts."""

    def progress(self, done: float, note: str) -> None:
        """Called some times a second with the share of the work that is done."""

    def finished(self, stage: Stage, trees: Sequence[Tree]) -> None:
        """Called after each stage, with the trees of three held-out sentences."""


class Pool:
    """The processes of a plan's tasks."""

    def __init__(self, run: Path, plan: Plan, threads: int, listener: Listener, stop: Stop) -> None:
        self._folder, self._plan, self._threads, self._listener, self._stop = run, plan, threads, listener, stop
        outcomes = {task.name: load_outcome(run, task.name) for task in plan.tasks}
        self._outcomes = {name: outcome for name, outcome in outcomes.items() if outcome}
        self._tasks: dict[str, Task] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> Mapping[str, Outcome]:
        """Return how each task ended, when all have."""
        try:
            while len(self._outcomes) < len(self._plan.tasks):
                if self._stop.requested:
                    raise Interrupted(self._stop.received or signal.SIGTERM)
                for task in list(planning.ready(self._plan.tasks, self._outcomes, self._tasks, self._threads)):
                    self._start(task)
                time.sleep(0.1)
                for name in [name for name, process in self._processes.items() if process.poll() is not None]:
                    self._end(name)
                self._report()
        finally:
            self._close()
        return self._outcomes

    def _start(self, task: Task) -> None:
        folder = folder_of(self._folder, task.name)
        files.make_folder(folder)
        command = [sys.executable, "-P", "-m", "onlstm.induction.worker", self._folder, task.name, os.getpid()]
        path = os.pathsep.join([str(Path(onlstm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        threads = {"OMP_NUM_THREADS": str(task.threads), "OMP_WAIT_POLICY": "passive"}
        with (folder / "worker.log").open("ab") as log:
            self._processes[task.name] = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **threads, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        self._tasks[task.name] = task

    def _end(self, name: str) -> None:
        """Note how a task ended, and perhaps its stage."""
        process, task = self._processes.pop(name), self._tasks.pop(name)
        outcome = load_outcome(self._folder, name)
        if process.returncode or not outcome:
            log = (folder_of(self._folder, name) / "worker.log").read_text(errors="replace").strip().splitlines()
            raise UserError(f"{name}: {log[-1] if log else f'ended with code {process.returncode}'}")
        self._outcomes[name] = outcome
        if outcome.restarted:
            self._listener.say(f"{name}: diverged, and was trained again with half the learning rate")
        stage = self._plan.stages[task.stage]
        if task.kind != "speed" and all(other.name in self._outcomes for other in stage):
            text = spans.Text.load(self._folder, self._plan)
            self._listener.finished(summary(self._folder, stage, text), _trees(self._folder, stage[-1].name, text))

    def _report(self) -> None:
        if not self._plan.speeds:
            return
        shares = {name: _share(folder_of(self._folder, name)) for name in self._processes}
        total = sum(task.seconds for task in self._plan.tasks)
        done = sum(task.seconds for task in self._plan.tasks if task.name in self._outcomes)
        done += sum(share * self._tasks[name].seconds for name, share in shares.items())
        self._listener.progress(done / total, ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))

    def _close(self) -> None:
        """End the processes that still run; they write checkpoints."""
        for process in self._processes.values():
            process.terminate()
        try:
            for process in self._processes.values():
                process.wait()
        except BaseException:
            for process in self._processes.values():
                process.kill()
            raise


def _share(folder: Path) -> float:
    with suppress(OSError, ValueError):
        return float((folder / PROGRESS).read_text())
    return 0.0


def summary(run: Path, stage: Sequence[Task], text: spans.Text) -> Stage:
    """Return what came out of a stage."""
    members = [task for task in stage if task.kind not in ("shares", "vote")]
    outcomes = [outcome for task in stage if (outcome := load_outcome(run, task.name))]
    likelihoods = [outcome.likelihood for outcome in outcomes if outcome.likelihood is not None]
    return Stage(
        name=stage[0].stage,
        seconds=sum(outcome.seconds for outcome in outcomes),
        likelihood=float(np.mean(likelihoods)) if likelihoods else None,
        agreement=spans.agreement([folder_of(run, task.name) for task in members], text),
    )


def _trees(run: Path, name: str, text: spans.Text) -> list[Tree]:
    """Return what a task makes of three held-out sentences, of 6 to 12 known words if there are any."""
    unk, words = text.tokenizer.unk_id, text.tokenizer.vocabulary
    fitness = [(unk in ids) + abs(len(ids) - min(max(len(ids), 6), 12)) for ids in text.held]
    trees = []
    for k in sorted(range(len(text.held)), key=fitness.__getitem__)[:3]:
        n = len(text.held[k])
        row = k - sum(len(ids) < n for ids in text.held)
        (inside,) = best_trees(spans.load(folder_of(run, name), "held", n)[row : row + 1])
        trees.append(Tree.from_spans([words[id] for id in text.held[k]], inside.tolist()))
    return trees
