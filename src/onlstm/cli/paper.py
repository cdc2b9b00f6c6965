"""The commands around the paper's results: demo, bench, reproduce, report."""

import itertools
import shlex
import sys
import time
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from onlstm import files
from onlstm.cli import main
from onlstm.cli.console import Answer, Json, Progress, many, notice, say
from onlstm.cli.inputs import Device, Threads, check_output, check_threads, set_threads, sources
from onlstm.cli.main import app
from onlstm.errors import UserError


@app.command
def demo(
    *,
    grammar: Annotated[Path | None, Parameter(help="A grammar of your own, as text (default: English).")] = None,
    seed: Annotated[int, Parameter(help="Seed of the sentences and of the weights.")] = 0,
    minutes: Annotated[float, Parameter(help="Stop after this many minutes; the schedule adapts.")] = 1.5,
    out: Annotated[Path, Parameter(help="Folder for report.html and the model.")] = Path("demo"),
    device: Device = "auto",
    json: Json = False,
) -> Answer:
    """Learn a grammar's trees from its sentences alone (2 minutes): F1 beside baselines, and a report with pictures."""
    from onlstm.cli.train import epochs_shown
    from onlstm.paper.demo import run as task

    set_threads(1)  # the LSTM beside it has the other core
    with Progress(stream=sys.stderr if json else sys.stdout) as progress:
        shown = [epochs_shown(progress)]
        how: dict[str, Any] = {"seed": seed, "minutes": minutes, "out": out, "device": device}
        result = task.run(grammar, **how, say=progress.say, listeners=shown)
    where = f'Trees, gates and curves: {result.report}. More trees: onlstm parse {out / "model"} "…"'
    return Answer(result, ["", result.table().text(), "", str(result), where], json, seed)


@app.command
def bench(
    *,
    shapes: Annotated[list[str] | None, many("Shapes to measure (default: all).")] = None,
    threads: Annotated[list[int] | None, many("Numbers of threads (default: 1 2; on a GPU 1).")] = None,
    device: Device = "auto",
    seconds: Annotated[float, Parameter(help="Seconds per row, not counting the eager backend.")] = 5.0,
    memory: Annotated[
        bool, Parameter(negative="--no-memory", help="Measure the peak memory of a training step too (Linux, CUDA).")
    ] = True,
    out: Annotated[Path | None, Parameter(help="JSON file to write.")] = None,
    json: Json = False,
) -> Answer:
    """Measure the fused ON-LSTM against nn.LSTM and against its eager form, interleaved in one run."""
    import torch

    from onlstm.device import find
    from onlstm.paper import bench as task

    started = time.perf_counter()
    check_output("--out", out, "speed.json")
    place = find(device)
    names, threads = shapes or list(task.SHAPES), threads or ([1, 2] if place.type == "cpu" else [1])
    for count in threads:
        check_threads(count)
    task.check_request(names, seconds, place)
    say(task.HEADER, json)
    with Progress("rows", 2 * len(names) * len(threads)) as progress:
        numbers = itertools.count(1)
        progress.update(0)

        def show(row: task.Row) -> None:
            say(str(row), json)
            progress.update(next(numbers))

        rows = task.run(names, threads, seconds, show, place)
    megabytes: dict[str, dict[str, float]] = {}
    content = {"rows": rows, "training_memory": megabytes, "torch": torch.__version__}
    answer = Answer(content, json=True, seed=0)
    if out:  # now, and again with the memory
        files.write(out, f"{answer.text(started)}\n")
    if memory and (place.type == "cuda" or (place.type == "cpu" and sys.platform == "linux")):
        say("\nPeak memory that a training step adds, MB: ON-LSTM, nn.LSTM, ratio (target: at most 1.20)", json)
        for name in names:
            megabytes[name] = task.training_memory(name, place)
            say("{:15} {:8.1f} {:8.1f} {:6.3f}".format(name, *megabytes[name].values()), json)
    if out:
        files.write(out, f"{answer.text(started)}\n")
    return answer._replace(json=json)


