"""What commands print: JSON for machines, lines and tables for people, notices, and the one progress display."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, TypeVar

from cyclopts import Parameter

from onlstm import __version__, files
from onlstm.cli import streams
from onlstm.errors import UserError
from onlstm.records import plain

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

T = TypeVar("T")
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object; progress goes to stderr.")]
_UNKNOWN = 0.3
"""The share of unknown words that is too much."""
NAMED = 5
"""How many bad lines are named."""
_FRAME = 0.1
"""Seconds between two looks of the bar on a terminal."""
_FIRST, _EVERY, _TICK = 5.0, 30.0, 2.0
"""Without a terminal: seconds before the first line of progress, between lines, and between looks at the clock."""


def many(text: str) -> Parameter:
    """Return the parameter of an option that takes several words."""
    return Parameter(consume_multiple=True, help=text)


def notice(line: str) -> None:
    """Print a line about the work, unless it is empty, to stderr."""
    if line:
        streams.show(line, sys.stderr)


def warn_of_unknown(share: float, run: str, therefore: str) -> None:
    """Print a line if many of the words are unknown to a run's model."""
    if share >= _UNKNOWN:
        notice(
            f"onlstm: {share:.0%} of the words are unknown to the model, so {therefore}; write "
            f"them as its text has them, in lower case and tokenised alike: onlstm doctor TEXT --run {run} shows how"
        )


def tell_of_bad(bad: int, count: int, named: Sequence[str], what: str = "trees") -> None:
    """Print how many lines could not be read, if any, and name the first of them."""
    if bad:
        notice(f"onlstm: {bad:,} of {count:,} lines skipped, their {what} are empty:")
        notice("\n".join([*named[:NAMED], *["…"] * (bad > NAMED)]))


def say(line: str, json: bool) -> None:
    """Print a line for people: to stdout, or to stderr if stdout is for JSON."""
    streams.show(line, sys.stderr if json else sys.stdout)


def put(rows: Iterable[str], out: Path | None) -> None:
    """Print rows one by one, or write them to a file."""
    if out:
        files.write(out, lambda file: [file.write(f"{row}\n".encode()) for row in rows])
        return
    for row in rows:
        print(row, flush=True)


@contextmanager
def watched(records: Iterable[T], unit: str, total: int | None) -> Iterator[Iterator[T]]:
    """Give the records, and show how far they are."""
    with Progress(unit, total) as progress:

        def counted() -> Iterator[T]:
            progress.update(0)
            for number, record in enumerate(records, 1):
                yield record
                progress.update(number)

        yield counted()


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
    """How far a command is: a bar on a terminal, elsewhere lines with the share done and the time left.

    Without a terminal there is a line at the start of much work and, from then on, at least one a minute, whether the
    work reports or not. `unit` names what is counted, and `much` is how many are much; without a unit, `update` gets
    shares from 0 to 1.
    """

    def __init__(
        self, unit: str = "", total: float | None = None, *, much: int = 1000, stream: TextIO | None = None
    ) -> None:
        self._stream, self._much = stream or sys.stderr, much
        self._unit, self._total, self._done, self._note = unit, total if unit else 1.0, 0.0, ""
        self._bar = _bar(self._stream) if self._stream.isatty() else None
        self._task = self._bar.add_task("", total=self._total, state="") if self._bar else None
        self._entered = time.monotonic()
        self._begun: tuple[float, float] | None = None
        """How much was done at the first update, and when that was: what came before is no part of the work."""
        self._next, self._redrawn = self._entered + _EVERY, 0.0
        self._ended = threading.Event()

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        else:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._ended.set()
        if self._bar:
            self._bar.stop()
        if kind and issubclass(kind, KeyboardInterrupt) and self._begun:
            self.say(f"Stopped at {self.state}")

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(line, markup=False)
        else:
            streams.show(line, self._stream)

    def update(self, done: float, total: float | None = None, note: str = "") -> None:
        """Show how much is done, of `total` if that is known by now."""
        self._total = total if total is not None else self._total
        now = time.monotonic()
        if not self._begun or done < self._done:  # the first, or another part of the work
            self._begun = done, now
            self._next = now if (self._total or 0) >= self._much else now + _FIRST
        self._done, self._note = done, note
        if self._bar and self._task is not None:
            if now < self._redrawn + _FRAME:
                return
            self._redrawn = now
            state = " ".join(filter(None, (self.state, self._pace(now), note)))
            self._bar.update(self._task, completed=done, total=self._total, state=state)
        elif now >= self._next:
            self._print(now)

    def _watch(self) -> None:
        """Print a line if there has been none for a while."""
        with suppress(SystemExit, UserError):  # which the command meets itself
            while not self._ended.wait(_TICK):
                if (now := time.monotonic()) >= self._next + _TICK:  # the work itself comes first
                    self._print(now)

    def _print(self, now: float) -> None:
        self._next = now + _EVERY
        begun = self.state if self._begun else "working"
        known = self._time_left(now) or f"{_duration(now - self._entered)} so far"
        first = self._begun and self._begun[1] == now
        self.say(", ".join(filter(None, (begun, self._pace(now), self._note, "" if first else known))))

    @property
    def state(self) -> str:
        """How much is done."""
        share = f"{100 * self._done / self._total:.0f} %" if self._total else ""
        if not self._unit:
            return share
        return (
            f"{self._done:,.0f} of {self._total:,.0f} {self._unit} ({share})"
            if share
            else (f"{self._done:,.0f} {self._unit}")
        )

    def _speed(self, now: float) -> float:
        if not self._begun:
            return 0.0
        return (self._done - self._begun[0]) / max(now - self._begun[1], 1e-9)

    def _pace(self, now: float) -> str:
        speed = self._speed(now)
        return f"{speed:,.{0 if speed >= 10 else 1}f}/s" if self._unit and speed else ""

    def _time_left(self, now: float) -> str:
        if not self._total or not (speed := self._speed(now)):
            return ""
        return f"{_duration(max(0.0, self._total - self._done) / speed)} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _bar(stream: TextIO) -> "Bar":
    """Return a bar of rich, whose console leaves the end of a pipe to us."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise SystemExit(streams.NO_READER)

    columns = (BarColumn(bar_width=20), TextColumn("{task.fields[state]}"), TimeRemainingColumn())
    return Bar(*columns, console=Terminal(file=stream, highlight=False, soft_wrap=True), transient=True)
