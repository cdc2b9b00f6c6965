"""Many sentences from anywhere, line by line and in order; and shards of them that a cluster can lose and run again.

A shard is a run of neighbouring lines, so that the shards' files, one after the other, are what one process writes.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from onlstm import files
from onlstm.errors import UserError
from onlstm.text.sources import read_inputs


class Shard(NamedTuple):
    """Part i, from 1, of n."""

    i: int
    n: int

    @classmethod
    def of(cls, text: str) -> "Shard":
        """Return the shard that is written 2/8.

        >>> Shard.of("2/8").lines(100), Shard.of("2/8").file("txt")
        (range(12, 25), 'part-2-of-8.txt')
        """
        found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise UserError(f"--shard {text}: i/n is needed, with i from 1 to n: 1/8, 2/8, …, 8/8")
        return cls(int(found[1]), int(found[2]))

    def lines(self, total: int) -> range:
        """Return which of so many lines are its own."""
        return range((self.i - 1) * total // self.n, self.i * total // self.n)

    def file(self, suffix: str) -> str:
        """Return the name of its file; those of all shards, sorted, are in the order of the input."""
        return f"part-{self.i:0{len(str(self.n))}}-of-{self.n}.{suffix}"


class Lines:
    """The lines of files (paths, `-` is the standard input) and sentences (strings), one after the other.

    A line that is not UTF-8 comes out empty and is noted in `bad`, by its number from 0, until somebody takes it; or
    it ends the lines, if `stop` says so. What ends them too early is in `failure` afterwards.
    """

    def __init__(self, inputs: Sequence[Path | str], *, stop: bool = False) -> None:
        self.bad: dict[int, str] = {}
        self.failure: UserError | None = None
        self.inputs, self._stop = tuple(inputs), stop

    @property
    def again(self) -> bool:
        """Whether they can be read more than once."""
        return Path("-") not in self.inputs

    @property
    def typed(self) -> bool:
        """Whether somebody types them now and waits for an answer."""
        return not self.again and sys.stdin.isatty()

    def count(self) -> int:
        """Return how many there are."""
        return sum(1 for _ in read_inputs(self.inputs))

    def read(self, wanted: range | None = None) -> Iterator[str]:
        """Yield the lines, or those with the wanted numbers."""
        try:
            for number, (line, defect) in enumerate(read_inputs(self.inputs)):
                if wanted is not None and number not in wanted:
                    if number < wanted.start:
                        continue
                    return
                if defect:
                    if self._stop:
                        raise UserError(f"{defect}; or go on without it: --on-error skip")
                    self.bad[number] = defect
                yield "" if defect else line
        except UserError as error:
            self.failure = error


def settings(run: Path, lines: Lines, **options: Any) -> dict[str, Any]:
    """Return what the content of a shard's file depends on: the weights, names and sizes of the input, options."""
    with (run / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    named = [[each.name, each.stat().st_size] if isinstance(each, Path) else each for each in lines.inputs]
    return {"model_sha256": digest, "inputs": named, **options}


def done(target: Path, settings: dict[str, Any]) -> bool:
    """Return whether the file is there and finished; with other settings than these, that is an error."""
    try:
        found = dict(json.loads(_marker(target).read_text())["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not target.is_file():
        return False
    if other := [key for key in settings if found.get(key) != settings[key]]:
        raise UserError(
            f"{target}: finished with other settings ({', '.join(other)}); delete it, or choose another --out"
        )
    return True


def mark(target: Path, settings: dict[str, Any], **more: Any) -> None:
    """Note beside the file that it is finished."""
    files.write(_marker(target), files.json_text({"settings": settings, **more}) + "\n")


def _marker(target: Path) -> Path:
    return target.with_name(f"{target.name}.done")
