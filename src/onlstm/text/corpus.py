"""Corpora: text of any size to memory-mapped ids.

The text is read once (twice if parts of it are held out) and written to disk as numbers of words, then as ids. Memory
grows with the number of distinct words, not with the text. A corpus is finished once its `corpus.json` is there.
"""

import hashlib
import json
import shutil
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onlstm.errors import UserError
from onlstm.records import from_json
from onlstm.text.config import TextConfig
from onlstm.text.rules import Rules
from onlstm.text.sources import SPLITS, choose_rules, find_sources, name_of, parts_of_lines, read_blocks, text_files
from onlstm.text.tokenizer import EOS, UNK, Tokenizer, frequent_endings, vocabulary

Ids = NDArray[np.unsignedinteger[Any]]
Numbers = NDArray[np.uint32]

_UNKNOWN = 0.3
"""The share of unknown words that is too much."""
_CHUNK = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Part:
    """What `corpus.json` says about the training, validation or test text."""

    lines: int
    words: int
    tokens: int
    """Words, and one `<eos>` for each line."""
    unknown: int
    sha256: str
    """Of the text."""


@dataclass(frozen=True)
class Corpus:
    """A prepared text; every line ends with one `<eos>`."""

    tokenizer: Tokenizer
    train: Ids
    """Ids of the training text, read-only and memory-mapped, like the next two."""
    valid: Ids
    test: Ids | None
    parts: dict[str, Part]


def prepare(
    sources: Sequence[str | Path] | str | Path,
    folder: str | Path,
    config: TextConfig | None = None,
    say: Callable[[str], None] = lambda line: None,
    *,
    endings: int = 0,
) -> Corpus:
    """Return the corpus made of `sources` and written to `folder`.

    Args:
        sources: files, folders, or "-" for the standard input; `find_sources` tells the parts.
        folder: gets `train.ids`, `valid.ids`, `test.ids`, `tokenizer.json` and, last of all, `corpus.json`.
        say: called with a line for each decision.
        endings: entries of the vocabulary, besides the words, for unknown words by their last letters.
    """
    config, folder = config or TextConfig(), Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as work:
            job = _Preparation(Path(work), [sources] if isinstance(sources, str | Path) else sources, say)
            words = WordNumbers(job.rules(config))
            hashes = job.number(words)
            job.write(words, hashes, job.tokenizer(config, words, endings))
            for name in ("corpus.json", "train.ids", "valid.ids", "test.ids"):
                (folder / name).unlink(missing_ok=True)  # an older corpus ceases to be one first
            for path in (*job.work.glob("*.ids"), job.work / "tokenizer.json", job.work / "corpus.json"):
                path.replace(folder / path.name)
    except OSError as error:
        raise UserError(f"{folder}: cannot write the corpus ({error.strerror or error})") from None
    return load(folder)


def load(folder: str | Path) -> Corpus:
    """Return the corpus that `prepare` wrote to `folder`, memory-mapped; a `UserError` if it is not complete."""
    folder, again = Path(folder), "prepare the corpus again"
    arrays: dict[str, Ids] = {}
    try:
        content = from_json((folder / "corpus.json").read_text("utf-8"))
        parts = {split: Part(**part) for split, part in content["splits"].items()}
        dtype, entries = np.dtype(content["dtype"]), content["vocabulary"]
        for split, part in parts.items():
            path, size = folder / f"{split}.ids", part.tokens * dtype.itemsize
            if path.stat().st_size != size:
                raise UserError(f"{path}: {path.stat().st_size} bytes, not the {size} that corpus.json says; {again}")
            arrays[split] = np.memmap(path, dtype, mode="r")
        train, valid = arrays["train"], arrays["valid"]
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; {again}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{folder / 'corpus.json'}: truncated or not a corpus.json; {again}") from None
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    if len(tokenizer) != entries:
        raise UserError(f"{folder / 'tokenizer.json'}: {len(tokenizer)} words, corpus.json says {entries}; {again}")
    return Corpus(tokenizer, train, valid, arrays.get("test"), parts)


