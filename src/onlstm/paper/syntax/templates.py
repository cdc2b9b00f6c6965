"""Minimal pairs made from templates and a lexicon, and the rows of a table. `loading` reads them from YAML."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
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


class Item(NamedTuple):
    """A minimal pair, or a triple."""

    template: str
    """What it was made from; the name of its file, if it was read from one that does not say."""
    condition: str
    """Which setting of the template's features; may be empty."""
    sentences: tuple[str, ...]
    """Grammatical and ungrammatical, or with an intrusive one in between; single spaces, no final period."""


class Slot(NamedTuple):
    """A place for a word of the lexicon; all slots of a name hold the same word."""

    name: str
    kind: str
    other: str
    """"!": a form for another value of the feature."""
    form: str
    """A feature, one of its values, or "" for words that are always the same."""


class Template(NamedTuple):
    """Two or three sentences, in the order of `SENTENCES`, with slots."""

    name: str
    condition: tuple[str, ...]
    """Parts of an item's condition; features among them stand for their values."""
    sentences: tuple[tuple[str | Slot, ...], ...]
    slots: tuple[Slot, ...]
    """Those of all sentences."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: the templates whose items are counted together."""

    number: int
    """From 1."""
    group: str = ""
    """In the paper, short-term or long-term."""
    phenomenon: str = ""
    name: str
    templates: tuple[str, ...]
    compare: tuple[int, int] = (0, -1)
    """Which of an item's sentences should be likelier than which."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Everything in one file."""

    file: str
    features: Mapping[str, Sequence[str]]
    """Their values."""
    lexicons: Mapping[str, Lexicon]
    """By name; the file's own is ""."""
    templates: Sequence[Template]
    rows: Sequence[Row]

    def words(self, lexicon: str = "", known: Collection[str] | None = None) -> Lexicon:
        """Return a lexicon; if `known` is given, without entries that have an unknown word in any form."""
        if lexicon not in self.lexicons:
            named = ", ".join(filter(None, self.lexicons)) or "none but its own"
            raise UserError(f"{self.file}: no lexicon {lexicon!r}; there is {named}")
        if known is None:
            return self.lexicons[lexicon]
        vocabulary = frozenset(known)
        return {
            kind: tuple(entry for entry in entries if vocabulary.issuperset(" ".join(entry).split()))
            for kind, entries in self.lexicons[lexicon].items()
        }


def rows_of(template: str, sentences: int, first: int = 1) -> tuple[Row, ...]:
    """Return the rows for a template that no table mentions: one if it makes pairs, three if triples.

    >>> [row.name for row in rows_of("mine", 2)], [row.compare for row in rows_of("mine", 3)]
    (['mine'], [(0, 1), (1, -1), (0, -1)])
    """
    if sentences == 2:
        return (Row(number=first, name=template, templates=(template,)),)
    pairs = (SENTENCES[:2], SENTENCES[1:], SENTENCES[::2])
    return tuple(
        Row(number=first + k, name=f"{template} ({a} vs. {b})", templates=(template,), compare=(PLACES[a], PLACES[b]))
        for k, (a, b) in enumerate(pairs)
    )


def generate(spec: Spec, *, lexicon: str = "", known: Collection[str] | None = None) -> Iterator[Item]:
    """Return all items of a spec, template by template.

    Args:
        lexicon: the name of another lexicon in the spec.
        known: a model's words; entries of the lexicon with any other word, in any form, are not used. Templates that
            nothing is left for yield nothing.
    """
    words = spec.words(lexicon, known)
    return chain.from_iterable(items_of(template, spec.features, words) for template in spec.templates)


def items_of(template: Template, features: Mapping[str, Sequence[str]], words: Lexicon) -> Iterator[Item]:
    """Yield a template's items, none twice."""
    asked = {slot.form for slot in template.slots}
    varied = [*dict.fromkeys(f for f in (*template.condition, *sorted(asked)) if f in asked and f in features)]
    changed = [*dict.fromkeys(slot.form for slot in template.slots if slot.other)]
    places = {"": 0} | {value: place for values in features.values() for place, value in enumerate(values)}
    seen = set[Item]()
    for values in product(*(features[feature] for feature in varied)):
        setting = dict(zip(varied, values, strict=True))
        condition = "_".join(setting.get(part, part) for part in template.condition)
        here = {feature: places[value] for feature, value in setting.items()} | places
        for other in product(*([value for value in features[f] if value != setting[f]] for f in changed)):
            there = {f"!{feature}": places[value] for feature, value in zip(changed, other, strict=True)}
            for sentences in _sentences(template, here | there, words):
                item = Item(template.name, condition, sentences)
                if item not in seen:
                    seen.add(item)
                    yield item


def _sentences(template: Template, places: Mapping[str, int], words: Lexicon) -> Iterator[tuple[str, ...]]:
    """Yield the sentences with every choice of words; `places` says which form a feature or value asks for.

    They end without a period: whoever scores them sets it.
    """
    kinds = {slot.name: slot.kind for slot in template.slots}
    names = list(kinds)
    uses = [(names.index(slot.name), places[slot.other + slot.form]) for slot in template.slots]
    entries = [
        [entry for entry in words[kind] if all(entry[place % len(entry)] for k, place in uses if names[k] == name)]
        for name, kind in kinds.items()
    ]
    rivals = [(i, k) for i, k in combinations(range(len(names)), 2) if kinds[names[i]] == kinds[names[k]]]
    frame = "\n".join(
        " ".join(part.replace("%", "%%") if isinstance(part, str) else "%s" for part in sentence)
        for sentence in template.sentences
    )
    for chosen in product(*entries):
        if any(chosen[i] == chosen[k] for i, k in rivals):
            continue
        filled = frame % tuple([chosen[k][place % len(chosen[k])] for k, place in uses])
        sentences = tuple(sentence.removesuffix(".").rstrip() for sentence in filled.split("\n"))
        if len(set(sentences)) == len(sentences):
            yield sentences
