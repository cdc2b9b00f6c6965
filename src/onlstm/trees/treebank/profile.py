"""`Profile`: all there is to know of one kind of treebank, as data; those in profiles/ have names, others a file.

Tags, tokens and file names are matched by shell patterns (`N*`, `[*]T[*]-?`), for "." and "$" are tags and mean
themselves there; what is cut out of labels and tokens is told by regular expressions.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml

from onlstm.errors import UserError, nearest
from onlstm.settings import from_yaml, typed

Patterns = tuple[str, ...]
Role = Literal["word", "punctuation", "null", "markup"]

_FILES = ("*.mrg", "*.psd", "*.ptb", "*.tree", "*.trees", "*.parse", "*.brackets", "*.tbf", "*.xml", "*.txt")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How one kind of treebank is read; in YAML each list may also be one string with blanks between its parts.

    >>> profile = load_profile("ptb")
    >>> profile.role("NN", "owl"), profile.role(".", "!"), profile.role("-NONE-", "*T*-1")
    ('word', 'punctuation', 'null')
    """

    name: str
    """Of its file, without .yaml."""
    format: Literal["brackets", "tiger-xml", "alpino-xml"] = "brackets"
    """How its files are written."""
    words: Patterns = ()
    """Tags of words."""
    punctuation: Patterns = ()
    """Tags of punctuation; a tag that is also in `words` is punctuation."""
    others: Literal["words", "punctuation"] = "words"
    """What leaves with any other tag are read as."""
    nulls: Patterns = ("-NONE-",)
    """Tags of leaves that no one wrote or said: never kept."""
    null_tokens: Patterns = ()
    """The same by the leaf's token, for kinds that give nulls other tags."""
    markup: Patterns = ("CODE",)
    """Tags of leaves that are not text: never kept, and a tree of nothing else is a defect."""
    roots: Patterns = ("TOP", "ROOT", "VROOT")
    """Labels of an outermost node that is no constituent, as one without a label is none."""
    fields: Patterns = ("word",)
    """What may stand in a leaf's bracket after the tag, in order; one is `word`, the others are left out."""
    word: str = ".+"
    """A regular expression; its first match in that token is the word, and without one the token is."""
    label: str = "-.*|.[^-=]*"
    """The same for a node's label; by default function tags and indices are cut off, as in NP-SBJ-1 and PP=2."""
    replace: tuple[tuple[str, str], ...] = ()
    """Regular expressions and what to put in place of their matches, one after the other, before brackets are read;
    ^ and $ are the ends of lines. Line breaks should stay, or the lines in messages are wrong."""
    comments: Patterns = ("#",)
    """Lines that start so hold no trees; they count as skipped, and are defects where one is strict."""
    heads: Patterns = ()
    """Labels of the edges that lead to heads, in XML; see `discontinuous`."""
    discontinuous: Literal["lift", "split", "drop"] = "lift"
    """What a node with a gap becomes: its part with the head, or the first part where none is marked, while the
    rest goes to the nodes above ("lift", as in treebanks that were put into the Penn Treebank's form); one node for
    each part; or nothing. Gaps of punctuation alone are none where it is left out."""
    encoding: str = ""
    """Of its files; by default UTF-8, or what an XML file declares."""
    files: Patterns = _FILES
    """Names of its files, in any case; in a folder those that match the first pattern that any matches are read."""

    def __post_init__(self) -> None:
        expressions = [("word", self.word, ""), ("label", self.label, ""), *(("replace", *r) for r in self.replace)]
        for key, old, new in expressions:
            try:
                re.sub(old, new, "")
            except (re.error, IndexError) as error:
                raise UserError(f"profile {self.name}: {key} {old}: no regular expression: {error}") from None
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise UserError(f"profile {self.name}: encoding {self.encoding}: Python knows none of this name") from None
        if "word" not in self.fields:
            raise UserError(f"profile {self.name}: fields {' '.join(self.fields)}: one must be word")

    def role(self, tag: str, token: str) -> Role:
        """Return what a leaf is."""
        if self.null_tokens and matcher(self.null_tokens)(token):
            return "null"
        return self._roles.get(tag) or self._roles.setdefault(tag, self._role(tag))

    def knows(self, tag: str) -> bool:
        """Return whether some pattern is meant for the tag, or any will do."""
        return not self.words or bool(matcher(self.words + self.punctuation + self.nulls + self.markup)(tag))

    def cut(self, label: str) -> str:
        """Return what is kept of a node's label.

        >>> [load_profile("ptb").cut(label) for label in ("NP-SBJ-1", "PP=2", "-NONE-")]
        ['NP', 'PP', '-NONE-']
        """
        return _matched(self.label, label)

    def spelled(self, token: str) -> str:
        """Return the word in a leaf's token."""
        return token if self.word == ".+" else _matched(self.word, token)

    @cached_property
    def _roles(self) -> dict[str, Role]:
        return {}

    def _role(self, tag: str) -> Role:
        ordered: tuple[tuple[Role, Patterns], ...] = (
            ("null", self.nulls),
            ("markup", self.markup),
            ("punctuation", self.punctuation),
            ("word", self.words),
        )
        other: Role = "word" if self.others == "words" else "punctuation"
        return next((role for role, patterns in ordered if matcher(patterns)(tag)), other)


