"""The one reader of files, folders, zips and tars, packed (gzip, xz, bzip2) or not.

Archives come from anywhere: nothing is extracted under a name of theirs, the size that a member claims is compared with
`LARGEST` before memory is taken for it, and members are read one at a time.
"""

import bz2
import gzip
import io
import lzma
import re
import struct
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple, TextIO

from onlstm.errors import UserError

LARGEST = 1 << 30
"""Bytes of the largest file that is read, unpacked; a packed tar may hold eight times as many."""

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, struct.error, OverflowError)
_UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, *_BROKEN)
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open}
_ARCHIVE = re.compile(r"\.(?:(zip)|tar(?:\.gz|\.xz|\.bz2)?|tgz|txz|tbz2?)$", re.IGNORECASE)
_STDIN = ("-", "/dev/stdin")
_BLOCK = 1 << 16  # small: what bzip2 in a zip makes of a block comes all at once

_Read = Callable[[], bytes]
_Report = Callable[[str], object]


class Member(NamedTuple):
    """A file in a folder or an archive, or the one file."""

    name: str
    """Its path inside, with slashes; for a file in an archive in a folder this begins with the archive's name."""
    place: str
    """Where it is, for messages."""
    data: bytes
    """Its content, unpacked."""


def members(
    path: Path, select: Callable[[list[str]], Iterable[str]] = list, on_defect: _Report | None = None
) -> Iterator[Member]:
    """Yield the files of a folder, a zip or a tar, by name, or the one file; `-` is the standard input.

    Hidden files and macOS's `__MACOSX` do not count. Archives in a folder come after its own files, and what has the
    name and content of an earlier file is left out.

    Args:
        select: returns the names to read, in reading order, from all names, which are sorted; one file is always read.
        on_defect: called with a line about each file or archive inside `path` that cannot be read or is there twice;
            it is left out. By default one that cannot be read is a `UserError`; `path` itself always is.
    """
    with ExitStack() as stack:
        with _readable(path):
            content = _folder(path, stack, on_defect) if path.is_dir() else _content(path, stack)
            if not isinstance(content, dict):
                yield Member("standard input" if str(path) in _STDIN else path.name, str(path), content())
                return
        earlier = dict[tuple[str, int], str]()
        for name in select([name for name in content if not _hidden(name)]):
            place = f"{path}/{name}"
            with _readable(place, on_defect):
                data = content[name]()
                first = earlier.setdefault((PurePosixPath(name).name, hash(data)), place)
                if first == place or not path.is_dir() or (path / name).exists():
                    yield Member(name, place, data)
                elif on_defect:
                    on_defect(f"{place}: the same as {first}")


def unpacked(file: io.BufferedReader) -> BinaryIO:
    """Return the file, decompressed if it is packed; that is told by its first bytes, not by its name."""
    head = file.peek(6)
    return next((unpack(file) for magic, unpack in _PACKED.items() if head.startswith(magic)), file)


def _folder(folder: Path, stack: ExitStack, on_defect: _Report | None) -> dict[str, _Read]:
    """Return what reads each file of a folder, by name: its own files, then those of the archives in it."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    archives = [name for name in names if _ARCHIVE.search(name) and not _hidden(name)]
    content: dict[str, _Read] = {name: partial(_read, (folder / name).open, "rb") for name in names}
    for archive in archives:
        del content[archive]
        with _readable(folder / archive, on_defect):
            inside = _content(folder / archive, stack)
            assert isinstance(inside, dict)
            content |= {f"{archive}/{name}": read for name, read in inside.items()}
    return content


def _content(path: Path, stack: ExitStack) -> dict[str, _Read] | _Read:
    """Return what reads each file of an archive, by name, or what reads the one file."""
    pipe = str(path) in _STDIN or (path.exists() and not path.is_file())
    file: io.BufferedReader[Any] = io.BufferedReader(io.BytesIO(_piped(path, sys.stdin))) if pipe else path.open("rb")
    stack.callback(file.close)
    named = _ARCHIVE.search(path.name)
    if (named and named[1]) or zipfile.is_zipfile(file):
        archive = stack.enter_context(zipfile.ZipFile(file))
        infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        return {name: partial(_read, archive.open, infos[name], infos[name].file_size) for name in sorted(infos)}
    file.seek(0)
    try:
        tar = _tar(file, stack)
    except tarfile.TarError:
        if named:
            raise
        file.seek(0)
        return partial(_read, lambda _: file, None)
    inside = {member.name: member for member in tar if member.isfile()}
    return {name: partial(_read, tar.extractfile, inside[name], inside[name].size) for name in sorted(inside)}


def _tar(file: io.BufferedReader, stack: ExitStack) -> tarfile.TarFile:
    """Return the tar that a file is; a packed one is unpacked first, to read its members in any order."""
    plain = unpacked(file)
    tar = stack.enter_context(tarfile.TarFile(fileobj=plain))
    if plain is file:
        return tar
    whole = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=1 << 26))  # noqa: SIM115
    plain.seek(0)
    _copy(plain, whole, 8 * LARGEST)
    whole.seek(0)
    return stack.enter_context(tarfile.TarFile(fileobj=whole))


@lru_cache(maxsize=1)
def _piped(path: Path, stdin: TextIO) -> bytes:
    """Return all that comes through a pipe: it comes once, but may be asked for again."""
    return stdin.buffer.read() if str(path) in _STDIN else path.read_bytes()


def _read(open_file: Callable[[Any], Any], how: object, size: int = 0) -> bytes:
    """Return the content of a file that claims to have a size, unpacked."""
    data = io.BytesIO()
    with open_file(how) as file, io.BufferedReader(file) as buffered:
        _copy(unpacked(buffered), data, LARGEST, size)
    return data.getvalue()


def _copy(source: IO[bytes], target: IO[bytes], most: int, size: int = 0) -> None:
    """Copy a file that claims to have a size, up to `most` bytes: more are an error."""
    while size <= most and (block := source.read(_BLOCK)):
        size = target.tell() + len(block)
        target.write(block)
    if size > most:
        raise OSError(f"more than {most >> 20:,} MB, unpacked")


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)


@contextmanager
def _readable(place: str | Path, on_defect: _Report | None = None) -> Iterator[None]:
    """Make what cannot be read in this block one line for `on_defect`, or a `UserError`."""
    try:
        yield
    except _UNREADABLE as error:
        line = f"cannot read {place}: {getattr(error, 'strerror', None) or error}"
        if on_defect is None:
            raise UserError(line) from None
        on_defect(line)
