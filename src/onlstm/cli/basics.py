"""The commands demo and bench."""

import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.common import Json, app, json_text, many, say
from onlstm.errors import UserError


@app.command
def demo(
    *,
    seed: Annotated[int, Parameter(help="Seed of the data and of the weights.")] = 0,
    steps: Annotated[int, Parameter(help="Batches of 64 strings to train on.")] = 400,
    json: Json = False,
) -> None:
    """Train a small ON-LSTM on nested brackets (seconds) and show that it learns."""
    from onlstm.tasks import demo as task

    started = time.perf_counter()
    found = task.run(seed, steps, lambda line: say(line, json))
    if json:
        print(json_text("demo", started, seed, found._asdict()))
        return
    print(f"\nOn 500 strings it has not seen, after {found.steps} steps ({found.seconds:.1f} s):")
    print(f"  loss {found.loss:.3f} nats a symbol; the source's own uncertainty {found.floor:.3f}, ", end="")
    print(f"symbol frequencies alone {found.unigram:.3f}")
    print(f"  kind of closing bracket right {found.closing:.1f} %; without memory 50 %")


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
    from onlstm.tasks import bench as task

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
