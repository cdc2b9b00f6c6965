"""Treebanks: gold trees from a file, a folder or an archive."""

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, compress
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from onlstm import archive
from onlstm.errors import UserError, one_of
from onlstm.trees.tree import Tree, TreebankError
from onlstm.trees.treebank.brackets import read_text
from onlstm.trees.treebank.graphs import read_xml
from onlstm.trees.treebank.profile import Profile, load_profile, matcher, profiles
from onlstm.trees.treebank.sentence import Defect, Sentence, build

__all__ = ["Profile", "Split", "Treebank", "load_profile", "profiles", "read_treebank"]

Split = Literal["all", "wsj10", "test", "valid"]

_SECTIONS = {"test": "23", "valid": "22"}
_WSJ_FILE = re.compile(r"wsj_(\d\d)\d\d\.[^/]*", re.IGNORECASE)
_PACKED = re.compile(r"\.(gz|xz|bz2)$")
_XML = ((b"<alpino", "alpino"), (b"<corpus", "tiger"), (b"<terminals", "tiger"))
_SINICA = re.compile(rb"^#[0-9]+:\S*\[[0-9]+\] [^\s(]+\(", re.MULTILINE)
_LEAF = re.compile(rb"\(\s*([^\s()]+)\s+[^\s()][^()]*\)")
_ENOUGH = 0.8  # of the leaves: a profile that knows fewer tags is not the treebank's own
_PENN = 0.999  # the same for the Penn Treebank, which has a few slips
_UNDECODED = 0.001  # of a file's characters; letters with accents are more, even in text that is mostly brackets


@dataclass(frozen=True, kw_only=True)
class Treebank:
    """Gold trees, in the order of their files' names, and what was left out."""

    profile: Profile
    """How it was read."""
    split: Split
    """What was read."""
    punctuation: bool
    """Whether the trees hold all of the text, not only its words."""
    sentences: tuple[Sentence, ...] = field(repr=False)
    """Those with words, as their files have them; `trees` are the gold trees of them."""
    sources: tuple[str, ...]
    """Where each starts, as file:line."""
    skipped: Mapping[str, int]
    """How many were left out, by reason; comment lines are counted too."""
    warnings: tuple[str, ...]
    """What is doubtful about the profile, one line each."""

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        """Gold trees; unary chains are kept, tags are not among the nodes, nor nodes in which nothing is left."""
        return tuple(sentence.tree for sentence in self.sentences if sentence.tree)

    @property
    def tags(self) -> tuple[tuple[str, ...], ...]:
        """The part of speech of each word of each tree."""
        return tuple(sentence.tags for sentence in self.sentences)

    @property
    def discontinuous(self) -> int:
        """How many nodes of these trees had gaps; the profile's `discontinuous` says what became of them."""
        return sum(sentence.gaps for sentence in self.sentences)

    def view(self, *, profile: Profile | None = None, punctuation: bool = False) -> "Treebank":
        """Return the same sentences with punctuation or without, or by another profile of the same format."""
        kind = profile or self.profile
        if (kind, punctuation) == (self.profile, self.punctuation):
            return self
        views = [build(s.leaves, s.brackets, s.line, kind, punctuation, s.gaps) for s in self.sentences]
        sentences = tuple(view for view in views if isinstance(view, Sentence))
        sources = tuple(compress(self.sources, [isinstance(view, Sentence) for view in views]))
        return replace(self, profile=kind, punctuation=punctuation, sentences=sentences, sources=sources)


def read_treebank(
    path: str | Path,
    *,
    profile: str | Profile = "auto",
    split: Split = "all",
    max_len: int | None = None,
    punctuation: bool = False,
    strict: bool = False,
) -> Treebank:
    """Return the treebank in a file, a folder (in the Penn Treebank's layout, NLTK's or any other), a zip or a tar.

    Args:
        profile: one of `profiles()`, the name of a YAML file that holds your own, or a `Profile`; "auto" decides by
            the content of the files.
        split: "all" is every tree; "test" and "valid" are sections 23 and 22 of the Wall Street Journal, recognised by
            the names of its files, wsj_23….mrg; "wsj10" is all its sections, or the whole of another treebank, up to
            10 words.
        max_len: leave longer sentences out. Lengths are in words, whether punctuation is kept or not.
        punctuation: keep it, and everything else but nulls and markup.
        strict: raise `TreebankError` at the first defect (brackets that do not balance, broken XML, comments, trees of
            markup, bytes in another encoding); by default defects are skipped and counted.
    """
    one_of("split", split, get_args(Split))
    if max_len is not None and max_len < 1:
        raise UserError(f"max_len {max_len}: at least 1 is needed")
    limit = min(max_len or 10, 10) if split == "wsj10" else max_len
    kind, files = _opened(Path(path), profile, split)
    sentences, sources = list[Sentence](), list[str]()
    skipped, tags = Counter[str](), Counter[str]()
    for name, item in _items(files, kind, punctuation, strict):
        if isinstance(item, Defect):
            skipped[item.what] += 1
            continue
        tags.update([tag for tag, _ in item.leaves])
        if not item.length:
            skipped["no words"] += 1
        elif limit and item.length > limit:
            skipped[f"more than {limit} words"] += 1
        else:
            sentences.append(item)
            sources.append(f"{name}:{item.line}")
    if not sentences and not skipped:
        raise UserError(
            f"{path}: no trees of profile {kind.name} ({kind.format}) in it; choose another file or profile"
        )
    return Treebank(
        profile=kind,
        split=split,
        punctuation=punctuation,
        sentences=tuple(sentences),
        sources=tuple(sources),
        skipped=dict(skipped),
        warnings=_doubts(kind, tags),
    )


