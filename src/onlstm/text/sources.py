"""Text files: which part of a corpus they hold, their lines, and the profile that suits them."""

import gzip
import io
import lzma
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from onlstm.archive import broken_link, is_archive, unpacked
from onlstm.errors import UserError
from onlstm.text import conllu
from onlstm.text.config import TextConfig
from onlstm.text.rules import UNK, Rules, rules

SPLITS = ("train", "valid", "test")
LONGEST = 32 << 20
"""Bytes of the longest line that is read."""
_BLOCK = 1 << 20
_NAMES = {"train": "train(?:ing)?", "valid": "valid(?:ation)?|dev(?:el)?|val|heldout", "test": "test(?:ing)?"}
_HAN = "\u3041-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"  # and kana
_BETWEEN = re.compile(rf"(?<=[{_HAN}])\s+(?=[{_HAN}])")
_CONLLU = re.compile(r"\.conllu(?:\.(?:gz|xz|bz2))?$", re.IGNORECASE)
_BLANKS = re.compile("[ \t]+")
_NOT_TEXT = re.compile(
    r"\.|readme|licen[cs]e|.*\.(jsonl?|md|rst|ya?ml|toml|py|html?|pdf|zip|ids|sha256)$", re.IGNORECASE
)


def name_of(*paths: str | Path) -> str:
    """Return what messages call a file, or several; `-` is the standard input."""
    return ", ".join("standard input" if str(path) == "-" else str(path) for path in paths)


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines, without their ends, of a file, plain, `.gz`, `.xz` or `.bz2`, or of the standard input (`-`).

    UTF-8, with or without a byte-order mark; anything else is a `UserError` that names file and line. A sentence of
    CoNLL-U is one line, a `ConlluLine`.
    """
    return chain.from_iterable(read_blocks(path))


def read_inputs(inputs: Iterable[Path | str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of files (paths) and of sentences (strings), each with a message if it is not UTF-8."""
    for source in inputs:
        defects: dict[int, str] = {}
        typed = source.encode("utf-8", "surrogateescape") if isinstance(source, str) else None
        blocks = read_blocks(source, defects) if typed is None else [_decoded(typed, "sentence", 1, defects) or [""]]
        for number, line in enumerate(chain.from_iterable(blocks), 1):
            yield line, defects.pop(number, "")


def blank_separated(line: str) -> list[str]:
    """Return the words of a line that has blanks between them; other whitespace is part of a word."""
    return [word for word in _BLANKS.split(line) if word]


def read_blocks(path: str | Path, defects: dict[int, str] | None = None, name: str = "") -> Iterator[list[str]]:
    """Yield the lines as `read_lines` does, a megabyte at a time; those of the standard input, as they come.

    Args:
        defects: gets an entry, by line number from 1, for every line that is not UTF-8, before it is yielded with
            replacement characters; by default such a line is an error.
        name: what messages call the file.
    """
    name, head = name or name_of(path), list[str]()
    blocks = _blocks(path, defects, name)
    for lines in blocks:
        head += lines
        if conllu.is_conllu(head) is not None:
            break
    blocks = chain([head] if head else [], blocks)
    if conllu.is_conllu(head) or _CONLLU.search(name):
        blocks = conllu.sentences(blocks, name, {} if defects is None else defects)
    yield from blocks


def _blocks(path: str | Path, defects: dict[int, str] | None, name: str) -> Iterator[list[str]]:
    """Yield the lines of a file, whatever they hold."""
    number = 1
    try:
        with ExitStack() as stack:
            file: Any = sys.stdin.buffer if str(path) == "-" else stack.enter_context(Path(path).open("rb"))
            if not isinstance(file, io.BufferedReader):  # a standard input in memory
                file = io.BufferedReader(file)
                stack.callback(file.detach)  # which stays open
            text: Any = unpacked(file)
            read = text.read1 if str(path) == "-" else text.read  # read1 does not wait for all of a block
            while data := read(_BLOCK):
                if not data.endswith(b"\n"):
                    data += text.readline(LONGEST)
                lines = _decoded(data, name, number, defects)
                number += len(lines)
                if len(data) > LONGEST and not data.endswith(b"\n"):
                    long = f"a line of more than {LONGEST >> 20} MB"
                    raise UserError(f"{name}:{number - 1}: {long}; put one sentence on a line")
                yield lines
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{name}: broken or truncated archive ({error}); download or compress it again") from None
    except FileNotFoundError:
        raise UserError(f"{name}: no such file; check the name") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error}); check its permissions") from None


