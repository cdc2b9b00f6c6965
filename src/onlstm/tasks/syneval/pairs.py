"""Minimal pairs from files: TSV with a header, or JSON lines; one file, or a folder or zip of them. No torch here.

Columns or keys are template, condition, grammatical, intrusive (of triples only) and ungrammatical; the first two may
be missing. A line or file that something is wrong with is reported and left out.
"""

import json
import logging
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from onlstm.errors import UserError
from onlstm.tasks.syneval.generator import Item
from onlstm.tasks.syneval.spec import SENTENCES

_LAYOUT = "a TSV with the header template, condition, grammatical, ungrammatical or JSON lines with these keys"
_UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


class _Source(NamedTuple):
    """A file, or a member of a zip."""

    file: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.file}/{self.member}" if self.member else str(self.file)

    def lines(self) -> Iterator[bytes]:
        if self.member:
            with zipfile.ZipFile(self.file) as archive, archive.open(self.member) as member:
                yield from member
        else:
            with self.file.open("rb") as file:
                yield from file


def read_pairs(path: str | Path, on_defect: Callable[[str], object] | None = None) -> Iterator[Item]:
    """Yield the items in a file, a folder or a zip, file by file in the order of their names; there must be one.

    Where no template is given it is the file's name. Blanks become single, and a final period is cut off.

    Args:
        on_defect: called with file, line and what is wrong with it: sentences that are missing or the same, broken
            JSON, a TSV without a header, a pair among triples of the same template. By default they are logged.
    """
    report: Callable[[str], object] = on_defect or logging.getLogger(__name__).warning
    widths = dict[str, int]()
    for source in _sources(Path(path)):
        number = 0
        try:
            for number, item in _items(source):
                if isinstance(item, str):
                    report(f"{source}:{number}: {item}")
                elif (width := widths.setdefault(item.template, len(item.sentences))) != len(item.sentences):
                    report(
                        f"{source}:{number}: {len(item.sentences)} sentences, but {item.template} began with {width}"
                    )
                else:
                    yield item
        except _UNREADABLE as error:
            report(f"{source}:{number + 1}: cannot be read: {getattr(error, 'strerror', None) or error}")
    if not widths:
        raise UserError(f"{path}: no pairs in it; {_LAYOUT} is needed, or a folder or zip of such files")


def _sources(path: Path) -> list[_Source]:
    """Return the files of pairs at a path, in folders and zips too."""
    try:
        if path.is_dir():
            inside = sorted(
                file for file in path.rglob("*") if file.is_file() and _is_data(file.relative_to(path), ".zip")
            )
            return [source for file in inside for source in _sources(file)]
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                return [_Source(path, name) for name in sorted(archive.namelist()) if _is_data(PurePath(name))]
        with path.open("rb"):
            return [_Source(path)]
    except _UNREADABLE as error:
        raise UserError(f"cannot read the pairs in {path}: {getattr(error, 'strerror', None) or error}") from None


def _is_data(name: PurePath, *more: str) -> bool:
    hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
    return not hidden and name.suffix.lower() in (".tsv", ".jsonl", *more)


def _items(source: _Source) -> Iterator[tuple[int, Item | str]]:
    """Yield the number of each line that counts, with its item or what is wrong with it."""
    template = PurePath(source.member or source.file).stem
    header: list[str] | None = [] if str(source).lower().endswith(".jsonl") else None
    for number, raw in enumerate(source.lines(), 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            yield number, "not UTF-8"
            continue
        if not line.strip():
            continue
        if header is None:
            header = [] if line.startswith("{") else [name.strip().lower() for name in line.split("\t")]
            if header and not {"grammatical", "ungrammatical"} <= set(header):
                yield number, f"no header; {_LAYOUT} is needed, so the file is left out"
                return
            if header:
                continue
        record = _of_fields(line, header) if header else _of_json(line)
        yield number, record if isinstance(record, str) else _item(record, template)


def _of_fields(line: str, header: list[str]) -> dict[str, str] | str:
    fields = line.split("\t")
    if len(fields) != len(header):
        return f"{len(fields)} fields, but the header has {len(header)}"
    return dict(zip(header, fields, strict=True))


def _of_json(line: str) -> dict[str, Any] | str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "broken JSON"
    return record if isinstance(record, dict) else "no JSON object"


def _item(record: Mapping[str, Any], template: str) -> Item | str:
    """Return the item, or what is wrong with it."""
    sentences = []
    for name in SENTENCES:
        value = record.get(name)
        if value is None and name == "intrusive":
            continue
        sentences.append(" ".join(value.split()).removesuffix(".").rstrip() if isinstance(value, str) else "")
        if not sentences[-1]:
            return f"no {name} sentence"
    if len(set(sentences)) < len(sentences):
        return "identical sentences"
    return Item(str(record.get("template") or template), str(record.get("condition") or ""), tuple(sentences))
