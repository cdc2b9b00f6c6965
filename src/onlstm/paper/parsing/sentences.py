"""What a language model reads for the sentences of a treebank, what of it stood in its training text, others' trees."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import tokenizer_of
from onlstm.text import corpus
from onlstm.trees.tree import Tree, TreebankError, read_brackets
from onlstm.trees.treebank import MAPPINGS, Profile, Treebank


class Reading(NamedTuple):
    """A gold tree and what a model reads for it."""

    gold: Tree
    words: Sequence[str]
    """As the model looks them up; more, if it reads what is not scored."""
    kept: Sequence[int]
    """Which of them are the words of the gold tree."""

    @classmethod
    def plain(cls, gold: Tree) -> "Reading":
        """Return the reading of just the gold tree's words."""
        return cls(gold, gold.words, range(len(gold.words)))


def readings(bank: Treebank, model: LanguageModel, mapping: str, wide: Treebank | None = None) -> list[Reading]:
    """Return the gold trees and, of each, what the model reads.

    "original" reads the scored words as the original code wrote them. "aligned" reads what the model's text would
    have: for models of the Penn Treebank's text, numbers as N and, from `wide`, "$" and "#", which are not scored; for
    others, words as they stand or as the model's tokenizer writes them.
    """
    write = MAPPINGS[mapping] if mapping == "original" or is_penn(model) else _as_known(model)
    more = _among(bank.profile, wide) if wide else {}
    out = []
    for tree, source in zip(bank.trees, bank.sources, strict=True):
        words, kept = more.get(source, (tree.words, range(len(tree.words))))
        out.append(Reading(tree, [write(word) for word in words], kept))
    return out


def is_penn(model: LanguageModel) -> bool:
    """Return whether the model's words are those of the Penn Treebank's language-modelling text."""
    known = set(tokenizer_of(model).vocabulary)
    return {"N", "$"} <= known and all(word == "N" or word == word.lower() for word in known)


def _as_known(model: LanguageModel) -> Callable[[str], str]:
    known = set(tokenizer_of(model).vocabulary)
    return lambda word: word if word in known else word.lower()


def _among(profile: Profile, wide: Treebank) -> dict[str, tuple[Sequence[str], Sequence[int]]]:
    """Return, by the place of a sentence, its words in the wider reading and which of them the profile keeps."""
    return {
        source: (
            tree.words,
            [i for i, leaf in enumerate(zip(tags, tree.words, strict=True)) if profile.role(*leaf) == "word"],
        )
        for tree, tags, source in zip(wide.trees, wide.tags, wide.sources, strict=True)
    }


def overlap(folder: Path | None, model: LanguageModel, reads: Sequence[Reading]) -> tuple[float | None, float]:
    """Return the share, 0 to 100, of sentences that are lines of the run's training text, None without it; of <unk>.

    Lines are compared as the model reads them; a sentence of more unknown than known words may be any line, and does
    not count.
    """
    tokenizer = tokenizer_of(model)
    ids = [tokenizer.ids(reading.words) for reading in reads]
    unknown = 100 * sum(each.count(tokenizer.unk_id) for each in ids) / sum(map(len, ids))
    if not folder or not (folder / "corpus" / "corpus.json").is_file():
        return None, unknown
    train = corpus.load(folder / "corpus").train
    told = [each for each in ids if 2 * each.count(tokenizer.unk_id) <= len(each)]
    written = [bytes(np.array(each, train.dtype)) for each in told]
    ends = np.flatnonzero(train == tokenizer.eos_id)
    starts = np.concatenate(([0], ends[:-1] + 1))
    like = np.isin(ends - starts, [len(each) for each in told])
    lines = (bytes(train[start:end]) for start, end in zip(starts[like], ends[like], strict=True))
    seen = set(written).intersection(lines)
    return 100 * sum(line in seen for line in written) / len(ids), unknown


def given_trees(path: Path, bank: Treebank) -> list[Tree]:
    """Return anybody's trees, one for each of the treebank's sentences."""
    try:
        content = path.read_text("utf-8-sig")
    except OSError as error:
        raise UserError(f"--trees {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--trees {path}: not UTF-8") from None
    trees = list(
        _json_trees(content, path) if content.lstrip()[:1] == "{" else read_brackets(content, source=str(path))
    )
    if len(trees) != len(bank.trees):
        raise UserError(
            f"--trees {path}: {len(trees)} trees for {len(bank.trees)} sentences; give one for each, in order"
        )
    for k, (tree, gold, source) in enumerate(zip(trees, bank.trees, bank.sources, strict=True), start=1):
        if len(tree.words) != len(gold.words):
            raise UserError(
                f"--trees {path}: tree {k} has {len(tree.words)} words, but the sentence at {source} has "
                f"{len(gold.words)}, punctuation {'and all' if bank.punctuation else 'left out'}"
            )
    return trees


def _json_trees(content: str, path: Path) -> Iterator[Tree]:
    for k, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            try:
                record = json.loads(line)
                yield Tree.from_spans(record["words"], [tuple(span) for span in record["spans"]])
            except (ValueError, KeyError, TypeError) as error:
                raise TreebankError(
                    f"--trees {path}:{k}: not a line of `onlstm parse --format json` ({error})"
                ) from None
