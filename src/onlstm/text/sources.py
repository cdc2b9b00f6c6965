"""From files to numbers: which files are for what, their lines, the pieces of a line, the words of a piece.

A text is mostly the same pieces again (what stands between blanks). So each piece is written as a number, the
tokenizer looks at each distinct piece once, and the numbers are then replaced by the ids of its words.
"""

import gzip
import io
import lzma
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from onlstm.archive import unpacked
from onlstm.errors import UserError
from onlstm.text.tokenizer import UNK, Tokenizer, alone, pieces, words_of

Ids = NDArray[np.unsignedinteger[Any]]
Numbers = NDArray[np.uint32]

SPLITS = ("train", "valid", "test")
LONGEST = 32 << 20
"""Bytes of the longest line that is read."""
_BLOCK = 1 << 20
_NAMES = {"train": "train(?:ing)?", "valid": "valid(?:ation)?|dev(?:el)?|val|heldout", "test": "test(?:ing)?"}
_NOT_TEXT = re.compile(
    r"\.|readme|licen[cs]e|.*\.(jsonl?|md|rst|ya?ml|toml|py|html?|pdf|zip|ids|sha256)$", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Which files hold which part of the text."""

    files: dict[str, list[Path]]
    """Files of `train`, `valid` and `test`, in reading order; a part may have none."""
    carve: tuple[str, ...]
    """Parts that have no file of their own and are cut out of the training text."""
    notes: tuple[str, ...]
    """What was decided, a line each."""


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines, without their ends, of a file, plain, `.gz`, `.xz` or `.bz2`, or the standard input (`-`).

    UTF-8, with or without a byte-order mark; anything else is a `UserError` that names file and line.
    """
    return chain.from_iterable(read_blocks(path))


def read_blocks(path: str | Path, broken: list[str] | None = None) -> Iterator[list[str]]:
    """Yield the lines as `read_lines` does, a megabyte at a time; what is not UTF-8 is noted in `broken`, if given."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        with ExitStack() as stack:
            yield from _blocks(_opened(path, stack), name, broken)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{name}: broken or truncated archive ({error}); fetch or pack it again") from None
    except FileNotFoundError:
        raise UserError(f"{name}: no such file; check the name") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error}); check its permissions") from None


def text_files(sources: Sequence[str | Path]) -> list[Path]:
    """Return the files that `sources` name: themselves, and what text files their folders hold, sorted."""
    if not sources:
        raise UserError("no text: name a file, a folder or - for the standard input")
    found: list[Path] = []
    for source in map(Path, sources):
        if not source.is_dir():
            if str(source) != "-" and not source.exists():
                raise UserError(f"{source}: no such file or folder; check the name")
            found.append(source)
            continue
        try:
            inside = sorted(path for path in source.iterdir() if path.is_file() and not _NOT_TEXT.match(path.name))
        except OSError as error:
            raise UserError(f"{source}: cannot be read ({error.strerror}); check its permissions") from None
        if not inside:
            raise UserError(f"{source}: no text file in this folder; name the files themselves")
        found += inside
    return list(dict.fromkeys(found))


def find_sources(sources: Sequence[str | Path]) -> Sources:
    """Return which files are for what: by their names, else all are one text, of which parts are to be carved off."""
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
    notes = [f"{split}: {', '.join(map(str, some))}" for split, some in files.items() if some]
    unused = [path for path in paths if path not in chain.from_iterable(files.values())]
    if unused:
        notes.append(f"not used, the name says neither train, valid nor test: {', '.join(map(str, unused))}")
    carve = () if files["valid"] else ("valid",) if files["test"] else ("valid", "test")
    return Sources(files=files, carve=carve, notes=tuple(notes))


@dataclass(frozen=True, kw_only=True)
class Carver:
    """Deals lines out: of every 20 blocks number 9 is for validation and 19 for test; the last ones of a short text."""

    lines: int
    parts: tuple[str, ...]
    """What to carve off: "valid", or "valid" and "test"."""

    def __post_init__(self) -> None:
        if self.lines <= len(self.parts):
            raise UserError(
                f"only {self.lines} line{'s' * (self.lines != 1)} of text: {len(self.parts) + 1} are needed at least, "
                f"for {', '.join(('train', *self.parts))}; add text, or put one sentence on a line"
            )

    @property
    def block(self) -> int:
        """Neighbouring lines that stay together."""
        return max(1, min(100, self.lines // 200))

    def __call__(self, line: int) -> str:
        """Return the part that a line, counted from 0, belongs to."""
        if self.lines < 20:
            from_end = line - self.lines + len(self.parts)
            return self.parts[from_end] if from_end >= 0 else "train"
        place = line // self.block % 20
        split = {9: "valid", 19: "test"}.get(place, "train")
        return split if split in self.parts else "train"


def looks_tokenised(lines: Iterable[str]) -> str:
    """Return why a text looks as if its words were split already; empty if it does not.

    >>> looks_tokenised(["the old man , he said , ca n't hear ."])
    "n't stands as a word"
    """
    words = Counter(word for line in lines for word in line.split())
    for sign in (UNK, "@-@", "@,@", "n't", "-LRB-"):
        if words[sign]:
            return f"{sign} stands as a word"
    spaced = words[","] + words["."]
    attached = sum(count for word, count in words.items() if len(word) > 1 and word.endswith(","))
    return "punctuation stands apart from words" if spaced >= 3 and spaced > 10 * attached else ""


class _Numbers(dict[str, int]):
    """1, 2, 3, … for keys in the order in which they are asked for."""

    def __missing__(self, key: str) -> int:
        self[key] = number = len(self) + 1
        return number


@dataclass(frozen=True, kw_only=True)
class PieceNumbers:
    """Numbers for pieces of text, in the order in which they are met; 0 is the end of a line."""

    profile: str
    known: _Numbers = field(default_factory=_Numbers)

    def __len__(self) -> int:
        return len(self.known) + 1

    def of_lines(self, lines: Iterable[str]) -> Numbers:
        """Return the pieces of some lines, and their ends."""
        number, found = self.known.__getitem__, list[int]()
        for line in lines:
            found.extend(map(number, pieces(line, self.profile)))
            found.append(0)
        return np.array(found, np.uint32)

    def words(self, punctuation: bool = False) -> "PieceWords":
        """Return the words of every piece so far."""
        find = words_of(self.profile, punctuation)
        index, flat, lengths = _Numbers(), [0], [1]
        for piece in self.known:
            some = find(alone(piece, self.profile))
            flat += [index[word] for word in some]
            lengths.append(len(some))
        return PieceWords(list(index), np.array(flat, np.uint32), np.array(lengths, np.int64))


@dataclass(frozen=True)
class PieceWords:
    """The words of every piece."""

    names: list[str]
    """Word number n is `names[n - 1]`; number 0 is the end of a line."""
    flat: Numbers
    """Word numbers, piece after piece."""
    lengths: NDArray[np.int64]
    """How many words each piece has."""

    def counts(self, of_pieces: NDArray[np.int64]) -> Counter[str]:
        """Return how often each word occurs, given how often each piece does."""
        weights = np.repeat(of_pieces, self.lengths)
        totals = np.bincount(self.flat, weights, minlength=len(self.names) + 1).astype(np.int64)[1:]
        return Counter({word: count for word, count in zip(self.names, totals.tolist(), strict=True) if count})

    def table(self, tokenizer: Tokenizer) -> "PieceTable":
        """Return the ids of every piece."""
        index = {word: id for id, word in enumerate(tokenizer.vocabulary)}
        ids = [tokenizer.eos_id, *(index.get(word, tokenizer.unk_id) for word in self.names)]
        flat = np.array(ids, id_dtype(tokenizer))[self.flat]
        return PieceTable(flat, self.lengths, np.cumsum(self.lengths) - self.lengths, tokenizer)


@dataclass(frozen=True)
class PieceTable:
    """The ids of every piece: `flat[starts[n] : starts[n] + lengths[n]]` are those of piece n."""

    flat: Ids
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    tokenizer: Tokenizer

    def ids(self, numbers: Numbers) -> tuple[Ids, int]:
        """Return the ids and the number of whole lines; a line of raw text without a word is left out."""
        if self.tokenizer.profile == "pretokenized":
            return self.flat[numbers], int((numbers == 0).sum())
        lengths = self.lengths[numbers]
        ends = np.cumsum(lengths)
        ids = self.flat[np.arange(lengths.sum()) + np.repeat(self.starts[numbers] - (ends - lengths), lengths)]
        ended = ids == self.tokenizer.eos_id
        empty = ended & np.concatenate([[True], ended[:-1]])
        return ids[~empty], int(ended.sum() - empty.sum())


def id_dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    """Return the smallest type that holds every id."""
    return np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)


def _opened(path: str | Path, stack: ExitStack) -> BinaryIO:
    """Return the unpacked bytes of a file."""
    raw: Any = sys.stdin.buffer if str(path) == "-" else stack.enter_context(io.FileIO(path))
    file = io.BufferedReader(raw)
    stack.callback(file.detach)  # so that the standard input stays open
    return unpacked(file)


def _blocks(file: BinaryIO, name: str, broken: list[str] | None) -> Iterator[list[str]]:
    line, rest = 1, b""
    while True:
        read = file.read(_BLOCK)
        data, cut, rest_of = (rest + read).rpartition(b"\n") if read else (rest, b"", b"")
        rest = rest_of
        if len(rest) > LONGEST:
            start = line + data.count(b"\n") + bool(cut)
            raise UserError(f"{name}:{start}: a line of more than {LONGEST >> 20} MB; put one sentence on a line")
        if data or cut:
            text = _decoded(data, name, line, broken)
            if line == 1:
                text = text.removeprefix("\ufeff")
            line += data.count(b"\n") + 1
            yield text.replace("\r\n", "\n").removesuffix("\r").replace("\r", "\n").split("\n")
        if not read:
            return


def _decoded(data: bytes, name: str, first: int, broken: list[str] | None) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first + data.count(b"\n", 0, error.start)
        before = data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8")
        encoding = "utf-16" if first == 1 and data[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
        message = f"{name}:{line}: not UTF-8 (byte 0x{data[error.start]:02x} at column {len(before) + 1}); "
        message += f"convert it: iconv -f {encoding} -t utf-8"
        if broken is None or encoding == "utf-16":
            raise UserError(message) from None
        broken.append(message)
        return data.decode("utf-8", "replace")
