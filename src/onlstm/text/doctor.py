"""What a text looks like to a language model, what is wrong with it, and what to do about it.

Nothing stops the examination: a file that cannot be read becomes a finding, and the rest is examined.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onlstm.errors import UserError
from onlstm.text.config import TextConfig
from onlstm.text.corpus import Numbers, WordNumbers
from onlstm.text.sources import choose_rules, find_sources, read_blocks, suitable_profile, text_files
from onlstm.text.tokenizer import EOS, UNK, Tokenizer, vocabulary

_BOUNDS = (1, 6, 11, 21, 41, 81, 161, 641)
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
_REPLACED = "replacement characters (U+FFFD)"
_SIGNS = {
    "control characters": (r"[\x00-\x08\x0b\x0e-\x1f\x7f]", "delete them: tr -d '\\000-\\010\\016-\\037'"),
    _REPLACED: ("\ufffd", "convert the original file again, from its true encoding"),
    "garbled letters (UTF-8 read as Latin-1)": ("[ÃÂ][\x80-\xbf]|â€", "undo it: iconv -f utf-8 -t latin1"),
    "HTML or XML tags": (r"</?(?!unk>|eos>|s>)[a-zA-Z][^<>]*>", "extract the plain text first"),
    "HTML entities": (r"&(?:amp|lt|gt|quot|nbsp|apos|#\d+);", "unescape them: Python's html.unescape"),
    "wiki markup": (r"\[\[[^\[\]]+\]\]|\{\{[^{}]+\}\}", "strip it with a wiki text extractor"),
    f"the token {EOS} itself": (rf"(?<!\S){EOS}(?!\S)", "remove it: every line gets one anyway"),
}
"""What no line should contain: a regular expression, and the remedy."""


@dataclass(frozen=True)
class Finding:
    """Something wrong, and what to do about it."""

    problem: str
    remedy: str
    kind: str = ""
    """A name for problems of settings or lines: paragraphs, words, cut, unknown, known, large, tokenised, raw, upper,
    unspaced; empty for what is wrong inside a file."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The result of an examination."""

    files: tuple[str, ...]
    profile: str
    reason: str
    """Why this profile."""
    lines: int
    blank: int
    """Lines without a word; they count in a tokenised text, and are skipped in a raw one."""
    words: int
    tokens: int
    """Words, and one `<eos>` for each line that counts."""
    vocabulary: int
    once: int
    """Words that occur once in the text that the vocabulary is built from."""
    unknown: float
    """Percentage of words outside the vocabulary, in the text that it is built from."""
    held_out: str
    """What `held_out_unknown` is measured on; empty if nothing is held out."""
    held_out_unknown: float | None
    missed: tuple[str, ...]
    """The most frequent words outside the vocabulary."""
    histogram: tuple[tuple[str, int], ...]
    """Ranges of words per line, and the number of lines in each."""
    longest: int
    sample: tuple[tuple[tuple[str, bool], ...], ...]
    """A few lines: surface forms, and whether the vocabulary has them."""
    findings: tuple[Finding, ...] = ()


def examine(
    sources: Sequence[str | Path] | str | Path, config: TextConfig | None = None, *, tokenizer: Tokenizer | None = None
) -> Diagnosis:
    """Return the diagnosis of a text for a run's tokenizer, or else for the vocabulary that the text itself gives."""
    config, of_run = config or TextConfig(), tokenizer is not None
    text = _Text([sources] if isinstance(sources, str | Path) else sources)
    chosen, reason = (tokenizer.rules, "of the run") if tokenizer else choose_rules(config, text.head)
    train, held_out, lengths = text.count(WordNumbers(chosen))
    if tokenizer:
        train, held_out = train + held_out, Counter()
    tokenizer = tokenizer or Tokenizer.of_words(vocabulary(train, config.vocab_size, config.min_count), chosen.profile)
    known = set(tokenizer.vocabulary) - {UNK}
    missed = [word for word, _ in (train + held_out).most_common() if word not in known and word != UNK]
    words, blank = int(lengths.sum()), int((lengths == 0).sum())
    diagnosis = Diagnosis(
        files=tuple(map(str, text.files)),
        profile=chosen.profile,
        reason=reason,
        lines=len(lengths),
        blank=blank,
        words=words,
        tokens=words + len(lengths) - (0 if chosen.profile == "pretokenized" else blank),
        vocabulary=len(tokenizer),
        once=sum(count == 1 for count in train.values()),
        unknown=_percent_unknown(train, known) or 0.0,
        held_out=text.held_out if held_out else "",
        held_out_unknown=_percent_unknown(held_out, known),
        missed=tuple(missed[:8]),
        histogram=_histogram(lengths),
        longest=int(lengths.max(initial=0)),
        sample=_sample(text.head, tokenizer),
    )
    median = float(np.median(lengths[lengths > 0])) if words else 0.0
    in_files = (Finding(*message.split("; ", 1)) for message in text.problems)
    problems = _of_run(diagnosis) if of_run else _of_vocabulary(diagnosis, config)
    findings = chain(in_files, _of_lines(diagnosis, median, of_run), problems, _mismatches(chosen.profile, text.head))
    return replace(diagnosis, findings=tuple(findings))


