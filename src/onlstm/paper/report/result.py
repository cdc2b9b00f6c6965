"""A results file, and what it must have: a kind of result is a `Section`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onlstm.errors import UserError

Keys = Mapping[type, str]  # dotted keys, separated by blanks, by the type that is wanted there; "?": may be absent
_COMMON: Keys = {
    str: "name command machine versions.onlstm versions.torch versions.python",
    **{int: "threads", float: "seconds", list: "notes"},
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One results file that has every key of its kind."""

    name: str
    """The file's name without .json: unlike the recipe's it is unique on the page."""
    content: Mapping[str, Any]
    """The file."""

    def __getitem__(self, path: str) -> Any:
        """Return what stands at a dotted path such as `numbers.epochs`; None if nothing does."""
        return _at(self.content, path)


@dataclass(frozen=True, kw_only=True)
class Section:
    """What a kind of result looks like in its file and on the page."""

    title: str
    """Heading."""
    tables: Mapping[str, str]
    """Published tables that go below, each with a line to head it; "": none."""
    keys: Keys
    """What its files must have besides what all have."""
    entries: Mapping[str, Keys]
    """Objects or lists of objects, if they are there, and what each must have."""
    paragraphs: Callable[[Sequence[Result]], list[str]]
    """From results to paragraphs of Markdown."""


def read(path: Path, sections: Mapping[str, Section]) -> Result:
    """Return the result in a file; a broken or foreign one is the user's mistake."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # bytes that are no text are a ValueError, too
        raise UserError(f"{path}: not JSON ({error}); copy the run's result.json anew") from None
    _check(path, content, {int: "format_version", str: "kind"})
    if content["format_version"] != 1:
        raise UserError(f"{path}: format_version {content['format_version']} is not 1; run it again with this onlstm")
    if not (section := sections.get(content["kind"])):
        raise UserError(f"{path}: unknown kind {content['kind']!r}; known: {', '.join(sections)}; move it elsewhere")
    _check(path, content, _COMMON)
    _check(path, content, section.keys)
    for key, keys in section.entries.items():
        found = _at(content, key)
        for number, entry in enumerate(found if isinstance(found, list) else [found] * (found is not None)):
            _check(f"{path}: entry {number} of {key}", entry, keys)
    return Result(name=path.stem, content=content)


def _at(content: Any, path: str) -> Any:
    for key in path.split("."):
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def _check(where: Path | str, content: object, keys: Keys) -> None:
    """Refuse content that lacks one of the keys (null counts as lacking) or has another type there."""
    wanted = [(key, kind, _at(content, key.strip("?"))) for kind, names in keys.items() for key in names.split()]
    if missing := [key for key, _, value in wanted if value is None and not key.endswith("?")]:
        raise UserError(f"{where}: missing {', '.join(missing)}; is it a result.json that a run wrote?")
    for key, kind, value in ((key.strip("?"), kind, value) for key, kind, value in wanted if value is not None):
        if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool):
            raise UserError(f"{where}: {key} should be of type {kind.__name__}, is {json.dumps(value)[:40]}")
