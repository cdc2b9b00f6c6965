"""Files that nobody ever sees half of (a temporary name beside the target, then a rename), packed files, and JSON."""

import bz2
import gzip
import json
import lzma
import math
import os
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from onlstm.errors import UserError

_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open}


def json_text(value: object) -> str:
    """Return indented JSON; numbers that are not finite become null."""
    return json.dumps(_finite(value), indent=1, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def unpacked(file: BufferedReader) -> BinaryIO:
    """Return the file, decompressed if it is packed; that is told by its first bytes, not by its name."""
    head = file.peek(6)
    found: list[BinaryIO] = [unpack(file) for magic, unpack in _PACKED.items() if head.startswith(magic)]
    return found[0] if found else file


def clear_halves(folder: Path, *names: str) -> None:
    """Remove what a process that was killed while it wrote one of these files has left."""
    for name in names:
        for half in folder.glob(f".{name}.[0-9]*"):
            half.unlink(missing_ok=True)


def write(path: Path, content: str | bytes | Callable[[BinaryIO], object]) -> None:
    """Write text, bytes or whatever `content(file)` writes; after a crash `path` holds the old or the new, whole."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            aside.unlink()
