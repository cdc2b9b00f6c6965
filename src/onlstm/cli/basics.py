"""The commands demo and bench."""

import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.common import Json, app, json_text, many, say, set_threads
from onlstm.errors import UserError


@app.command
def demo(
    *,
    grammar: Annotated[Path | None, Parameter(help="A grammar of your own, as text (default: English).")] = None,
    seed: Annotated[int, Parameter(help="Seed of the sentences and of the weights.")] = 0,
    minutes: Annotated[float, Parameter(help="Train so long at most; passes over the text in proportion.")] = 1.5,
    out: Annotated[Path, Parameter(help="Folder for report.html and the model.")] = Path("demo"),
    json: Json = False,
) -> None:
    """Learn a grammar's trees from its sentences alone (2 minutes): F1 beside baselines, and a report with pictures."""
    from onlstm.cli.progress import TrainingProgress
    from onlstm.paper.demo import run as task

    started = time.perf_counter()
    set_threads(1)  # the LSTM beside has the other core
    with TrainingProgress(sys.stderr if json else sys.stdout) as progress:
        request = task.Request(grammar=grammar, seed=seed, minutes=minutes, out=out)
        found = task.run(request, progress.say, [progress])
    if json:
        print(json_text("demo", started, seed, found.to_json()))
        return
    print()
    for name, *cells in found.table():
        print(f"{name:20}" + "".join(f"{cell:>10}" for cell in cells))
    print(f"\n{found.summary()}")
    print(f'Trees, gates and curves: {found.report}. More trees: onlstm parse {found.model} "…"')


@app.command
def bench(
    *,
    shapes: Annotated[list[str] | None, many("Shapes to measure (default: all).")] = None,
    threads: Annotated[list[int] | None, many("Numbers of threads (default: 1 2).")] = None,
    seconds: Annotated[float, Parameter(help="Time for each row, besides the eager backend's.")] = 5.0,
    memory: Annotated[bool, Parameter(help="Measure the peak memory of a training step too (Linux).")] = True,
    out: Annotated[Path | None, Parameter(help="JSON file to write.")] = None,
    json: Json = False,
) -> None:
    """Measure the fused ON-LSTM against nn.LSTM and against its eager form, interleaved in one run."""
    from onlstm.paper import bench as task

    started = time.perf_counter()
    if out and not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist")
    names, threads = shapes or list(task.SHAPES), threads or [1, 2]
    task.check_request(names, threads)
    say(task.HEADER, json)
    rows = task.run(names, threads, seconds, lambda row: say(str(row), json))
    used: dict[str, tuple[float, float]] = {}
    if out:  # now, and again with the memory
        files.write(out, json_text("bench", started, 0, task.report(rows, used)) + "\n")
    if memory and sys.platform == "linux":
        say("\nPeak memory that a training step adds, MB: ON-LSTM, nn.LSTM, ratio (target: at most 1.20)", json)
        for name in names:
            used[name] = task.training_memory(name, "onlstm"), task.training_memory(name, "lstm")
            say(f"{name:15} {used[name][0]:8.1f} {used[name][1]:8.1f} {used[name][0] / used[name][1]:6.3f}", json)
    text = json_text("bench", started, 0, task.report(rows, used))
    if out:
        files.write(out, text + "\n")
    if json:
        print(text)