class _Text:
    """The lines of a text, as far as they can be read, and what they show."""

    def __init__(self, sources: Sequence[str | Path]) -> None:
        self.files: list[Path] = []
        self.problems: list[str] = []  # each as "problem; remedy"
        for source in sources or text_files(sources):
            try:
                self.files += text_files([source])
            except UserError as error:
                self.problems.append(str(error))
        parts = find_sources(self.files).files if self.files else {}
        self.others = {path for part in ("valid", "test") for path in parts.get(part, [])}
        self.held_out = ", ".join(sorted(path.name for path in self.others)) or "every 20th line, held out for this"
        blocks = self._blocks()
        first = list(islice(blocks, 1))
        self.blocks = chain(first, blocks)
        self.head = first[0][2][:1000] if first else []

    def _blocks(self) -> Iterator[tuple[Path, int, list[str]]]:
        """Yield lines with their file and the number of the first."""
        for path in self.files:
            number, defects = 1, dict[int, str]()
            try:
                for lines in read_blocks(path, defects):
                    yield path, number, lines
                    number += len(lines)
            except UserError as error:
                defects[0] = str(error)
            if number == 1 and not defects:
                defects[0] = f"{path}: empty; leave it out"
            self.problems += islice(defects.values(), 1)

    def count(self, words: WordNumbers) -> tuple[Counter[str], Counter[str], NDArray[np.int64]]:
        """Return the words of the text for the vocabulary, those of the text held out, and how many each line has."""
        numbers: tuple[list[Numbers], list[Numbers]] = ([], [])
        filled, distinct = 0, set[int]()
        signs: dict[str, tuple[int, str]] = {}  # how many lines show it, and where the first is
        for path, first, lines in self.blocks:
            parts: tuple[list[str], list[str]] = ([], [])
            for line in lines:
                blank = not line or line.isspace()
                if not blank:
                    filled += 1
                    distinct.add(hash(line))
                parts[path in self.others if self.others or blank else filled % 20 == 0].append(line)
            for name, (pattern, _) in _SIGNS.items():
                if hits := [item for item in enumerate(lines, first) if re.search(pattern, item[1])]:
                    number = getattr(hits[0][1], "number", hits[0][0])  # of CoNLL-U, the sentence's first line
                    count, place = signs.get(name, (0, f"{path}:{number}"))
                    signs[name] = count + len(hits), place
            for part, some in zip(numbers, parts, strict=True):
                part.append(words.of_lines(some, blank_lines=True))
        if any("not UTF-8" in problem for problem in self.problems):
            signs.pop(_REPLACED, None)
        for name, (count, place) in signs.items():
            self.problems.append(f"{name} in {count:,} line{'s' * (count > 1)}, first in {place}; {_SIGNS[name][1]}")
        if len(distinct) < 0.8 * filled:
            share = f"{1 - len(distinct) / filled:.0%} of the lines are repeated"
            self.problems.append(f"{share}; remove duplicates before you split the text: awk '!seen[$0]++'")
        lengths = [np.diff(np.flatnonzero(block == 0), prepend=-1) - 1 for block in chain(*numbers)]
        return words.counts(numbers[0]), words.counts(numbers[1]), np.concatenate([np.zeros(0, np.int64), *lengths])


def _percent_unknown(counts: Counter[str], known: set[str]) -> float | None:
    unknown = sum(count for word, count in counts.items() if word not in known)
    return 100 * unknown / counts.total() if counts else None


