"""Words and their numbers: `Tokenizer`, word-level on HF `tokenizers`, with three profiles.

A profile is a normalizer and one pre-tokenizer that finds all words, so the rules travel in `tokenizer.json` and HF's
own `Tokenizer.from_file(...).encode(text)` gives the same ids. No rule looks across a blank, but for one: whether
anything follows at all (`ptb-en` drops the period that ends a sentence). `onlstm.text.corpus` builds on that.

    pretokenized  what stands between blanks, as it is
    generic       Unicode words of any language in lower case; Han and kana characters one by one; no punctuation
    ptb-en        raw English, a sentence a line, to the words of the Penn Treebank language-modelling text
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

from onlstm import files
from onlstm.errors import UserError

UNK, EOS = "<unk>", "<eos>"
PROFILES = ("ptb-en", "generic", "pretokenized")

_BLANK = r"\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
"""What `str.split` splits at; the regular expressions' own idea of a blank is another."""
_APOSTROPHES, _HYPHENS = r"[\x{2019}\x{2bc}\x{ff07}]", r"[\x{2010}\x{2011}]"
ABBREVIATIONS = (
    "adm|ala|apr|ariz|ark|assn|aug|ave|bros|calif|capt|cie|cmdr|co|col|colo|conn|corp|cos|ct|dec|del|dept|dr|est|etc|"
    "feb|fla|ft|ga|gen|gov|hon|ill|inc|ind|jan|jr|kan|ky|la|lt|ltd|maj|mass|md|messrs|mich|minn|miss|mo|mont|mr|mrs|"
    "ms|mt|neb|nev|no|nos|nov|oct|okla|ore|pa|pfc|prof|pvt|rep|reps|rev|sen|sens|sept|sgt|sr|st|tenn|tex|va|vs|vt|"
    "wash|wis|wyo"
)
"""Those of the Penn Treebank text and their kin; at the end of a line the period is the sentence's."""
_NUMBER = r"[-+\u2212]?\.?\d+(?:(?:\\?/|[.,:\-\u2013])\d+)*"


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
        self.profile, self.punctuation = profile, punctuation
        self.vocabulary: list[str] = [word for word, _ in sorted(backend.get_vocab().items(), key=lambda item: item[1])]
        self.unk_id, self.eos_id = self.vocabulary.index(UNK), self.vocabulary.index(EOS)
        self._backend = backend
        self._index = {word: id for id, word in enumerate(self.vocabulary)}

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
        """Return a tokenizer for the words of `lines`; see `vocabulary` for which are kept."""
        counts: Counter[str] = Counter()
        find = words_of(profile, punctuation)
        for line in lines:
            counts.update(find(line))
        return cls.of_words(vocabulary(counts, size, min_count), profile, punctuation=punctuation)

    @classmethod
    def of_words(cls, words: Sequence[str], profile: str = "pretokenized", *, punctuation: bool = False) -> "Tokenizer":
        """Return a tokenizer whose ids are the places in `words`; `<unk>` and `<eos>` are appended if they miss."""
        words = list(words) + [special for special in (UNK, EOS) if special not in set(words)]
        index = {word: id for id, word in enumerate(words)}
        if len(index) < len(words):
            twice = next(word for word, count in Counter(words).items() if count > 1)
            raise UserError(f"the vocabulary lists {twice!r} twice; each word needs one id")
        backend = tokenizers.Tokenizer(models.WordLevel(index, unk_token=UNK))
        normalizer, backend.pre_tokenizer = _rules(profile, punctuation)
        if normalizer:
            backend.normalizer = normalizer
        return cls(backend, profile, punctuation)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Return the tokenizer of a `tokenizer.json` that `save` wrote; its profile is known by its rules."""
        path = Path(path)
        try:
            backend = tokenizers.Tokenizer.from_str(path.read_text("utf-8"))
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise UserError(f"{path}: not a tokenizer.json (not UTF-8); name the one in the run's folder") from None
        except Exception as error:  # the library raises nothing narrower
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: truncated or not a tokenizer.json ({reason}); make it again") from None
        rules = _written(backend)
        for profile, punctuation in [(name, False) for name in PROFILES] + [("generic", True)]:
            if rules == _written(cls.of_words([], profile, punctuation=punctuation)._backend):
                break
        else:
            raise UserError(f"{path}: not the rules of {', '.join(PROFILES)}; only a tokenizer.json of onlstm will do")
        ids = backend.get_vocab()
        if UNK not in ids or EOS not in ids or sorted(ids.values()) != list(range(len(ids))):
            raise UserError(f"{path}: its vocabulary lacks {UNK} or {EOS} or has gaps in its ids; make it again")
        return cls(backend, profile, punctuation)

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json` to `path`, whole or not at all."""
        files.write(Path(path), self._backend.to_str(pretty=True))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __repr__(self) -> str:
        option = ", punctuation=True" if self.punctuation else ""
        return f"Tokenizer({self.profile!r}{option}, {len(self)} words)"

    def tokens(self, text: str) -> list[Token]:
        """Return the words of `text` with their surface forms and character offsets."""
        encoding = self._backend.encode(text)
        found: list[Token] = []
        starts = [start for start, _ in encoding.offsets[1:]] + [len(text)]
        for id, (start, end), limit in zip(encoding.ids, encoding.offsets, starts, strict=False):
            if self.profile != "pretokenized":
                start, end = self._whole(text, found[-1].end if found else 0, start, end, limit)
            found.append(Token(text[start:end], start, end, id))
        return found

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return one id for each of `words`, which are tokenised already: as it stands, else as the rules write it."""
        known, normalizer = self._index, self._backend.normalizer
        write: Callable[[str], str] = normalizer.normalize_str if normalizer else str
        written = {word: write(word) for word in set(words) if word not in known}
        return [known.get(written.get(word, word), self.unk_id) for word in words]

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the ids of each line, without `<eos>`; what is slow about it is done once for each distinct word."""
        known, find = self._index, words_of(self.profile, self.punctuation)
        seen: dict[str, list[int]] = {}
        done = []
        for line in lines:
            ids: list[int] = []
            for piece in pieces(line, self.profile):
                if piece not in seen:
                    seen[piece] = [known.get(word, self.unk_id) for word in find(alone(piece, self.profile))]
                ids += seen[piece]
            done.append(ids)
        return done

    def _whole(self, text: str, past: int, start: int, end: int, limit: int) -> tuple[int, int]:
        """Return the offsets with what the library's lose: the head of a number, marks that NFC joins to a letter."""
        if self.profile == "ptb-en" and (number := _NUMBER_END.search(text[past:end])):
            start = min(start, past + number.start())
        while end < limit and _joins(text[end]):
            end += 1
        return start, end


