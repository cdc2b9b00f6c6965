"""What models say about the spans of sentences: one number from 0 to 1 for each, in files of a byte per span.

A folder has a file for each length of sentence: valid-0N.npy and train-0N.npy, of shape (sentences, N + 1, N + 1). They
are written one by one, so that little is lost when a process is killed.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onlstm import files
from onlstm.errors import UserError
from onlstm.induction.plan import Plan
from onlstm.text import corpus
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees.average import best_trees

Ids = NDArray[np.integer[Any]]
Bytes = NDArray[np.uint8]
Split = Literal["valid", "train"]
FULL = 252
"""The byte for 1: many counts of trees divide it."""


@dataclass(frozen=True)
class Text:
    """The sentences of a run, the shortest first."""

    tokenizer: Tokenizer
    valid: list[Ids]
    train: list[Ids]

    @classmethod
    def load(cls, run: Path, plan: Plan) -> "Text":
        """Return the sentences of RUN/corpus that the plan asks for."""
        data, numbers, seed = corpus.load(run / "corpus"), plan.settings.numbers, plan.settings.seed
        texts = (data.valid, numbers.held_out), (data.train, plan.sentences)
        parts: list[list[Ids]] = []
        for ids, count in texts:
            places = lines(ids, data.tokenizer.eos_id, numbers.shortest, numbers.longest)
            if len(places) > count:
                places = np.random.default_rng(seed).choice(places, count, replace=False)
            places = places[np.lexsort((places[:, 0], places[:, 1] - places[:, 0]))]
            parts.append([np.asarray(ids[start:end]) for start, end in places])
        return cls(data.tokenizer, *parts)

    def of(self, split: Split) -> dict[int, list[Ids]]:
        """Return the held-out or training sentences by length."""
        groups: dict[int, list[Ids]] = {}
        for ids in getattr(self, split):
            groups.setdefault(len(ids), []).append(ids)
        return groups


def lines(ids: Ids, eos: int, shortest: int, longest: int) -> Any:
    """Return where the lines of a corpus that have so many words start and end, (n, 2)."""
    ends = np.flatnonzero(ids == eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    fits = (ends - starts >= shortest) & (ends - starts <= longest)
    return np.stack([starts, ends], 1)[fits]


def part(ids: Ids, eos: int, tokens: int, number: int) -> Ids:
    """Return about so many tokens of a text, in blocks of 200 lines; parts of successive numbers have none in common.

    >>> ids = np.arange(1, 4001) % 2  # 2,000 lines of one word
    >>> [len(part(ids, 0, 1000, number)) for number in (0, 1, 2)], len(part(ids, 0, 9999, 3))
    ([1200, 1200, 800], 4000)
    """
    parts = max(1, round(len(ids) / tokens))
    lines = np.cumsum(ids == eos) - (ids == eos)  # of each token
    chosen: Ids = ids[lines // 200 % parts == number % parts]
    return chosen


def write(
    folder: Path,
    text: Text,
    split: Split,
    read: Callable[[list[Ids]], NDArray[np.floating]],
    report: Callable[[float], None],
) -> None:
    """Write what `read` returns, (B, n + 1, n + 1), for sentences of equal length, unless it is there already."""
    files.make_folder(folder)
    done = 0
    for n, group in text.of(split).items():
        done += len(group)
        if not _path(folder, split, n).exists():
            parts = [read(group[first : first + 256]) for first in range(0, len(group), 256)]
            files.write(_path(folder, split, n), functools.partial(np.save, arr=_bytes(np.concatenate(parts))))
            report(done / len(getattr(text, split)))


def load(folder: Path, split: Split, n: int) -> Bytes:
    """Return the content of a file, memory-mapped."""
    path = _path(folder, split, n)
    try:
        content: Bytes = np.load(path, mmap_mode="r")
    except (OSError, ValueError):
        raise UserError(f"{path}: missing or damaged: remove the folder above it and resume") from None
    return content


def _bytes(shares: NDArray[np.floating]) -> Bytes:
    content: Bytes = np.rint(FULL * shares).astype(np.uint8)
    return content


def _path(folder: Path, split: Split, n: int) -> Path:
    return folder / f"{split}-{n:02}.npy"


def taught(members: Sequence[Path], split: Split, n: int, by_grammars: bool) -> Bytes:
    """Return what members teach together about sentences of n words.

    Of language models it is the share of all their trees, of grammars that of each one's best tree.
    """
    shares = [load(member, split, n) for member in members]
    return _bytes(np.mean([in_best_trees(share) if by_grammars else share / FULL for share in shares], axis=0))


class Shares(Sequence[NDArray[np.float32]]):
    """What members teach together about each training sentence, as `GrammarTraining` takes it."""

    def __init__(self, members: Sequence[Path], text: Text, by_grammars: bool) -> None:
        groups = text.of("train")
        self._files = {n: taught(members, "train", n, by_grammars) for n in groups}
        self._places = [(n, row) for n, group in groups.items() for row in range(len(group))]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, k: Any) -> Any:
        n, row = self._places[k]
        return self._files[n][row].astype(np.float32) / FULL


def in_best_trees(scores: Bytes) -> NDArray[np.bool_]:
    """Return which spans the best trees have, the whole sentence included."""
    spans, inside = best_trees(scores), np.zeros(scores.shape, bool)
    inside[np.arange(len(spans))[:, None], spans[..., 0], spans[..., 1]] = True
    inside[:, 0, -1] = True
    return inside


def agreement(folders: Sequence[Path], text: Text) -> float | None:
    """Return the mean F1 between the best trees of two members on held-out sentences; None if there are not two."""
    scores = []
    for n in text.of("valid"):
        if n > 2:
            trees = [in_best_trees(load(folder, "valid", n)) for folder in folders]
            shared = [(a & b).sum((1, 2)) - 1 for a, b in combinations(trees, 2)]
            scores += [100 * common / (n - 2) for common in shared]
    return float(np.concatenate(scores).mean()) if scores else None