def encode_text(tokenizer: Tokenizer, sources: Sequence[str | Path] | str | Path) -> Ids:
    """Return the ids of all the text of `sources`, each line ended by `<eos>`."""
    words = WordNumbers(tokenizer.rules)
    paths = text_files([sources] if isinstance(sources, str | Path) else sources)
    blocks = [words.of_lines(lines) for path in paths for lines in read_blocks(path)]
    if not words.words:
        raise UserError(f"no words in {name_of(*paths)}; name a file with text in it")
    return words.ids(tokenizer)[np.concatenate(blocks)]


class WordNumbers(dict[str, bytes]):
    """Numbers for the words of a text, from 1 in order of appearance; 0 is the end of a line.

    As a dictionary it maps each distinct piece of a line to the numbers of its words: the rules see a piece once, and
    bytes are fast to join.
    """

    def __init__(self, rules: Rules) -> None:
        super().__init__({"\n": bytes(4)})
        self.rules = rules
        self.words: dict[str, int] = {}

    def __missing__(self, piece: str) -> bytes:
        words = self.rules.piece_words(piece)
        numbers = [self.words.setdefault(word, len(self.words) + 1) for word in words]
        self[piece] = array("I", numbers).tobytes()
        return self[piece]

    def of_lines(self, lines: Iterable[str], *, blank_lines: bool = False) -> Numbers:
        """Return the numbers of some lines; lines of raw text without a word are left out, unless `blank_lines`."""
        pieces: list[str] = []
        for line in lines:
            pieces += self.rules.pieces(line)
            pieces.append("\n")
        numbers: Numbers = np.frombuffer(b"".join(map(self.__getitem__, pieces)), np.uint32)
        if blank_lines or self.rules.profile == "pretokenized":
            return numbers
        ends = numbers == 0
        blank: NDArray[np.bool_] = ends & np.concatenate([[True], ends[:-1]])
        return numbers[~blank]

    def counts(self, blocks: Iterable[Numbers]) -> Counter[str]:
        """Return how often each word occurs in blocks of numbers."""
        totals = np.zeros(len(self.words) + 1, np.int64)
        for block in blocks:
            totals += np.bincount(block, minlength=len(totals))
        return Counter({word: count for word, count in zip(self.words, totals[1:].tolist(), strict=True) if count})

    def ids(self, tokenizer: Tokenizer) -> Ids:
        """Return the id of each number, in the smallest type that holds every id."""
        ids = [tokenizer.eos_id, *map(tokenizer.id, self.words)]
        return np.array(ids, np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)


