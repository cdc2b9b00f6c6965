"""Minimal pairs out of templates and a lexicon: Marvin & Linzen's, or a user's own. No torch here."""

from collections.abc import Collection, Iterator
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

from onlstm.paper.syntax.loading import load
from onlstm.paper.syntax.spec import Lexicon, Row, Spec, Template


class Item(NamedTuple):
    """A minimal pair, or a triple."""

    template: str
    """What it was made from; the name of its file, if it was read from one that does not say."""
    condition: str
    """Which setting of the template's features; may be empty."""
    sentences: tuple[str, ...]
    """Grammatical and ungrammatical, or with an intrusive one in between; one blank between words, no final period."""


def rows(spec: Spec | str | Path | None = None) -> tuple[Row, ...]:
    """Return the rows of the table; by default the 19 of the paper's Table 3.

    >>> rows()[3].name, rows()[3].templates
    ('In an object relative clause', ('obj_rel_within_anim', 'obj_rel_within_inanim'))
    """
    return (spec if isinstance(spec, Spec) else load(spec)).rows


def generate(
    spec: Spec | str | Path | None = None, *, lexicon: str = "", known: Collection[str] | None = None
) -> Iterator[Item]:
    """Return all items of a spec, a YAML file, or by default Marvin & Linzen's, template by template.

    Args:
        lexicon: the name of another lexicon in the spec; "emnlp2018" is that of the paper, while the default is that
            of the data.
        known: a model's words; entries of the lexicon with any other word, in any form, are not used. Templates that
            nothing is left for yield nothing.

    >>> next(generate())
    Item(template='simple_agrmt', condition='sing_MS_MV', sentences=('the author laughs', 'the author laugh'))
    """
    chosen = spec if isinstance(spec, Spec) else load(spec)
    words = chosen.words(lexicon, known)
    return chain.from_iterable(_items(template, chosen, words) for template in chosen.templates)


def _items(template: Template, spec: Spec, words: Lexicon) -> Iterator[Item]:
    """Yield a template's items, none twice."""
    asked = {slot.form for slot in template.slots()}
    varied = dict.fromkeys(f for f in (*template.condition, *sorted(asked)) if f in asked and f in spec.features)
    named = {value: place for values in spec.features.values() for place, value in enumerate(values)}
    changed = list(dict.fromkeys(slot.form for slot in template.slots() if slot.other))
    seen = set[Item]()
    for values in product(*(spec.features[feature] for feature in varied)):
        setting = dict(zip(varied, values, strict=True))
        condition = "_".join(setting.get(part, part) for part in template.condition)
        others = ([value for value in spec.features[f] if value != setting[f]] for f in changed)
        for other in product(*others):
            places = {"": 0} | {f: named[value] for f, value in setting.items()} | named
            places |= {"!" + f: named[value] for f, value in zip(changed, other, strict=True)}
            for sentences in _sentences(template, places, words):
                item = Item(template.name, condition, sentences)
                if item not in seen:
                    seen.add(item)
                    yield item


def _sentences(template: Template, places: dict[str, int], words: Lexicon) -> Iterator[tuple[str, ...]]:
    """Yield the sentences with every choice of words; `places` says which form a feature or value asks for.

    They end without a period: whoever scores them sets it.
    """
    names = list(dict.fromkeys(slot.name for slot in template.slots()))
    kinds = [next(slot.kind for slot in template.slots() if slot.name == name) for name in names]
    uses = [(names.index(slot.name), places[slot.other + slot.form]) for slot in template.slots()]
    entries = [
        [entry for entry in words[kind] if all(entry[place % len(entry)] for i, place in uses if names[i] == name)]
        for name, kind in zip(names, kinds, strict=True)
    ]
    rivals = [[i for i, each in enumerate(kinds) if each == kind] for kind in set(kinds) if kinds.count(kind) > 1]
    frame = "\n".join(
        " ".join(part.replace("%", "%%") if isinstance(part, str) else "%s" for part in sentence)
        for sentence in template.sentences
    )
    for chosen in product(*entries):
        if any(len({chosen[i] for i in those}) < len(those) for those in rivals):
            continue
        filled = frame % tuple([chosen[i][place % len(chosen[i])] for i, place in uses])
        sentences = tuple(sentence.removesuffix(".").rstrip() for sentence in filled.split("\n"))
        if len(set(sentences)) == len(sentences):
            yield sentences