def vocabulary(counts: Counter[str], size: int | None, min_count: int, keep: Collection[str] = ()) -> list[str]:
    """Return `<unk>`, `<eos>` and the words by falling count, ties in alphabetical order.

    Of them, those that occur `min_count` times or more, and at most `size` entries, the two included; words of `keep`
    come before others, however rare, if they occur at all.

    >>> vocabulary(Counter("to be or not to be".split()), size=4, min_count=1)
    ['<unk>', '<eos>', 'be', 'to']
    >>> vocabulary(Counter("to be or not to be".split()), size=4, min_count=2, keep=["not", "all"])
    ['<unk>', '<eos>', 'be', 'not']
    """
    if size is not None and size < 3:
        raise UserError(f"vocabulary size {size}: at least 3 are needed, {UNK}, {EOS} and a word")
    if min_count < 1:
        raise UserError(f"minimum count {min_count}: at least 1 is needed")
    first = set(keep)
    ranked = sorted(
        (word not in first, -count, word)
        for word, count in counts.items()
        if (count >= min_count or word in first) and word not in (UNK, EOS)
    )
    kept = ranked if size is None else ranked[: size - 2]
    return [UNK, EOS, *(word for _, _, word in sorted(kept, key=lambda each: each[1:]))]


def words_of(profile: str, punctuation: bool = False) -> Callable[[str], list[str]]:
    """Return the function that gives a text's words as the vocabulary writes them."""
    normalizer, splitter = _rules(profile, punctuation)
    if normalizer is None:
        return str.split
    write = normalizer.normalize_str
    return lambda text: [word for word, _ in splitter.pre_tokenize_str(write(text))]


