"""What commands print: JSON for machines, lines and tables for people, notices, and the one progress display."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, NamedTuple, TextIO

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from onlstm import __version__, files
from onlstm.records import plain

Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object; progress goes to stderr.")]
_UNKNOWN = 0.3
"""The share of unknown words that is too much."""
_FIRST, _EVERY = 5.0, 30.0
"""Seconds before the first line of progress and between lines, when there is no terminal."""


def many(text: str) -> Parameter:
    """Return the parameter of an option that takes several words."""
    return Parameter(consume_multiple=True, help=text)


def notice(line: str) -> None:
    """Print a line about the work, unless it is empty, to stderr."""
    if line:
        print(line, file=sys.stderr, flush=True)


def warn_of_unknown(share: float, run: str, therefore: str) -> None:
    """Print a line if many of the words are unknown to a run's model."""
    if share >= _UNKNOWN:
        notice(
            f"onlstm: {share:.0%} of the words are unknown to the model, so {therefore}; write "
            f"them as its text has them, in lower case and tokenised alike: onlstm doctor TEXT --run {run} shows how"
        )


def say(line: str, json: bool) -> None:
    """Print a line for people: to stdout, or to stderr if stdout is for JSON."""
    print(line, file=sys.stderr if json else sys.stdout, flush=True)


def put(rows: Iterable[str], out: Path | None) -> None:
    """Print rows one by one, or write them to a file."""
    if out:
        files.write(out, lambda file: [file.write(f"{row}\n".encode()) for row in rows])
        return
    for row in rows:
        print(row)


class Answer(NamedTuple):
    """What a command returns; `main` prints it as lines for people or as one JSON object."""

    content: Any
    """A dataclass or mapping: what the object has besides the keys that all commands share."""
    lines: Iterable[str] = ()
    json: bool = False
    seed: int | None = None

    def text(self, started: float) -> str:
        """Return what to print; `started` is when the command did, by `time.perf_counter`."""
        if not self.json:
            return "\n".join(self.lines)
        common = {"command": sys.argv[1], "version": __version__, "argv": sys.argv[1:], "seed": self.seed}
        return files.json_text(common | plain(self.content) | {"seconds": time.perf_counter() - started})


class Progress:
    """How far a command is: a bar on a terminal, elsewhere a line now and then with the share done and the time left.

    `unit` names what is counted; without one, `update` is given shares from 0 to 1.
    """

    def __init__(self, unit: str = "", total: float | None = None, *, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._unit, self._total = unit, total if unit else 1.0
        columns = (BarColumn(bar_width=20), TextColumn("{task.fields[state]}"), TimeRemainingColumn())
        self._bar = Bar(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("", total=self._total, state="")
        self._begun: tuple[float, float] | None = None
        """How much was done at the first update, and when that was: what came before is no part of the work."""
        self._next = 0.0

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(line, markup=False)

    def update(self, done: float, total: float | None = None, note: str = "") -> None:
        """Show how much is done, of `total` if that is known by now."""
        self._total = total if total is not None else self._total
        now = time.monotonic()
        if not self._begun:
            self._begun, self._next = (done, now), now + _FIRST
        if self._bar.disable and now < self._next:
            return
        pace = (done - self._begun[0]) / max(now - self._begun[1], 1e-9)
        state = self._state(done, pace)
        if not self._bar.disable:
            self._bar.update(self._task, completed=done, total=self._total, state=f"{state} {note}".strip())
        else:
            self._next = now + _EVERY
            ending = f"{max(0.0, self._total - done) / pace / 60:.0f} min left" if self._total and pace else ""
            self.say(", ".join(filter(None, (state, note, ending))))

    def _state(self, done: float, pace: float) -> str:
        share = f"{done / self._total:.0%}" if self._total else ""
        if not self._unit:
            return share
        of = f"{done:,.0f} of {self._total:,.0f}" if self._total else f"{done:,.0f}"
        return f"{of} {self._unit}, {pace:,.0f}/s"