class _Preparation:
    """The steps of `prepare`, in a folder of temporary files."""

    def __init__(self, work: Path, sources: Sequence[str | Path], say: Callable[[str], None]) -> None:
        self.work, self.say = work, say
        self.decisions: list[str] = []
        self.sources = find_sources(sources)
        for note in self.sources.notes:
            self.decide(note)
        if "-" in map(str, sources):  # it may have to be read twice
            with (work / "stdin").open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)

    def decide(self, line: str) -> None:
        self.decisions.append(line)
        self.say(line)

    def blocks(self, split: str, raw: bool = False) -> Iterator[list[str]]:
        """Yield the lines of some files; blank ones do not count in raw text."""
        for path in self.sources.files[split]:
            for lines in read_blocks(self.work / "stdin" if str(path) == "-" else path, name=name_of(path)):
                yield [line for line in lines if line and not line.isspace()] if raw else lines

    def rules(self, config: TextConfig) -> Rules:
        chosen, reason = choose_rules(config, chain.from_iterable(self.blocks("train")))
        if config.profile == "auto":
            self.decide(f"profile: {chosen.profile} ({reason})")
        return chosen

    def parts(self, raw: bool) -> Iterator[tuple[str, list[str]]]:
        """Yield the lines of every part, some at a time."""
        held_out, number = self.sources.held_out, 0
        total = sum(map(len, self.blocks("train", raw))) if held_out else 0
        part_of = parts_of_lines(total, held_out)
        for lines in self.blocks("train", raw):
            for part, run in groupby(enumerate(lines, number), lambda item: part_of(item[0])):
                yield part, [line for _, line in run]
            number += len(lines)
        for split in ("valid", "test"):
            yield from ((split, lines) for lines in self.blocks(split, raw))

    def number(self, words: WordNumbers) -> dict[str, str]:
        """Write the numbers of every part to `*.numbers`; return the sha256 of each part's text."""
        parts = [split for split in SPLITS if self.sources.files[split] or split in self.sources.held_out]
        hashes = {part: hashlib.sha256() for part in parts}
        for part in parts:
            (self.work / f"{part}.numbers").touch()
        tokens, reported = 0, time.monotonic()
        for part, lines in self.parts(raw=words.rules.profile != "pretokenized"):
            numbers = words.of_lines(lines)
            with (self.work / f"{part}.numbers").open("ab") as file:
                file.write(numbers.data)
            hashes[part].update("".join(f"{line}\n" for line in lines).encode())
            tokens += len(numbers)
            if time.monotonic() > reported + 10:
                reported = time.monotonic()
                self.say(f"read: {tokens / 1e6:.1f} million tokens, {len(words.words):,} distinct words")
        return {part: sha256.hexdigest() for part, sha256 in hashes.items()}

    def tokenizer(self, config: TextConfig, words: WordNumbers, endings: int) -> Tokenizer:
        """Return a tokenizer with the vocabulary of the training text."""
        counts = words.counts(self.chunks("train"))
        entries = vocabulary(counts, config.vocab_size, config.min_count, config.keep.split())
        total = len(counts.keys() | {UNK, EOS})
        self.decide(f"vocabulary: {len(entries):,} entries of {total:,} in the training text")
        if by_ending := frequent_endings(counts, entries, endings):
            self.decide(f"unknown words: {len(by_ending):,} kinds of them by their last letters")
            entries += by_ending
        return Tokenizer.of_words(entries, words.rules.profile, punctuation=config.punctuation)

    def chunks(self, part: str) -> Iterator[Numbers]:
        """Yield the numbers of a part, some megabytes at a time."""
        with (self.work / f"{part}.numbers").open("rb") as file:
            while len(numbers := np.fromfile(file, np.uint32, _CHUNK)):
                yield numbers

    def encode(self, part: str, table: Ids, tokenizer: Tokenizer, sha256: str) -> Part:
        """Write the ids of a part."""
        unknown_ids = np.array([*tokenizer.unknown_ids], table.dtype)
        lines = tokens = unknown = 0
        with (self.work / f"{part}.ids").open("wb") as file:
            for numbers in self.chunks(part):
                ids = table[numbers]
                file.write(ids.data)
                lines += int((numbers == 0).sum())
                tokens += len(ids)
                unknown += int(np.isin(ids, unknown_ids).sum())
        if tokens == lines:
            names = name_of(*self.sources.files[part] or self.sources.files["train"])
            raise UserError(f"{names}: no words for {part}; add text, or put one sentence on a line")
        words = tokens - lines
        self.decide(f"{part}: {lines:,} lines, {words:,} words, {tokens:,} tokens, {unknown:,} unknown")
        if unknown > _UNKNOWN * words:
            share = f"{unknown / words:.0%} of the words of the {part} text are unknown"
            self.decide(f"warning: {share}, so a low perplexity says little; use more text or a larger vocabulary")
        return Part(lines=lines, words=words, tokens=tokens, unknown=unknown, sha256=sha256)

    def write(self, words: WordNumbers, hashes: dict[str, str], tokenizer: Tokenizer) -> None:
        """Write the ids of every part, the tokenizer and `corpus.json`."""
        table = words.ids(tokenizer)
        parts = {part: self.encode(part, table, tokenizer, sha256) for part, sha256 in hashes.items()}
        content = {
            "format": 1,
            "profile": tokenizer.profile,
            "punctuation": tokenizer.punctuation,
            "vocabulary": len(tokenizer),
            "dtype": table.dtype.name,
            "splits": {part: asdict(counts) for part, counts in parts.items()},
            "decisions": self.decisions,
            "sources": {split: list(map(name_of, paths)) for split, paths in self.sources.files.items() if paths},
        }
        tokenizer.save(self.work / "tokenizer.json")
        (self.work / "corpus.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
