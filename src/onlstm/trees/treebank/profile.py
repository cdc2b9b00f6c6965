"""`Profile`: everything that sets one kind of treebank apart, as data; those in profiles/ have names, others a file.

Tags, tokens and file names are matched by shell patterns (`N*`, `[*]T[*]-?`), in which the tags "." and "$" stand for
themselves; what to keep of labels and tokens is a regular expression.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import translate
from functools import cache, cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from onlstm import files
from onlstm.errors import UserError, nearest, one_of

Patterns = tuple[str, ...]
Role = Literal["word", "punctuation", "null", "markup"]
Format = Literal["brackets", "tiger-xml", "alpino-xml"]
Others = Literal["words", "punctuation"]
Discontinuous = Literal["lift", "split", "drop"]

_FOLDER = resources.files("onlstm.trees.treebank") / "profiles"
_FILES = ("*.mrg", "*.psd", "*.ptb", "*.tree", "*.trees", "*.parse", "*.brackets", "*.tbf", "*.xml", "*.txt")
_CHOICES = {"format": get_args(Format), "others": get_args(Others), "discontinuous": get_args(Discontinuous)}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How one kind of treebank is read; in YAML a list may also be one string with blanks between its items.

    >>> profile = load_profile("ptb")
    >>> profile.role("NN", "owl"), profile.role(".", "!"), profile.role("-NONE-", "*T*-1")
    ('word', 'punctuation', 'null')
    """

    name: str
    """The name of its file, without .yaml."""
    format: Format = "brackets"
    """How its files are written."""
    words: Patterns = ()
    """Tags of words."""
    punctuation: Patterns = ()
    """Tags of punctuation; a tag that is also in `words` is punctuation."""
    others: Others = "words"
    """What leaves with any other tag are read as."""
    nulls: Patterns = ("-NONE-",)
    """Tags of leaves that nobody wrote or said: never kept."""
    null_tokens: Patterns = ()
    """The same by the leaf's token, for treebanks that give nulls other tags."""
    markup: Patterns = ("CODE",)
    """Tags of leaves that are not text: never kept, and a tree of nothing else is a defect."""
    roots: Patterns = ("TOP", "ROOT", "VROOT")
    """Labels of an outermost node that is no constituent; one without a label never is."""
    fields: Patterns = ("word",)
    """What may follow the tag in a leaf's bracket, in order; one is `word`, the others are left out."""
    word: str = ".+"
    """A regular expression; the word is its first match in that token, or else the token."""
    label: str = "-.*|.[^-=]*"
    """The same for a node's label; by default function tags and indices are cut off, as in NP-SBJ-1 and PP=2."""
    replace: tuple[tuple[str, str], ...] = ()
    """Regular expressions and replacements, applied in turn before brackets are read; ^ and $ are the ends of lines.
    Line breaks should stay, or messages name the wrong line."""
    comments: Patterns = ("#",)
    """Lines that start like this hold no trees; they are counted as skipped, and are defects to a strict reader."""
    heads: Patterns = ()
    """Labels of the edges that lead to heads, in XML; see `discontinuous`."""
    discontinuous: Discontinuous = "lift"
    """What a node with a gap becomes: its part with the head, or the first part if none is marked, while the rest goes
    to the nodes above ("lift", as in treebanks converted to the Penn Treebank's format); one node for each part; or
    nothing. Punctuation alone makes no gap."""
    encoding: str = ""
    """Of its files; by default UTF-8, or what an XML file declares."""
    files: Patterns = _FILES
    """Names of its files, in any case; in a folder the first pattern that any file matches decides."""

    def __post_init__(self) -> None:
        where = f"profile {self.name}:"
        for key, choices in _CHOICES.items():
            one_of(f"{where} {key}", getattr(self, key), choices)
        expressions = [("word", self.word, ""), ("label", self.label, ""), *(("replace", *r) for r in self.replace)]
        for key, old, new in expressions:
            try:
                re.sub(old, new, "")
            except (re.error, IndexError) as error:
                raise UserError(f"{where} {key} {old}: no regular expression: {error}") from None
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise UserError(f"{where} encoding {self.encoding}: not known to Python") from None
        if "word" not in self.fields:
            raise UserError(f"{where} fields {' '.join(self.fields)}: one must be word")

    def role(self, tag: str, token: str) -> Role:
        """Return what a leaf is."""
        if self.null_tokens and matcher(self.null_tokens)(token):
            return "null"
        return self._roles.get(tag) or self._roles.setdefault(tag, self._role(tag))

    def knows(self, tag: str) -> bool:
        """Return whether a pattern matches the tag; without patterns for words, any tag will do."""
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
        patterns: dict[Role, Patterns] = {
            "null": self.nulls,
            "markup": self.markup,
            "punctuation": self.punctuation,
            "word": self.words,
        }
        other: Role = "word" if self.others == "words" else "punctuation"
        return next((role for role in patterns if matcher(patterns[role])(tag)), other)


