"""`induce`: text in, a grammar out. Makes the plan, has its tasks done, and puts the result together.

RUN is the folder of the final grammar. It also holds plan.json, corpus/, log.jsonl, result.json (written last), if
asked for the grammars that taught the final one (members/) and, until all is done, the tasks' files (stages/).
"""

import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onlstm import __version__, files, folder
from onlstm.device import find
from onlstm.errors import UserError, at_least_one
from onlstm.grammar.pcfg import Grammar
from onlstm.induction import plan as planning
from onlstm.induction import spans
from onlstm.induction.config import InductionText, Numbers, Settings
from onlstm.induction.plan import STAGES, Plan, Speeds, Stage
from onlstm.induction.processes import Listener, Pool, summary
from onlstm.induction.tasks import RESULT, folder_of, teacher_ids
from onlstm.models import locate
from onlstm.records import from_json, plain, typed
from onlstm.text import corpus
from onlstm.text.sources import text_files
from onlstm.text.tokenizer import Tokenizer
from onlstm.train import checkpoint
from onlstm.train.fit import Stop

_UNKNOWN = 0.3
"""Share of the words in the vocabulary that a teacher may not know."""


@dataclass(frozen=True, kw_only=True)
class Induction:
    """What `induce` returns."""

    run: Path
    seed: int
    stages: tuple[Stage, ...]


def induce(
    sources: Sequence[str | Path] | str | Path,
    out: str | Path,
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
    device: str = "auto",
    listener: Listener | None = None,
    command: str = "",
) -> Induction:
    """Learn a grammar from text, into the folder `out`, and return a summary; `Grammar.load(out)` is the grammar.

    Settings that are None are those of `onlstm.induction.config.Settings`; those of a run cannot change. A signal or
    Ctrl-C raises `Interrupted`, after which the run can be resumed.

    Args:
        sources: text files with one sentence per line, folders, or "-"; to resume, () will do.
        teachers: folders of language models; by default, `seeds` of them are trained.
        keep: keep the grammars that taught the final one, in members/.
        threads: how many processes to run at once, by default as many as there are cores.
        device: where language models are trained and read, see `onlstm.device.find`; grammars are on the CPU.
        command: what to store as the origin of the run.
    """
    run, listener, threads = Path(out), listener or Listener(), _cores() if threads is None else threads
    at_least_one(threads=threads)
    find(device)  # is it there?
    sources = tuple(map(str, [sources] if isinstance(sources, str | Path) else sources))
    folders = tuple(str(locate(teacher).resolve()) for teacher in teachers or ())
    given: dict[str, Any] = {"teachers": folders or None, "seeds": seeds, "rounds": rounds, "minutes": minutes}
    given |= {"seed": seed, "text": text, "numbers": numbers}
    settings = {name: value for name, value in given.items() if value is not None}
    with ExitStack() as stack:
        if resume:
            plan = _resumed(run, stack, sources, settings)
        else:
            plan = Plan(command=command, sources=sources, settings=Settings(**settings))
            plan = _begun(run, stack, plan, threads, listener.say)
        if not (run / RESULT).exists():
            stop = stack.enter_context(Stop())
            stop.fitting = True  # a signal is a request
            if plan.speeds is None:
                listener.say("measuring the speed of training")
                plan = _divided(run, plan, Pool(run, plan, threads, listener, stop, device).speeds(), threads)
            listener.planned(plan, threads)
            Pool(run, plan, threads, listener, stop, device).run()
            _finish(run, plan, threads, keep)
        shutil.rmtree(run / STAGES, ignore_errors=True)
    try:
        stages = tuple(
            typed(Stage, stage, str(run / RESULT)) for stage in from_json(files.read(run / RESULT))["stages"]
        )
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{run / RESULT}: damaged: not the result of an induction") from None
    return Induction(run=run, seed=plan.settings.seed, stages=stages)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _resumed(run: Path, stack: ExitStack, sources: tuple[str, ...], settings: Mapping[str, object]) -> Plan:
    """Return the plan of a run, which the settings that are given have to fit."""
    plan = Plan.load(run)
    stack.enter_context(checkpoint.lock(run))
    if sources and sources != plan.sources:
        raise UserError(f"{run} has its text ({' '.join(plan.sources)}): leave it out to resume")
    for name, value in settings.items():
        if value != getattr(plan.settings, name):
            raise UserError(f"{name}: cannot change when a run is resumed (it was {getattr(plan.settings, name)})")
    return plan


