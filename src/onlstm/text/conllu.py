"""CoNLL-U, the columns of Universal Dependencies: sentences to lines of text, and lines of text to sentences.

The words of a sentence are the rows with a whole number as ID: of French `du`, the multiword token 2-3, the words `de`
and `le` in rows 2 and 3. Rows of multiword tokens and of empty nodes (8.1) are no words. A blank inside a word becomes
`_`. The reader of text, `onlstm.text.sources`, tells such a file by its first row.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from onlstm.errors import UserError

_ROW = re.compile(r"(?:([1-9][0-9]{0,8})|[0-9]+[-.][0-9]+)\t([^\t]+)(?:\t[^\t]*){8}")
_UNDECIDED = 1000
"""Comments after which a file is no longer expected to be CoNLL-U."""


class ConlluLine(str):
    """A sentence as a line of text, its words with blanks between."""

    rows: tuple[str, ...]
    """Its lines in the file: comments and columns."""
    number: int
    """That of the first of them."""

    @classmethod
    def of(cls, rows: Sequence[str], number: int, name: str) -> "ConlluLine":
        """Return the sentence that begins in line `number` of a file; or a `UserError` that names the line."""
        words: list[str] = []
        for place, row in enumerate(rows, number):
            match = _ROW.fullmatch(row)
            if not match and not row.startswith("#"):
                wrong = "not a row of CoNLL-U, which has a number and ten columns with tabs between"
                raise UserError(f"{name}:{place}: {wrong}; mend it, or leave the sentence out")
            if match and match[1]:
                if int(match[1]) != len(words) + 1:
                    wrong = f"word {match[1]} after word {len(words)}"
                    raise UserError(f"{name}:{place}: {wrong}; put an empty line between sentences of CoNLL-U")
                words.append("_".join(match[2].split()) or "_")
        if len(words) > 1 and set(words) == {"_"}:
            wrong = "every word is _: the treebank comes without its text"
            raise UserError(f"{name}:{number}: {wrong}; merge it in as the treebank's README says")
        line = cls(" ".join(words))
        line.rows, line.number = tuple(rows), number
        return line

    @property
    def text(self) -> str:
        """The sentence as it was written, if a comment `# text = …` has it; else the words."""
        return next((text for row in self.rows if (text := _comment(row, "text"))), str(self))


def is_conllu(lines: Iterable[str]) -> bool | None:
    """Return whether the first lines of a file are CoNLL-U; None if they do not tell.

    >>> is_conllu(["# text = Dogs bark", "1\\tDogs" + 8 * "\\t_"]), is_conllu(["1 dog"]), is_conllu(["# dogs"])
    (True, False, None)
    """
    for count, line in enumerate(lines):
        if count == _UNDECIDED or not (line.startswith("#") or (count and not line)):
            return bool(_ROW.fullmatch(line))
    return None


def sentences(blocks: Iterable[list[str]], name: str, defects: dict[int, str]) -> Iterator[list[str]]:
    """Yield the sentences of blocks of lines, a `ConlluLine` each, as they come.

    Args:
        name: what messages call the file.
        defects: messages by the number of the line, which becomes that of the sentence; both count from 1.
    """
    rows: list[str] = []
    number = count = 0
    for lines in chain(blocks, [[""]]):  # an empty line ends the last sentence, too
        block: list[str] = []
        for line in lines:
            number += 1
            if line and not line.isspace():
                rows.append(line)
                continue
            if sentence := ConlluLine.of(rows, number - len(rows), name):
                block.append(sentence)
                count += 1
            for place in range(number - len(rows), number):
                if place in defects:
                    defects[count] = defects.pop(place)
            rows = []
        yield block


def _comment(row: str, key: str) -> str:
    """Return the value of a comment such as `# text = Dogs bark.`; empty if the row is none."""
    name, equals, value = row.removeprefix("#").partition("=")
    return value.strip() if row.startswith("#") and equals and name.strip() == key else ""


def rows_of(words: Sequence[str], text: str, id: str) -> list[str]:
    """Return the comments and columns of a sentence; columns that are not known are `_`."""
    return [f"# sent_id = {id}", f"# text = {text}", *(f"{k}\t{word}" + 8 * "\t_" for k, word in enumerate(words, 1))]


def with_parse(rows: Sequence[str], parse: str) -> str:
    """Return a sentence with its tree as the last comment; one that was there is replaced.

    >>> print(with_parse(rows_of(["Dogs"], "Dogs!", "1"), "( Dogs )").expandtabs(2))
    # sent_id = 1
    # text = Dogs!
    # parse = ( Dogs )
    1 Dogs  _ _ _ _ _ _ _ _
    """
    comments = [row for row in rows if row.startswith("#") and not _comment(row, "parse")]
    columns = [row for row in rows if not row.startswith("#")]
    return "\n".join([*comments, *[f"# parse = {parse}"] * bool(parse), *columns])
