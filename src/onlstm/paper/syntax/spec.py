"""What minimal pairs are made of: templates, a lexicon and the rows of a table. `loading` reads them from YAML."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from onlstm.errors import UserError

SENTENCES = ("grammatical", "intrusive", "ungrammatical")
"""Names of the sentences of a triple; a pair has the first and the last."""
PLACES = {"grammatical": 0, "intrusive": 1, "ungrammatical": -1}
"""Where they stand among an item's, be it a pair or a triple."""

Forms = tuple[str, ...]
"""Of a word or phrase, in the order of a feature's values, "" if it has none; just one if it is always the same."""
Lexicon = Mapping[str, tuple[Forms, ...]]
"""Words and phrases by kind."""


class Slot(NamedTuple):
    """A place for a word of the lexicon; all slots of a name hold the same word."""

    name: str
    kind: str
    """Of the lexicon."""
    other: str
    """"!": a form for another value of the feature."""
    form: str
    """A feature, one of its values, or "" for words that are always the same."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """Two or three sentences with slots."""

    name: str
    condition: tuple[str, ...]
    """Parts of its name; features among them stand for their values."""
    sentences: tuple[tuple[str | Slot, ...], ...]
    """In the order of `SENTENCES`."""

    def slots(self) -> list[Slot]:
        """Return the slots of all sentences."""
        return [part for part in chain(*self.sentences) if isinstance(part, Slot)]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table."""

    number: int
    """From 1."""
    group: str = ""
    """In the paper, short-term or long-term."""
    phenomenon: str = ""
    """Heading within the group."""
    name: str
    """What is tested, in words."""
    templates: tuple[str, ...]
    """Those that are counted together."""
    compare: tuple[int, int] = (0, -1)
    """Which of an item's sentences should be likelier than which."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Everything in one file."""

    file: str
    """Its name."""
    features: Mapping[str, tuple[str, ...]]
    """Their values."""
    lexicons: Mapping[str, Lexicon]
    """By name; the file's own is ""."""
    templates: tuple[Template, ...]
    """In the order of the file."""
    rows: tuple[Row, ...]
    """Of the table."""

    def words(self, lexicon: str = "", known: Collection[str] | None = None) -> Lexicon:
        """Return a lexicon; if `known` is given, without entries that have an unknown word in any form."""
        if lexicon not in self.lexicons:
            named = ", ".join(filter(None, self.lexicons)) or "none but its own"
            raise UserError(f"{self.file}: no lexicon {lexicon!r}; there is {named}")
        entries, kept = self.lexicons[lexicon], frozenset(known or ())
        if known is None:
            return entries
        return {kind: tuple(e for e in all_ if kept.issuperset(" ".join(e).split())) for kind, all_ in entries.items()}


def rows_of(template: str, sentences: int, first: int = 1) -> tuple[Row, ...]:
    """Return the rows for a template that no table mentions: one if it makes pairs, three if triples.

    >>> [row.name for row in rows_of("mine", 2)], [row.compare for row in rows_of("mine", 3)]
    (['mine'], [(0, 1), (1, -1), (0, -1)])
    """
    if sentences == 2:
        return (Row(number=first, name=template, templates=(template,)),)
    pairs = (SENTENCES[:2], SENTENCES[1:], SENTENCES[::2])
    return tuple(
        Row(number=first + i, name=f"{template} ({a} vs. {b})", templates=(template,), compare=(PLACES[a], PLACES[b]))
        for i, (a, b) in enumerate(pairs)
    )