def _begun(run: Path, stack: ExitStack, plan: Plan, threads: int, say: Callable[[str], None]) -> Plan:
    """Return a plan to measure speed by, after the text has been read."""
    text_files(plan.sources)  # are they there?
    for teacher in plan.settings.teachers:
        if folder.kind_of(Path(teacher)) != "model":
            raise UserError(f"teacher {teacher}: not a language model")
        if folder.read_config(Path(teacher))["model"].get("rnn") == "nas":
            raise UserError(f"teacher {teacher}: rnn nas has no gates that make distances, so no trees to teach")
    new = not run.exists()
    stack.enter_context(checkpoint.lock(run))
    try:
        if {path.name for path in run.iterdir()} - {".lock", "corpus"}:
            planned = (run / planning.NAME).exists()
            way = "there is an induction already: resume it, or" if planned else "not empty:"
            raise UserError(f"{run}: {way} name another folder")
        for rest in (run / "corpus").glob(".unfinished-*"):
            shutil.rmtree(rest)
        text = plan.settings.text
        data = corpus.prepare(plan.sources, run / "corpus", text, say, endings=text.endings)
        plan = replace(plan, tokens=len(data.train), sentences=_count(data, plan), tasks=planning.trials(threads))
        plan.save(run)
    finally:
        if new and not (run / planning.NAME).exists():
            shutil.rmtree(run, ignore_errors=True)
    return plan


def _count(data: corpus.Corpus, plan: Plan) -> int:
    """Return the number of training sentences; raise a `UserError` if text or teachers do not do."""
    numbers, eos = plan.settings.numbers, data.tokenizer.eos_id
    train, valid = (len(spans.lines(ids, eos, numbers.shortest, numbers.longest)) for ids in (data.train, data.valid))
    if train < numbers.least_sentences or not valid:
        raise UserError(
            f"the text has {train:,} sentences of {numbers.shortest} to {numbers.longest} words in "
            f"{data.parts['train'].lines:,} lines; at least {numbers.least_sentences:,} are needed, and thousands for "
            "good trees: give more text, one sentence per line"
        )
    counts = np.bincount(data.train, minlength=len(data.tokenizer))
    counts[[eos, *data.tokenizer.unknown_ids]] = 0
    for teacher in plan.settings.teachers:
        tokenizer = Tokenizer.load(Path(teacher) / folder.TOKENIZER)
        ids = teacher_ids(tokenizer, data.tokenizer)
        unknown = counts[np.isin(ids, [*tokenizer.unknown_ids])].sum() / counts.sum()
        if unknown > _UNKNOWN:
            raise UserError(
                f"teacher {teacher}: does not know {unknown:.0%} of the text's words, more than {_UNKNOWN:.0%}; "
                "take a language model of such text"
            )
    return train


def _divided(run: Path, plan: Plan, speeds: Speeds, threads: int) -> Plan:
    """Return the plan for speeds that were measured."""
    words = sum(map(len, spans.Text.load(run, plan).train))
    plan = replace(plan, speeds=speeds, tasks=planning.tasks(plan.settings, threads))
    plan = planning.divide(plan, words, threads)
    plan.save(run)
    return plan


def _finish(run: Path, plan: Plan, threads: int, keep: bool) -> None:
    """Make RUN the folder of the final grammar, and write result.json."""
    final = plan.tasks[-1]
    for task in plan.tasks if keep else ():
        if task.name in final.needs:
            Grammar.load(folder_of(run, task.name)).save(run / "members" / task.name)
    Grammar.load(folder_of(run, final.name)).save(run)
    files.write(run / checkpoint.LOG, (folder_of(run, final.name) / checkpoint.LOG).read_bytes())
    text = spans.Text.load(run, plan)
    stages = [summary(run, tasks, text) for tasks in plan.stages.values()]
    record: dict[str, Any] = {
        "format_version": 1,
        "kind": "induction",
        "name": run.name,
        "command": plan.command,
        "versions": {"onlstm": __version__, "python": platform.python_version()},
        "seed": plan.settings.seed,
        "seconds": sum(stage.seconds for stage in stages),
        "threads": threads,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "numbers": {"likelihood": stages[-1].likelihood},
        "stages": stages,
    }
    files.write(run / RESULT, files.json_text(plain(record)) + "\n")
