"""The `onlstm` command. Nothing heavy is imported before a command needs it: help and version never load torch."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from onlstm import __version__
from onlstm.errors import UserError

app = App(
    name="onlstm",
    version=f"onlstm {__version__}",
    help="Recurrent networks that find syntax by themselves: the ON-LSTM of Shen et al. 2019.",
)


def _many(text: str) -> Parameter:
    """An option that takes several words."""
    return Parameter(consume_multiple=True, negative="", help=text)


Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object; progress goes to stderr.")]


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
    found = task.run(seed, steps, lambda line: _say(line, json))
    if json:
        print(_json_text("demo", started, seed, found._asdict()))
        return
    print(f"\nOn 500 strings it has not seen, after {found.steps} steps ({found.seconds:.1f} s):")
    print(f"  loss {found.loss:.3f} nats a symbol; the source's own uncertainty {found.floor:.3f}, ", end="")
    print(f"symbol frequencies alone {found.unigram:.3f}")
    print(f"  kind of closing bracket right {found.closing:.1f} %; without memory 50 %")


@app.command
def bench(
    *,
    shapes: Annotated[list[str] | None, _many("Shapes to measure (default: all).")] = None,
    threads: Annotated[list[int] | None, _many("Numbers of threads (default: 1 2).")] = None,
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
    _say(task.HEADER, json)
    rows = task.run(names, threads, seconds, lambda row: _say(str(row), json))
    used: dict[str, tuple[float, float]] = {}
    if out:  # now, and again with the memory
        _write(out, _json_text("bench", started, 0, task.report(rows, used)) + "\n")
    if memory and sys.platform == "linux":
        _say("\nPeak memory that a training step adds, MB: ON-LSTM, nn.LSTM, ratio (target: at most 1.20)", json)
        for name in names:
            used[name] = task.training_memory(name, "onlstm"), task.training_memory(name, "lstm")
            _say(f"{name:15} {used[name][0]:8.1f} {used[name][1]:8.1f} {used[name][0] / used[name][1]:6.3f}", json)
    text = _json_text("bench", started, 0, task.report(rows, used))
    if out:
        _write(out, text + "\n")
    if json:
        print(text)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    try:
        app(exit_on_error=False, print_error=False)
    except (CycloptsError, UserError) as error:
        print(f"onlstm: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("onlstm: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `onlstm ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(line: str, json: bool) -> None:
    print(line, file=sys.stderr if json else sys.stdout, flush=True)


def _json_text(command: str, started: float, seed: int, found: dict[str, object]) -> str:
    common = {"command": command, "version": __version__, "argv": sys.argv[1:], "seed": seed}
    return json.dumps(common | found | {"seconds": time.perf_counter() - started}, indent=1)


def _write(path: Path, text: str) -> None:
    """Write to a temporary file beside it, then rename: never half a file."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}") from None