@cache
def matcher(patterns: Patterns) -> Callable[[str], re.Match[str] | None]:
    """Return a function that is true for strings that one of the shell patterns matches."""
    return re.compile("|".join(map(translate, patterns)) or "(?!)").match


@lru_cache(maxsize=1 << 16)  # each label comes many times
def _matched(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[0] or text if found else text


def profiles() -> list[str]:
    """Return the names of the profiles that come with the package."""
    folder = resources.files("onlstm.trees.treebank") / "profiles"
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_profile(name: str) -> Profile:
    """Return the profile with a name in `profiles()`, or the one in a YAML file, whose name ends in .yaml."""
    if not name.endswith((".yaml", ".yml")):
        return _shipped(name)
    try:
        return _built(Path(name).read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"cannot read the treebank profile {name}: {why}") from None


@cache
def _shipped(name: str) -> Profile:
    if name not in profiles():
        raise UserError(f"unknown treebank profile {name!r}: choose auto, {', '.join(profiles())}, or a .yaml file")
    file = resources.files("onlstm.trees.treebank") / "profiles" / f"{name}.yaml"
    return _built(file.read_text(encoding="utf-8"), f"{name}.yaml")


def _built(text: str, file: str) -> Profile:
    """Return the profile of a YAML text; what it does not say is as in its `base`, the name of another, if it has one.

    A list that starts with a lone + adds to the base's.
    """
    found = from_yaml(text, file, yaml.BaseLoader)  # scalars stay strings: NO is a tag
    if not isinstance(found, Mapping):
        raise UserError(f"{file}: a profile has keys such as words, punctuation and nulls")
    hints = {key: hint for key, hint in get_type_hints(Profile).items() if key != "name"}
    base = _shipped(typed(str, found["base"], f"{file}: base")) if "base" in found else Profile(name="")
    values = {key: getattr(base, key) for key in hints}
    for key, value in found.items():
        if key in hints:
            values[key] = _value(hints[key], value, f"{file}: {key}", values[key])
        elif key != "base":
            raise UserError(f"{file}: {key}: no such setting; {nearest(str(key), ['base', *hints])}")
    return Profile(name=Path(file).stem, **values)


def _value(hint: Any, value: Any, where: str, inherited: Any) -> Any:
    if hint == Patterns:
        parts = value.split() if isinstance(value, str) else value
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise UserError(f"{where} {value}: patterns are needed, such as N* VB*")
        return (*inherited, *parts[1:]) if parts[:1] == ["+"] else tuple(parts)
    if hint == tuple[tuple[str, str], ...]:
        if not isinstance(value, Mapping) or not all(isinstance(new, str) for new in value.values()):
            raise UserError(f"{where} {value}: regular expressions and replacements are needed, such as '^<.*>$': ''")
        return tuple(value.items())
    return typed(hint, value, where)
