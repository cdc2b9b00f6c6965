"""The command induce."""

import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onlstm.cli.console import Answer, Json, Progress, many
from onlstm.cli.inputs import Device, Text, check_threads, command_line, sources
from onlstm.cli.main import app
from onlstm.induction.config import InductionText

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onlstm.induction.plan import Plan, Stage
    from onlstm.induction.processes import Listener
    from onlstm.trees.tree import Tree

_KINDS = {"teacher": "teacher", "language-model": "language model", "final": "grammar"}
_KINDS |= {kind: f"{kind} grammar" for kind in ("plain", "tilted")}


@app.command
def induce(
    *words: Text,
    out: Annotated[Path, Parameter(help="Run folder.")],
    teacher: Annotated[list[Path] | None, many("Runs of language models to learn from; none are trained then.")] = None,
    seeds: Annotated[int | None, Parameter(help="Language models to train (default: 5).")] = None,
    rounds: Annotated[int | None, Parameter(help="Rounds of grammars before the final one (default: 2).")] = None,
    minutes: Annotated[float | None, Parameter(help="Time to plan for (default: 60).")] = None,
    keep: Annotated[bool, Parameter(help="Keep the grammars of the last round, in OUT/members.")] = False,
    resume: Annotated[bool, Parameter(help="Continue the run in --out.")] = False,
    seed: Annotated[int | None, Parameter(help="Seed (default: 0).")] = None,
    threads: Annotated[int | None, Parameter(help="Processes at once, one thread each (default: all cores).")] = None,
    device: Device = "auto",
    json: Json = False,
    text: Annotated[InductionText, Parameter(group="Settings of the text")] = InductionText(),  # noqa: B008  (frozen)
) -> Answer:
    """Learn a grammar from raw text, one sentence per line; the run folder then parses like any other run.

    Small ON-LSTMs are trained as language models, or taken from --teacher. Their trees, of all layers and both
    decoders, teach the first grammars; the trees that these vote for teach the next round, and the last round teaches
    the final grammar. No treebank is read, and no model is selected. `onlstm sentences` puts one sentence on a line.
    Language models use the --device; grammars are computed on the CPU.

    The plan is shown before the work starts. An interrupted run continues, bit for bit, with --resume.
    """
    if threads is not None:
        check_threads(threads)
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
                device=device,
                listener=_shown(progress),
                command=command_line(),
            )
        except Interrupted as interrupted:
            again = shlex.join(["onlstm", "induce", "--resume", "--out", str(out)])
            progress.say(f"Stopped at {progress.state}; everything is saved in {out}: continue with {again}")
            sys.exit(128 + interrupted.signal)
    parse = shlex.join(["onlstm", "parse", str(out), "TEXT"])
    line = f"The grammar is in {out}; {parse} prints its trees"
    return Answer({"stages": result.stages, "run": out}, [line], json, result.seed)


def _shown(progress: Progress) -> "Listener":
    """Return what shows an induction."""
    from onlstm.induction.processes import Listener

    class Shown(Listener):
        def say(self, line: str) -> None:
            progress.say(line)

        def planned(self, plan: "Plan", threads: int) -> None:
            for line in plan_lines(plan, threads):
                progress.say(line)

        def progress(self, done: float, note: str) -> None:
            progress.update(done, note=note)

        def finished(self, stage: "Stage", trees: "Sequence[Tree]") -> None:
            likelihood = "" if stage.likelihood is None else f", {stage.likelihood:.3f} nats per held-out word"
            agreement = "" if stage.agreement is None else f", agreement {stage.agreement:.1f}"
            progress.say(f"{stage.name}: {stage.seconds:.0f} s{likelihood}{agreement}")
            for tree in trees:
                progress.say(f"  {tree}")

    return Shown()


def plan_lines(plan: "Plan", threads: int) -> "Iterator[str]":
    """Yield a table of the stages: their models, the epochs of each kind, and the minutes until all are done."""
    from onlstm.induction.plan import finish_times

    ends, past = finish_times(plan.tasks, threads), 0.0
    yield f"{'stage':16} {'models':36} {'epochs':>7} {'minutes':>8}"
    for name, tasks in plan.stages.items():
        kinds = Counter(_KINDS[task.kind] for task in tasks)
        models = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds.items())
        epochs = ", ".join(dict.fromkeys(str(task.epochs) for task in tasks if task.epochs))
        end = max(ends[task.name] for task in tasks)
        yield f"{name:16} {models:36} {epochs:>7} {(end - past) / 60:8.1f}"
        past = end
    yield f"{'all':16} {f'{threads} processes at once' if threads > 1 else '1 process':36} {'':7} {past / 60:8.1f}"
    numbers = plan.settings.numbers
    read = "" if plan.settings.teachers else f"Each language model reads {plan.tokens:,} tokens. "
    yield f"{read}Grammars read {plan.sentences:,} sentences of {numbers.shortest} to {numbers.longest} words."
