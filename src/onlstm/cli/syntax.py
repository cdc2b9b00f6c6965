"""The commands syneval, blimp and agreement: does a model prefer the grammatical sentence?"""

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from onlstm.cli.console import Answer, Json, Progress, notice
from onlstm.cli.inputs import Device, Run, Threads, check_outputs, command_line, set_threads
from onlstm.cli.main import app

_SHOWN = 5
"""Defects of each kind that are listed."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """What the three commands have in common."""

    compare: Annotated[
        Path | None, Parameter(help="A second run to show beside the first, with a significance test.")
    ] = None
    scores: Annotated[
        Path | None,
        Parameter(help="Write the scores (log p, in nats) here, one line per pair: FILE.tsv or FILE.jsonl."),
    ] = None
    out: Annotated[Path | None, Parameter(help="Save the result here, for `onlstm report`: results/NAME.json.")] = None
    threads: Threads = None
    device: Device = "auto"
    json: Json = False


_DEFAULT = Options()


@app.command
def syneval(
    run: Run,
    *,
    pairs: Annotated[
        Path | None, Parameter(help="TSV or JSON lines, a folder or zip of them, or templates in YAML.")
    ] = None,
    lexicon: Annotated[
        str, Parameter(help="in-vocabulary: only words that the runs know; emnlp2018: the words of the paper.")
    ] = "",
    options: Options = _DEFAULT,
) -> Answer:
    """Print the paper's Table 3: how often a run finds the grammatical sentence of Marvin & Linzen's pairs likelier.

    Sentences are read as `<eos> w1 … wn .` from a zero state; the words and the period are scored, and a tie is wrong.
    """
    from onlstm.paper.syntax import table3

    return _answer("syneval", partial(table3.task, lexicon=lexicon), run, pairs, options)


@app.command
def blimp(
    run: Run,
    path: Annotated[Path, Parameter(help="BLiMP's files *.jsonl, all or some: a folder, a zip, or one file.")],
    *,
    reading: Annotated[
        Literal["own", "words"],
        Parameter(
            help="own: the run's tokenizer finds the words; words: split off punctuation, for runs on tokenised text."
        ),
    ] = "own",
    options: Options = _DEFAULT,
) -> Answer:
    """Print how often a run finds the good sentence of BLiMP's pairs likelier, by paradigm and phenomenon."""
    from onlstm.paper.syntax import blimp

    answer = _answer("blimp", partial(blimp.task, reading=reading), run, path, options)
    if answer.content["unk_rate"] > 0.15 and reading == "own":
        notice("If the run was trained on tokenised text, --reading words splits off punctuation.")
    return answer


@app.command
def agreement(
    run: Run,
    path: Annotated[Path, Parameter(help="Files NAME.text, .gold, .eval: a folder, a zip, or one of them.")],
    *,
    options: Options = _DEFAULT,
) -> Answer:
    """Print how often a run finds the right form of a verb likelier than the wrong one, given the words before it.

    Reads the sets of "Colorless green recurrent networks" (Gulordava et al. 2018) and of Linzen et al. 2016.
    """
    from onlstm.paper.syntax import agreement

    return _answer("agreement", agreement.task, run, path, options)


def _answer(command: str, task: Callable[..., Any], run: Path, pairs: Path | None, options: Options) -> Answer:
    """Return what the runs make of a task, after saving its result."""
    started, out, scores = time.perf_counter(), options.out, options.scores
    set_threads(options.threads)
    outputs = {"--scores": (scores, "scores.tsv"), "--out": (out, "results/NAME.json")}
    check_outputs(outputs, [pairs] if pairs else [])
    from onlstm.paper.results import save
    from onlstm.paper.syntax import page, scoring
    from onlstm.paper.syntax.content import printed

    defects = Counter[str]()

    def report(line: str) -> None:
        kind = re.sub(r"'.*?'|\d+", "…", line.rpartition(": ")[2])
        defects[kind] += 1
        notice(f"onlstm: {line}" if defects[kind] <= _SHOWN else "")

    with Progress("prefixes") as progress:
        runs = list(filter(None, (run, options.compare)))
        content = scoring.run(
            runs, partial(task, pairs=pairs, on_defect=report), scores, progress.update, options.device
        )
    for kind, count in defects.items():
        notice(f"onlstm: {count:,} lines in all: {kind}" if count > _SHOWN else "")
    data = printed(content)
    if out:
        seconds = time.perf_counter() - started
        save(out, kind=command, content=data, command=command_line(), seed=None, seconds=seconds)
    names, number = (("1", "2"), "{}: ") if content.compare else ((str(run),), "")
    lines = [f"{number.format(name)}{r.run}, {r.model}" for name, r in zip(names, page.runs_of(content), strict=True)]
    lines += [page.table(content, 2, names).text(), "", *page.notes(content, names)]
    lines += [about.replace("*", "") for about in (page.KNOWN, page.P)[: len(names)]]
    wrote = [f"{what} in {path}" for what, path in (("scores", scores), ("result", out)) if path]
    lines.append("; ".join([f"{time.perf_counter() - started:.0f} seconds", *wrote]))
    return Answer({key: value for key, value in data.items() if key != "runs"}, lines, options.json)
