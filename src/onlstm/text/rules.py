"""How a profile finds words: a normalizer and one pre-tokenizer of HF `tokenizers`.

No rule looks past whitespace, with one exception: whether anything follows at all (`ptb-en` drops the period that ends
a sentence). So a line can be tokenised piece by piece, and each distinct piece only once.

    pretokenized  what stands between whitespace, unchanged
    generic       Unicode words of any language in lower case; Han and kana characters one by one; no punctuation
    ptb-en        raw English, one sentence per line, to the words of the Penn Treebank language-modelling text
"""

from dataclasses import dataclass
from functools import cache

from tokenizers import Regex, normalizers, pre_tokenizers

from onlstm.errors import UserError

UNK = "<unk>"
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
