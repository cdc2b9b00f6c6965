"""Words and their ids: `Tokenizer`, word-level on HF `tokenizers`, with three profiles.

A profile is a normalizer and one pre-tokenizer that finds all words, so the rules travel in `tokenizer.json` and HF's
own `Tokenizer.from_file(...).encode(text)` gives the same ids. No rule looks past whitespace, with one exception:
whether anything follows at all (`ptb-en` drops the period that ends a sentence). So a line can be tokenised piece by
piece, and each distinct piece only once.

    pretokenized  what stands between whitespace, unchanged
    generic       Unicode words of any language in lower case; Han and kana characters one by one; no punctuation
    ptb-en        raw English, one sentence per line, to the words of the Penn Treebank language-modelling text
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

from onlstm import files
from onlstm.errors import UserError

UNK, EOS = "<unk>", "<eos>"
PROFILES = ("ptb-en", "generic", "pretokenized")

_SPACE = r"\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
"""What `str.split` splits at, which is not what these regular expressions take for whitespace."""
_APOSTROPHES, _HYPHENS = r"[\x{2019}\x{2bc}\x{ff07}]", r"[\x{2010}\x{2011}]"
ABBREVIATIONS = (
    "adm|ala|apr|ariz|ark|assn|aug|ave|bros|calif|capt|cie|cmdr|co|col|colo|conn|corp|cos|ct|dec|del|dept|dr|est|etc|"
    "feb|fla|ft|ga|gen|gov|hon|ill|inc|ind|jan|jr|kan|ky|la|lt|ltd|maj|mass|md|messrs|mich|minn|miss|mo|mont|mr|mrs|"
    "ms|mt|neb|nev|no|nos|nov|oct|okla|ore|pa|pfc|prof|pvt|rep|reps|rev|sen|sens|sept|sgt|sr|st|tenn|tex|va|vs|vt|"
    "wash|wis|wyo"
)
"""Those of the Penn Treebank text and more like them; at the end of a line the period is the sentence's."""
NUMBER = r"[-+\u2212]?\.?\d+(?:(?:\\?/|[.,:\-\u2013])\d+)*"
"""What becomes N in `ptb-en`."""


class Token(NamedTuple):
    """A word in its text: `text` is `original[start:end]`, as it was written; `id` is what the model reads."""

    text: str
    start: int
    end: int
    id: int


@dataclass(frozen=True)
class Rules:
    """How a profile finds words; `rules` returns them."""

    profile: str
    normalizer: normalizers.Normalizer | None
    splitter: pre_tokenizers.PreTokenizer

    def words(self, text: str) -> list[str]:
        """Return the words of a text as the vocabulary writes them."""
        if self.normalizer is None:
            return text.split()
        return [word for word, _ in self.splitter.pre_tokenize_str(self.normalizer.normalize_str(text))]

    def pieces(self, line: str) -> list[str]:
        """Return what stands between whitespace; the words of a line are those of its pieces."""
        pieces = line.split()
        if pieces and self.profile == "ptb-en":
            pieces[-1] += "\n"  # nothing follows, which matters to these rules
        return pieces

    def piece_words(self, piece: str) -> list[str]:
        """Return the words of a piece, the same as in its line."""
        something_follows = self.profile == "ptb-en" and not piece.endswith("\n")
        return self.words(f"{piece} \0" if something_follows else piece)


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
        tokens: list[Token] = []
        limits = [start for start, _ in encoding.offsets[1:]] + [len(text)]
        for id, (start, end), limit in zip(encoding.ids, encoding.offsets, limits, strict=False):
            if self.profile != "pretokenized":
                start, end = self._whole(text, tokens[-1].end if tokens else 0, start, end, limit)
            tokens.append(Token(text[start:end], start, end, id))
        return tokens

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return one id for each of `words`: of the word as it stands, else as the rules write it."""
        write = self.rules.normalizer.normalize_str if self.rules.normalizer else str
        written = {word: write(word) for word in set(words) if word not in self.index}
        return [self.index.get(written.get(word, word), self.unk_id) for word in words]

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the ids of each line, without `<eos>`; the rules are applied once to each distinct piece."""

        @cache
        def ids(piece: str) -> list[int]:
            return [self.index.get(word, self.unk_id) for word in self.rules.piece_words(piece)]

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


