"""Files in a folder or a zip, for tests that come as several files."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePath

from onlstm.errors import UserError

_UNREADABLE = (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def members(path: Path, *suffixes: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of each file that ends so, in a folder or a zip, by name; or of the one file."""
    try:
        if path.is_dir():
            for file in sorted(file for file in path.rglob("*") if file.is_file()):
                if _counts(file.relative_to(path), suffixes):
                    yield str(file), file.read_bytes()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in sorted(archive.namelist()):
                    if _counts(PurePath(name), suffixes):
                        yield f"{path}/{name}", archive.read(name)
        elif path.suffix.lower() == ".zip" and path.exists():
            raise zipfile.BadZipFile("damaged, or not a zip")
        else:
            yield str(path), path.read_bytes()
    except _UNREADABLE as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _counts(name: PurePath, suffixes: tuple[str, ...]) -> bool:
    hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
    return not hidden and name.suffix.lower() in suffixes
