"""Templates, lexicons and rows from YAML: Marvin & Linzen's, or your own. No torch here.

`marvin-linzen.yaml` begins with the notation. All of a file is checked when it is loaded, so that generating cannot
fail halfway.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from onlstm.errors import UserError, nearest
from onlstm.paper.results import typed
from onlstm.paper.syntax.templates import (
    PLACES,
    SENTENCES,
    Forms,
    Lexicon,
    Row,
    Slot,
    Spec,
    Template,
    items_of,
    rows_of,
)

_SLOT = re.compile(r"([^\s\[\]]+)\[(!?)([^\s\[\]!]*)\]")


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
    """A template in YAML."""

    grammatical: str
    ungrammatical: str
    intrusive: str = ""
    condition: str = ""


@dataclass(frozen=True, kw_only=True)
class _File:
    """What YAML may hold."""

    lexicon: Mapping[str, Sequence[str]]
    templates: Mapping[str, _Lines]
    features: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lexicons: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    rows: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]] | None = None


def load(path: str | Path | None = None) -> Spec:
    """Return what a YAML file holds; by default Marvin & Linzen's pairs.

    >>> len(load().templates), len(load().rows)
    (22, 19)
    """
    file = Path(path or "marvin-linzen.yaml")
    try:
        text = (file if path else resources.files(__package__) / file.name).read_text(encoding="utf-8")
        data = yaml.load(text, _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{file}:{line}: not YAML: {problem}; texts with [ or : may need quotes") from None
    content = typed(_File, data, str(file))
    try:
        _check_keys(data, _File, "")
        for name, lines in data["templates"].items():
            _check_keys(lines, _Lines, f"templates.{name}.")
        return _spec(content, str(file))
    except UserError as error:
        raise UserError(f"{file}: {error}") from None


def _check_keys(data: Mapping[str, object], kind: type, prefix: str) -> None:
    names = [entry.name for entry in fields(kind)]
    for key in data:
        _require(key in names, prefix + key, f"no such key; {nearest(key, names)}")


def _require(condition: object, where: str, problem: str) -> None:
    if not condition:
        raise UserError(f"{where}: {problem}")


def _spec(content: _File, file: str) -> Spec:
    own = {kind: _entries(words, f"lexicon.{kind}") for kind, words in content.lexicon.items()}
    lexicons: dict[str, Lexicon] = {"": own}
    for name, changes in content.lexicons.items():
        for kind in changes:
            _require(kind in own, f"lexicons.{name}.{kind}", f"not in lexicon; {nearest(kind, own)}")
        lexicons[name] = own | {kind: _entries(changes[kind], f"lexicons.{name}.{kind}") for kind in changes}
    sizes = _sizes(content.features)
    _require(content.templates, "templates", "at least one is needed")
    templates = {}
    for name, lines in content.templates.items():
        sentences = tuple(
            tuple(_part(token, lexicons, sizes, f"templates.{name}.{key}: {token}") for token in text.split())
            for key, text in ((key, getattr(lines, key)) for key in SENTENCES)
            if text or key != "intrusive"
        )
        slots = tuple(part for part in chain(*sentences) if isinstance(part, Slot))
        used = dict.fromkeys(slot.form for slot in slots if slot.form in content.features)
        condition = tuple(lines.condition.split("_") if lines.condition else used)
        templates[name] = Template(name, condition, sentences, slots)
        makes = next(items_of(templates[name], content.features, own), None)
        _require(makes, f"templates.{name}", "makes no sentences that differ; verb[!n] needs another form than verb[n]")
    rows = _rows(content.rows, templates)
    return Spec(file=file, features=content.features, lexicons=lexicons, templates=[*templates.values()], rows=rows)


def _sizes(features: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how many forms a word has that "", a feature, "!" and a feature, or a value asks for."""
    places = {"": (0, 1)}
    for feature, values in features.items():
        names = [(feature, -1), (f"!{feature}", -1), *((value, k) for k, value in enumerate(values))]
        for name, place in names:
            same = places.setdefault(name, (place, len(values))) == (place, len(values))
            _require(same, f"features.{feature}", f"{name} has another meaning, or another place in another feature")
    return {name: size for name, (_, size) in places.items()}


def _entries(words: Sequence[str], where: str) -> tuple[Forms, ...]:
    return tuple(_forms(entry, where) for entry in words)


def _forms(entry: str, where: str) -> Forms:
    """Return the forms of an entry.

    >>> _forms("is/are old", ""), _forms("-/people", ""), _forms("next to", "")
    (('is old', 'are old'), ('', 'people'), ('next to',))
    """
    words = [word.split("/") for word in entry.split()]
    sizes = {len(forms) for forms in words} - {1} or {1}
    fits = words and len(sizes) == 1 and all(map(all, words))
    _require(fits, where, f"{entry}: as many forms in each word are needed, with - for those that do not exist")
    phrases = [[forms[k % len(forms)] for forms in words] for k in range(*sizes)]
    return tuple("" if "-" in phrase and len(phrases) > 1 else " ".join(phrase) for phrase in phrases)


def _part(token: str, lexicons: Mapping[str, Lexicon], sizes: Mapping[str, int], where: str) -> str | Slot:
    """Return a word of a sentence, or its slot, which must ask for forms that all its words have."""
    slot = _SLOT.fullmatch(token)
    if not slot:
        bare = token in lexicons[""] or set(token) & set("[]")
        _require(not bare, where, "a kind of words needs a feature in brackets, as in verb[n] or verb[]")
        return token
    name, other, form = slot.groups()
    kind = name if name in lexicons[""] else name.rstrip("0123456789")
    _require(kind in lexicons[""], where, f"{name} is not in lexicon; {nearest(name, lexicons[''])}")
    _require(other + form in sizes, where, f"no feature {form}; {nearest(form, [*filter(str.isalnum, sizes)])}")
    for entry in chain.from_iterable(lexicon[kind] for lexicon in lexicons.values()):
        size = sizes[other + form]
        _require(len(entry) in (1, size), where, f"{'/'.join(entry)} has {len(entry)} forms, not {size}")
    return Slot(name, kind, other, form)


def _rows(
    groups: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]] | None, templates: Mapping[str, Template]
) -> list[Row]:
    rows = list[Row]()
    for template in templates.values() if groups is None else ():
        rows += rows_of(template.name, len(template.sentences), len(rows) + 1)
    for group, phenomena in (groups or {}).items():
        for phenomenon, named in phenomena.items():
            for name, parts in named.items():
                heads = {"number": len(rows) + 1, "group": group, "phenomenon": phenomenon, "name": name}
                rows.append(_row(heads, parts, templates, f"rows.{group}.{phenomenon}.{name}"))
    return rows


def _row(heads: dict[str, Any], parts: Sequence[str], templates: Mapping[str, Template], where: str) -> Row:
    """Return the row that counts some templates together; one of the parts may say which sentences it compares."""
    pooled = tuple(part for part in parts if ">" not in part)
    compared = [word.strip() for part in parts if ">" in part for word in part.split(">")] or SENTENCES[::2]
    fits = len(compared) == 2 and len({*compared} & {*SENTENCES}) == 2
    _require(fits, where, f"{' > '.join(compared)}: two of {', '.join(SENTENCES)} are needed")
    for name in pooled:
        _require(name in templates, where, f"no template {name}; {nearest(name, templates)}")
        lacks = "intrusive" in compared and len(templates[name].sentences) == 2
        _require(not lacks, where, f"{name} has no intrusive sentence")
    return Row(**heads, templates=pooled, compare=(PLACES[compared[0]], PLACES[compared[1]]))
