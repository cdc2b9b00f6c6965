"""Treebanks: gold trees from a file, a folder or an archive, and their words as a language model's text has them."""

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from onlstm.errors import UserError
from onlstm.trees.tree import Tree, TreebankError
from onlstm.trees.treebank.archive import Split, decoded, read_files
from onlstm.trees.treebank.brackets import read_text
from onlstm.trees.treebank.graphs import read_xml
from onlstm.trees.treebank.profile import Profile, load_profile, profiles
from onlstm.trees.treebank.sentence import Defect, Sentence

__all__ = [
    "MAPPINGS",
    "Profile",
    "Split",
    "Treebank",
    "aligned",
    "load_profile",
    "original",
    "profiles",
    "read_treebank",
]

_XML = ((b"<alpino", "alpino"), (b"<corpus", "tiger"), (b"<terminals", "tiger"))
_LEAF = re.compile(rb"\(\s*([^\s()]+)\s+[^\s()][^()]*\)")
_SINICA = re.compile(rb"^#[0-9]+:\S*\[[0-9]+\] [^\s(]+\(", re.MULTILINE)
_ENOUGH = 0.8  # of the leaves: a profile that knows fewer tags is not the treebank's own
_PENN = 0.999  # the same for the Penn Treebank's, in which there are slips
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
    discontinuous: int
    """How many nodes of these trees had gaps; what they became is the profile's `discontinuous`."""
    warnings: tuple[str, ...]
    """What is doubtful about the profile, one line each."""


def read_treebank(
    path: str | Path,
    *,
    profile: str | Profile = "auto",
    split: Split = "all",
    max_len: int | None = None,
    punctuation: bool = False,
    strict: bool = False,
) -> Treebank:
    """Return the treebank in a file, a folder (the Penn Treebank's layout, NLTK's or any), a zip or a tar archive.

    Args:
        profile: one of `profiles()`, the name of a YAML file that holds your own, or a `Profile`; "auto" looks at the
            files, and is the Penn Treebank's where the tags are.
        split: "all" is every tree; "test" and "valid" are sections 23 and 22 of the Wall Street Journal, known by the
            names of its files, wsj_23….mrg; "wsj10" is all its sections, or the whole of another treebank, up to
            10 words.
        max_len: leave longer sentences out. Lengths are in words, whether punctuation is kept or not.
        punctuation: keep it, and all else but nulls and markup.
        strict: raise `TreebankError` at the first defect (brackets that do not balance, broken XML, comments, trees of
            markup, bytes in another encoding); by default these are skipped and counted.
    """
    limit = _limit(split, max_len)
    kind, files = _opened(Path(path), profile, split)
    found: list[tuple[Tree, tuple[str, ...], str]] = []
    skipped, leaves = Counter[str](), Counter[str]()
    gaps = 0
    for name, item in _items(files, kind, punctuation, strict):
        if isinstance(item, Defect):
            skipped[item.what] += 1
            continue
        leaves.update([tag for tag, _ in item.leaves])
        if item.tree is None or item.length == 0:
            skipped["no words"] += 1
        elif limit and item.length > limit:
            skipped[f"more than {limit} words"] += 1
        else:
            found.append((item.tree, item.tags, f"{name}:{item.line}"))
            gaps += item.gaps
    if not found and not skipped:
        raise UserError(
            f"{path}: no trees of profile {kind.name} ({kind.format}) in it; choose another file or profile"
        )
    trees, tags, sources = zip(*found, strict=True) if found else ((), (), ())
    return Treebank(
        profile=kind,
        split=split,
        punctuation=punctuation,
        trees=trees,
        tags=tags,
        sources=sources,
        skipped=dict(skipped),
        discontinuous=gaps,
        warnings=tuple(_doubts(kind, leaves)),
    )


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


def _limit(split: Split, max_len: int | None) -> int | None:
    """Return the length of the longest sentences to keep."""
    if split not in get_args(Split):
        raise UserError(f"unknown split {split!r}: choose one of {', '.join(get_args(Split))}")
    if max_len is not None and max_len < 1:
        raise UserError(f"max_len {max_len}: sentences have one word or more")
    return min((n for n in (max_len, 10 if split == "wsj10" else None) if n), default=None)


def _opened(path: Path, profile: str | Profile, split: Split) -> tuple[Profile, Iterable[tuple[str, bytes]]]:
    """Return how to read the files, and the files."""
    if profile == "auto":
        files = list(read_files(path, Profile(name="auto"), split))
        return _fitting([data for _, data in files]), files
    kind = profile if isinstance(profile, Profile) else load_profile(profile)
    return kind, read_files(path, kind, split)


def _fitting(files: list[bytes]) -> Profile:
    """Return the profile for the files, by their format or leaves: the Penn Treebank's, or that which knows most."""
    for mark, name in _XML:
        if any(data.removeprefix(BOM_UTF8).lstrip().startswith(b"<") and mark in data for data in files):
            return load_profile(name)
    if any(_SINICA.search(data) for data in files):
        return load_profile("sinica")
    found = Counter(chain.from_iterable(_LEAF.findall(data) for data in files))
    tags = Counter({tag.decode("utf-8", "replace"): count for tag, count in found.items()})
    penn = load_profile("ptb")
    if _known(penn, tags) >= _PENN:
        return penn
    named = [load_profile(name) for name in ("ptb", "ptb-wide", *profiles())]
    best = max((one for one in named if one.format == "brackets" and one.words), key=lambda one: _known(one, tags))
    return best if _known(best, tags) >= _ENOUGH else load_profile("ptb-wide")


def _known(profile: Profile, tags: Counter[str]) -> float:
    """Return the share of leaves with a tag that the profile knows."""
    return sum(count for tag, count in tags.items() if profile.knows(tag)) / tags.total() if tags else 1.0


def _doubts(profile: Profile, tags: Counter[str]) -> Iterator[str]:
    if (share := _known(profile, tags)) < _ENOUGH:
        unknown = [tag for tag, _ in tags.most_common() if not profile.knows(tag)]
        listed = ", ".join(unknown[:3]) + " …" * (len(unknown) > 3)
        yield (
            f"profile {profile.name} knows {share:.0%} of the leaves' tags, not {listed}; "
            "choose another profile, or write one in a .yaml file"
        )


def _items(
    files: Iterable[tuple[str, bytes]], profile: Profile, punctuation: bool, strict: bool
) -> Iterator[tuple[str, Sentence | Defect]]:
    """Yield what the files hold, with their names; if `strict`, raise at the first defect."""
    for name, data in files:
        if profile.format == "brackets":
            items = read_text(decoded(name, data, profile, strict), profile, punctuation)
        else:
            text = decoded(name, data, profile, strict=True) if profile.encoding else data
            items = read_xml(text, profile, punctuation)
        for item in items:
            if strict and isinstance(item, Defect):
                raise TreebankError(f"{name}:{item.line}: {item.what}")
            yield name, item
