"""The commands syneval, blimp and agreement: does a model prefer the grammatical sentence?"""

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from onlstm.cli.common import Json, Threads, app, json_text, set_threads

Run = Annotated[Path, Parameter(help="A run folder.")]
Scores = Annotated[
    Path | None, Parameter(help="Write the scores (log p, in nats) here, a line a pair: FILE.tsv or FILE.jsonl.")
]
_MARKS = ("1", "2")
_SHOWN, _SECONDS = 5, 30
"""Defects of a kind that are named; time between lines of progress."""


@app.command
def syneval(
    run: Run,
    *,
    compare: Annotated[Path | None, Parameter(help="A second run, beside the first and tested against it.")] = None,
    pairs: Annotated[
        Path | None, Parameter(help="TSV or JSON lines, a folder or zip of them, or templates in YAML.")
    ] = None,
    lexicon: Annotated[
        str, Parameter(help="in-vocabulary: only words that the runs know; emnlp2018: those of the paper.")
    ] = "",
    scores: Scores = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print the paper's Table 3: how often a run finds the grammatical sentence of Marvin & Linzen's pairs likelier.

    Sentences are read as `<eos> w1 … wn .` from a zero state; the words and the period are scored, and a tie is wrong.
    """
    started = time.perf_counter()
    set_threads(threads)
    from onlstm.tasks.syneval import scoring as task

    runs = [run] if compare is None else [run, compare]
    request = task.Request(runs=runs, pairs=pairs, lexicon=lexicon, scores=scores)
    with _watched() as (say, progress):
        found = task.run(request, say, progress)
    _finish("syneval", started, found, json, _table3, scores)


@app.command
def blimp(
    run: Run,
    path: Annotated[Path, Parameter(help="BLiMP's files *.jsonl, all or some: a folder, a zip, or one file.")],
    *,
    reading: Annotated[
        Literal["own", "words"],
        Parameter(
            help="Who finds the words: the run's tokenizer; or, for runs on tokenised text, punctuation split off."
        ),
    ] = "own",
    scores: Scores = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print how often a run finds the good sentence of BLiMP's pairs likelier, by paradigm and phenomenon."""
    started = time.perf_counter()
    set_threads(threads)
    from onlstm.tasks.syneval import blimp as task

    with _watched() as (say, progress):
        found = task.run(run, path, reading=reading, scores=scores, say=say, progress=progress)
    _finish("blimp", started, found, json, _paradigms, scores)


@app.command
def agreement(
    run: Run,
    path: Annotated[Path, Parameter(help="Files NAME.text, .gold, .eval: a folder, a zip, or one of them.")],
    *,
    scores: Scores = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print how often a run finds the right form of a verb likelier than the wrong one, given the words before it.

    Reads the sets of "Colorless green recurrent networks" (Gulordava et al. 2018) and of Linzen et al. 2016.
    """
    started = time.perf_counter()
    set_threads(threads)
    from onlstm.tasks.syneval import agreement as task

    with _watched() as (say, progress):
        found = task.run(run, path, scores=scores, say=say, progress=progress)
    _finish("agreement", started, found, json, _sets, scores)


def _finish(
    command: str,
    started: float,
    found: dict[str, Any],
    json: bool,
    lines: Callable[[dict[str, Any]], Iterator[str]],
    scores: Path | None,
) -> None:
    if json:
        print(json_text(command, started, None, found))
        return
    print("\n".join(lines(found)))
    wrote = f"; scores in {scores}" if scores else ""
    print(f"{time.perf_counter() - started:.0f} seconds{wrote}")


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
    both = [found, found["compare"]] if "compare" in found else [found]
    for each, mark in zip(both, _MARKS, strict=False):
        yield f"{f'{mark}: ' if len(both) > 1 else ''}{each['run']}, {each['model']}"
    tests = {(each["row"], each["group"]): each["p"] for each in found.get("tests", ())}
    counts = [[(row["ties"], row["scorable_pairs"]) for row in each["rows"]] for each in both]
    apart = 2 if counts[0] != counts[-1] else 1
    quoted = any(row["published"] for row in found["rows"])
    lines = [["", *_head(both, apart), *["paper: ON-LSTM", "LSTM"] * quoted]]
    below: dict[int, str] = {}
    for some in zip(*(each["rows"] for each in both), strict=True):
        row = some[0]
        heading = ": ".join(filter(None, (row["group"], row["phenomenon"])))
        if heading and heading not in (line[0] for line in lines):
            lines.append([heading])
        paper = [f"{number:.0f}" for number in (row["published"] or {}).values()]
        lines.append(
            [f"{row['row']:4} {row['name']}", *_cells(some, apart, tests.get((row["row"], row["group"]))), *paper]
        )
        below[len(lines)] = f"     {_example(*row['example'])}"
    lines.append(["pooled"])
    for some in zip(*(each["pooled"] for each in both), strict=True):
        lines.append([f"     {some[0]['group']}", *_cells(some, apart, tests.get((None, some[0]["group"])))])
    for number, line in enumerate(_aligned(lines), 1):
        yield line
        if number in below:
            yield below[number]
    yield from _notes(both)


def _notes(both: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "\nAccuracy in %: the grammatical sentence is strictly likelier; a tie is wrong."
    yield "known: % of the pairs whose differing words are all in the vocabulary; on known: accuracy on these."
    if without := [each["run"] for each in both if not each["period"]]:
        yield f"No word for the period, so sentences were read and scored without it: {', '.join(without)}."
    if len(both) > 1:
        yield "p: McNemar's exact test. A row's pairs share their words, so it finds differences too easily."


def _head(both: Sequence[Any], apart: int) -> list[str]:
    """Return the columns' names; `apart` tells of how many runs the ties and unknown words are listed."""
    marks = [f" {mark}" for mark in _MARKS] if len(both) > 1 else [""]
    accuracy, on = ([name + mark for mark in marks] for name in ("accuracy", "on known"))
    ties, known = ([name + mark for mark in marks] if apart > 1 else [name] for name in ("ties", "known"))
    return [*accuracy, *["p"] * (len(both) > 1), "pairs", *ties, *known, *on]


def _cells(some: Sequence[dict[str, Any]], apart: int = 1, p: float | None = None) -> list[str]:
    """Return the numbers of a row, of one run or of two."""
    return [
        *(_number(row["accuracy"]) for row in some),
        *([] if p is None else [f"{p:.2g}" if p >= 1e-4 else "<1e-4"]),
        f"{some[0]['pairs']:,}",
        *(f"{row['ties']:,}" for row in some[:apart]),
        *(_number(100 * row["scorable_pairs"] / row["pairs"]) for row in some[:apart]),
        *(_number(row["scorable_accuracy"]) for row in some),
    ]


def _example(good: str, bad: str) -> str:
    """Return both sentences in one: the words that differ, or one after the other."""
    first, second = good.split(), bad.split()
    if len(first) != len(second):
        return f"{good} / *{bad}"
    return " ".join(a if a == b else f"{a}/*{b}" for a, b in zip(first, second, strict=True))


def _paradigms(found: dict[str, Any]) -> Iterator[str]:
    from onlstm.tasks.syneval.blimp import PARADIGMS

    yield f"{found['run']}, {found['model']}"
    lines = [["", *_head([found], 1)]]
    for name, phenomenon in found["phenomena"].items():
        lines.append([name or "(no linguistics_term)", _number(phenomenon["accuracy"])])
        lines += [
            [f"  {each['uid']}", *_cells([each | {"pairs": each["n"]}])]
            for each in found["paradigms"]
            if each["phenomenon"] == name
        ]
    yield from _aligned(lines)
    yield f"\nMean over {len(found['paradigms'])} of {PARADIGMS} paradigms: {found['mean']:.1f} %"
    yield "A phenomenon's accuracy is the mean of its paradigms'; a tie is wrong."
    yield "known: % of the pairs whose differing words are all in the vocabulary; on known: accuracy on these."
    yield f"{100 * found['unk_rate']:.1f} % of all words are unknown to the run."
    if found["unk_rate"] > 0.15 and found["reading"] == "own":
        yield "If the run was trained on text that is tokenised already, --reading words splits off punctuation."


def _sets(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['run']}, {found['model']}"
    lines = [["", *_head([found], 1)]]
    for each in found["sets"]:
        row = each | {"pairs": each["n"], "scorable_pairs": each["scorable"]}
        lines.append([each["name"], *_cells([row])])
        lines += [[f"  {part}", _number(100 * right / n), f"{n:,}"] for part, (right, n) in each["parts"].items()]
    yield from _aligned(lines)
    yield "\nAccuracy in %: the right form is strictly likelier; a tie is wrong."
    yield "known: % of the sentences with both forms in the vocabulary; on known: accuracy on these."
    yield f"{100 * found['unk_rate']:.1f} % of the words before the verbs are unknown to the run."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, the first column to the left; a line of one cell may be of any length."""
    widths = [max(len(line[k]) for line in lines if len(line) > max(1, k)) for k in range(max(map(len, lines)))]
    for line in lines:
        pairs = zip(line, widths, strict=False)
        yield "  ".join(cell.rjust(width) if k else cell.ljust(width) for k, (cell, width) in enumerate(pairs)).rstrip()
