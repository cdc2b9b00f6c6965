"""Treebanks: gold trees from a file, a folder or an archive."""

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain, compress
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from onlstm import archive
from onlstm.errors import UserError, at_least_one, one_of
from onlstm.trees.tree import Tree, TreebankError
from onlstm.trees.treebank.brackets import read_text
from onlstm.trees.treebank.graphs import BROKEN_XML, read_xml
from onlstm.trees.treebank.profile import Profile, load_profile, profiles
from onlstm.trees.treebank.sentence import Defect, Sentence, build

__all__ = ["Profile", "Split", "Treebank", "load_profile", "profiles", "read_treebank"]

Split = Literal["all", "wsj10", "test", "valid"]

_SECTIONS = {"test": "23", "valid": "22"}
_WSJ_FILE = re.compile(r"wsj_(\d\d)\d\d\.[^/]*", re.IGNORECASE)
_PACKED = re.compile(r"\.(gz|xz|bz2)$")
_FORMATS = {  # what tells a format that only one profile has
    "alpino": re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?=<)(?s:.*?)<alpino"),
    "tiger": re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?=<)(?s:.*?)<(?:corpus|terminals)"),
    "sinica": re.compile(rb"^#[0-9]+:\S*\[[0-9]+\] [^\s(]+\(", re.MULTILINE),
}
_LEAF = re.compile(rb"\(\s*([^\s()]+)\s+[^\s()][^()]*\)")
_ENOUGH = 0.8  # of the leaves: a profile that knows fewer tags is not the treebank's own
_PENN = 0.999  # the same for the Penn Treebank, which has a few slips
_FEW = 0.05  # of the sentences: fewer defects are no cause for a warning
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
    """How many sentences were left out, by reason."""
    defects: int
    """How many of those could not be read; the others are markup, or have no words or too many."""
    defect_share: float
    """The same as a share, from 0 to 1, of all sentences with words, however long."""
    outside: int
    """Lines that belong to no tree: comments and other text."""
    warnings: tuple[str, ...]
    """What is doubtful about the profile or was lost, one line each."""

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
        views = [build(s.leaves, s.brackets, s.line, s.gaps, kind, punctuation) for s in self.sentences]
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
    if max_len is not None:
        at_least_one(max_len=max_len)
    limit = min(max_len or 10, 10) if split == "wsj10" else max_len
    files: Iterable[archive.Member]
    if profile == "auto":
        files = list(_files(Path(path), Profile(name="auto"), split))
        kind = _fitting([file.data for file in files])
        _one_treebank(path, files)
    else:
        kind = profile if isinstance(profile, Profile) else load_profile(profile)
        files = _files(Path(path), kind, split)
    sentences, sources, tags = list[Sentence](), list[str](), Counter[str]()
    skipped, defects, outside, longer = Counter[str](), Counter[str](), 0, 0
    for file in files:
        for item in _items(file, kind, punctuation, strict):
            if isinstance(item, Defect):
                outside += item.loses == "line"
                skipped[item.what] += item.loses != "line"
                defects[item.what] += item.loses == "sentence"
                continue
            tags.update([tag for tag, _ in item.leaves])
            if not item.length:
                skipped["no words"] += 1
            elif limit and item.length > limit:
                skipped[f"more than {limit} words"] += 1
                longer += 1
            else:
                sentences.append(item)
                sources.append(f"{file.name}:{item.line}")
    if not (sentences or skipped.total()):
        raise UserError(f"{path}: no trees of profile {kind.name} ({kind.format}); choose another file or profile")
    total = len(sentences) + longer + defects.total()
    return Treebank(
        profile=kind,
        split=split,
        punctuation=punctuation,
        sentences=tuple(sentences),
        sources=tuple(sources),
        skipped=dict(+skipped),
        defects=defects.total(),
        defect_share=defects.total() / max(1, total),
        outside=outside,
        warnings=(*_doubts(kind, tags), *_losses(defects, total)),
    )


def _files(path: Path, profile: Profile, split: Split) -> Iterator[archive.Member]:
    """Yield the files of the split; there must be one."""
    for file in archive.members(path, lambda names: _of_split(_of_profile(names, profile), split, path)):
        _of_split([file.name], split, path)  # a single file is read whatever its name
        yield file


def _of_profile(names: list[str], profile: Profile) -> list[str]:
    """Return the names that match the first of the profile's patterns that any in the same archive does.

    If no name matches, return all but READMEs.
    """
    base = {name: _PACKED.sub("", PurePosixPath(name).name.lower()) for name in names}
    chosen: dict[str, list[str]] = {}  # of each archive
    for pattern in profile.files:
        matching: dict[str, list[str]] = {}
        for name in names:
            if fnmatchcase(base[name], pattern.lower()):
                matching.setdefault(archive.archive_of(name), []).append(name)
        chosen = matching | chosen  # earlier patterns win
    kept = set(chain.from_iterable(chosen.values()))
    return [name for name in names if (name in kept if kept else not base[name].startswith("readme"))]


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


def _one_treebank(path: str | Path, files: Sequence[archive.Member]) -> None:
    """Refuse a folder of archives that are different kinds of treebank."""
    groups: dict[str, list[bytes]] = {}
    for file in files:
        if name := archive.archive_of(file.name):
            groups.setdefault(name, []).append(file.data)
    kinds = {name: _fitting(data).name for name, data in groups.items()} if len(groups) > 1 else {}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} ({kind})" for name, kind in list(kinds.items())[:4]) + ", …" * (len(kinds) > 4)
        raise UserError(f"{path}: several treebanks, by their profiles: {listed}; name one of them")


def _fitting(files: list[bytes]) -> Profile:
    """Return the profile for the files, by their format or leaves: the Penn Treebank's, or the one that knows most."""
    for name, sign in _FORMATS.items():
        if any(sign.search(data) for data in files):
            return load_profile(name)
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


def _losses(defects: Counter[str], total: int) -> tuple[str, ...]:
    ended = any(why.startswith(BROKEN_XML) for why in defects)
    if defects.total() <= _FEW * total and not ended:
        return ()
    reasons = ", ".join(f"{count:,} {why}" for why, count in (+defects).items())
    rest = "; the rest of such a file is lost" * ended
    return (f"{defects.total():,} of {total:,} sentences could not be read and are skipped: {reasons}{rest}",)


def _items(file: archive.Member, profile: Profile, punctuation: bool, strict: bool) -> Iterator[Sentence | Defect]:
    """Yield what the file holds; if `strict`, raise at the first defect."""
    if profile.format == "brackets":
        items = read_text(_decoded(file, profile, strict), profile, punctuation)
    else:
        items = read_xml(_decoded(file, profile) if profile.encoding else file.data, profile, punctuation)
    for item in items:
        if strict and isinstance(item, Defect):
            raise TreebankError(f"{file.name}:{item.line}: {item.what}")
        yield item


def _decoded(file: archive.Member, profile: Profile, strict: bool = True) -> str:
    """Return a file's text; if not `strict`, a few bytes may be wrong and become lone surrogates."""
    data = file.data.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise TreebankError(f"{file.name}:{line}: a NUL byte: damaged, or UTF-16; convert it to UTF-8")
    encoding = profile.encoding or "UTF-8"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        text = data.decode(encoding, "surrogateescape")
        if strict or sum("\udc80" <= char <= "\udcff" for char in text) > _UNDECODED * len(text):
            line = data.count(b"\n", 0, error.start) + 1
            way = "choose one with the right encoding, or write it"
            what = f"not {encoding}, as profile {profile.name} expects"
            raise TreebankError(f"{file.name}:{line}: {what}; {way}") from None
        return text
