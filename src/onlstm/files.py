"""Files that nobody ever sees half of (a temporary name beside the target, then a rename), and JSON."""

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from onlstm.errors import UserError


def json_text(value: object) -> str:
    """Return indented JSON; numbers that are not finite become null."""
    return json.dumps(_finite(value), indent=1, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path) -> str:
    """Return the text of a file in UTF-8, with or without a byte-order mark."""
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None


def clear_halves(folder: Path, *names: str) -> None:
    """Remove what a process that was killed while it wrote one of these files has left."""
    for name in names:
        for half in folder.glob(f".{name}.[0-9]*"):
            half.unlink(missing_ok=True)


def check_target(option: str, path: Path, such: str, inputs: Iterable[Path] = ()) -> None:
    """Refuse, before the work, what could not be written after it, or would take the place of what is read."""
    try:
        fits = path.is_file() or not path.exists()
        if fits:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        taken = path.exists() and any(path.samefile(each) for each in inputs if each.exists())
    except OSError as error:
        why = "the folder is not there" if isinstance(error, FileNotFoundError) else error.strerror
        raise UserError(f"{option} {path}: {why}; name a file in a folder that is there, such as {such}") from None
    if not fits or _is_stream(path):
        raise UserError(f"{option} {path}: not a file; name a file in a folder that is there, such as {such}")
    if taken:
        raise UserError(f"{option} {path}: it is read, and would be lost; name another file, such as {such}")


def write(path: Path, content: str | bytes | Callable[[BinaryIO], object]) -> None:
    """Write text, bytes or whatever `content(file)` writes; after a crash `path` holds the old or the new, whole.

    A link stays a link. A pipe or device, which a file must not take the place of, is written as it is.
    """
    special = _is_stream(path) or (path.exists() and not path.is_file())
    path = path if special else Path(os.path.realpath(path))
    aside = path if special else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if not special:
                os.fsync(file.fileno())
                aside.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if not special:
            with suppress(OSError):
                aside.unlink()


def _is_stream(path: Path) -> bool:
    return path in map(Path, ("/dev/stdin", "/dev/stdout", "/dev/stderr")) or path.is_relative_to("/dev/fd")
