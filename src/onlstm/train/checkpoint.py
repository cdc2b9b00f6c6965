"""`trainer.pt`: all that a run needs to continue as if it had never stopped, in one file that is replaced whole.

It holds tensors, numbers and strings only, read with `weights_only`. `lock` keeps two processes out of one folder.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

import torch

from onlstm import files
from onlstm.errors import UserError

StateDict = dict[str, Any]
"""Tensors, numbers and strings by name, as torch's own state dicts."""
FORMAT_VERSION = 1
NAME, LOG = "trainer.pt", "log.jsonl"


def save(folder: Path, content: StateDict) -> None:
    """Replace the folder's checkpoint; after a crash or on a full disk the old one is still there."""

    def write(file: BinaryIO) -> None:
        try:
            torch.save({"format_version": FORMAT_VERSION, **content}, file)
        except RuntimeError as error:  # torch's own, while it clears up after the file's
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None

    files.write(folder / NAME, write)


def load(folder: Path) -> StateDict:
    """Return what `save` was given."""
    path = folder / NAME
    if not path.is_file():
        raise UserError(f"{folder}: nothing to resume: no {NAME} there")
    try:
        with ZipFile(path) as file:
            if damaged := file.testzip():  # compares checksums, which torch does not
                raise BadZipFile(damaged)
        content: StateDict = torch.load(path, weights_only=True, map_location="cpu")
        version = content["format_version"]
    except Exception as error:  # a corrupt file can raise any exception
        raise UserError(f"{path}: damaged, or not a checkpoint ({type(error).__name__})") from None
    if version != FORMAT_VERSION:
        raise UserError(f"{path}: format {version}; this onlstm reads {FORMAT_VERSION}")
    return content


def append_log(folder: Path, record: Mapping[str, object]) -> int:
    """Write a record to log.jsonl and return the length of the log."""
    try:
        with (folder / LOG).open("a") as file:
            file.write(json.dumps(record) + "\n")
            return file.tell()
    except OSError as error:
        raise UserError(f"cannot write {folder / LOG}: {error.strerror}") from None


def cut_log(folder: Path, length: int) -> None:
    """Cut log.jsonl back to this length."""
    if (folder / LOG).exists():
        with (folder / LOG).open("r+b") as file:
            file.truncate(min(length, (folder / LOG).stat().st_size))


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Make a folder, if need be, and hold it while a process trains there; the system lets go when that ends."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((folder / ".lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another process is training there") from None
        except OSError as error:
            raise UserError(f"{folder}: cannot write there: {error.strerror}") from None
        yield
