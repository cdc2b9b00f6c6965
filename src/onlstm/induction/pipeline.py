"""`induce`: text in, a grammar out. Plans, starts a process for each task, watches them, and puts the result together.

RUN is the folder of the final grammar. Besides it holds plan.json, corpus/, result.json (written last), log.jsonl, if
asked for the members of the last vote (members/), and, until all is done, what every task wrote (stages/).
"""

import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import onlstm
from onlstm import files, folder
from onlstm.errors import UserError, at_least_one
from onlstm.induction import plan as planning
from onlstm.induction import spans
from onlstm.induction.config import InductionText, Numbers, Settings
from onlstm.induction.plan import STAGES, Plan, Speeds
from onlstm.induction.processes import Listener, Pool, Stage, summary
from onlstm.induction.stages import RESULT, Outcome, folder_of, teacher_ids
from onlstm.models import locate
from onlstm.text import corpus
from onlstm.text.sources import text_files
from onlstm.text.tokenizer import Tokenizer
from onlstm.train import checkpoint
from onlstm.train.fit import Stop

_UNKNOWN = 0.3
"""Share of the text's known words that a teacher may not know."""


@dataclass(frozen=True, kw_only=True)
class Induction:
    """What `induce` returns."""

    run: Path
    stages: tuple[Stage, ...]


def induce(
    sources: Sequence[str | Path] | str | Path = (),
    out: str | Path = "",
    *,
    teachers: Sequence[str | Path] | None = None,
    seeds: int | None = None,
    rounds: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    text: InductionText | None = None,
    numbers: Numbers | None = None,
    keep: bool = False,
    resume: bool = False,
    threads: int | None = None,
    listener: Listener | None = None,
    command: str = "",
) -> Induction:
    """Return a summary of the induction of a grammar from text; the grammar itself is in the folder `out`.

    Settings that are None are those of `Settings`; when resuming, those of the run, and none can change.

    Args:
        sources: text files with one sentence per line, folders, or "-"; when resuming, none are needed.
        teachers: folders of language models; by default `seeds` models are trained.
        keep: keep the grammars that taught the final one, in members/.
        threads: processes at once, by default as many as there are cores.
        command: what to store as the origin of the run.
    """
    run, listener = Path(out), listener or Listener()
    threads = len(os.sched_getaffinity(0)) if threads is None else threads
    at_least_one(threads=threads)
    sources = tuple(map(str, [sources] if isinstance(sources, str | Path) else sources))
    given: dict[str, Any] = {
        "seeds": seeds,
        "rounds": rounds,
        "minutes": minutes,
        "seed": seed,
        "text": text,
        "numbers": numbers,
    }
    given["teachers"] = tuple(str(locate(teacher).resolve()) for teacher in teachers) if teachers else None
    asked = {name: value for name, value in given.items() if value is not None}
    if not resume:
        settings = Settings(**asked)
        text_files(sources)  # are they there?
    with ExitStack() as stack:
        if resume:
            plan = Plan.load(run)
            stack.enter_context(checkpoint.lock(run))
            _check_unchanged(plan, sources, asked)
        else:
            plan = _begin(
                run,
                stack,
                Plan(command=command, sources=sources, settings=settings, tokens=0, sentences=0, tasks=()),
                threads,
                listener,
            )
        if (run / RESULT).exists():
            listener.say(f"{run} is finished")
        else:
            stop = stack.enter_context(Stop())
            stop.fitting = True  # signals are requests
            if plan.speeds is None:
                outcomes = Pool(run, plan, threads, listener, stop).run()
                plan = _divided(run, plan, outcomes, threads)
            listener.planned(plan, threads)
            Pool(run, plan, threads, listener, stop).run()
            _finish(run, plan, threads, keep)
        shutil.rmtree(run / STAGES, ignore_errors=True)
    content = json.loads(files.read(run / RESULT))
    return Induction(run=run, stages=tuple(Stage(**stage) for stage in content["stages"]))


