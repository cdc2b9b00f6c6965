"""`Profile`: everything that sets one kind of treebank apart, as data; those in profiles/ have names, others a file.

Tags, tokens and file names are matched by shell patterns (`N*`, `[*]T[*]-?`), in which the tags "." and "$" stand for
themselves; what to keep of labels and tokens is a regular expression.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Literal

import yaml

from onlstm import files
from onlstm.errors import UserError
from onlstm.records import from_yaml, plain, typed

Patterns = tuple[str, ...]
Role = Literal["word", "punctuation", "null", "markup"]

_FOLDER = Path(__file__).with_name("profiles")
_FILES = ("*.mrg", "*.psd", "*.ptb", "*.tree", "*.trees", "*.parse", "*.brackets", "*.tbf", "*.xml", "*.txt")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How one kind of treebank is read; in YAML a list may also be one string with blanks between its items.

    >>> profile = load_profile("ptb")
    >>> profile.role("NN", "owl"), profile.role(".", "!"), profile.role("-NONE-", "*T*-1")
    ('word', 'punctuation', 'null')
    """

    name: str
    """The name of its file, without .yaml."""
    format: Literal["brackets", "tiger-xml", "alpino-xml"] = "brackets"
    """How its files are written."""
    words: Patterns = ()
    """Tags of words."""
    punctuation: Patterns = ()
    """Tags of punctuation; a tag that is also in `words` is punctuation."""
    others: Literal["words", "punctuation"] = "words"
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
    discontinuous: Literal["lift", "split", "drop"] = "lift"
    """What a node with a gap becomes: its part with the head, or the first part if none is marked, while the rest goes
    to the nodes above ("lift", as in treebanks converted to the Penn Treebank's format); one node for each part; or
    nothing. Punctuation alone makes no gap."""
    encoding: str = ""
    """Of its files; by default UTF-8, or what an XML file declares."""
    files: Patterns = _FILES
    """Names of its files, in any case; in a folder the first pattern that any file matches decides."""

    def __post_init__(self) -> None:
        where = f"profile {self.name}:"
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
        if matcher(self.nulls)(tag):
            return "null"
        if matcher(self.markup)(tag):
            return "markup"
        if matcher(self.punctuation)(tag):
            return "punctuation"
        return "word" if self.others == "words" or matcher(self.words)(tag) else "punctuation"


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
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_profile(name: str) -> Profile:
    """Return the profile with a name in `profiles()`, or the one in a YAML file, whose name ends in .yaml."""
    return _read(Path(name)) if name.endswith((".yaml", ".yml")) else _shipped(name)


@cache
def _shipped(name: str) -> Profile:
    if name not in profiles():
        known = ", ".join(profiles())
        raise UserError(f"unknown treebank profile {name[:60]!r}: choose auto, {known}, or a .yaml file")
    return _read(_FOLDER / f"{name}.yaml")


def _read(path: Path) -> Profile:
    """Return the profile in a YAML file; settings that it lacks are those of its `base`, the name of another profile.

    A list that starts with a lone + adds to the base's.
    """
    settings = from_yaml(files.read(path), str(path), yaml.BaseLoader)  # scalars stay strings: NO is a tag
    if not isinstance(settings, dict) or "name" in settings:
        raise UserError(f"{path}: a profile has keys such as words, punctuation and nulls; the file names it")
    base = plain(_shipped(str(settings.pop("base"))) if "base" in settings else Profile(name=""))
    for key, value in settings.items():
        if isinstance(inherited := base.get(key), list):
            items = value.split() if isinstance(value, str) else value
            items = [list(item) for item in items.items()] if isinstance(items, dict) else items
            settings[key] = [*inherited, *items[1:]] if items[:1] == ["+"] else items
    return typed(Profile, base | settings | {"name": path.stem}, str(path), strict=True)