def pieces(line: str, profile: str) -> list[str]:
    """Return what stands between blanks, the last one marked if that matters: a line's words are its pieces' words."""
    parts = line.split()
    if parts and profile == "ptb-en":
        parts[-1] += "\n"
    return parts


def alone(piece: str, profile: str) -> str:
    """Return a text in which a piece has the same words as in its line: something follows, unless it is the last."""
    return f"{piece} \0" if profile == "ptb-en" and not piece.endswith("\n") else piece


@cache
def _rules(profile: str, punctuation: bool) -> tuple[normalizers.Normalizer | None, pre_tokenizers.PreTokenizer]:
    if profile not in PROFILES:
        raise UserError(f"profile {profile!r}: there are {', '.join(PROFILES)}")
    if punctuation and profile != "generic":
        raise UserError(f"punctuation can be kept with the profile generic only, not with {profile}")
    steps, words = {"ptb-en": _ptb, "generic": _generic}.get(profile, lambda: ([], rf"[^{_BLANK}]+"))()
    if punctuation:
        words += rf"|[^{_BLANK}\p{{L}}\p{{M}}\p{{N}}\p{{C}}]"
    return normalizers.Sequence(steps) if steps else None, pre_tokenizers.Split(Regex(words), "removed", invert=True)


def _generic() -> tuple[list[normalizers.Normalizer], str]:
    one = r"\p{Han}\p{Hiragana}\p{Katakana}\x{30fc}"
    letter = rf"[[\p{{L}}\p{{M}}\p{{N}}]&&[^{one}]]"
    inner = r"['\-\x{b7}\x{5f3}\x{5f4}\x{200c}\x{200d}]|(?<=\p{N})[.,:/\x{66b}\x{66c}](?=\p{N})"
    steps = [normalizers.NFC(), normalizers.Lowercase(), *_plain()]
    return steps, rf"{UNK}|[{one}]\p{{M}}*|{letter}+(?:(?:{inner}){letter}+)*"


def _ptb() -> tuple[list[normalizers.Normalizer], str]:
    x = r"[[\p{L}\p{M}\p{N}]&&[^N]]"  # everything is in lower case but the N that stands for a number
    before = r"(?<![\p{L}\p{M}\p{N}'])(?<!\p{N}[.,:])(?<![\p{L}\p{M}\p{N}][-/&])(?<!\\/)"
    after = rf"(?!{x}|%?-{x}|\\?/{x})"
    number = _NUMBER.replace(r"\u2212", r"\x{2212}").replace(r"\u2013", r"\x{2013}")
    steps = [
        normalizers.NFC(),
        _replace(rf"(?<![^{_BLANK}])N(?![^{_BLANK}])", "0"),  # an N of its own stands for a number already
        _replace("-[LR][RCS]B-", "("),
        normalizers.Lowercase(),
        *_plain(),
        _replace(rf"{before}(?>{number}){after}", "N"),
        _replace(rf"%(?!-{x})", "N"),  # as the treebank's text has it
        _replace(r"(?<!\\)/", r"\/"),
        _replace(r"\x{a3}", "#"),
    ]
    period = rf"\.(?=-{x}|[^{_BLANK}]*[{_BLANK}]+[^{_BLANK}])"
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
        rf"(?<![^{_BLANK}])'(?![^{_BLANK}])|(?<=s)'(?![{x}'])",
    ]
    return steps, "|".join(words)


def _plain() -> list[normalizers.Normalizer]:
    """Return the steps that write apostrophes and hyphens one way and drop the soft hyphen."""
    return [_replace(_APOSTROPHES, "'"), _replace(_HYPHENS, "-"), _replace(r"\x{ad}", "")]


def _replace(pattern: str, by: str) -> normalizers.Normalizer:
    return normalizers.Replace(Regex(pattern), by)


def _joins(char: str) -> bool:
    return unicodedata.category(char).startswith("M") or "\u1160" <= char <= "\u11ff"


def _written(backend: tokenizers.Tokenizer) -> list[object]:
    rules = json.loads(backend.to_str())
    parts = [rules[part] for part in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor")]
    return [*parts, rules["model"]["type"], rules["model"].get("unk_token")]


_NUMBER_END = re.compile(rf"{_NUMBER}\Z")
