"""Files that are written whole or not at all (under a temporary name beside the target, then renamed), and JSON."""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from onlstm.errors import UserError


def json_text(value: object) -> str:
    """Return indented JSON; numbers that are not finite become null."""
    return json.dumps(_finite(value), indent=1, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path) -> str:
    """Return the text of a file in UTF-8, with or without a byte-order mark."""
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(path: Path, content: str | bytes | Callable[[BinaryIO], object]) -> None:
    """Write text, bytes or whatever `content(file)` writes; after a crash `path` holds all of the old or the new.

    A link stays a link. A pipe or device is written to, not replaced by a file.
    """
    standard = path in map(Path, ("/dev/stdin", "/dev/stdout", "/dev/stderr")) or path.is_relative_to("/dev/fd")
    stream = standard or (path.exists() and not path.is_file())
    path = path if stream else Path(os.path.realpath(path))
    temporary = path if stream else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if not stream:
                os.fsync(file.fileno())
                temporary.replace(path)
    except OSError as error:
        if stream and isinstance(error, BrokenPipeError):  # nobody reads it any longer
            raise
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if not stream:
            with suppress(OSError):
                temporary.unlink()


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from None


@contextmanager
def new_folder(path: Path) -> Iterator[None]:
    """Let a folder be filled that is empty or not there; if that fails, it is again as it was."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        if missing:
            shutil.rmtree(missing[-1], ignore_errors=True)
        for item in path.iterdir() if path.is_dir() else ():
            shutil.rmtree(item) if item.is_dir() else item.unlink(missing_ok=True)
        raise


def remove_temporary(folder: Path, *names: str) -> None:
    """Remove the temporary files of a process that was killed while it wrote files of these names."""
    for name in names:
        for path in folder.glob(f".{name}.[0-9]*"):
            path.unlink(missing_ok=True)