def _opened(path: Path, profile: str | Profile, split: Split) -> tuple[Profile, Iterable[archive.Member]]:
    """Return how to read the files, and the files."""
    if profile == "auto":
        files = list(_files(path, Profile(name="auto"), split))
        return _fitting([file.data for file in files]), files
    kind = profile if isinstance(profile, Profile) else load_profile(profile)
    return kind, _files(path, kind, split)


def _files(path: Path, profile: Profile, split: Split) -> Iterator[archive.Member]:
    """Yield the files of the split; there must be one."""
    for file in archive.members(path, lambda names: _of_split(_of_profile(names, profile), split, path)):
        _of_split([file.name], split, path)  # a single file is read whatever its name
        yield file


def _of_profile(names: list[str], profile: Profile) -> list[str]:
    """Return the names that match the first of the profile's patterns that any does, or all but READMEs."""
    base = {name: _PACKED.sub("", PurePosixPath(name).name.lower()) for name in names}
    for pattern in profile.files:
        matches = matcher((pattern.lower(),))
        if chosen := [name for name in names if matches(base[name])]:
            return chosen
    return [name for name in names if not base[name].startswith("readme")]


def _of_split(names: list[str], split: Split, path: Path) -> list[str]:
    """Return the names that belong to the split; there must be one."""
    if not names:
        raise UserError(f"no treebank files in {path}")
    sections = {name: match[1] for name in names if (match := _WSJ_FILE.fullmatch(PurePosixPath(name).name))}
    if split in ("all", "wsj10"):
        return list(sections) * (split == "wsj10") or names
    chosen = [name for name, section in sections.items() if section == _SECTIONS[split]]
    if not chosen:
        there = f"its sections are {', '.join(sorted(set(sections.values())))}" if sections else "no file is named so"
        raise UserError(f"{path}: split {split} is wsj_{_SECTIONS[split]}….mrg, but {there}; choose split all or wsj10")
    return chosen


def _fitting(files: list[bytes]) -> Profile:
    """Return the profile for the files, by their format or leaves: the Penn Treebank's, or the one that knows most."""
    for mark, name in _XML:
        if any(data.removeprefix(BOM_UTF8).lstrip().startswith(b"<") and mark in data for data in files):
            return load_profile(name)
    if any(_SINICA.search(data) for data in files):
        return load_profile("sinica")
    counts = Counter(chain.from_iterable(_LEAF.findall(data) for data in files))
    tags = Counter({tag.decode("utf-8", "replace"): count for tag, count in counts.items()})
    penn = load_profile("ptb")
    if _known(penn, tags) >= _PENN:
        return penn
    candidates = [load_profile(name) for name in ("ptb", "ptb-wide", *profiles())]
    candidates = [profile for profile in candidates if profile.format == "brackets" and profile.words]
    best = max(candidates, key=lambda profile: _known(profile, tags))
    return best if _known(best, tags) >= _ENOUGH else load_profile("ptb-wide")


def _known(profile: Profile, tags: Counter[str]) -> float:
    """Return the share of leaves with a tag that the profile knows."""
    return sum(count for tag, count in tags.items() if profile.knows(tag)) / tags.total() if tags else 1.0


def _doubts(profile: Profile, tags: Counter[str]) -> tuple[str, ...]:
    if (share := _known(profile, tags)) >= _ENOUGH:
        return ()
    unknown = [tag for tag, _ in tags.most_common() if not profile.knows(tag)]
    listed = ", ".join(unknown[:3]) + " …" * (len(unknown) > 3)
    way = "choose another profile, or write one in a .yaml file"
    return (f"profile {profile.name} knows {share:.0%} of the leaves' tags, not {listed}; {way}",)


def _items(
    files: Iterable[archive.Member], profile: Profile, punctuation: bool, strict: bool
) -> Iterator[tuple[str, Sentence | Defect]]:
    """Yield what the files hold, with their names; if `strict`, raise at the first defect."""
    for name, _, data in files:
        if profile.format == "brackets":
            items = read_text(_decoded(name, data, profile, strict), profile, punctuation)
        else:
            text = _decoded(name, data, profile, strict=True) if profile.encoding else data
            items = read_xml(text, profile, punctuation)
        for item in items:
            if strict and isinstance(item, Defect):
                raise TreebankError(f"{name}:{item.line}: {item.what}")
            yield name, item


def _decoded(name: str, data: bytes, profile: Profile, strict: bool) -> str:
    """Return a file's text; if not `strict`, a few bytes may be wrong and become lone surrogates."""
    encoding = profile.encoding or "utf-8"
    data = data.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        text = data.decode(encoding, "surrogateescape")
        if strict or sum("\udc80" <= char <= "\udcff" for char in text) > _UNDECODED * len(text):
            line = data.count(b"\n", 0, error.start) + 1
            what = f"not {profile.encoding or 'UTF-8'}, as profile {profile.name} expects"
            raise TreebankError(f"{name}:{line}: {what}; choose one with the right encoding, or write it") from None
        return text
