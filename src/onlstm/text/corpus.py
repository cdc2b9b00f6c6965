"""Corpora: text of any size to memory-mapped ids, and back from disk.

The text is read once (twice if parts are carved off) and goes to disk as numbers of pieces, then as ids; memory goes
with the distinct pieces, not with the text. Nothing counts as finished before `corpus.json` is there.
"""

import hashlib
import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onlstm.errors import UserError
from onlstm.text.sources import (
    SPLITS,
    Carver,
    Ids,
    Numbers,
    PieceNumbers,
    PieceTable,
    Sources,
    find_sources,
    id_dtype,
    looks_tokenised,
    read_blocks,
    read_lines,
    text_files,
)
from onlstm.text.tokenizer import EOS, UNK, Tokenizer, vocabulary, words_of

Say = Callable[[str], None]

_CHUNK = 1 << 22


@dataclass(frozen=True)
class Corpus:
    """A prepared text; every line ends in one `<eos>`."""

    tokenizer: Tokenizer
    train: Ids
    """Ids of the training text, read-only and memory-mapped; so are the next two."""
    valid: Ids
    test: Ids | None
    info: dict[str, Any]
    """What `corpus.json` says: counts and sha256 of each part, profile, sources, decisions."""


def prepare(
    sources: Sequence[str | Path] | str | Path,
    folder: str | Path,
    *,
    profile: str = "auto",
    size: int | None = None,
    min_count: int = 1,
    punctuation: bool = False,
    keep: Collection[str] = (),
    tokenizer: Tokenizer | None = None,
    say: Say = lambda line: None,
) -> Corpus:
    """Return the corpus made of `sources` and written to `folder`; `say` gets a line for each decision.

    Args:
        sources: files, folders, or "-" for the standard input; see `find_sources` for which are for what.
        folder: gets `train.ids`, `valid.ids`, `test.ids`, `tokenizer.json` and, last of all, `corpus.json`.
        profile: of the tokenizer; "auto" takes "pretokenized" if the text looks it, else "generic".
        size: entries of the vocabulary at most, `<unk>` and `<eos>` included.
        min_count: how often a word occurs in the training text at least to be in the vocabulary.
        punctuation: keep punctuation marks as words (profile "generic").
        keep: words that get an entry however rare they are, if they occur at all.
        tokenizer: use this one instead of building a vocabulary; the five above then play no part.
    """
    folder = Path(folder)
    if tokenizer is None:  # so that a mistake costs no reading
        vocabulary(Counter(), size, min_count)
        words_of("generic" if profile == "auto" else profile, punctuation)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as work:
            job = _Preparation(work=Path(work), say=say)
            found = find_sources(job.spooled([sources] if isinstance(sources, str | Path) else sources))
            for note in found.notes:
                job.decide(note)
            if tokenizer is None:
                profile = job.chosen(profile, found, punctuation)
            else:
                profile, punctuation = tokenizer.profile, tokenizer.punctuation
            numbers = PieceNumbers(profile=profile)
            hashes = job.number(found, numbers)
            words = numbers.words(punctuation)
            if tokenizer is None:
                counts = words.counts(job.piece_counts(len(numbers)))
                words_kept = vocabulary(counts, size, min_count, keep)
                tokenizer = Tokenizer.of_words(words_kept, profile, punctuation=punctuation)
                total = len(counts.keys() | {UNK, EOS})
                job.decide(f"vocabulary: {len(tokenizer):,} entries of {total:,} in the training text")
            job.write(found, hashes, words.table(tokenizer))
            job.publish(folder, list(hashes))
    except UserError as error:
        raise UserError(_named(str(error))) from None
    except OSError as error:
        raise UserError(f"{folder}: cannot write the corpus ({error.strerror or error})") from None
    return load(folder)