def _decoded(data: bytes, name: str, first: int, defects: dict[int, str] | None) -> list[str]:
    """Return the lines of a block whose first line has the number `first`."""
    utf16 = _utf16(data, first == 1)
    if utf16 and utf16 != "utf-16":
        raise UserError(f"{name}: UTF-16 without a byte-order mark; convert it: iconv -f {utf16} -t utf-8")
    lines = []
    for number, line in enumerate(data.splitlines(), first):
        if b"\0" in line and not utf16:
            column = line.index(b"\0") + 1
            raise UserError(f"{name}:{number}: not text (a NUL byte at column {column}); delete it: tr -d '\\000'")
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            column = len(line[: error.start].decode("utf-8")) + 1
            message = f"{name}:{number}: not UTF-8 (byte 0x{line[error.start]:02x} at column {column}); "
            message += f"convert it: iconv -f {utf16 or 'latin1'} -t utf-8"
            if defects is None or utf16:
                raise UserError(message) from None
            defects[number] = message
            lines.append(line.decode("utf-8", "replace"))
    if first == 1 and lines:
        lines[0] = lines[0].removeprefix("\ufeff")
    return lines


def _utf16(data: bytes, is_start: bool) -> str:
    """Return the kind of UTF-16 that a block is, by its byte-order mark or its NUL bytes; empty if it is none.

    >>> _utf16("dogs bark".encode("utf-16-be"), True), _utf16(b"dogs\\0bark", True)
    ('utf-16be', '')
    """
    if is_start and data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if data.count(0) < 2:
        return ""
    marks = {}
    for kind in ("utf-16le", "utf-16be"):
        text = data[: len(data) // 2 * 2].decode(kind, "replace")
        marks[kind] = len(re.findall("[\t\n ,.，。、]", text)) / len(text)
    likelier = max(marks, key=marks.__getitem__)
    return likelier if marks[likelier] > 0.01 else ""


def text_files(sources: Sequence[str | Path]) -> list[Path]:
    """Return the files that `sources` name: files themselves, and the text files in folders, sorted.

    Of NAME.conllu and NAME.txt in a folder, as in Universal Dependencies, the second is left out: it is the same text.
    """
    if not sources:
        raise UserError("no text: name a file, a folder or - for the standard input")
    paths: list[Path] = []
    for source in map(Path, sources):
        if not source.is_dir():
            if broken := broken_link(source):
                raise UserError(f"{source}: {broken}; mend the link, or name the file itself")
            if is_archive(source):
                raise UserError(f"{source}: an archive, not text; unpack it, and name the folder")
            if str(source) != "-" and not source.exists():
                raise UserError(f"{source}: no such file or folder; check the name")
            paths.append(source)
            continue
        try:
            inside = sorted(path for path in source.iterdir() if path.is_file() and not _NOT_TEXT.match(path.name))
        except OSError as error:
            raise UserError(f"{source}: cannot be read ({error.strerror}); check its permissions") from None
        inside = [path for path in inside if path.suffix != ".txt" or path.with_suffix(".conllu") not in inside]
        if not inside and (archives := sorted(path.name for path in source.iterdir() if is_archive(path))):
            raise UserError(f"{source}: no text file in this folder, but archives such as {archives[0]}; unpack them")
        if not inside:
            raise UserError(f"{source}: no text file in this folder; name the files themselves")
        paths += inside
    return list(dict.fromkeys(paths))


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Which files hold which part of a corpus."""

    files: dict[str, list[Path]]
    """Files of `train`, `valid` and `test`, in reading order; a part may have none."""
    held_out: tuple[str, ...]
    """Parts that have no file of their own and are held out of the training text."""
    notes: tuple[str, ...]
    """What was decided, in lines."""


def find_sources(sources: Sequence[str | Path]) -> Sources:
    """Return the files of each part by their names; if these do not tell, all files are one text."""
    paths = text_files(sources)
    for before, after, least in (("(?<![a-z])", "(?![a-z])", 1), ("", "", 2)):
        files: dict[str, list[Path]] = {split: [] for split in SPLITS}
        for path in paths:
            for split, name in _NAMES.items():
                if re.search(f"{before}(?:{name}){after}", path.name.lower()):
                    files[split].append(path)
                    break
        if len(paths) > 1 and files["train"] and sum(map(bool, files.values())) >= least:
            break
    else:
        files = {"train": paths, "valid": [], "test": []}
    notes = [f"{split}: {name_of(*some)}" for split, some in files.items() if some]
    if unused := [path for path in paths if path not in chain.from_iterable(files.values())]:
        notes.append(f"not used, the name says neither train, valid nor test: {name_of(*unused)}")
    notes += [f"{path}: empty" for path in paths if path.is_file() and not path.stat().st_size]
    held_out = () if files["valid"] else ("valid",) if files["test"] else ("valid", "test")
    if held_out:
        notes.append(f"split: 5 % of the lines are held out for {' and 5 % for '.join(held_out)}")
    return Sources(files=files, held_out=held_out, notes=tuple(notes))


def parts_of_lines(total: int, held_out: Sequence[str]) -> Callable[[int], str]:
    """Return a function from a line, counted from 0, to its part: train, or one of `held_out` (valid and test).

    Of 20 blocks of up to 100 lines the 10th is for validation and the 20th for test; of a short text, the last lines.
    """
    if total < 20:
        last = dict(zip(range(total - len(held_out), total), held_out, strict=True))
        return lambda line: last.get(line, "train")
    block = max(1, min(100, total // 200))
    places = {place: part for place, part in ((9, "valid"), (19, "test")) if part in held_out}
    return lambda line: places.get(line // block % 20, "train")


def choose_rules(config: TextConfig, lines: Iterable[str]) -> tuple[Rules, str]:
    """Return the rules of the profile and why it is this one; the first thousand lines decide for "auto"."""
    profile, reason = str(config.profile), "as requested"
    if profile == "auto":
        profile, reason = suitable_profile(() if config.punctuation else islice(lines, 1000))
    return rules(profile, config.punctuation), reason


def suitable_profile(lines: Iterable[str]) -> tuple[str, str]:
    """Return pretokenized for lines that are split into words already, else generic, and why.

    Spaces between words of Chinese characters or kana split lines, too: such text has none unless it is segmented.

    >>> suitable_profile(["the old man , he said , ca n't hear ."])
    ('pretokenized', "n't stands as a word")
    """
    lines = list(lines)
    if any(isinstance(line, conllu.ConlluLine) for line in lines):
        return "pretokenized", "the words are those of CoNLL-U"
    if is_segmented(lines):
        return "pretokenized", "spaces stand between Chinese or Japanese words"
    words = Counter(word for line in lines for word in line.split())
    for sign in (UNK, "@-@", "@,@", "n't", "-LRB-"):
        if words[sign]:
            return "pretokenized", f"{sign} stands as a word"
    spaced = words[","] + words["."]
    attached = sum(count for word, count in words.items() if len(word) > 1 and word.endswith(","))
    if spaced >= 3 and spaced > 10 * attached:
        return "pretokenized", "punctuation stands apart from words"
    return "generic", "the text does not look tokenised"


def is_segmented(lines: Sequence[str]) -> bool:
    """Return whether lines are mostly Chinese or Japanese, with spaces between words.

    >>> is_segmented(["我 喜欢 猫 。", "猫 在 睡觉"]), is_segmented(["我喜欢猫。 猫在睡觉"]), is_segmented(["a 猫 b"])
    (True, False, False)
    """
    text = "\n".join(lines)
    signs = sum(map(len, re.findall(f"[{_HAN}]+", text)))
    spaces = sum(len(_BETWEEN.findall(line)) for line in lines)
    return signs > 0.3 * sum(map(str.isalpha, text)) and 6 * spaces > signs
