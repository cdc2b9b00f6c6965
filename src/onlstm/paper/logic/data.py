"""The pairs of an experiment: to train on, to validate with, to test on. No torch here."""

import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

from onlstm.errors import UserError
from onlstm.paper.logic import formulas
from onlstm.paper.logic.config import Source
from onlstm.paper.logic.content import LENGTHS, Row, Tested
from onlstm.paper.logic.formulas import Pair, Say
from onlstm.paper.logic.generate import generate

_PARTS = ("train", "test")
_TRAIN = 0.85
"""Share of the generated pairs of each length that is trained on; the rest is for the test."""
_VALID = 10
"""One training pair in ten is for validation."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Pairs in three parts."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    names: dict[str, str]
    """What the variables are called here, by their names in the files; empty if those are a to f."""

    @classmethod
    def load(cls, source: Source, say: Say = lambda line: None) -> "Data":
        """Return the pairs of a source; variables with other names are renamed, which `say` is told."""
        if source.path is None:
            say(f"Generating {source.pairs:,} pairs …")
            groups = generate(source.pairs, seed=0).values()
            train = [pair for group in groups for pair in group[: int(_TRAIN * len(group))]]
            test = [pair for group in groups for pair in group[int(_TRAIN * len(group)) :]]
        else:
            files = formulas.read(source.path)
            train, test = ([p for name in files if name.startswith(part) for p in files[name]] for part in _PARTS)
            for part, pairs in zip(_PARTS, (train, test), strict=True):
                if not pairs:
                    raise UserError(f"{source.path}: no pairs in files {part}0, {part}1, …; a folder of them is needed")
        train = [pair for pair in train if pair.length <= source.max_train_ops]
        test = [pair for pair in test if pair.length in LENGTHS]
        if len(train) < _VALID:
            raise UserError(
                f"max_train_ops {source.max_train_ops}: {len(train)} pairs to train on; {_VALID} are needed"
            )
        pairs, names = formulas.rename([*train, *test], say)
        short = pairs[: len(train)]
        rest = [pair for k, pair in enumerate(short, 1) if k % _VALID]
        return cls(train=rest, valid=short[_VALID - 1 :: _VALID], test=pairs[len(train) :], names=names)

    def digest(self) -> int:
        """Return a number that tells these training pairs from others."""
        return zlib.crc32("\n".join("\t".join(pair) for pair in (*self.train, *self.valid)).encode())

    def majority(self) -> Row:
        """Return the row of the answer that is right most often in training."""
        relation = Counter(pair.relation for pair in self.train).most_common(1)[0][0]
        valid = 100 * float(np.mean([pair.relation == relation for pair in self.valid]))
        right = np.array([pair.relation == relation for pair in self.test])
        tested = Tested.of(np.array([pair.length for pair in self.test]), right)
        return Row(seed=None, epochs=0, valid=valid, relation=relation, seconds_per_epoch=0.0, **tested)
