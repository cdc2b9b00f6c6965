"""Running text to sentences, one per line, as training and parsing expect them.

A sentence ends at . ! ? … and similar marks, with closing quotes and brackets, if whitespace and something that can
begin a sentence follow: a capital, a digit, a letter of a script without capitals. It does not end after an
abbreviation, an initial, or a word with periods inside, and it always ends with its line. Marks of other scripts
(。！？।) need no whitespace.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from onlstm.text.rules import ABBREVIATIONS

_MARKS = re.compile(r" @([-,.])@ ")
_BEFORE = re.compile(r" (?=(?:[.,;:!?%)\]]|'(?:s|t|d|m|re|ve|ll)|n't)(?: |$))")
_AFTER = re.compile(r"(?<=[(\[]) ")
_HEADING = re.compile(r"=.*=")
_END = re.compile(r"(?:[.!?…]+[\"'”’»)\]]*\s+|[。！？।॥]+[”’」』)\]]*\s*)")
_BEGIN = re.compile(r"[\"'“‘«¿¡(\[]*\s?(?:<unk>|.)")
_BEFORE_NUMBERS = {"no", "nos", "jan", "feb", "apr", "aug", "sept", "oct", "nov", "dec", "p", "pp", "vol", "fig"}
_ALSO_NEVER_LAST = {"vs", "cf", "e.g", "i.e", "lit", "ca", "approx", "ste", "op", "ed"}
_NEVER_LAST = frozenset(ABBREVIATIONS.split("|")) - _BEFORE_NUMBERS | _ALSO_NEVER_LAST


def sentences(line: str) -> list[str]:
    """Return the sentences of a line; none for a WikiText heading.

    >>> sentences("Dr. J. Smith came at 5 p.m. to St. Louis. “Why?” he asked. No. 7 was gone!")
    ['Dr. J. Smith came at 5 p.m. to St. Louis.', '“Why?” he asked.', 'No. 7 was gone!']
    >>> sentences("The well @-@ known game 's theme ( 3 @.@ 5 minutes ) did n't last . <unk> wrote it .")
    ["The well-known game's theme (3.5 minutes) didn't last.", '<unk> wrote it.']
    """
    line = joined(line)
    if _HEADING.fullmatch(line):
        return []
    split, start = [], 0
    for end in _END.finditer(line):
        if _ends(line[start : end.start()], end[0], line[end.end() :]):
            split.append(line[start : end.end()].strip())
            start = end.end()
    return [sentence for sentence in (*split, line[start:].strip()) if sentence]


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield each paragraph, ended by an empty line, as one line.

    >>> list(paragraphs(["It was", "late.", "", "", "He slept."]))
    ['It was late.', 'He slept.']
    """
    for filled, paragraph in groupby(lines, lambda line: bool(line.strip())):
        if filled:
            yield " ".join(paragraph)


def joined(line: str) -> str:
    """Return a line without the marks of tokenised text: @-@ inside words, spaces around punctuation.

    >>> joined(" it cost $ 1 @,@ 000 , he said . ")
    'it cost $ 1,000, he said.'
    """
    return _AFTER.sub("", _BEFORE.sub("", _MARKS.sub(r"\1", " ".join(line.split()))))


def _ends(before: str, mark: str, after: str) -> bool:
    """Return whether a sentence ends at `mark`, which includes the whitespace that follows."""
    first = _BEGIN.match(after)
    if not first:
        return not after
    letter = first[0][-1]
    if letter.islower() and not first[0].endswith("<unk>"):
        return False
    if mark.strip() != ".":
        return letter.isalnum() or letter == ">"
    word = before.rsplit(maxsplit=1)[-1].lstrip("\"'“‘«([") if before.strip() else "."
    if word.lower() in _BEFORE_NUMBERS and not word.isupper():
        return not letter.isdigit()
    initial = len(word) == 1 and word.isupper() and word != "I"
    return not initial and "." not in word and word.lower() not in _NEVER_LAST
