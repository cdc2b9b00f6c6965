"""The command induce."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onlstm.cli.console import Answer, Json, Progress, many
from onlstm.cli.inputs import Text, Threads, command_line, sources
from onlstm.cli.main import app
from onlstm.induction.config import InductionText

if TYPE_CHECKING:
    from onlstm.induction.plan import Plan
    from onlstm.induction.processes import Listener, Stage
    from onlstm.trees.tree import Tree


@app.command
def induce(
    *words: Text,
    out: Annotated[Path, Parameter(help="Run folder to make.")],
    teacher: Annotated[list[Path] | None, many("Runs of language models to learn from, instead of new ones.")] = None,
    seeds: Annotated[int | None, Parameter(help="Language models to train (default: 5).")] = None,
    rounds: Annotated[int | None, Parameter(help="Rounds of grammars before the final one (default: 2).")] = None,
    minutes: Annotated[float | None, Parameter(help="Plan for this much time, on all threads (default: 60).")] = None,
    keep: Annotated[bool, Parameter(help="Keep the grammars that voted last, as OUT/members/*.")] = False,
    resume: Annotated[bool, Parameter(help="Continue the run in --out.")] = False,
    seed: Annotated[int | None, Parameter(help="Seed (default: 0).")] = None,
    threads: Threads = None,
    json: Json = False,
    text: Annotated[InductionText, Parameter(group="Settings of the text")] = InductionText(),  # noqa: B008  (frozen)
) -> Answer:
    """Learn a grammar from raw text, one sentence per line, that parses like any other run.

    Small ON-LSTMs are trained as language models. All their trees, of every layer and by both decoders, teach the first
    grammars, which vote; the vote teaches the next round, and at last one final grammar, which is the result. No
    treebank is read, and nothing is selected. `onlstm sentences` splits running text into sentences.

    The plan is shown before the work starts. An interrupted run continues, bit for bit, with --resume.
    """
    from onlstm.induction.pipeline import induce
    from onlstm.induction.processes import Interrupted

    with Progress(stream=sys.stderr if json else sys.stdout) as progress:
        try:
            result = induce(
                sources(*words),
                out,
                teachers=teacher,
                seeds=seeds,
                rounds=rounds,
                minutes=minutes,
                seed=seed,
                text=None if text == InductionText() else text,
                keep=keep,
                resume=resume,
                threads=threads,
                listener=_listener(progress),
                command=command_line(),
            )
        except Interrupted as interrupted:
            progress.say(f"Stopped; all is saved in {out}: continue with `onlstm induce --resume --out {out}`")
            sys.exit(128 + interrupted.signal)
    line = f'The grammar is in {out}: try `onlstm parse {out} "the old man saw a dog"`'
    return Answer({"stages": result.stages, "run": out}, [line], json, seed or 0)


def _listener(progress: Progress) -> "Listener":
    """Return what shows an induction."""
    from onlstm.induction.plan import finish_times
    from onlstm.induction.processes import Listener

    class Shown(Listener):
        def say(self, line: str) -> None:
            progress.say(line)

        def planned(self, plan: "Plan", threads: int) -> None:
            ends, past = finish_times(plan.tasks, threads), 0.0
            progress.say(f"{'stage':16} {'models':42} {'epochs':>12} {'minutes':>8}")
            for name, tasks in plan.stages.items():
                kinds = [task.kind for task in tasks]
                models = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
                epochs = ", ".join(dict.fromkeys(str(task.epochs) for task in tasks if task.epochs))
                end = max(ends[task.name] for task in tasks)
                progress.say(f"{name:16} {models:42} {epochs:>12} {(end - past) / 60:8.1f}")
                past = end
            progress.say(f"{'in all':16} {f'{threads} processes at once':42} {'':12} {past / 60:8.1f}")

        def progress(self, done: float, note: str) -> None:
            progress.update(done, note=note)

        def finished(self, stage: "Stage", trees: "Sequence[Tree]") -> None:
            likelihood = "" if stage.likelihood is None else f", likelihood {stage.likelihood:.3f} nats per word"
            agreement = "" if stage.agreement is None else f", agreement {stage.agreement:.1f}"
            progress.say(f"{stage.name}: {stage.seconds:.0f} s{likelihood}{agreement}")
            for tree in trees:
                progress.say(f"  {tree}")

    return Shown()
