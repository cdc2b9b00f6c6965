"""Writing files so that nobody ever sees half of one: a temporary name beside the target, then a rename."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from onlstm.errors import UserError


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
        aside.unlink(missing_ok=True)
