"""Treebanks: gold trees from a file, a folder or an archive, and their words as a language model's text has them."""

import lzma
import re
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal, get_args

from onlstm.errors import UserError
from onlstm.trees.tree import Tree, TreebankError
from onlstm.trees.treebank.brackets import PTB, PTB_WIDE, Defect, Profile, read_text

__all__ = ["MAPPINGS", "PROFILES", "Profile", "Split", "Treebank", "aligned", "original", "read_treebank"]

Split = Literal["all", "wsj10", "test", "valid"]

PROFILES: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in (PTB, PTB_WIDE)})
"""The profiles by name."""

_SECTIONS = {"test": "23", "valid": "22"}
_WSJ_FILE = re.compile(r"wsj_(\d\d)\d\d\.[^/]*", re.IGNORECASE)
_UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error)
_DIGITS = re.compile("[0-9]+")
_NUMBER = re.compile(r"[0-9.,:\\/+-]*[0-9][0-9.,:\\/+-]*")


@dataclass(frozen=True, kw_only=True)
class Treebank:
    """Gold trees, in the order of their files' names, and what was left out."""

    profile: Profile
    """How it was read."""
    split: Split
    """What was read."""
    punctuation: bool
    """Whether the trees hold all of the text, not its words only."""
    trees: tuple[Tree, ...]
    """Unary chains are kept; tags are not among the nodes, nor nodes in which nothing is left."""
    tags: tuple[tuple[str, ...], ...]
    """The part of speech of each word of each tree."""
    sources: tuple[str, ...]
    """Where each tree starts, as file:line."""
    skipped: Mapping[str, int]
    """How many trees were left out, by reason; comment lines count as well."""


def read_treebank(
    path: str | Path,
    *,
    profile: str | Profile = "ptb",
    split: Split = "all",
    max_len: int | None = None,
    punctuation: bool = False,
    strict: bool = False,
) -> Treebank:
    """Return the treebank in a file, a folder (the Penn Treebank's layout, NLTK's or any), a zip or a tar archive.

    Args:
        profile: one of `PROFILES` or your own.
        split: "all" is every tree; "test" and "valid" are sections 23 and 22 of the Wall Street Journal, known by the
            names of its files, wsj_23….mrg; "wsj10" is all its sections, or the whole of another treebank, up to
            10 words.
        max_len: leave longer sentences out. Lengths are in words, whether punctuation is kept or not.
        punctuation: keep it, and all else but nulls and markup.
        strict: raise `TreebankError` at the first defect (brackets that do not balance, comments, trees of markup);
            by default these are skipped and counted.
    """
    kind = _profile(profile)
    limit = _limit(split, max_len)
    found: list[tuple[Tree, tuple[str, ...], str]] = []
    skipped: Counter[str] = Counter()
    for name, text in _texts(Path(path), kind, split):
        for item in read_text(text, kind, punctuation):
            if isinstance(item, Defect):
                if strict:
                    raise TreebankError(f"{name}:{item.line}: {item.what}")
                skipped[item.what] += 1
            elif item.tree is None or item.length == 0:
                skipped["no words"] += 1
            elif limit and item.length > limit:
                skipped[f"more than {limit} words"] += 1
            else:
                found.append((item.tree, item.tags, f"{name}:{item.line}"))
    trees, tags, sources = zip(*found, strict=True) if found else ((), (), ())
    kept = {"trees": trees, "tags": tags, "sources": sources}
    return Treebank(profile=kind, split=split, punctuation=punctuation, skipped=dict(skipped), **kept)


def original(word: str) -> str:
    """Return the word as the original code looks it up: lower case, each run of digits an N.

    >>> [original(word) for word in ("The", "75.3", "1,000", "%")]
    ['the', 'N.N', 'N,N', '%']
    """
    return _DIGITS.sub("N", word.lower())


def aligned(word: str) -> str:
    """Return the word as the Penn Treebank's language-modelling text has it: lower case, numbers and "%" an N.

    >>> [aligned(word) for word in ("The", "75.3", "1,000", "%", "1980s")]
    ['the', 'N', 'N', 'N', '1980s']
    """
    return "N" if word == "%" or _NUMBER.fullmatch(word) else word.lower()


MAPPINGS: Mapping[str, Callable[[str], str]] = MappingProxyType({"original": original, "aligned": aligned})
"""From a treebank's word to what a model looks up, by name."""


def _profile(profile: str | Profile) -> Profile:
    if isinstance(profile, Profile):
        return profile
    if profile not in PROFILES:
        raise UserError(f"unknown treebank profile {profile!r}: choose one of {', '.join(PROFILES)}")
    return PROFILES[profile]


def _limit(split: Split, max_len: int | None) -> int | None:
    """Return the length of the longest sentences to keep."""
    if split not in get_args(Split):
        raise UserError(f"unknown split {split!r}: choose one of {', '.join(get_args(Split))}")
    if max_len is not None and max_len < 1:
        raise UserError(f"max_len {max_len}: sentences have one word or more")
    return min((n for n in (max_len, 10 if split == "wsj10" else None) if n), default=None)


def _texts(path: Path, profile: Profile, split: Split) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each file of the split."""
    for name, data in _files(path, lambda names: _of_split(_of_profile(names, profile), split, path)):
        try:
            yield name, data.decode(profile.encoding)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise TreebankError(f"{name}:{line}: not {profile.encoding}, as profile {profile.name} expects") from error


def _files(path: Path, choose: Callable[[Iterable[str]], list[str]]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of the chosen files in a folder or archive, or of the one file."""
    try:
        if path.is_dir():
            for name in choose(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()):
                yield name, (path / name).read_bytes()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in choose(info.filename for info in archive.infolist() if not info.is_dir()):
                    yield name, archive.read(name)
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                members = {member.name: member for member in tar if member.isfile()}
                for name in choose(members):
                    file = tar.extractfile(members[name])
                    yield name, file.read() if file else b""
        else:
            for name in choose([path.name]):
                yield name, path.read_bytes()
    except _UNREADABLE as error:
        raise UserError(f"cannot read the treebank {path}: {getattr(error, 'strerror', None) or error}") from error


def _of_profile(names: Iterable[str], profile: Profile) -> list[str]:
    """Return the names with the first of the profile's suffixes that occurs, sorted; if none does, all but READMEs."""
    seen = sorted(name for name in names if not any(part[:1] in "._" for part in PurePosixPath(name).parts))
    for suffix in profile.suffixes:
        if chosen := [name for name in seen if name.lower().endswith(suffix)]:
            return chosen
    return [name for name in seen if not PurePosixPath(name).name.lower().startswith("readme")]


def _of_split(names: list[str], split: Split, path: Path) -> list[str]:
    """Return the names that belong to the split; there must be one."""
    if not names:
        raise UserError(f"no treebank files in {path}")
    if split == "all":
        return names
    sections = {name: match[1] for name in names if (match := _WSJ_FILE.fullmatch(PurePosixPath(name).name))}
    if split == "wsj10":
        return list(sections) or names
    chosen = [name for name, section in sections.items() if section == _SECTIONS[split]]
    if not chosen:
        there = f"its sections are {', '.join(sorted(set(sections.values())))}" if sections else "no file is named so"
        raise UserError(f"{path}: split {split} is wsj_{_SECTIONS[split]}….mrg, but {there}; choose split all or wsj10")
    return chosen
