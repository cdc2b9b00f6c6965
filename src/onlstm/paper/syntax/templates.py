"""Minimal pairs made from templates and a lexicon: Marvin & Linzen's, or your own in YAML. No torch here.

`marvin-linzen.yaml` begins with the notation. All of a file is checked when it is loaded, so that generating cannot
fail halfway.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from onlstm.errors import UserError, nearest
from onlstm.records import from_yaml, typed

SENTENCES = ("grammatical", "intrusive", "ungrammatical")
"""Names of the sentences of a triple; a pair has the first and the last."""
_PLACES = {"grammatical": 0, "intrusive": 1, "ungrammatical": -1}
_SLOT = re.compile(r"([^\s\[\]]+)\[(!?[^\s\[\]!]*)\]")

Features = Mapping[str, Sequence[str]]
Groups = Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]
Lexicon = Mapping[str, Sequence[Sequence[str]]]
"""Words and phrases by kind: the forms of each in the order of a feature's values, "" for none; or just one form."""


class Item(NamedTuple):
    """A minimal pair, or a triple."""

    template: str
    """What it was made from; the name of its file, if it was read from one that does not say."""
    condition: str
    """Which setting of the template's features; may be empty."""
    sentences: tuple[str, ...]
    """Grammatical and ungrammatical, or with an intrusive one in between; single spaces, no final period."""


class Template(NamedTuple):
    """Two or three sentences with slots such as `verb[!n]`; slots of one name hold the same word."""

    name: str
    condition: Sequence[str]
    """Parts of an item's condition; features among them stand for their values."""
    text: str
    """One sentence per line, in the order of `SENTENCES`."""


class Row(NamedTuple):
    """A row of the table: the templates whose items are counted together."""

    number: int
    group: str
    """In the paper, short-term or long-term."""
    phenomenon: str
    name: str
    templates: Sequence[str]
    compare: tuple[int, int]
    """Which of an item's sentences should be likelier than which."""


class Spec(NamedTuple):
    """Everything in one file."""

    file: str
    features: Features
    lexicons: Mapping[str, Lexicon]
    """By name; the file's own is ""."""
    templates: Sequence[Template]
    rows: Sequence[Row]


def rows_of(template: str, sentences: int, first: int = 1) -> list[Row]:
    """Return the rows for a template that no table mentions: one if it makes pairs, three if triples."""
    if sentences == 2:
        return [Row(first, "", "", template, (template,), (0, -1))]
    pairs = enumerate((SENTENCES[:2], SENTENCES[1:], SENTENCES[::2]), first)
    names = [(number, f"{template} ({a} vs. {b})", (_PLACES[a], _PLACES[b])) for number, (a, b) in pairs]
    return [Row(number, "", "", name, (template,), compare) for number, name, compare in names]


def generate(spec: Spec, *, lexicon: str = "", known: Collection[str] | None = None) -> Iterator[Item]:
    """Return all items of a spec, template by template, with its own lexicon or another one, by name.

    If `known` is given, entries of the lexicon with any other word in any form are not used.
    """
    named = ", ".join(filter(None, spec.lexicons)) or "none but its own"
    _require(lexicon in spec.lexicons, spec.file, f"no lexicon {lexicon!r}; there is {named}")
    words = spec.lexicons[lexicon]
    if known is not None:
        known = frozenset(known)
        words = {kind: [e for e in entries if known.issuperset(" ".join(e).split())] for kind, entries in words.items()}
    return chain.from_iterable(_items(template, spec.features, words) for template in spec.templates)


def _items(template: Template, features: Features, words: Lexicon) -> Iterator[Item]:
    """Yield a template's items, none twice."""
    forms = [form for _, form in _SLOT.findall(template.text)]
    asked = {form.removeprefix("!") for form in forms} & features.keys()
    varied = [*dict.fromkeys(feature for feature in (*template.condition, *sorted(asked)) if feature in asked)]
    changed = [*dict.fromkeys(form[1:] for form in forms if form.startswith("!"))]
    places = {"": 0} | {value: place for values in features.values() for place, value in enumerate(values)}
    seen = set[Item]()
    for values in product(*(features[feature] for feature in varied)):
        setting = dict(zip(varied, values, strict=True))
        condition = "_".join(setting.get(part, part) for part in template.condition)
        here = {feature: places[value] for feature, value in setting.items()} | places
        for other in product(*([value for value in features[f] if value != setting[f]] for f in changed)):
            there = {f"!{feature}": places[value] for feature, value in zip(changed, other, strict=True)}
            for sentences in _sentences(template.text, here | there, words):
                item = Item(template.name, condition, sentences)
                if item not in seen:
                    seen.add(item)
                    yield item


