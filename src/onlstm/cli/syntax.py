"""The commands syneval, blimp and agreement: does a model prefer the grammatical sentence?"""

import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from onlstm.cli.console import Json, aligned, json_text
from onlstm.cli.inputs import Threads, set_threads
from onlstm.cli.main import app

Run = Annotated[Path, Parameter(help="A run folder, or en-small.")]
Compare = Annotated[Path | None, Parameter(help="A second run, beside the first and tested against it.")]
Scores = Annotated[
    Path | None, Parameter(help="Write the scores (log p, in nats) here, a line a pair: FILE.tsv or FILE.jsonl.")
]
Out = Annotated[Path | None, Parameter(help="Keep the result here, for `onlstm report`: results/NAME.json.")]
_SHOWN, _SECONDS = 5, 30
"""Defects of a kind that are named; time between lines of progress."""


@app.command
def syneval(
    run: Run,
    *,
    compare: Compare = None,
    pairs: Annotated[
        Path | None, Parameter(help="TSV or JSON lines, a folder or zip of them, or templates in YAML.")
    ] = None,
    lexicon: Annotated[
        str, Parameter(help="in-vocabulary: only words that the runs know; emnlp2018: those of the paper.")
    ] = "",
    scores: Scores = None,
    out: Out = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print the paper's Table 3: how often a run finds the grammatical sentence of Marvin & Linzen's pairs likelier.

    Sentences are read as `<eos> w1 … wn .` from a zero state; the words and the period are scored, and a tie is wrong.
    """
    from onlstm.paper.syntax.table3 import judge

    asked = {"pairs": pairs, "lexicon": lexicon, "scores": scores, "out": out}
    _answer("syneval", judge, _table3, json, threads, [run, compare], asked)


@app.command
def blimp(
    run: Run,
    path: Annotated[Path, Parameter(help="BLiMP's files *.jsonl, all or some: a folder, a zip, or one file.")],
    *,
    compare: Compare = None,
    reading: Annotated[
        Literal["own", "words"],
        Parameter(
            help="Who finds the words: the run's tokenizer; or, for runs on tokenised text, punctuation split off."
        ),
    ] = "own",
    scores: Scores = None,
    out: Out = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print how often a run finds the good sentence of BLiMP's pairs likelier, by paradigm and phenomenon."""
    from onlstm.paper.syntax.blimp import judge

    asked = {"pairs": path, "reading": reading, "scores": scores, "out": out}
    _answer("blimp", judge, _paradigms, json, threads, [run, compare], asked)


@app.command
def agreement(
    run: Run,
    path: Annotated[Path, Parameter(help="Files NAME.text, .gold, .eval: a folder, a zip, or one of them.")],
    *,
    compare: Compare = None,
    scores: Scores = None,
    out: Out = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print how often a run finds the right form of a verb likelier than the wrong one, given the words before it.

    Reads the sets of "Colorless green recurrent networks" (Gulordava et al. 2018) and of Linzen et al. 2016.
    """
    from onlstm.paper.syntax.agreement import judge

    asked = {"pairs": path, "scores": scores, "out": out}
    _answer("agreement", judge, _sets, json, threads, [run, compare], asked)


def _answer(
    command: str,
    judge: Any,
    lines: Callable[[dict[str, Any]], Iterator[str]],
    json: bool,
    threads: int | None,
    runs: Sequence[Path | None],
    asked: dict[str, Any],
) -> None:
    """Run a task and print what it found."""
    from onlstm.paper.syntax import scoring

    started = time.perf_counter()
    set_threads(threads)
    typed = shlex.join(["onlstm", *sys.argv[1:]])
    request = scoring.Request(runs=[run for run in runs if run], command=typed, **asked)
    with _watched() as (say, progress):
        found = scoring.run(command, judge, request, say, progress)
    if json:
        print(json_text(command, started, None, found))
        return
    print("\n".join(lines(found)))
    wrote = [f"{what} in {asked[key]}" for key, what in (("scores", "scores"), ("out", "result")) if asked[key]]
    print("; ".join([f"{time.perf_counter() - started:.0f} seconds", *wrote]))


@contextmanager
def _watched() -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Yield what reports a defect and what shows progress, both on stderr; at the end, count the defects."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, defects, said = Console(stderr=True, highlight=False), Counter[str](), time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("prefixes, left"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        job = bar.add_task("", total=None)

        def report(line: str) -> None:
            kind = re.sub(r"'.*?'|\d+", "…", line.rpartition(": ")[2])
            defects[kind] += 1
            if defects[kind] <= _SHOWN:
                print(f"onlstm: {line}", file=sys.stderr)

        def show(done: int, total: int) -> None:
            nonlocal said
            bar.update(job, completed=done, total=total)
            if bar.disable and time.monotonic() - said > _SECONDS:
                said = time.monotonic()
                print(f"{done:,} of {total:,} prefixes", file=sys.stderr, flush=True)

        yield report, show
    for kind, count in defects.items():
        if count > _SHOWN:
            print(f"onlstm: {count:,} lines in all: {kind}", file=sys.stderr)


def _table3(found: dict[str, Any]) -> Iterator[str]:
    """Yield the paper's table: by group and phenomenon a line a row, and an example below it."""
    from onlstm.paper.syntax.old_tables import grid, syneval_rows

    yield from _runs(found)
    head, *numbers = grid(found, syneval_rows, ("row", "group"))
    quoted = any(row["published"] for row in found["rows"])
    lines = [["", *head, *["paper: ON-LSTM", "LSTM"] * quoted]]
    below: dict[int, str] = {}
    for row, cells in zip(syneval_rows(found), numbers, strict=True):
        heading = ": ".join(filter(None, (row["group"], row["phenomenon"]))) if row["row"] else "pooled"
        if heading and [heading] not in lines:
            lines.append([heading])
        paper = [f"{number:.0f}" for number in (row.get("published") or {}).values()]
        name = f"{row['row']:4} {row['name']}" if row["row"] else f"     {row['group']}"
        lines.append([name, *cells, *paper])
        if row["row"]:
            below[len(lines)] = f"     {_example(*row['example'])}"
    for number, line in enumerate(aligned(lines), 1):
        yield line
        if number in below:
            yield below[number]
    yield from _notes(found, "Accuracy in %: the grammatical sentence is strictly likelier; a tie is wrong.")
    if without := [each["run"] for each in _both(found) if not each["period"]]:
        yield f"No word for the period, so sentences were read and scored without it: {', '.join(without)}."


def _both(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in (found, found.get("compare")) if each]


def _runs(found: dict[str, Any]) -> Iterator[str]:
    """Yield a line on each run."""
    for k, each in enumerate(_both(found), 1):
        yield f"{f'{k}: ' if 'compare' in found else ''}{each['run']}, {each['model']}"


def _notes(found: dict[str, Any], accuracy: str, unknown: str = "") -> Iterator[str]:
    yield f"\n{accuracy}"
    yield "known: pairs whose differing words are all in the vocabulary; on known: accuracy on these."
    if "compare" in found:
        yield "p: McNemar's exact test. Pairs share their words, so it finds differences too easily."
    if unknown:
        shares = " and ".join(f"{100 * each['unk_rate']:.1f} %" for each in _both(found))
        yield f"{shares} of {unknown} are unknown."


def _example(good: str, bad: str) -> str:
    """Return both sentences in one: the words that differ, or one after the other."""
    first, second = good.split(), bad.split()
    if len(first) != len(second):
        return f"{good} / *{bad}"
    return " ".join(a if a == b else f"{a}/*{b}" for a, b in zip(first, second, strict=True))


def _paradigms(found: dict[str, Any]) -> Iterator[str]:
    from onlstm.paper.syntax.old_tables import PARADIGMS, blimp_rows, grid

    yield from _runs(found)
    head, *numbers = grid(found, blimp_rows, ("uid", "phenomenon"))
    lines = [["", *head]]
    for row, cells in zip(blimp_rows(found), numbers, strict=True):
        name = f"  {row['uid']}" if row.get("uid") else row.get("phenomenon", "all") or "(no linguistics_term)"
        lines.append([name, *cells])
    yield from aligned(lines)
    means = " and ".join(f"{each['mean']:.1f} %" for each in _both(found))
    yield f"\nMean over {len(found['paradigms'])} of {PARADIGMS} paradigms: {means}"
    yield from _notes(found, "A phenomenon's accuracy is the mean of its paradigms'; a tie is wrong.", "all words")
    if found["unk_rate"] > 0.15 and found["reading"] == "own":
        yield "If the run was trained on text that is tokenised already, --reading words splits off punctuation."


def _sets(found: dict[str, Any]) -> Iterator[str]:
    from onlstm.paper.syntax.old_tables import agreement_rows, grid

    yield from _runs(found)
    head, *numbers = grid(found, agreement_rows, ("name", "part"))
    labels = [f"  {row['part']}" if row["part"] else row["name"] for row in agreement_rows(found)]
    yield from aligned([["", *head], *([label, *cells] for label, cells in zip(labels, numbers, strict=True))])
    accuracy = "Accuracy in %: the right form is strictly likelier; a tie is wrong."
    yield from _notes(found, accuracy, "the words before the verbs")