def load(folder: str | Path) -> Corpus:
    """Return the corpus that `prepare` wrote to `folder`, memory-mapped; a `UserError` if it is not whole."""
    folder = Path(folder)
    again = "prepare the corpus again"
    try:
        info = json.loads((folder / "corpus.json").read_text("utf-8"))
        tokens = {split: int(part["tokens"]) for split, part in info["splits"].items()}
        dtype = np.dtype(info["dtype"])
        entries = int(info["vocabulary"])
    except FileNotFoundError:
        raise UserError(f"{folder}: no corpus.json here, so no finished corpus; {again}") from None
    except OSError as error:
        raise UserError(f"{folder / 'corpus.json'}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{folder / 'corpus.json'}: truncated or not ours; {again}") from None
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    if len(tokenizer) != entries:
        raise UserError(f"{folder / 'tokenizer.json'}: {len(tokenizer)} words, corpus.json says {entries}; {again}")
    arrays: dict[str, Ids] = {}
    for split, count in tokens.items():
        path = folder / f"{split}.ids"
        size = path.stat().st_size if path.is_file() else -1
        if size != count * dtype.itemsize or not count:
            have = "missing" if size < 0 else f"{size} bytes, not the {count * dtype.itemsize} that corpus.json says"
            raise UserError(f"{path}: {have}; {again}")
        arrays[split] = np.memmap(path, dtype, mode="r")
    if not {"train", "valid"} <= arrays.keys():
        raise UserError(f"{folder / 'corpus.json'}: no train or no valid part; {again}")
    return Corpus(tokenizer, arrays["train"], arrays["valid"], arrays.get("test"), info)


def encode_text(tokenizer: Tokenizer, sources: Sequence[str | Path] | str | Path) -> tuple[Ids, dict[str, int]]:
    """Return the ids of all the text of `sources`, lines ended by `<eos>`, and its lines, words, tokens and unknown."""
    numbers = PieceNumbers(profile=tokenizer.profile)
    files = text_files([sources] if isinstance(sources, str | Path) else sources)
    parts = [numbers.of_lines(lines) for path in files for lines in read_blocks(path)]
    table = numbers.words(tokenizer.punctuation).table(tokenizer)
    ids, lines = table.ids(np.concatenate([np.zeros(0, np.uint32), *parts]))
    counts = _counts(ids, lines, tokenizer)
    if not counts["words"]:
        raise UserError(f"no word in {', '.join(map(str, files))}: nothing to read")
    return ids, counts