def _begin(run: Path, stack: ExitStack, plan: Plan, threads: int, listener: Listener) -> Plan:
    """Return a plan to measure speed with, after the text is read and the teachers are looked at."""
    for teacher in plan.settings.teachers:
        if folder.kind_of(Path(teacher)) != "model":
            raise UserError(f"teacher {teacher}: not a language model")
    new = not run.exists()
    stack.enter_context(checkpoint.lock(run))
    try:
        if {item.name for item in run.iterdir()} - {".lock"}:
            there = "there is an induction already: resume it, or" if (run / planning.NAME).exists() else "not empty:"
            raise UserError(f"{run}: {there} name another folder")
        data = corpus.prepare(plan.sources, run / "corpus", plan.settings.text, say=listener.say)
        count = _count(data, plan)
        for teacher in plan.settings.teachers:
            _check_coverage(data, teacher)
        plan = replace(plan, tokens=len(data.train), sentences=count, tasks=planning.trials(plan.settings, threads))
        plan.save(run)
    finally:
        if new and not (run / planning.NAME).exists():
            shutil.rmtree(run, ignore_errors=True)
    return plan


def _count(data: corpus.Corpus, plan: Plan) -> int:
    """Return how many training sentences there are, if they are enough."""
    numbers, eos = plan.settings.numbers, data.tokenizer.eos_id
    limits = f"{numbers.shortest} to {numbers.longest} words"
    train, held = (spans.sentences(ids, eos, numbers.shortest, numbers.longest) for ids in (data.train, data.valid))
    if len(train) < numbers.least_sentences or not held:
        lines = data.parts["train"].lines
        raise UserError(
            f"the text has {len(train):,} sentences of {limits} in {lines:,} lines; at least "
            f"{numbers.least_sentences:,} are needed, and thousands for good trees: give more, one sentence per line"
        )
    return len(train)


def _check_coverage(data: corpus.Corpus, teacher: str) -> None:
    """Refuse a teacher that does not know the words of the text."""
    tokenizer = Tokenizer.load(Path(teacher) / folder.TOKENIZER)
    counts = np.bincount(data.train, minlength=len(data.tokenizer))
    counts[[data.tokenizer.unk_id, data.tokenizer.eos_id]] = 0
    unknown = counts[teacher_ids(tokenizer, data.tokenizer) == tokenizer.unk_id].sum() / max(1, counts.sum())
    if unknown > _UNKNOWN:
        raise UserError(
            f"teacher {teacher}: does not know {unknown:.0%} of the text's words; at most {_UNKNOWN:.0%} may be new"
        )


def _check_unchanged(plan: Plan, sources: tuple[str, ...], asked: Mapping[str, object]) -> None:
    if sources and sources != plan.sources:
        raise UserError(f"the run has its text ({' '.join(plan.sources)}): leave it out to resume")
    for name, value in asked.items():
        if value != getattr(plan.settings, name):
            raise UserError(f"{name}: cannot change when a run is resumed (it was {getattr(plan.settings, name)})")


def _divided(run: Path, plan: Plan, outcomes: Mapping[str, Outcome], threads: int) -> Plan:
    """Return the plan for the speeds that were measured."""
    measured = [outcome.speeds for outcome in outcomes.values() if outcome.speeds]
    tokens, sentences = (float(np.mean([getattr(s, name) for s in measured])) for name in ("tokens", "sentences"))
    words = sum(map(len, spans.Text.load(run, plan).train))
    tasks = tuple(planning.tasks(plan.settings, threads))
    speeds = Speeds(tokens=tokens, sentences=sentences)
    plan = planning.divide(replace(plan, tasks=tasks, speeds=speeds), words, threads)
    plan.save(run)
    return plan


def _finish(run: Path, plan: Plan, threads: int, keep: bool) -> None:
    """Make RUN the folder of the final grammar, and write result.json."""
    from onlstm.grammar.pcfg import Grammar

    text, stages = spans.Text.load(run, plan), plan.stages
    summaries = [summary(run, stage, text) for stage in stages.values()]
    for task in stages[f"round-{plan.settings.rounds}"] if keep else ():
        if task.kind != "vote":
            Grammar.load(folder_of(run, task.name)).save(run / "members" / task.name)
    Grammar.load(folder_of(run, "final")).save(run)
    shutil.copyfile(folder_of(run, "final") / checkpoint.LOG, run / checkpoint.LOG)
    record = {
        "format_version": 1,
        "kind": "induction",
        "name": run.name,
        "command": plan.command,
        "versions": {"onlstm": onlstm.__version__, "python": platform.python_version()},
        "seed": plan.settings.seed,
        "seconds": sum(stage.seconds for stage in summaries),
        "threads": threads,
        "machine": platform.machine(),
        "numbers": {"likelihood": summaries[-1].likelihood},
        "stages": [asdict(stage) for stage in summaries],
    }
    files.write(run / RESULT, files.json_text(record) + "\n")
