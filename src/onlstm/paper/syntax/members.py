"""Files of pairs, alone or in a folder or zip, and their lines: JSON, or a table with tabs. No torch here.

A file or line that something is wrong with is reported, with its name and number, and left out; sentences that are the
same are reported and stay: a pair of them is a tie.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from onlstm import archive
from onlstm.errors import UserError

Say = Callable[[str], object]
"""Is told of defects, a line each."""


class Line(NamedTuple):
    """A line that is as it should be."""

    place: str
    """File and line."""
    stem: str
    """The file's name, without its ending."""
    record: Mapping[str, Any]
    """All of it."""
    sentences: tuple[str, ...]
    """Its two or three sentences, with single blanks."""


def members(path: Path, suffixes: Sequence[str], say: Say) -> Iterator[tuple[str, bytes]]:
    """Yield the place and bytes of each file that ends so, in a folder or an archive, by name; or of the one file."""

    def select(names: list[str]) -> list[str]:
        return [name for name in names if PurePath(name).suffix.lower() in suffixes]

    for member in archive.members(path, select, lambda line: say(f"{line}; left out")):
        yield member.place, member.data


def read_lines(
    path: Path, names: Sequence[str], say: Say, *, table: bool = True, clean: Callable[[str], str] = str
) -> Iterator[Line]:
    """Yield the lines of a file, or of all in a folder or zip; there must be one.

    Args:
        names: the keys or columns of the sentences; with "?" at the end, one that may be missing.
        table: whether a file may be a table with a header, too (*.tsv).
        clean: makes a sentence what it should be.
    """
    needed = [name for name in names if not name.endswith("?")]
    columns = f"a TSV with the header {', '.join(needed)} or " if table else ""
    layout = f"{columns}JSON lines with {'these keys' if table else ' and '.join(needed)} in files *.jsonl"
    found = False
    for name, data in members(path, [".jsonl", ".tsv"][: 1 + table], say):
        for number, record in _records(data, needed, table and not name.lower().endswith(".jsonl")):
            place = f"{name}:{number}"
            sentences = record if isinstance(record, str) else _sentences(record, names, clean)
            if isinstance(sentences, str) or isinstance(record, str):
                say(f"{place}: {sentences}; left out")
                continue
            if len(set(sentences)) < len(sentences):
                say(f"{place}: identical sentences, a tie")
            found = True
            yield Line(place, PurePath(name).stem, record, sentences)
    if not found:
        raise UserError(f"{path}: no pairs in it; {layout} are needed, or a folder or zip of such files")


def _records(data: bytes, needed: Sequence[str], table: bool) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield the number and content of each line that is not blank, or what is wrong with it."""
    header: list[str] | None = None if table else []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            yield number, "not UTF-8"
            continue
        if not line.strip():
            continue
        if header is None:
            header = [] if line.startswith("{") else [name.strip().lower() for name in line.split("\t")]
            if header and not set(needed) <= set(header):
                yield number, f"the file has no header with {', '.join(needed)}"
                return
            if header:
                continue
        yield number, _record(line, header)


def _record(line: str, header: list[str]) -> dict[str, Any] | str:
    if header:
        fields = line.split("\t")
        if len(fields) != len(header):
            return f"{len(fields)} fields, but the header has {len(header)}"
        return dict(zip(header, fields, strict=True))
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "broken JSON"
    if not isinstance(record, dict):
        return "no JSON object"
    lone = any(isinstance(value, str) and re.search("[\ud800-\udfff]", value) for value in record.values())
    return "half a character (\\ud…)" if lone else record


def _sentences(record: Mapping[str, Any], names: Sequence[str], clean: Callable[[str], str]) -> tuple[str, ...] | str:
    """Return the sentences, or which is missing."""
    found = []
    for name in names:
        value = record.get(name.removesuffix("?"))
        if value is None and name.endswith("?"):
            continue
        found.append(clean(" ".join(value.split())) if isinstance(value, str) else "")
        if not found[-1]:
            return f"no text in {name.removesuffix('?')}"
    return tuple(found)
