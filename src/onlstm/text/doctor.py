"""`onlstm doctor`: what a text looks like to a language model, what is wrong with it, and what to do about it.

Nothing stops it: a file that cannot be read becomes a finding, and the rest is examined.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onlstm.errors import UserError
from onlstm.text.sources import (
    Numbers,
    PieceNumbers,
    PieceWords,
    find_sources,
    looks_tokenised,
    read_blocks,
    text_files,
)
from onlstm.text.tokenizer import EOS, UNK, Tokenizer, vocabulary, words_of

Counts = tuple[Counter[str], Counter[str]]
Lengths = NDArray[np.int64]

_BOUNDS = (1, 6, 11, 21, 41, 81, 161, 641)
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
_LOST = "replacement characters (U+FFFD)"
_SIGNS = {
    "control characters": (r"[\x00-\x08\x0b\x0e-\x1f\x7f]", "delete them: tr -d '\\000-\\010\\016-\\037'"),
    _LOST: ("\ufffd", "convert the original file again, from its true encoding"),
    "garbled letters (UTF-8 taken for Latin-1)": ("[ÃÂ][\x80-\xbf]|â€", "undo it: iconv -f utf-8 -t latin1"),
    "HTML or XML tags": (r"</?(?!unk>|eos>|s>)[a-zA-Z][^<>]*>", "extract the plain text first"),
    "HTML entities": (r"&(?:amp|lt|gt|quot|nbsp|apos|#\d+);", "unescape them: Python's html.unescape"),
    "wiki markup": (r"\[\[[^\[\]]+\]\]|\{\{[^{}]+\}\}", "strip it with a wiki text extractor"),
    f"the token {EOS} itself": (rf"(?<!\S){EOS}(?!\S)", "remove it: every line gets one anyway"),
}
"""What no line should show: as a regular expression, and what to do."""


@dataclass(frozen=True)
class Finding:
    """Something wrong, and what to do about it."""

    problem: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that was found; `dataclasses.asdict` makes JSON of it."""

    files: tuple[str, ...]
    profile: str
    reason: str
    """Why this profile."""
    lines: int
    blank: int
    """Lines without a word; they count in a tokenised text, and are skipped in a raw one."""
    words: int
    tokens: int
    """Words and one `<eos>` for each line that counts."""
    vocabulary: int
    once: int
    """Words that occur once in the text that the vocabulary is built from."""
    unknown: float
    """Percent of words outside the vocabulary, in the text that it is built from."""
    held_out: str
    """What the next is measured on; empty if there is nothing to hold out."""
    held_out_unknown: float | None
    missed: tuple[str, ...]
    """The most frequent words outside the vocabulary."""
    histogram: tuple[tuple[str, int], ...]
    """Words per line, and how many lines have so many."""
    longest: int
    sample: tuple[tuple[tuple[str, bool], ...], ...]
    """A few lines: surface forms, and whether the vocabulary knows them."""
    findings: tuple[Finding, ...]


def examine(
    sources: Sequence[str | Path] | str | Path,
    *,
    profile: str = "auto",
    size: int | None = None,
    min_count: int = 1,
    run_tokenizer: Tokenizer | None = None,
) -> Diagnosis:
    """Return what is to be said of a text: with a run's tokenizer, or with the vocabulary it would get by itself."""
    vocabulary(Counter(), size, min_count)
    reading = _Reading([sources] if isinstance(sources, str | Path) else sources)
    sign = looks_tokenised(reading.head)
    reason = "as asked for"
    if run_tokenizer:
        profile, reason = run_tokenizer.profile, "of the run"
    elif profile == "auto":
        profile, reason = ("pretokenized", sign) if sign else ("generic", "the text does not look tokenised")
    words_of(profile)  # an unknown one is refused before the reading
    numbers = PieceNumbers(profile=profile)
    blocks = [(held, numbers.of_lines(lines)) for held, lines in reading.blocks()]
    words = numbers.words(bool(run_tokenizer and run_tokenizer.punctuation))
    kept, held = (_word_counts(words, [some for h, some in blocks if h is part]) for part in (False, True))
    if run_tokenizer:
        kept, held = kept + held, Counter()
    tokenizer = run_tokenizer or Tokenizer.of_words(vocabulary(kept, size, min_count), profile)
    lengths = _lengths(words, [some for _, some in blocks])
    diagnosis = _diagnosis(reading, reason, tokenizer, (kept, held), lengths)
    median = float(np.median(lengths[lengths > 0])) if diagnosis.words else 0.0
    findings = _findings(diagnosis, reading, median, sign, run_tokenizer is not None)
    return replace(diagnosis, findings=tuple(Finding(*message.split("; ", 1)) for message in findings))