@app.command
def reproduce(
    target: Annotated[str, Parameter(help="table1, table2, table3, figure-logic or figure-a1.")],
    *,
    scale: Annotated[
        Literal["small", "paper"],
        Parameter(help="small: an hour or two on two cores (table1: five); paper: as published."),
    ] = "small",
    data: Annotated[Path, Parameter(help="Folder with ptb-lm, wsj-sample, wikitext-2, logic, …")] = Path("data"),
    text: Annotated[list[str] | None, many("Your own text to train on, instead of --data: files or folders.")] = None,
    treebank: Annotated[Path | None, Parameter(help="With --text: your own treebank to score the trees by.")] = None,
    dev: Annotated[
        Path | None, Parameter(help="With --text: another treebank, to choose layer and decoder on.")
    ] = None,
    recipe: Annotated[
        str | None, Parameter(help="With --text: the recipe to train with (default: quick; at paper scale ptb-paper).")
    ] = None,
    out: Annotated[
        Path | None,
        Parameter(help="Folder for runs and results (default: runs/reproduce-SCALE; with --text runs/reproduce-own)."),
    ] = None,
    dry_run: Annotated[bool, Parameter(help="Only print the commands, one per line.")] = False,
    threads: Threads = None,
    device: Device = "auto",
    json: Json = False,
) -> Answer | None:
    """Run the commands behind a table or figure of the paper and print it, published numbers beside ours.

    Each step is an onlstm command that can be run by hand too. Finished steps are skipped and interrupted ones
    continue when the same command is given again. Tables share their runs.

    On your own data: `onlstm reproduce table2 --text TEXT --treebank TREEBANK`.
    """
    if threads is not None:
        check_threads(threads)
    from onlstm.paper import reproduce as task
    from onlstm.paper.published import published
    from onlstm.paper.results import read

    own = None
    if text:
        name = recipe or ("quick" if scale == "small" else "ptb-paper")
        own = task.Own(text=sources(*text), recipe=name, treebank=treebank, dev=dev)
    elif asked := [option for option, value in (("treebank", treebank), ("dev", dev), ("recipe", recipe)) if value]:
        raise UserError(f"--{asked[0]}: name your own text too: --text")
    folder = out or Path("runs") / f"reproduce-{'own' if own else scale}"
    plan = task.plan(target, scale, data, folder, threads, own, device)
    lines = [shlex.join(["onlstm", *step.words]) for step in plan.steps]
    if dry_run:
        return Answer({}, lines)
    plan.check()
    say(f"{target}, {'your own data' if own else f'scale {scale}'}: {plan.cost}", json)
    plan.begin()
    if len(missing := plan.missing) > 1:
        say(f"Still missing: {', '.join(missing)}", json)
    for number, (step, line) in enumerate(zip(plan.steps, lines, strict=True), 1):
        words = step.now()
        say(f"\n[{number}/{len(lines)}] {line}{'' if words else '  (finished)'}", json)
        if words:
            _run_step(words, json)
    tables, page = plan.page(), plan.here / f"{target}.md"
    if tables and not json:
        files.write(page, tables)
    results = {path.stem: read(path) for path in sorted(plan.here.glob("*.json"))} if tables else {}
    content = {"target": target, "scale": scale, "results": results, "published": published()}
    return Answer(content, ["", tables, f"{page} written"] if tables else [], json)


def _run_step(words: tuple[str, ...], json: bool) -> None:
    """Run a command as if it had been typed."""
    typed = sys.argv
    sys.argv = ["onlstm", *words]
    try:
        with redirect_stdout(sys.stderr) if json else nullcontext():
            main.run(words)
    except (SystemExit, KeyboardInterrupt):
        notice("onlstm: stopped; the same command continues from here")
        raise
    finally:
        sys.argv = typed


@app.command
def report(
    folder: Annotated[Path, Parameter(help="Folder of result files, of runs, or of both.")] = Path("results"),
    *,
    out: Annotated[Path, Parameter(help="Page to write.")] = Path("RESULTS.md"),
    docs: Annotated[
        Path | None, Parameter(help="Folder for a page per experiment (default: docs/results beside --out, if there).")
    ] = None,
) -> None:
    """Write RESULTS.md from results/*.json and the result.json of runs, with the published numbers beside ours."""
    from onlstm.paper import report as task
    from onlstm.paper.results import files_of

    check_output("--out", out, "RESULTS.md", files_of(folder))
    beside = out.parent / "docs" / "results"
    for path in task.write(folder, out, docs or (beside if beside.is_dir() else None)):
        print(f"{path} written")
