"""Parts of a text, which a cluster can lose and run again: their lines, their files, and what they were made with."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from onlstm import files
from onlstm.errors import UserError
from onlstm.records import from_json


class Shard(NamedTuple):
    """Part i, from 1, of n: neighbouring lines, so that the files of all parts together are those of one process."""

    i: int
    n: int

    @classmethod
    def of(cls, text: str) -> "Shard":
        """Return the shard that is written 2/8.

        >>> Shard.of("2/8").lines(100), Shard.of("2/8").file("txt")
        (range(12, 25), 'part-2-of-8.txt')
        """
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"--shard {text}: i/n is needed, with i from 1 to n: 1/8, 2/8, …, 8/8")
        return cls(int(match[1]), int(match[2]))

    def lines(self, total: int) -> range:
        """Return the numbers of its lines, of `total`."""
        return range((self.i - 1) * total // self.n, self.i * total // self.n)

    def file(self, suffix: str) -> str:
        """Return the name of its file; the names of all shards sort in the order of the input."""
        return f"part-{self.i:0{len(str(self.n))}}-of-{self.n}.{suffix}"


class Marker(NamedTuple):
    """A file that says what others were made with; beside that of a shard, also that it is finished."""

    path: Path
    settings: dict[str, Any]

    @classmethod
    def of(cls, path: Path, run: Path, inputs: Sequence[Path | str], options: dict[str, Any]) -> "Marker":
        named = [[text.name, text.stat().st_size] if isinstance(text, Path) else text for text in inputs]
        digest = files.sha256(run / "model.safetensors")
        return cls(path, {"model_sha256": digest, "inputs": named, **options})

    def agrees(self, target: Path) -> bool:
        """Return whether the file is there; if what it says of `target` is something else, that is an error."""
        try:
            settings = dict(from_json(self.path.read_text())["settings"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if differing := [key for key in self.settings if settings.get(key) != self.settings[key]]:
            what = ", ".join(differing)
            raise UserError(f"{target}: made with other settings ({what}); delete it, or choose another --out")
        return True

    def write(self) -> None:
        files.write(self.path, files.json_text({"settings": self.settings}) + "\n")
