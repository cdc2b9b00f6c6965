"""Minimal pairs from files: TSV with a header, or JSON lines; one file, or a folder or archive of them. No torch here.

A file or line that something is wrong with is reported, with its name and number, and left out; sentences that are the
same are reported and stay: a pair of them is a tie.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from onlstm.archive import Member, members
from onlstm.errors import UserError
from onlstm.paper.syntax.templates import SENTENCES, Item
from onlstm.records import from_json

Report = Callable[[str], object]
"""Is called with a line about a defect."""


class Line(NamedTuple):
    """A line that is as it should be."""

    place: str
    """File and line."""
    stem: str
    """The file's name, without its suffix."""
    record: Mapping[str, Any]
    sentences: tuple[str, ...]
    """Two or three, with single spaces."""


def read_pairs(path: str | Path, on_defect: Report) -> Iterator[Item]:
    """Yield the items in a file, a folder or an archive, by file name; there must be one.

    Columns or keys are template, condition, grammatical, intrusive (of triples only) and ungrammatical. Where no
    template is given it is the file's name. A final period is cut off. Of a template that begins with triples, pairs
    are left out, and the other way round.
    """
    names = [name + "?" * (name == "intrusive") for name in SENTENCES]
    widths = dict[str, int]()
    for line in read_lines(Path(path), names, on_defect, clean=lambda text: text.removesuffix(".").rstrip()):
        template, condition = (str(line.record.get(key) or "") for key in ("template", "condition"))
        item = Item(template or line.stem, condition, line.sentences)
        width = widths.setdefault(item.template, len(item.sentences))
        if width == len(item.sentences):
            yield item
        else:
            counts = f"{len(item.sentences)} sentences, but {item.template} began with {width}"
            on_defect(f"{line.place}: {counts}; left out")


def read_lines(
    path: Path, names: Sequence[str], on_defect: Report, *, table: bool = True, clean: Callable[[str], str] = str
) -> Iterator[Line]:
    """Yield the lines of a file, or of all in a folder or archive; there must be one.

    Args:
        names: the keys or columns of the sentences; with "?" at the end, one that may be missing.
        table: whether a file may be a table with a header, too (*.tsv).
        clean: makes a sentence what it should be.
    """
    needed = [name for name in names if not name.endswith("?")]
    empty = True
    for member in files(path, (".jsonl", ".tsv")[: 1 + table], on_defect):
        header = None if table and not member.name.lower().endswith(".jsonl") else list[str]()
        for number, raw in enumerate(member.data.removeprefix(BOM_UTF8).splitlines(), 1):
            place = f"{member.place}:{number}"
            try:
                require(b"\0" not in raw, "a NUL byte")
                text = raw.decode()
                if header is None and text.strip():
                    header = [] if text.startswith("{") else [name.strip().lower() for name in text.split("\t")]
                    if header and not set(needed) <= set(header):
                        on_defect(f"{place}: the file has no header with {', '.join(needed)}; left out")
                        break
                    text = "" if header else text
                if not text.strip():
                    continue
                record = _record(text, header or [])
                sentences = _sentences(record, names, clean)
            except ValueError as error:
                problem = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error
                on_defect(f"{place}: {problem}; left out")
                continue
            if len(set(sentences)) < len(sentences):
                on_defect(f"{place}: identical sentences, a tie")
            empty = False
            yield Line(place, PurePath(member.name).stem, record, sentences)
    if empty:
        kinds = "a TSV with a header or JSON lines (*.jsonl)" if table else "JSON lines (*.jsonl)"
        raise UserError(f"{path}: no pairs in it; {kinds} with {', '.join(needed)} are needed, or a folder of them")


def files(path: Path, suffixes: Sequence[str], on_defect: Report) -> Iterator[Member]:
    """Yield the files that end so, in a folder or an archive, by name; or the one file."""
    return members(
        path,
        lambda names: [name for name in names if PurePath(name).suffix.lower() in suffixes],
        lambda line: on_defect(f"{line}; left out"),
    )


def require(condition: object, problem: str) -> None:
    """Raise a `ValueError` about a line unless a condition holds."""
    if not condition:
        raise ValueError(problem)


def _record(text: str, header: Sequence[str]) -> dict[str, Any]:
    if header:
        fields = text.split("\t")
        require(len(fields) == len(header), f"{len(fields)} fields, but the header has {len(header)}")
        return dict(zip(header, fields, strict=True))
    try:
        record = from_json(text)
    except ValueError:
        raise ValueError("broken JSON") from None
    require(isinstance(record, dict), "no JSON object")
    require(not any(re.search("[\ud800-\udfff]", str(value)) for value in record.values()), "half a character (\\ud…)")
    return dict(record)


def _sentences(record: Mapping[str, Any], names: Sequence[str], clean: Callable[[str], str]) -> tuple[str, ...]:
    sentences = []
    for name in names:
        value = record.get(name.removesuffix("?"))
        if value is not None or not name.endswith("?"):
            sentences.append(clean(" ".join(value.split())) if isinstance(value, str) else "")
            require(sentences[-1], f"no text in {name.removesuffix('?')}")
    return tuple(sentences)
