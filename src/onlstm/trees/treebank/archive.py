"""The files of a treebank, in a folder or an archive, and their text."""

import codecs
import io
import lzma
import re
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal, TextIO

from onlstm.archive import unpacked
from onlstm.errors import UserError
from onlstm.trees.tree import TreebankError
from onlstm.trees.treebank.profile import Profile, matcher

Split = Literal["all", "wsj10", "test", "valid"]

_SECTIONS = {"test": "23", "valid": "22"}
_WSJ_FILE = re.compile(r"wsj_(\d\d)\d\d\.[^/]*", re.IGNORECASE)
_UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error)
_ARCHIVES = {"zip", "tar", "tgz", "txz", "tbz2"}
_PACKED_NAME = re.compile(r"\.(gz|xz|bz2)$", re.IGNORECASE)
_STDIN = ("-", "/dev/stdin")
_MOST_UNDECODED = 0.001  # of a file's characters; letters with accents are more, even in text that is mostly brackets


def read_files(path: Path, profile: Profile, split: Split) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes, unpacked, of each file of the split, sorted by name; there must be one."""
    try:
        with ExitStack() as stack:
            files = _files(path, stack)
            for name in _of_split(_of_profile(files, profile), split, path):
                yield name, unpacked(io.BufferedReader(io.BytesIO(files[name]()))).read()
    except _UNREADABLE as error:
        raise UserError(f"cannot read the treebank {path}: {getattr(error, 'strerror', None) or error}") from error


def decoded(name: str, data: bytes, profile: Profile, strict: bool) -> str:
    """Return a file's text; if not `strict`, a few bytes may be wrong and become lone surrogates."""
    encoding = profile.encoding or "utf-8"
    data = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        text = data.decode(encoding, "surrogateescape")
        if strict or sum("\udc80" <= c <= "\udcff" for c in text) > _MOST_UNDECODED * len(text):
            line = data.count(b"\n", 0, error.start) + 1
            what = f"not {profile.encoding or 'UTF-8'}, as profile {profile.name} expects"
            raise TreebankError(f"{name}:{line}: {what}; choose one with the right encoding, or write it") from None
        return text


def _files(path: Path, stack: ExitStack) -> dict[str, Callable[[], bytes]]:
    """Return by name what reads each file in a folder or an archive, or the one file."""
    if path.is_dir():
        return {file.relative_to(path).as_posix(): file.read_bytes for file in path.rglob("*") if file.is_file()}
    file = stack.enter_context(_opened(path))
    if zipfile.is_zipfile(file):
        archive = stack.enter_context(zipfile.ZipFile(file))
        return {info.filename: partial(archive.read, info) for info in archive.infolist() if not info.is_dir()}
    file.seek(0)
    is_tar = tarfile.is_tarfile(file)
    file.seek(0)
    if is_tar:
        tar = stack.enter_context(tarfile.TarFile.open(fileobj=file))
        inside = ((member.name, tar.extractfile(member)) for member in tar if member.isfile())
        return {name: content.read for name, content in inside if content}
    if _ARCHIVES.intersection(path.name.lower().split(".")[-2:]):
        raise OSError("a damaged archive, or none")
    return {"standard input" if str(path) in _STDIN else path.name: file.read}


def _opened(path: Path) -> BinaryIO:
    pipe = str(path) in _STDIN or (path.exists() and not path.is_file())
    return io.BytesIO(_piped(path, sys.stdin)) if pipe else path.open("rb")


@lru_cache(maxsize=1)
def _piped(path: Path, stdin: TextIO) -> bytes:
    """Return all that comes through a pipe; it comes once, but is asked for again with another profile."""
    return stdin.buffer.read() if str(path) in _STDIN else path.read_bytes()


def _of_profile(names: Iterable[str], profile: Profile) -> list[str]:
    """Return the names that match the first of the profile's patterns that any does, sorted; else all but READMEs."""
    seen = sorted(name for name in names if not any(part[:1] in "._" for part in PurePosixPath(name).parts))
    for pattern in profile.files:
        fits = matcher((pattern.lower(),))
        if chosen := [name for name in seen if fits(_PACKED_NAME.sub("", PurePosixPath(name).name.lower()))]:
            return chosen
    return [name for name in seen if not PurePosixPath(name).name.lower().startswith("readme")]


def _of_split(names: list[str], split: Split, path: Path) -> list[str]:
    """Return the names that belong to the split; there must be one."""
    if not names:
        raise UserError(f"no treebank files in {path}")
    if split == "all":
        return names
    sections = {name: match[1] for name in names if (match := _WSJ_FILE.fullmatch(PurePosixPath(name).name))}
    if split == "wsj10":
        return list(sections) or names
    chosen = [name for name, section in sections.items() if section == _SECTIONS[split]]
    if not chosen:
        there = f"its sections are {', '.join(sorted(set(sections.values())))}" if sections else "no file is named so"
        raise UserError(f"{path}: split {split} is wsj_{_SECTIONS[split]}….mrg, but {there}; choose split all or wsj10")
    return chosen
