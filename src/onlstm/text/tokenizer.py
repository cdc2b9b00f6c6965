"""Words and their ids: `Tokenizer`, word-level on HF `tokenizers`.

The rules of its profile (`onlstm.text.rules`) travel in `tokenizer.json`, and HF's own
`Tokenizer.from_file(...).encode(text)` gives the same ids, with one exception: a vocabulary can have entries for
unknown words by their last letters, as `<unk> -ing`, where HF's own encoding has `<unk>`.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tokenizers
from tokenizers import models

from onlstm import files
from onlstm.errors import UserError
from onlstm.text.rules import NUMBER as NUMBER
from onlstm.text.rules import PROFILES, rules
from onlstm.text.rules import UNK as UNK

EOS = "<eos>"
ENDING = f"{UNK} -"
"""Before the last letters that an entry for unknown words stands for; no word of a text contains a blank."""
_LETTERS = 3
"""Of an ending, at most."""


class Token(NamedTuple):
    """A word in its text: `text` is `original[start:end]`, as it was written; `id` is what the model reads."""

    text: str
    start: int
    end: int
    id: int


class Tokenizer:
    """Word-level tokenizer with `<unk>` and `<eos>`; made by `train`, `of_words` or `load`.

    >>> tokenizer = Tokenizer.train("generic", ["The cat saw the dog.", "The dog slept."])
    >>> tokenizer.vocabulary
    ['<unk>', '<eos>', 'the', 'dog', 'cat', 'saw', 'slept']
    >>> tokenizer.tokens("“The bird”")
    [Token(text='The', start=1, end=4, id=2), Token(text='bird', start=5, end=9, id=0)]
    """

    def __init__(self, backend: tokenizers.Tokenizer, profile: str, punctuation: bool) -> None:
        self.profile, self.punctuation, self.rules = profile, punctuation, rules(profile, punctuation)
        self.vocabulary: list[str] = [word for word, _ in sorted(backend.get_vocab().items(), key=lambda item: item[1])]
        self.index = {word: id for id, word in enumerate(self.vocabulary)}
        self.unk_id, self.eos_id = self.index[UNK], self.index[EOS]
        entries = [entry for entry in self.vocabulary if entry.startswith(ENDING)]
        self._endings = {entry.removeprefix(ENDING): self.index[entry] for entry in entries}
        self.unknown_ids = frozenset([self.unk_id, *self._endings.values()])
        self._backend = backend

    @classmethod
    def train(
        cls,
        profile: str,
        lines: Iterable[str],
        *,
        size: int | None = None,
        min_count: int = 1,
        punctuation: bool = False,
    ) -> "Tokenizer":
        """Return a tokenizer for the words of `lines`; `vocabulary` decides which are in it."""
        find = rules(profile, punctuation).words
        counts = Counter(word for line in lines for word in find(line))
        return cls.of_words(vocabulary(counts, size, min_count), profile, punctuation=punctuation)

    @classmethod
    def of_words(cls, words: Sequence[str], profile: str = "pretokenized", *, punctuation: bool = False) -> "Tokenizer":
        """Return a tokenizer whose ids are the positions in `words`, with `<unk>` and `<eos>` appended if missing."""
        words = list(words) + [special for special in (UNK, EOS) if special not in set(words)]
        index = {word: id for id, word in enumerate(words)}
        if len(index) < len(words):
            repeated = Counter(words).most_common(1)[0][0]
            raise UserError(f"the vocabulary lists {repeated!r} twice; list each word once")
        backend = tokenizers.Tokenizer(models.WordLevel(index, unk_token=UNK))
        chosen = rules(profile, punctuation)
        backend.pre_tokenizer = chosen.splitter
        if chosen.normalizer:
            backend.normalizer = chosen.normalizer
        return cls(backend, profile, punctuation)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Return the tokenizer of a `tokenizer.json` that `save` wrote; its rules tell the profile."""
        path = Path(path)
        try:
            backend = tokenizers.Tokenizer.from_str(path.read_text("utf-8"))
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from None
        except Exception as error:  # the library raises nothing narrower
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: truncated or not a tokenizer.json ({reason}); write it again") from None
        description = _description(backend)
        for profile, punctuation in [(name, False) for name in PROFILES] + [("generic", True)]:
            if description == _description(cls.of_words([], profile, punctuation=punctuation)._backend):
                break
        else:
            raise UserError(f"{path}: not the rules of {', '.join(PROFILES)}; use a tokenizer.json of onlstm")
        ids = backend.get_vocab()
        if UNK not in ids or EOS not in ids or sorted(ids.values()) != list(range(len(ids))):
            raise UserError(f"{path}: its vocabulary lacks {UNK} or {EOS} or has gaps in its ids; write it again")
        return cls(backend, profile, punctuation)

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json` to `path`, whole or not at all."""
        files.write(Path(path), self._backend.to_str(pretty=True))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def tokens(self, text: str) -> list[Token]:
        """Return the words of `text` with their surface forms and character offsets."""
        encoding = self._backend.encode(text)
        ids = [self.id(word) for word in self.rules.words(text)] if self._endings else encoding.ids
        tokens: list[Token] = []
        limits = [start for start, _ in encoding.offsets[1:]] + [len(text)]
        for id, (start, end), limit in zip(ids, encoding.offsets, limits, strict=False):
            if self.profile != "pretokenized":
                start, end = self._whole(text, tokens[-1].end if tokens else 0, start, end, limit)
            tokens.append(Token(text[start:end], start, end, id))
        return tokens

    def id(self, word: str) -> int:
        """Return the id of a word that is written as the rules do; of an unknown one, that of its longest ending."""
        if word in self.index:
            return self.index[word]
        endings = (word[start:] for start in range(max(1, len(word) - _LETTERS), len(word)))
        return next((self._endings[ending] for ending in endings if ending in self._endings), self.unk_id)

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return one id for each of `words`: of the word as it stands, else as the rules write it."""
        write = self.rules.normalizer.normalize_str if self.rules.normalizer else str
        written = {word: write(word) for word in set(words) if word not in self.index}
        return [self.id(written.get(word, word)) for word in words]

    def unknown(self, ids: Iterable[int]) -> int:
        """Return how many of the ids are those of unknown words."""
        return sum(id in self.unknown_ids for id in ids)

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the ids of each line, without `<eos>`; the rules are applied once to each distinct piece."""

        @cache
        def ids(piece: str) -> list[int]:
            return [self.id(word) for word in self.rules.piece_words(piece)]

        return [[id for piece in self.rules.pieces(line) for id in ids(piece)] for line in lines]

    def _whole(self, text: str, past: int, start: int, end: int, limit: int) -> tuple[int, int]:
        """Return the offsets with what the library's lose: the head of a number, marks that NFC joins to a letter."""
        if self.profile == "ptb-en" and (number := _NUMBER_END.search(text[past:end])):
            start = min(start, past + number.start())
        while end < limit and (unicodedata.category(text[end])[0] == "M" or "\u1160" <= text[end] <= "\u11ff"):
            end += 1
        return start, end


def vocabulary(counts: Counter[str], size: int | None, min_count: int, keep: Collection[str] = ()) -> list[str]:
    """Return `<unk>`, `<eos>` and the words by falling count, ties in alphabetical order.

    Those are the words that occur `min_count` times or more, up to `size` entries with the two; words of `keep` that
    occur at all take precedence, however rare.

    >>> vocabulary(Counter("to be or not to be".split()), size=4, min_count=1)
    ['<unk>', '<eos>', 'be', 'to']
    >>> vocabulary(Counter("to be or not to be".split()), size=4, min_count=2, keep=["not", "all"])
    ['<unk>', '<eos>', 'be', 'not']
    """
    first = set(keep)
    ranked = sorted(
        (word not in first, -count, word)
        for word, count in counts.items()
        if (count >= min_count or word in first) and word not in (UNK, EOS)
    )
    chosen = ranked if size is None else ranked[: size - 2]
    return [UNK, EOS, *(word for _, _, word in sorted(chosen, key=lambda entry: entry[1:]))]


def frequent_endings(counts: Counter[str], known: Collection[str], most: int) -> list[str]:
    """Return entries for unknown words by their last letters, one to three: the `most` frequent of them.

    >>> frequent_endings(Counter(running=3, jumping=2, sat=4, ox=1), {"sat"}, most=3)
    ['<unk> -g', '<unk> -ing', '<unk> -ng']
    """
    known, totals = set(known), Counter[str]()
    for word, count in counts.items():
        if word not in known:
            for start in range(max(1, len(word) - _LETTERS), len(word)):
                totals[word[start:]] += count
    ranked = sorted(totals, key=lambda ending: (-totals[ending], ending))
    return sorted(ENDING + ending for ending in ranked[:most])


def _description(backend: tokenizers.Tokenizer) -> list[object]:
    """Return all of a `tokenizer.json` but the vocabulary."""
    content = json.loads(backend.to_str())
    parts = [content[part] for part in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor")]
    return [*parts, content["model"]["type"], content["model"].get("unk_token")]


_NUMBER_END = re.compile(rf"{NUMBER}\Z")