@dataclass(frozen=True, kw_only=True)
class _Preparation:
    """The steps of `prepare`, in a folder that vanishes with them."""

    work: Path
    say: Say
    decided: list[str] = field(default_factory=list)

    def decide(self, line: str) -> None:
        self.decided.append(_named(line))
        self.say(self.decided[-1])

    def spooled(self, sources: Sequence[str | Path]) -> list[str | Path]:
        """Return the sources with the standard input in a file, for it may have to be read twice."""
        if "-" in map(str, sources):
            with (self.work / "stdin").open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        return [self.work / "stdin" if str(source) == "-" else source for source in sources]

    def chosen(self, profile: str, found: Sources, punctuation: bool) -> str:
        """Return the profile, told from the first thousand lines of the training text if it is "auto"."""
        if profile != "auto":
            return profile
        first = islice(chain.from_iterable(map(read_lines, found.files["train"])), 1000)
        sign = "" if punctuation else looks_tokenised(first)
        profile = "pretokenized" if sign else "generic"
        self.decide(f"profile: {profile} ({sign or 'the text does not look tokenised'})")
        return profile

    def number(self, found: Sources, numbers: PieceNumbers) -> dict[str, str]:
        """Write the pieces of every part to `*.pieces`; return the sha256 of their texts."""
        deal = None
        if found.carve:
            total = sum(len(lines) for lines in self.blocks(found.files["train"], numbers))
            try:
                deal = Carver(lines=total, parts=found.carve)
            except UserError as error:
                raise UserError(f"{', '.join(map(_named, found.files['train']))}: {error}") from None
            kept = Counter(map(deal, range(deal.lines)))
            parts = ", ".join(f"{split} {kept[split]:,}" for split in ("train", *found.carve))
            self.decide(f"split: of {deal.lines:,} lines in blocks of {deal.block}: {parts}")
        parts_there = [split for split in SPLITS if found.files[split] or split in found.carve]
        with ExitStack() as stack:
            files = {s: stack.enter_context((self.work / f"{s}.pieces").open("wb")) for s in parts_there}
            hashes = {split: hashlib.sha256() for split in parts_there}
            words, told = 0, time.monotonic()
            for split, lines in self.dealt(found, numbers, deal):
                some = numbers.of_lines(lines)
                files[split].write(some.tobytes())
                hashes[split].update("".join(f"{line}\n" for line in lines).encode())
                words += len(some) - len(lines)
                if time.monotonic() > told + 10:
                    told = time.monotonic()
                    self.say(f"read: {words / 1e6:.1f} million words, {len(numbers):,} of them distinct")
        return {split: sha.hexdigest() for split, sha in hashes.items()}

    def dealt(self, found: Sources, numbers: PieceNumbers, deal: Carver | None) -> Iterator[tuple[str, list[str]]]:
        """Yield the lines of every part, some at a time."""
        first = 0
        for split in SPLITS:
            for lines in self.blocks(found.files[split], numbers, note=True):
                if split != "train" or deal is None:
                    yield split, lines
                    continue
                places = [deal(line) for line in range(first, first + len(lines))]
                for part in dict.fromkeys(places):
                    yield part, [line for line, place in zip(lines, places, strict=True) if place == part]
                first += len(lines)

    def blocks(self, paths: Sequence[Path], numbers: PieceNumbers, note: bool = False) -> Iterator[list[str]]:
        """Yield the lines of some files; blank lines count in a tokenised text only."""
        for path in paths:
            empty = True
            for lines in read_blocks(path):
                if numbers.profile != "pretokenized":
                    lines = [line for line in lines if line and not line.isspace()]
                empty = empty and not lines
                yield lines
            if empty and note:
                self.decide(f"{path}: empty")

    def piece_counts(self, numbers: int) -> NDArray[np.int64]:
        """Return how often each piece occurs in the training text."""
        counts = np.zeros(numbers, np.int64)
        for some in self.line_chunks("train"):
            counts += np.bincount(some, minlength=numbers)
        return counts

    def line_chunks(self, split: str) -> Iterator[Numbers]:
        """Yield the pieces of a part, whole lines, some megabytes at a time."""
        rest = np.zeros(0, np.uint32)
        with (self.work / f"{split}.pieces").open("rb") as file:
            while len(some := np.fromfile(file, np.uint32, _CHUNK)):
                rest = np.concatenate([rest, some])
                ends = np.flatnonzero(rest == 0)
                if len(ends):
                    yield rest[: ends[-1] + 1]
                    rest = rest[ends[-1] + 1 :]

    def write(self, found: Sources, hashes: dict[str, str], table: PieceTable) -> None:
        """Write the ids of every part, the tokenizer and `corpus.json`."""
        parts: dict[str, dict[str, Any]] = {}
        for split, sha256 in hashes.items():
            counts: Counter[str] = Counter(lines=0, words=0, tokens=0, unknown=0)
            with (self.work / f"{split}.ids").open("wb") as file:
                for some in self.line_chunks(split):
                    ids, lines = table.ids(some)
                    file.write(ids.tobytes())
                    counts.update(_counts(ids, lines, table.tokenizer))
            (self.work / f"{split}.pieces").unlink()
            if not counts["words"]:
                names = ", ".join(map(_named, found.files[split] or found.files["train"]))
                raise UserError(f"{names}: no words for {split}; add text")
            parts[split] = dict(counts) | {"sha256": sha256}
            self.decide(
                "{}: {lines:,} lines, {words:,} words, {tokens:,} tokens, {unknown:,} unknown".format(split, **counts)
            )
        table.tokenizer.save(self.work / "tokenizer.json")
        info: dict[str, Any] = {"format": 1, "profile": table.tokenizer.profile}
        info |= {"punctuation": table.tokenizer.punctuation, "vocabulary": len(table.tokenizer)}
        info |= {"dtype": id_dtype(table.tokenizer).name, "splits": parts, "decisions": self.decided}
        info["sources"] = {split: list(map(_named, paths)) for split, paths in found.files.items() if paths}
        (self.work / "corpus.json").write_text(json.dumps(info, indent=1, ensure_ascii=False) + "\n", "utf-8")

    def publish(self, folder: Path, splits: list[str]) -> None:
        """Move everything to its place; an older corpus there ceases to be one first."""
        for name in ["corpus.json", *(f"{split}.ids" for split in SPLITS)]:
            (folder / name).unlink(missing_ok=True)
        for name in [*(f"{split}.ids" for split in splits), "tokenizer.json", "corpus.json"]:
            (self.work / name).replace(folder / name)


def _named(text: object) -> str:
    """Return a text about the spooled standard input as one about the standard input."""
    return re.sub(r"\S*\.unfinished-[^/\\\s]+[/\\]stdin", "standard input", str(text))


def _counts(ids: Ids, lines: int, tokenizer: Tokenizer) -> dict[str, int]:
    unknown = int((ids == tokenizer.unk_id).sum())
    return {"lines": lines, "words": len(ids) - lines, "tokens": len(ids), "unknown": unknown}