def _sentences(text: str, places: Mapping[str, int], words: Lexicon) -> Iterator[tuple[str, ...]]:
    """Yield the sentences, without a period, with every choice of words; `places` has the forms that are asked for."""
    slots = _SLOT.findall(text)
    names = list(dict.fromkeys(name for name, _ in slots))
    kinds = [_kind(name, words) for name in names]
    uses = [(names.index(name), places[form]) for name, form in slots]
    entries = [
        [entry for entry in words[kind] if all(entry[place % len(entry)] for j, place in uses if j == k)]
        for k, kind in enumerate(kinds)
    ]
    rivals = [(i, k) for i, k in combinations(range(len(kinds)), 2) if kinds[i] == kinds[k]]
    frame = _SLOT.sub("%s", text.replace("%", "%%"))
    for chosen in product(*entries):
        if any(chosen[i] == chosen[k] for i, k in rivals):
            continue
        filled = frame % tuple([chosen[k][place % len(chosen[k])] for k, place in uses])
        sentences = tuple(sentence.removesuffix(".").rstrip() for sentence in filled.split("\n"))
        if len(set(sentences)) == len(sentences):
            yield sentences


def _kind(name: str, words: Lexicon) -> str:
    return name if name in words else name.rstrip("0123456789")


class _Loader(yaml.BaseLoader):
    """Scalars stay strings ("no" is a word), and no key may stand twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for k, (key, _) in enumerate(node.value):
            if key.value in keys[:k]:
                raise yaml.MarkedYAMLError(problem=f"{key.value} stands here twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


@dataclass(frozen=True, kw_only=True)
class _Lines:
    grammatical: str
    intrusive: str = ""
    ungrammatical: str
    condition: str = ""


@dataclass(frozen=True, kw_only=True)
class _File:
    features: Features = field(default_factory=dict)
    lexicon: Mapping[str, Sequence[str]]
    lexicons: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    templates: Mapping[str, _Lines]
    rows: Groups | None = None


def load(path: str | Path | None = None) -> Spec:
    """Return what a YAML file holds; by default Marvin & Linzen's pairs.

    >>> len(load().templates), len(load().rows)
    (22, 19)
    """
    file = Path(path or "marvin-linzen.yaml")
    try:
        source = file if path else resources.files(__package__) / file.name
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    content = typed(_File, from_yaml(text, str(file), _Loader), str(file), strict=True)
    try:
        return _spec(content, str(file))
    except UserError as error:
        raise UserError(f"{file}: {error}") from None


def _require(condition: object, where: str, problem: str) -> None:
    if not condition:
        raise UserError(f"{where}: {problem}")


def _spec(content: _File, file: str) -> Spec:
    lexicons = {"": _lexicon(content.lexicon, "lexicon")}
    for name, changes in content.lexicons.items():
        for kind in changes:
            _require(kind in lexicons[""], f"lexicons.{name}.{kind}", f"not in lexicon; {nearest(kind, lexicons[''])}")
        lexicons[name] = lexicons[""] | _lexicon(changes, f"lexicons.{name}")
    sizes, templates = _sizes(content.features), dict[str, Template]()
    for name, lines in content.templates.items():
        for key in SENTENCES:
            for token in getattr(lines, key).split():
                _check_token(token, lexicons, sizes, f"templates.{name}.{key}: {token}")
        texts = [" ".join(getattr(lines, key).split()) for key in SENTENCES if key != "intrusive" or lines.intrusive]
        forms = (form.removeprefix("!") for _, form in _SLOT.findall("\n".join(texts)))
        used = dict.fromkeys(form for form in forms if form in content.features)
        condition = lines.condition.split("_") if lines.condition else list(used)
        templates[name] = Template(name, condition, "\n".join(texts))
        makes = next(_items(templates[name], content.features, lexicons[""]), None)
        _require(makes, f"templates.{name}", "makes no sentences that differ; verb[!n] needs another form than verb[n]")
    _require(templates, "templates", "at least one is needed")
    return Spec(file, content.features, lexicons, [*templates.values()], _rows(content.rows, templates))


def _sizes(features: Features) -> dict[str, int]:
    """Return how many forms a word has that "", a feature, "!" and a feature, or a value asks for."""
    places = {"": (0, 1)}
    for feature, values in features.items():
        _require(len({*values}) == len(values) > 1, f"features.{feature}", "two different values or more are needed")
        for name, place in [(feature, -1), (f"!{feature}", -1), *((value, k) for k, value in enumerate(values))]:
            same = places.setdefault(name, (place, len(values))) == (place, len(values))
            _require(same, f"features.{feature}", f"{name} has another meaning, or another place in another feature")
    return {name: size for name, (_, size) in places.items()}


def _lexicon(words: Mapping[str, Sequence[str]], where: str) -> dict[str, list[list[str]]]:
    return {kind: [_forms(entry, f"{where}.{kind}") for entry in entries] for kind, entries in words.items()}


def _forms(entry: str, where: str) -> list[str]:
    """Return the forms of an entry.

    >>> _forms("is/are old", ""), _forms("-/people", ""), _forms("next to", "")
    (['is old', 'are old'], ['', 'people'], ['next to'])
    """
    words = [word.split("/") for word in entry.split()]
    sizes = {len(forms) for forms in words} - {1} or {1}
    fits = words and len(sizes) == 1 and all(map(all, words))
    _require(fits, where, f"{entry}: as many forms in each word are needed, with - for those that do not exist")
    phrases = [[forms[k % len(forms)] for forms in words] for k in range(*sizes)]
    return ["" if "-" in phrase and len(phrases) > 1 else " ".join(phrase) for phrase in phrases]


def _check_token(token: str, lexicons: Mapping[str, Lexicon], sizes: Mapping[str, int], where: str) -> None:
    """Raise a `UserError` unless a token is a plain word, or a slot for forms that all its words have."""
    slot, own = _SLOT.fullmatch(token), lexicons[""]
    if not slot:
        plain = token not in own and not set(token) & set("[]")
        _require(plain, where, "a kind of words needs a feature in brackets, as in verb[n] or verb[]")
        return
    kind, form = _kind(slot[1], own), slot[2]
    _require(kind in own, where, f"{slot[1]} is not in lexicon; {nearest(slot[1], own)}")
    _require(form in sizes, where, f"no feature {form.strip('!')}; {nearest(form, [*filter(str.isalnum, sizes)])}")
    for entry in chain.from_iterable(lexicon[kind] for lexicon in lexicons.values()):
        _require(len(entry) in (1, sizes[form]), where, f"{'/'.join(entry)} has {len(entry)} forms, not {sizes[form]}")


def _rows(groups: Groups | None, templates: Mapping[str, Template]) -> list[Row]:
    """Return the rows of a table, or without one those of every template."""
    rows = list[Row]()
    for template in templates.values() if groups is None else ():
        rows += rows_of(template.name, template.text.count("\n") + 1, len(rows) + 1)
    for group, phenomena in (groups or {}).items():
        for phenomenon, named in phenomena.items():
            for name, parts in named.items():
                pooled = tuple(part for part in parts if ">" not in part)
                compare = _compared(parts, templates, f"rows.{group}.{phenomenon}.{name}")
                rows.append(Row(len(rows) + 1, group, phenomenon, name, pooled, compare))
    return rows


def _compared(parts: Sequence[str], templates: Mapping[str, Template], where: str) -> tuple[int, int]:
    """Return which sentences a row compares: those of a part such as `intrusive > ungrammatical`, if there is one."""
    names = [word.strip() for part in parts if ">" in part for word in part.split(">")] or SENTENCES[::2]
    fits = len(names) == 2 and len({*names} & {*SENTENCES}) == 2
    _require(fits, where, f"{' > '.join(names)}: two of {', '.join(SENTENCES)} are needed")
    pooled = [part for part in parts if ">" not in part]
    _require(pooled, where, "the name of a template is needed")
    for name in pooled:
        _require(name in templates, where, f"no template {name}; {nearest(name, templates)}")
        triple = templates[name].text.count("\n") == 2
        _require("intrusive" not in names or triple, where, f"{name} has no intrusive sentence")
    return _PLACES[names[0]], _PLACES[names[1]]
