"""Templates and lexicons from YAML; `marvin-linzen.yaml` begins with the notation.

All of a file is checked when it is loaded, so that generating cannot fail halfway.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from onlstm.errors import UserError, nearest
from onlstm.paper.syntax.spec import PLACES, SENTENCES, Forms, Lexicon, Row, Slot, Spec, Template, rows_of

_KEYS = ("features", "lexicon", "lexicons", "templates", "rows")
_SLOT = re.compile(r"([^\s\[\]]+)\[(!?)([^\s\[\]!]*)\]")


class _Loader(yaml.BaseLoader):
    """Scalars stay strings ("no" is a word), and no key may stand twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value]
        for i, key in enumerate(keys):
            if any(key.value == before.value for before in keys[:i]):
                raise yaml.MarkedYAMLError(problem=f"{key.value} stands here twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


def load(path: str | Path | None = None) -> Spec:
    """Return what a YAML file holds; by default Marvin & Linzen's pairs.

    >>> len(load().templates), len(load().rows)
    (22, 19)
    """
    file = Path(path or "marvin-linzen.yaml")
    try:
        text = (file if path else resources.files(__package__) / file.name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    try:
        found = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{file}:{line}: not YAML: {problem}; texts with [ or : may need quotes") from None
    return _spec(_mapping(found, str(file), "lexicon and templates"), str(file))


def _spec(found: Mapping[str, Any], file: str) -> Spec:
    for key in found:
        if key not in _KEYS:
            raise UserError(f"{file}: {key}: no such key; {nearest(key, _KEYS)}")
    features = _features(found.get("features", {}), f"{file}: features")
    own = _lexicon(found.get("lexicon"), f"{file}: lexicon")
    lexicons = {"": own}
    more = _mapping(found.get("lexicons", {}), f"{file}: lexicons", "mine: {noun: [dog/dogs]}")
    for name, changes in more.items():
        lexicons[name] = own | _lexicon(changes, f"{file}: lexicons.{name}")
        for kind in lexicons[name].keys() - own.keys():
            raise UserError(f"{file}: lexicons.{name}.{kind}: not in lexicon; {nearest(kind, own)}")
    example = 'mine: {grammatical: "noun[n] verb[n]", ungrammatical: "noun[n] verb[!n]"}'
    templates = tuple(
        _template(name, lines, own, features, f"{file}: templates.{name}")
        for name, lines in _mapping(found.get("templates") or None, f"{file}: templates", example).items()
    )
    rows = _rows(found.get("rows"), {each.name: each for each in templates}, f"{file}: rows")
    spec = Spec(file=file, features=features, lexicons=lexicons, templates=templates, rows=rows)
    _check_forms(spec)
    return spec


def _features(found: Any, where: str) -> dict[str, tuple[str, ...]]:
    features, places = dict[str, tuple[str, ...]](), dict[str, tuple[int, int]]()
    for name, values in _mapping(found, where, "n: [sing, plur]").items():
        features[name] = tuple(_texts(values, f"{where}.{name}", "two values or more are needed, such as [sing, plur]"))
        if len(set(values)) < max(2, len(values)):
            raise UserError(f"{where}.{name}: two values or more are needed, all different, such as [sing, plur]")
        if re.search(r"[\s_!\[\]]", name):
            raise UserError(f"{where}.{name}: a name has no blanks, brackets, _ or !; choose another")
        for place, value in enumerate(values):
            if places.setdefault(value, (place, len(values))) != (place, len(values)):
                raise UserError(f"{where}.{name}: {value} has another place in another feature; rename one of the two")
    for name in features.keys() & places.keys():
        raise UserError(f"{where}.{name}: both a feature and a value; rename one of the two")
    return features


def _lexicon(found: Any, where: str) -> dict[str, tuple[Forms, ...]]:
    needed = "words are needed, such as [dog/dogs, cat/cats]"
    return {
        kind: tuple(_forms(entry, f"{where}.{kind}") for entry in _texts(entries, f"{where}.{kind}", needed))
        for kind, entries in _mapping(found, where, "noun: [dog/dogs, cat/cats]").items()
    }


def _forms(entry: str, where: str) -> Forms:
    """Return the forms of an entry.

    >>> _forms("is/are old", ""), _forms("-/people", ""), _forms("next to", "")
    (('is old', 'are old'), ('', 'people'), ('next to',))
    """
    words = [word.split("/") for word in entry.split()]
    counts = {len(forms) for forms in words if len(forms) > 1}
    if len(counts) > 1 or any("" in forms for forms in words):
        raise UserError(f"{where}: {entry}: as many forms in each word are needed, with - for those that do not exist")
    size = max(counts, default=1)
    absent = [any(len(forms) > 1 and forms[i] == "-" for forms in words) for i in range(size)]
    return tuple("" if absent[i] else " ".join(forms[i % len(forms)] for forms in words) for i in range(size))


def _template(name: str, found: Any, lexicon: Lexicon, features: Collection[str], where: str) -> Template:
    lines = _mapping(found, where, "grammatical: the noun[n] verb[n]")
    for key, line in lines.items():
        if key not in ("condition", *SENTENCES):
            raise UserError(f"{where}.{key}: no such key; {nearest(key, ('condition', *SENTENCES))}")
        if not isinstance(line, str) or not line.strip():
            raise UserError(f"{where}.{key}: one line of text is needed")
    for key in SENTENCES[::2]:
        if key not in lines:
            raise UserError(f"{where}: no {key} sentence; add the line {key}: …")
    sentences = tuple(tuple(_parts(lines[key], lexicon, f"{where}.{key}")) for key in SENTENCES if key in lines)
    if len(set(sentences)) < len(sentences):
        raise UserError(f"{where}: two of its sentences are the same; let them differ, as verb[n] and verb[!n] do")
    used = dict.fromkeys(part.form for part in chain(*sentences) if isinstance(part, Slot) and part.form in features)
    condition = lines["condition"].split("_") if "condition" in lines else used
    return Template(name=name, condition=tuple(condition), sentences=sentences)


def _parts(line: str, lexicon: Lexicon, where: str) -> Iterator[str | Slot]:
    """Yield the words and slots of a sentence."""
    for token in line.split():
        if slot := _SLOT.fullmatch(token):
            name, other, form = slot.groups()
            kind = name if name in lexicon else name.rstrip("0123456789")
            if kind not in lexicon:
                raise UserError(f"{where}: {token}: {name} is not in lexicon; {nearest(name, lexicon)}")
            yield Slot(name, kind, other, form)
        elif set(token) & set("[]"):
            raise UserError(f"{where}: {token}: brackets follow a kind of words and hold one feature: verb[n]")
        elif token in lexicon:
            raise UserError(f"{where}: {token} is a kind of words: write {token}[n] or {token}[], or rename the kind")
        else:
            yield token


def _check_forms(spec: Spec) -> None:
    """Raise a `UserError` if a slot asks for forms that are not there."""
    sizes = {name: len(values) for name, values in spec.features.items()}
    every = sizes | {value: len(values) for values in spec.features.values() for value in values}
    for template in spec.templates:
        for slot in template.slots():
            where = f"{spec.file}: templates.{template.name}: {slot.name}[{slot.other}{slot.form}]"
            there = sizes if slot.other else every
            if (slot.form or slot.other) and slot.form not in there:
                hint = nearest(slot.form, there) if there else "add it to features"
                raise UserError(f"{where}: no feature {slot.form}; {hint}")
            entries = [entry for lexicon in spec.lexicons.values() for entry in lexicon[slot.kind]]
            for entry in entries:
                if len(entry) not in (1, size := there.get(slot.form, 1)):
                    way = f"{slot.form} needs {size}" if slot.form else f"say for which feature: {slot.name}[n]"
                    raise UserError(f"{where}: {'/'.join(entry)} has {len(entry)} forms; {way}")
            if slot.other and all(len(entry) == 1 for entry in entries):
                raise UserError(f"{where}: no {slot.kind} has another form; write them as in sleeps/sleep")
            if len({each.name for each in template.slots() if each.kind == slot.kind}) > len(
                spec.lexicons[""][slot.kind]
            ):
                raise UserError(
                    f"{where}: too few of {slot.kind} in lexicon, for no sentence has one twice; add another"
                )


def _rows(found: Any, templates: Mapping[str, Template], where: str) -> tuple[Row, ...]:
    rows = list[Row]()
    if found is None:
        for name, template in templates.items():
            rows += rows_of(name, len(template.sentences), len(rows) + 1)
        return tuple(rows)
    for group, phenomena in _mapping(found, where, "a group, a phenomenon, a row: [template]").items():
        for phenomenon, named in _mapping(phenomena, f"{where}.{group}", "a phenomenon, a row: [template]").items():
            for name, parts in _mapping(named, f"{where}.{group}.{phenomenon}", "a row: [template]").items():
                here = f"{where}.{group}.{phenomenon}.{name}"
                pooled, compare = _row(_texts(parts, here, "templates are needed, as in [template]"), templates, here)
                heads = {"group": group, "phenomenon": phenomenon, "name": name}
                rows.append(Row(number=len(rows) + 1, templates=pooled, compare=compare, **heads))
    return tuple(rows)


def _row(parts: list[str], templates: Mapping[str, Template], where: str) -> tuple[tuple[str, ...], tuple[int, int]]:
    """Return the templates of a row and which sentences it compares."""
    pooled = tuple(part for part in parts if ">" not in part)
    for name in pooled:
        if name not in templates:
            raise UserError(f"{where}: no template {name}; {nearest(name, templates)}")
    better, worse = "grammatical", "ungrammatical"
    for part in set(parts) - set(pooled):
        better, _, worse = map(str.strip, part.partition(">"))
        if better == worse or not {better, worse} <= set(SENTENCES):
            raise UserError(f"{where}: {part}: two of {', '.join(SENTENCES)} are needed")
    for name in pooled:
        if "intrusive" in (better, worse) and len(templates[name].sentences) == 2:
            raise UserError(f"{where}: {name} has no intrusive sentence; add one, or compare the others")
    return pooled, (PLACES[better], PLACES[worse])


def _mapping(value: Any, where: str, example: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: entries are needed, such as {example}")
    return value


def _texts(value: Any, where: str, needed: str) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each.strip() for each in value):
        raise UserError(f"{where}: {needed}")
    return value
