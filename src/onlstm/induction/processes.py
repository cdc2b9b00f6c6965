"""The processes of an induction: one for each task, as many at once as there are threads."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean

import onlstm
from onlstm import files
from onlstm.errors import UserError
from onlstm.induction import spans
from onlstm.induction.plan import LANGUAGE_MODELS, Plan, Speeds, Stage, Task, ready
from onlstm.induction.tasks import PROGRESS, folder_of, load_outcome
from onlstm.train.fit import Stop
from onlstm.trees.average import best_trees
from onlstm.trees.tree import Tree


class Listener:
    """Follows an induction; override what you want to know."""

    def say(self, line: str) -> None:
        """Called with a line about a decision or an incident."""

    def planned(self, plan: Plan, threads: int) -> None:
        """Called before the work starts."""

    def progress(self, done: float, note: str) -> None:
        """Called several times a second with the share of the work that is done and what is being done."""

    def finished(self, stage: Stage, trees: Sequence[Tree]) -> None:
        """Called after each stage, with the trees of three held-out sentences."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped an induction, which can be resumed."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.signal = number


class Pool:
    """Does the tasks of a plan that are not done yet."""

    def __init__(self, run: Path, plan: Plan, threads: int, listener: Listener, stop: Stop, device: str) -> None:
        self._folder, self._plan, self._threads, self._listener, self._stop = run, plan, threads, listener, stop
        self._device = device
        self._finished = {task.name for task in plan.tasks if load_outcome(run, task.name)}
        self._tasks: dict[str, Task] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._shares: dict[str, float] = {}

    def run(self) -> None:
        """Return when all tasks are done; raise `Interrupted` after a signal, a `UserError` if one fails."""
        try:
            while len(self._finished) < len(self._plan.tasks):
                if self._stop.requested:
                    raise Interrupted(self._stop.received or signal.SIGTERM)
                for task in list(ready(self._plan.tasks, self._finished, self._tasks, self._threads)):
                    self._start(task)
                time.sleep(0.1)
                for name in [name for name, process in self._processes.items() if process.poll() is not None]:
                    self._end(name)
                self._report()
        finally:
            self._close()

    def speeds(self) -> Speeds:
        """Return the mean of what the tasks measure."""
        self.run()
        outcomes = (load_outcome(self._folder, task.name) for task in self._plan.tasks)
        speeds = [outcome.speeds for outcome in outcomes if outcome and outcome.speeds]
        return Speeds(tokens=fmean(s.tokens for s in speeds), sentences=fmean(s.sentences for s in speeds))

    def _start(self, task: Task) -> None:
        folder = folder_of(self._folder, task.name)
        files.make_folder(folder)
        path = os.pathsep.join([str(Path(onlstm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        threads = {"OMP_NUM_THREADS": str(task.threads), "OMP_WAIT_POLICY": "passive"}
        worker = [sys.executable, "-P", "-m", "onlstm.induction.worker"]
        words = [*worker, str(self._folder), task.name, str(os.getpid()), self._device]
        with (folder / "worker.log").open("ab") as log:
            self._processes[task.name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **threads, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        self._tasks[task.name] = task

    def _end(self, name: str) -> None:
        """Note how a task ended, and perhaps its stage."""
        code, task, outcome = self._processes.pop(name).returncode, self._tasks.pop(name), None
        if not code:
            outcome = load_outcome(self._folder, name)
        if not outcome:
            log = folder_of(self._folder, name) / "worker.log"
            lines = log.read_text(errors="replace").strip().splitlines() or [f"ended with code {code}"]
            raise UserError(f"{name}: {lines[-1] if code > 0 else f'killed by signal {-code}; resume to go on'}")
        self._finished.add(name)
        if outcome.restarted:
            self._listener.say(f"{name}: diverged, and was trained again with half the learning rate")
        stage = self._plan.stages[task.stage]
        if task.kind != "speed" and all(other.name in self._finished for other in stage):
            text = spans.Text.load(self._folder, self._plan)
            self._listener.finished(summary(self._folder, stage, text), _trees(self._folder, stage, text))

    def _report(self) -> None:
        if self._plan.speeds:
            for name in self._processes:
                self._shares[name] = max(self._shares.get(name, 0.0), _share(folder_of(self._folder, name)))
            shares = {name: self._shares[name] for name in self._processes}
            done = dict.fromkeys(self._finished, 1.0) | shares
            seconds = {task.name: task.seconds for task in self._plan.tasks}
            share = sum(done[name] * seconds[name] for name in done) / sum(seconds.values())
            self._listener.progress(share, ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))

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


def summary(run: Path, tasks: Sequence[Task], text: spans.Text) -> Stage:
    """Return what came out of the tasks of a stage."""
    outcomes = [outcome for task in tasks if (outcome := load_outcome(run, task.name))]
    likelihoods = [outcome.likelihood for outcome in outcomes if outcome.likelihood is not None]
    return Stage(
        name=tasks[0].stage,
        seconds=sum(outcome.seconds for outcome in outcomes),
        likelihood=fmean(likelihoods) if likelihoods else None,
        agreement=spans.agreement([folder_of(run, task.name) for task in tasks], text),
    )


def _trees(run: Path, tasks: Sequence[Task], text: spans.Text) -> list[Tree]:
    """Return what a stage makes of three held-out sentences, of 6 to 12 known words if there are any."""
    unknown, words = text.tokenizer.unknown, text.tokenizer.vocabulary
    fitness = [(unknown(ids) > 0) + abs(len(ids) - min(max(len(ids), 6), 12)) for ids in text.valid]
    members, by_grammars = [folder_of(run, task.name) for task in tasks], tasks[0].kind not in LANGUAGE_MODELS
    trees = []
    for k in sorted(range(len(text.valid)), key=fitness.__getitem__)[:3]:
        n = len(text.valid[k])
        row = k - sum(len(ids) < n for ids in text.valid)
        (inside,) = best_trees(spans.taught(members, "valid", n, by_grammars)[row : row + 1])
        trees.append(Tree.from_spans([words[id] for id in text.valid[k]], inside.tolist()))
    return trees