@cache
def matcher(patterns: Patterns) -> Callable[[str], re.Match[str] | None]:
    """Return a function that is true for strings that one of the shell patterns matches."""
    return re.compile("|".join(map(translate, patterns)) or "(?!)").match


@lru_cache(maxsize=1 << 16)  # each label occurs many times
def _matched(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[0] or text if match else text


def profiles() -> list[str]:
    """Return the names of the profiles that come with the package."""
    return sorted(item.name.removesuffix(".yaml") for item in _FOLDER.iterdir() if item.name.endswith(".yaml"))


def load_profile(name: str) -> Profile:
    """Return the profile with a name in `profiles()`, or the one in a YAML file, whose name ends in .yaml."""
    return _built(files.read(Path(name)), name) if name.endswith((".yaml", ".yml")) else _shipped(name)


@cache
def _shipped(name: str) -> Profile:
    if name not in profiles():
        raise UserError(f"unknown treebank profile {name!r}: choose auto, {', '.join(profiles())}, or a .yaml file")
    return _built((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), f"{name}.yaml")


def _built(text: str, file: str) -> Profile:
    """Return the profile of a YAML text; settings that it lacks are those of its `base`, the name of another profile.

    A list that starts with a lone + adds to the base's.
    """
    try:
        settings = yaml.load(text, yaml.BaseLoader)  # scalars stay strings: NO is a tag
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{file}:{line}: not YAML: {error.problem}") from None
    if not isinstance(settings, Mapping):
        raise UserError(f"{file}: a profile has keys such as words, punctuation and nulls")
    name, defaults = Path(file).stem, Profile(name="")
    known = ["base", *(field.name for field in fields(Profile) if field.name != "name")]
    for key in settings:
        if key not in known:
            raise UserError(f"{file}: {key}: no such setting; {nearest(str(key), known)}")
    base = _shipped(str(settings["base"])) if "base" in settings else defaults
    given = {key: value for key, value in settings.items() if key != "base"}
    values = {key: _value(getattr(base, key), value, f"{file}: {key}") for key, value in given.items()}
    return replace(base, name=name, **values)


def _value(inherited: Any, value: Any, where: str) -> Any:
    """Return a setting of the type that the base's has."""
    if isinstance(inherited, str):
        if not isinstance(value, str):
            raise UserError(f"{where} {value}: a word is needed")
        return value
    if where.endswith(": replace"):
        if not isinstance(value, Mapping) or not all(isinstance(new, str) for new in value.values()):
            raise UserError(f"{where} {value}: regular expressions and replacements are needed, such as '^<.*>$': ''")
        return tuple(value.items())
    items = value.split() if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise UserError(f"{where} {value}: patterns are needed, such as N* VB*")
    return (*inherited, *items[1:]) if items[:1] == ["+"] else tuple(items)