@cache
def rules(profile: str, punctuation: bool = False) -> Rules:
    """Return the rules of a profile; with `punctuation`, marks are words."""
    if profile not in PROFILES:
        raise UserError(f"profile {profile!r}: there are {', '.join(PROFILES)}")
    if punctuation and profile != "generic":
        raise UserError(f"punctuation can be kept with the profile generic only, not with {profile}")
    steps, words = {"ptb-en": _ptb, "generic": _generic}.get(profile, lambda: ([], rf"[^{_SPACE}]+"))()
    if punctuation:
        words += rf"|[^{_SPACE}\p{{L}}\p{{M}}\p{{N}}\p{{C}}]"
    splitter = pre_tokenizers.Split(Regex(words), "removed", invert=True)
    return Rules(profile, normalizers.Sequence(steps) if steps else None, splitter)


def _generic() -> tuple[list[normalizers.Normalizer], str]:
    alone = r"\p{Han}\p{Hiragana}\p{Katakana}\x{30fc}"
    letter = rf"[[\p{{L}}\p{{M}}\p{{N}}]&&[^{alone}]]"
    inner = r"['\-\x{b7}\x{5f3}\x{5f4}\x{200c}\x{200d}]|(?<=\p{N})[.,:/\x{66b}\x{66c}](?=\p{N})"
    steps = [normalizers.NFC(), normalizers.Lowercase(), *_plain()]
    return steps, rf"{UNK}|[{alone}]\p{{M}}*|{letter}+(?:(?:{inner}){letter}+)*"


def _ptb() -> tuple[list[normalizers.Normalizer], str]:
    x = r"[[\p{L}\p{M}\p{N}]&&[^N]]"  # everything is in lower case but the N that stands for a number
    before = r"(?<![\p{L}\p{M}\p{N}'])(?<!\p{N}[.,:])(?<![\p{L}\p{M}\p{N}][-/&])(?<!\\/)"
    after = rf"(?!{x}|%?-{x}|\\?/{x})"
    number = NUMBER.replace(r"\u2212", r"\x{2212}").replace(r"\u2013", r"\x{2013}")
    steps = [
        normalizers.NFC(),
        _replace(rf"(?<![^{_SPACE}])N(?![^{_SPACE}])", "0"),  # an N of its own stands for a number already
        _replace("-[LR][RCS]B-", "("),
        normalizers.Lowercase(),
        *_plain(),
        _replace(rf"{before}(?>{number}){after}", "N"),
        _replace(rf"%(?!-{x})", "N"),  # as the treebank's text has it
        _replace(r"(?<!\\)/", r"\/"),
        _replace(r"\x{a3}", "#"),
    ]
    period = rf"\.(?=-{x}|[^{_SPACE}]*[{_SPACE}]+[^{_SPACE}])"
    clitic = rf"'(?:s|re|ve|m|ll|d)(?!{x})"
    initials = rf"\p{{L}}(?:\.\p{{L}})+(?!{x})(?:{period}|(?<=u\.s)\.)?"
    abbreviation = rf"(?:{ABBREVIATIONS}|\p{{L}}){period}"
    core = rf"{x}+(?:(?!{clitic})'{x}+|(?:&|\\/){x}+|(?<=\p{{N}})[.,](?=\p{{N}}){x}+|%(?=-{x}))*"
    part = rf"(?:{initials}|{abbreviation}|{core})"
    words = [
        UNK,
        "N",
        rf"{x}+?(?=n't(?!{x}))|n't(?!{x})",
        rf"can(?=not(?!{x}))|(?:gon|wan)(?=na(?!{x}))",
        clitic,
        rf"'\p{{N}}\p{{N}}s?(?!{x})",
        r"(?:us|hk|nz|nt|[a-z])?\$",
        rf"{part}(?:-{part})*",
        r"[#&]|(?:\\\*)+",
        rf"(?<![^{_SPACE}])'(?![^{_SPACE}])|(?<=s)'(?![{x}'])",
    ]
    return steps, "|".join(words)


def _plain() -> list[normalizers.Normalizer]:
    """Return the steps that write apostrophes and hyphens one way and drop the soft hyphen."""
    return [_replace(_APOSTROPHES, "'"), _replace(_HYPHENS, "-"), _replace(r"\x{ad}", "")]


def _replace(pattern: str, by: str) -> normalizers.Normalizer:
    return normalizers.Replace(Regex(pattern), by)


def _description(backend: tokenizers.Tokenizer) -> list[object]:
    """Return all of a `tokenizer.json` but the vocabulary."""
    content = json.loads(backend.to_str())
    parts = [content[part] for part in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor")]
    return [*parts, content["model"]["type"], content["model"].get("unk_token")]


_NUMBER_END = re.compile(rf"{NUMBER}\Z")
