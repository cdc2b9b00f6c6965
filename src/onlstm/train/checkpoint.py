"""`trainer.pt`: everything a run needs to go on as if it had never stopped, in one file that is replaced whole.

It holds tensors, numbers and strings only and is read with `weights_only`. `Lock` keeps two trainers out of one folder.
"""

import fcntl
import json
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import torch

from onlstm import files
from onlstm.errors import UserError

FORMAT_VERSION = 1
NAME, LOG = "trainer.pt", "log.jsonl"


def save(folder: Path, content: dict[str, Any]) -> None:
    """Replace the folder's checkpoint; after a crash or on a full disk the old one is still there."""

    def write(file: BinaryIO) -> None:
        try:
            torch.save({"format_version": FORMAT_VERSION, **content}, file)
        except RuntimeError as error:  # torch's own, while it clears up after the file's
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None

    files.write(folder / NAME, write)


def load(folder: Path) -> dict[str, Any]:
    """Return what `save` was given."""
    path = folder / NAME
    if not path.is_file():
        raise UserError(f"{folder}: nothing to resume: no {NAME} there; start it without --resume")
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        version = content["format_version"]
    except Exception as error:  # bent files raise nearly anything
        raise UserError(f"{path}: damaged, or not a checkpoint ({type(error).__name__})") from None
    if version != FORMAT_VERSION:
        raise UserError(f"{path}: format {version}; this onlstm reads {FORMAT_VERSION}")
    return content


def append_log(folder: Path, record: dict[str, Any]) -> int:
    """Write a record to log.jsonl and return the log's length."""
    try:
        with (folder / LOG).open("a") as file:
            file.write(json.dumps(record) + "\n")
            return file.tell()
    except OSError as error:
        raise UserError(f"cannot write {folder / LOG}: {error.strerror}") from None


def cut_log(folder: Path, length: int) -> None:
    """Take off what was written after the log had this length."""
    if (folder / LOG).exists():
        with (folder / LOG).open("r+b") as file:
            file.truncate(min(length, (folder / LOG).stat().st_size))


class Lock:
    """Held while a process trains in a folder; the system lets go of it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"

    def __enter__(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UserError(f"{self._path.parent}: another process is training there") from None
        except OSError as error:
            raise UserError(f"{self._path.parent}: cannot write there: {error.strerror}") from None

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()
