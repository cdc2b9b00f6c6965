"""The one reader of files, folders, zips and tars, packed (gzip, xz, bzip2) or not.

Archives come from anywhere: nothing is extracted under a name of theirs, the size that a member claims is compared with
`LARGEST` and with its packed size before memory is taken for it, and members are read one at a time.
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
"""Bytes of the largest file that is read, unpacked; an archive may hold eight times as many."""
RATIO, FREE = 200, 1 << 26
"""How many times its packed size a file or archive may have, unpacked; up to so many bytes it may have any size."""

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


def archive_of(name: str) -> str:
    """Return the part of a member's name up to the archive that holds it; empty if none does.

    >>> archive_of("old/bank.tar.gz/a/1.mrg"), archive_of("a/1.mrg")
    ('old/bank.tar.gz', '')
    """
    parts = PurePosixPath(name).parts[:-1]
    ends = [k for k, part in enumerate(parts, 1) if _ARCHIVE.search(part)]
    return "/".join(parts[: ends[0]]) if ends else ""


def is_archive(path: Path) -> bool:
    """Return whether a file is named as archives are, or is a zip."""
    return path.is_file() and bool(_ARCHIVE.search(path.name) or zipfile.is_zipfile(path))


def broken_link(path: Path) -> str:
    """Return what is wrong with a link that leads nowhere; empty if the path is none."""
    return f"a link to {path.readlink()}, which is not there" if path.is_symlink() and not path.exists() else ""


def _folder(folder: Path, stack: ExitStack, on_defect: _Report | None) -> dict[str, _Read]:
    """Return what reads each file of a folder, by name: its own files, then those of the archives in it."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    archives = [name for name in names if _ARCHIVE.search(name) and not _hidden(name)]
    content: dict[str, _Read] = {
        name: partial(_read, (folder / name).open, "rb", (folder / name).stat().st_size) for name in names
    }
    for archive in archives:
        del content[archive]
        with _readable(folder / archive, on_defect):
            inside = _content(folder / archive, stack)
            assert isinstance(inside, dict)
            content |= {f"{archive}/{name}": read for name, read in inside.items()}
    return content


def _content(path: Path, stack: ExitStack) -> dict[str, _Read] | _Read:
    """Return what reads each file of an archive, by name, or what reads the one file."""
    if broken := broken_link(path):
        raise OSError(broken)
    pipe = str(path) in _STDIN or (path.exists() and not path.is_file())
    file: io.BufferedReader[Any] = io.BufferedReader(io.BytesIO(_piped(path, sys.stdin))) if pipe else path.open("rb")
    stack.callback(file.close)
    named = _ARCHIVE.search(path.name)
    if (named and named[1]) or zipfile.is_zipfile(file):
        archive = stack.enter_context(zipfile.ZipFile(file))
        infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        whole = sum(info.file_size for info in infos.values())
        _check(whole, _most(sum(info.compress_size for info in infos.values()), 8 * LARGEST))
        return {name: partial(_read_zipped, archive, infos[name]) for name in sorted(infos)}
    file.seek(0)
    try:
        tar = _tar(file, stack)
    except tarfile.TarError:
        if named:
            raise
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        return partial(_read, lambda _: file, None, size)
    inside = {member.name: member for member in tar if member.isfile()}
    return {name: partial(_read, tar.extractfile, inside[name], inside[name].size, name) for name in sorted(inside)}


def _tar(file: io.BufferedReader, stack: ExitStack) -> tarfile.TarFile:
    """Return the tar that a file is; a packed one is unpacked first, to read its members in any order."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    plain = unpacked(file)
    tar = stack.enter_context(tarfile.TarFile(fileobj=plain))
    if plain is file:
        return tar
    whole = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=1 << 26))  # noqa: SIM115
    plain.seek(0)
    _copy(plain, whole, _most(size, 8 * LARGEST))
    whole.seek(0)
    return stack.enter_context(tarfile.TarFile(fileobj=whole))


@lru_cache(maxsize=1)
def _piped(path: Path, stdin: TextIO) -> bytes:
    """Return all that comes through a pipe: it comes once, but may be asked for again."""
    return stdin.buffer.read() if str(path) in _STDIN else path.read_bytes()


def _read(
    open_file: Callable[[Any], Any], how: object, size: int, inside: str = "", packed: int | None = None
) -> bytes:
    """Return the content, unpacked, of a file that claims to have a size; `inside`: its name in an archive."""
    if _ARCHIVE.search(inside):
        raise OSError("an archive inside an archive; unpack the outer one, and name the inner one")
    _check(size, LARGEST)
    data = io.BytesIO()
    with open_file(how) as file, io.BufferedReader(file) as buffered:
        _copy(unpacked(buffered), data, _most(size if packed is None else packed, LARGEST))
    return data.getvalue()


def _read_zipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.flag_bits & 1:
        raise OSError("encrypted; unpack it with its password, and name the folder")
    return _read(archive.open, info, info.file_size, info.filename, info.compress_size)


def _most(packed: int, largest: int) -> int:
    """Return how many bytes may come of so many packed ones."""
    return min(largest, max(FREE, RATIO * packed))


def _copy(source: IO[bytes], target: IO[bytes], most: int) -> None:
    """Copy a file of up to `most` bytes: more are an error."""
    while block := source.read(_BLOCK):
        target.write(block)
        _check(target.tell(), most)


def _check(size: int, most: int) -> None:
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
