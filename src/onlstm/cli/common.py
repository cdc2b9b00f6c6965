"""What all commands share: the application, options, lines for people and JSON for machines."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from onlstm import __version__, files
from onlstm.errors import UserError

app = App(
    name="onlstm",
    version=f"onlstm {__version__}",
    help="Recurrent networks that find syntax by themselves: the ON-LSTM of Shen et al. 2019.",
    suppress_keyboard_interrupt=False,  # `main` says so
)

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object; progress goes to stderr.")]
Threads = Annotated[int | None, Parameter(help="Processor threads (default: all cores).")]

STDIN = "/dev/stdin"
"""What - on the command line becomes, until `sources` turns it back."""


def sources(*text: str) -> tuple[str, ...]:
    """Return the names of texts, - for the standard input."""
    return tuple("-" if name == STDIN else name for name in text)


def many(text: str) -> Parameter:
    """An option that takes several words."""
    return Parameter(consume_multiple=True, negative="", help=text)


def set_threads(count: int | None) -> None:
    """Let torch use so many threads."""
    if count is None:
        return
    if count < 1:
        raise UserError(f"--threads {count}: at least 1 is needed")
    import torch

    torch.set_num_threads(count)


def say(line: str, json: bool) -> None:
    print(line, file=sys.stderr if json else sys.stdout, flush=True)


def aligned(lines: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """Yield the lines of a table, so many columns to the left; a line of one cell may be of any length."""
    widths = [max(len(line[k]) for line in lines if len(line) > max(1, k)) for k in range(max(map(len, lines)))]
    for line in lines:
        pairs = enumerate(zip(line, widths, strict=False))
        yield "  ".join(cell.ljust(width) if k < left else cell.rjust(width) for k, (cell, width) in pairs).rstrip()


def json_text(command: str, started: float, seed: int | None, found: dict[str, Any]) -> str:
    common = {"command": command, "version": __version__, "argv": sys.argv[1:], "seed": seed}
    return files.json_text(common | found | {"seconds": time.perf_counter() - started})