def render(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as a page of text."""
    d = diagnosis
    shown = ", ".join(d.files[:3]) + (f" and {len(d.files) - 3} more" if len(d.files) > 3 else "")
    skipped = "" if not d.blank else f", {d.blank:,} blank" + (" (skipped)" if d.profile != "pretokenized" else "")
    rows = [
        ("Text", shown or "none"),
        ("Profile", f"{d.profile}: {d.reason}"),
        ("Lines", f"{d.lines:,}{skipped}; the longest has {d.longest:,} words"),
        ("Words", f"{d.words:,}"),
        ("Tokens", f"{d.tokens:,} with one {EOS} a line"),
        ("Vocabulary", f"{d.vocabulary:,} entries with {UNK} and {EOS}; {d.once:,} words occur once"),
        ("Unknown", f"{d.unknown:.2f} % of these words" if not d.held_out else f"{d.unknown:.2f} % in the text for it"),
    ]
    rows += [("", f"{d.held_out_unknown:.2f} % in {d.held_out}")] if d.held_out_unknown is not None else []
    rows += [("", f"most often: {', '.join(d.missed)}")] if d.missed else []
    page = [f"{name:12}{text}" for name, text in rows]
    if d.words:
        page += ["", "Words per line"]
        counts = [count for _, count in d.histogram]
        for label, count in d.histogram:
            bar = "█" * round(30 * count / max(counts)) or "▏" * bool(count)
            page.append(f"  {label:>8}  {count:>10,}  {count / sum(counts):6.1%}  {bar}".rstrip())
    if d.sample:
        page += ["", "As the model reads it (between · the words, in [ ] those it does not know)"]
        page += ["  " + " · ".join(word if known else f"[{word}]" for word, known in line) for line in d.sample]
    page += ["", "What to do" if d.findings else "Nothing to mend."]
    for number, finding in enumerate(d.findings, 1):
        page += [f"  {number}. {finding.problem}", f"     → {finding.remedy}"]
    return "\n".join(page)


class _Reading:
    """The lines of a text, as far as they can be read, and what strikes the eye in them."""

    def __init__(self, sources: Sequence[str | Path]) -> None:
        self.files: list[Path] = []
        self.broken: list[str] = []
        self.sample: list[str] = []
        self.signs: dict[str, list[Any]] = {}  # how many lines show it, and where the first is
        self.letters: Counter[str] = Counter()
        self.distinct: set[int] = set()
        self.filled = 0
        for source in sources or text_files(sources):
            try:
                self.files += text_files([source])
            except UserError as error:
                self.broken.append(str(error))
        split = find_sources(self.files).files if self.files else {}
        self.others = {path for part in ("valid", "test") for path in split.get(part, [])}
        self.held_out = ", ".join(sorted(path.name for path in self.others)) or "every 20th line, held out for this"
        self._blocks = self._read()
        self._first = list(islice(self._blocks, 1))
        self.head = self._first[0][2][:1000] if self._first else []

    def blocks(self) -> Iterator[tuple[bool, list[str]]]:
        """Yield lines, and whether they are held out of the text for the vocabulary."""
        number = 0
        for path, start, lines in chain(self._first, self._blocks):
            self._note(path, start, lines)
            parts: tuple[list[str], list[str]] = ([], [])
            for line in lines:
                filled = bool(line.strip())
                number += filled  # blank lines are not counted: every other one may be blank
                parts[path in self.others if self.others else filled and number % 20 == 0].append(line)
            yield from ((held, part) for held, part in zip((False, True), parts, strict=True) if part)

    def _read(self) -> Iterator[tuple[Path, int, list[str]]]:
        """Yield lines with their file and the number of the first."""
        for path in self.files:
            line, broken = 1, list[str]()
            try:
                for lines in read_blocks(path, broken):
                    yield path, line, lines
                    line += len(lines)
            except UserError as error:
                broken.append(str(error))
            if line == 1 and not broken:
                broken.append(f"{path}: empty; leave it out")
            self.broken += broken[:1]

    def _note(self, path: Path, start: int, lines: list[str]) -> None:
        for number, line in enumerate(lines, start):
            if not line or line.isspace():
                continue
            self.filled += 1
            self.distinct.add(hash(line))
            if len(self.sample) < 3 and (len(line.split()) > 2 or len(line) > 20):
                self.sample.append(line[:200].rsplit(None, 1)[0] if len(line) > 200 else line)
            for name, (pattern, _) in _SIGNS.items():
                if re.search(pattern, line):
                    self.signs.setdefault(name, [0, f"{path}:{number}"])[0] += 1
        text = "\n".join(lines[:200])
        self.letters.update(upper=sum(map(str.isupper, text)), lower=sum(map(str.islower, text)))
        self.letters.update(all=sum(map(str.isalpha, text)), unspaced=len(_UNSPACED.findall(text)))
        self.letters["commas"] += text.count(", ") - text.count(" , ")


def _diagnosis(reading: _Reading, reason: str, tokenizer: Tokenizer, counts: Counts, lengths: Lengths) -> Diagnosis:
    """Return the figures, yet without findings."""
    (kept, held), known = counts, set(tokenizer.vocabulary) - {UNK}
    missed = Counter({word: n for word, n in (kept + held).items() if word not in known and word != UNK})
    total, blank = int(lengths.sum()), int((lengths == 0).sum())
    sample = ([(t.text, t.id != tokenizer.unk_id) for t in tokenizer.tokens(line)] for line in reading.sample)
    return Diagnosis(
        files=tuple(map(str, reading.files)),
        profile=tokenizer.profile,
        reason=reason,
        lines=len(lengths),
        blank=blank,
        words=total,
        tokens=total + len(lengths) - (0 if tokenizer.profile == "pretokenized" else blank),
        vocabulary=len(tokenizer),
        once=sum(count == 1 for count in kept.values()),
        unknown=_percent_unknown(kept, known) or 0.0,
        held_out=reading.held_out if held else "",
        held_out_unknown=_percent_unknown(held, known),
        missed=tuple(word for word, _ in missed.most_common(8)),
        histogram=_histogram(lengths),
        longest=int(lengths.max(initial=0)),
        sample=tuple(map(tuple, sample)),
        findings=(),
    )


def _findings(d: Diagnosis, reading: _Reading, median: float, sign: str, of_run: bool) -> Iterator[str]:
    """Yield everything wrong, each as "problem; remedy"."""
    yield from reading.broken
    for name, (count, where) in reading.signs.items():
        if name != _LOST or not any("not UTF-8" in message for message in reading.broken):
            yield f"{name} in {count:,} line{'s' * (count > 1)}, first in {where}; {_SIGNS[name][1]}"
    if not d.words:
        yield "no words at all; name a file with text in it"
        return
    if d.words < 100_000 and not of_run:
        yield f"too small to train on: {d.words:,} words; add text: 100,000 words show a trend, a million train a model"
    if median > 60 or d.longest > 1000:
        long = f"long lines (median {median:.0f} words, longest {d.longest:,})"
        yield f"{long}: paragraphs, not sentences; put one sentence on a line, at least before parsing"
    if median < 2 and d.words > 20:
        yield "most lines have one word; join the words of a sentence on one line"
    if len(reading.distinct) < 0.8 * reading.filled:
        share = 1 - len(reading.distinct) / reading.filled
        yield f"{share:.0%} of the lines are repeated; drop duplicates, held-out ones are no test: awk '!seen[$0]++'"
    seen = d.unknown if d.held_out_unknown is None else d.held_out_unknown
    if seen > 10:
        remedy = "take text like the run's" if of_run else "take a larger vocabulary, or more text"
        yield f"{seen:.1f} % unknown words in {d.held_out or 'this text'}; {remedy}"
    if not of_run and d.unknown == 0:
        yield f"no unknown word to train {UNK} on; leave rare words out: a minimum count of 2, or a vocabulary size"
    if d.vocabulary > 100_000 and not of_run:
        yield f"a vocabulary of {d.vocabulary:,} makes a large, slow model; limit it to 30,000 or 50,000"
    yield from _of_kind(d, reading, sign)


def _of_kind(d: Diagnosis, reading: _Reading, sign: str) -> Iterator[str]:
    """Yield where profile, case or script of the text do not suit."""
    letters, raw = reading.letters, d.profile != "pretokenized"
    if sign and d.profile == "generic":
        yield f"looks tokenised already ({sign}), but the profile is generic; take the profile pretokenized"
    if not sign and not raw and letters["commas"] > 2:
        yield "looks raw (commas stick to words), but the profile is pretokenized; take generic, or ptb-en for English"
    if letters["upper"] > 20 and letters["upper"] > 9 * letters["lower"]:
        yield "upper case only; take generic or ptb-en, which ignore case, or put the text in lower case"
    if letters["unspaced"] > 0.3 * letters["all"] and (raw or letters["all"] > 12 * d.words):
        yield "a script without spaces (Thai, Chinese, Japanese, …); segment it into words and take pretokenized"


def _word_counts(words: PieceWords, blocks: list[Numbers]) -> Counter[str]:
    counts = (np.bincount(some, minlength=len(words.lengths)) for some in blocks)
    return words.counts(sum(counts, np.zeros(len(words.lengths), np.int64)))


def _lengths(words: PieceWords, blocks: list[Numbers]) -> Lengths:
    """Return the words of every line."""
    totals = [np.cumsum(np.where(some == 0, 0, words.lengths[some]))[some == 0] for some in blocks]
    return np.concatenate([np.zeros(0, np.int64), *(np.diff(some, prepend=0) for some in totals)])


def _percent_unknown(counts: Counter[str], known: set[str]) -> float | None:
    unknown = sum(n for word, n in counts.items() if word not in known)
    return 100 * unknown / counts.total() if counts else None


def _histogram(lengths: Lengths) -> tuple[tuple[str, int], ...]:
    counts, _ = np.histogram(lengths, [*_BOUNDS, np.iinfo(np.int64).max])
    labels = [f"{low}-{high - 1}" for low, high in pairwise(_BOUNDS)] + [f"{_BOUNDS[-1]}+"]
    used = np.searchsorted(_BOUNDS, lengths.max(initial=0), "right")  # no rows beyond the longest line
    return tuple(zip(labels[:used], counts.tolist()[:used], strict=True))