def _histogram(lengths: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    counts, _ = np.histogram(lengths, [*_BOUNDS, np.iinfo(np.int64).max])
    labels = [f"{low}-{high - 1}" for low, high in pairwise(_BOUNDS)] + [f"{_BOUNDS[-1]}+"]
    used = np.searchsorted(_BOUNDS, lengths.max(initial=0), "right")  # no rows beyond the longest line
    return tuple(zip(labels[:used], counts.tolist()[:used], strict=True))


def _sample(lines: list[str], tokenizer: Tokenizer) -> tuple[tuple[tuple[str, bool], ...], ...]:
    chosen = [line for line in lines if len(line.split()) > 2 or len(line) > 20][:3]
    tokens = [tokenizer.tokens(line if len(line) <= 200 else line[:200].rsplit(None, 1)[0]) for line in chosen]
    return tuple(tuple((token.text, token.id not in tokenizer.unknown_ids) for token in line) for line in tokens)


def _of_lines(d: Diagnosis, median: float, of_run: bool) -> Iterator[Finding]:
    """Yield what is wrong with the size of the text and of its lines."""
    if not d.words:
        yield Finding("no words at all", "name a file with text in it")
        return
    if d.words < 100_000 and not of_run:
        remedy = "add text: 100,000 words show a trend, a million train a model"
        yield Finding(f"too small to train on: {d.words:,} words", remedy)
    if median > 60 or d.longest > 1000:
        long = f"long lines (median {median:.0f} words, longest {d.longest:,}): paragraphs, not sentences"
        yield Finding(long, "put one sentence on a line, at least before parsing", "paragraphs")
    if median < 2 and d.words > 20:
        yield Finding("most lines have one word", "join the words of a sentence on one line", "words")


def _of_run(d: Diagnosis) -> Iterator[Finding]:
    """Yield whether the run's vocabulary lacks too many of the words."""
    if d.unknown > 10:
        yield Finding(f"{d.unknown:.1f} % unknown words in this text", "use text like the run's", "unknown")


def _of_vocabulary(d: Diagnosis, config: TextConfig) -> Iterator[Finding]:
    """Yield what is wrong with the vocabulary that the text gives by the settings."""
    unknown = d.unknown if d.held_out_unknown is None else d.held_out_unknown
    if d.words and unknown > 10:
        problem = f"{unknown:.1f} % unknown words in {d.held_out or 'this text'}"
        if config.vocab_size and d.vocabulary >= config.vocab_size:
            yield Finding(problem, f"use a vocabulary of more than {config.vocab_size:,} entries", "cut")
        else:
            yield Finding(problem, "add text: most words are too rare in it to learn them", "unknown")
    if d.words and d.unknown == 0:
        yield Finding(f"no unknown word to train {UNK} on", "leave out words that occur once", "known")
    if d.vocabulary > 100_000:
        yield Finding(f"a vocabulary of {d.vocabulary:,} makes a large, slow model", "limit its size", "large")


def _mismatches(profile: str, head: list[str]) -> Iterator[Finding]:
    """Yield where the profile does not suit the kind, case or script of the first lines."""
    (suitable, sign), raw, text = suitable_profile(head), profile != "pretokenized", "\n".join(head)
    if suitable == "pretokenized" and profile == "generic":
        problem = f"looks tokenised already ({sign}), but the profile is generic"
        yield Finding(problem, "use the profile pretokenized", "tokenised")
    if suitable == "generic" and not raw and text.count(", ") - text.count(" , ") > 2:
        problem = "looks raw (words end in commas), but the profile is pretokenized"
        yield Finding(problem, "use generic, or ptb-en for English", "raw")
    if not raw and 20 < sum(map(str.isupper, text)) > 9 * sum(map(str.islower, text)):
        yield Finding(
            "upper case only", "use generic or ptb-en, which ignore case, or put the text in lower case", "upper"
        )
    letters = sum(map(str.isalpha, text))
    unspaced = suitable != "pretokenized" if raw else letters > 12 * len(text.split())
    if unspaced and len(_UNSPACED.findall(text)) > 0.3 * letters:
        problem = "a script without spaces (Thai, Chinese, Japanese, …)"
        yield Finding(problem, "segment it into words and use pretokenized", "unspaced")
