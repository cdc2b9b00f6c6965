"""What a model reads for the sentences of a treebank, what its training text has of them, and others' trees."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from onlstm import files
from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.parsing.request import Mapping
from onlstm.text import corpus
from onlstm.trees.tree import Tree, read_brackets
from onlstm.trees.treebank import Treebank, load_profile

_WIDER = {"ptb": "ptb-wide"}  # the profile with all that the language model's text has: "$" and "#" too
_DIGITS = re.compile("[0-9]+")
_NUMBER = re.compile(r"[0-9.,:\\/+-]*[0-9][0-9.,:\\/+-]*")


class Reading(NamedTuple):
    """A gold tree and what a model reads for it."""

    gold: Tree
    words: Sequence[str]
    """As the model looks them up; more, if it reads what is not scored."""
    positions: Sequence[int]
    """Which of them are the words of the gold tree."""

    @classmethod
    def plain(cls, gold: Tree) -> "Reading":
        """Return the reading of just the gold tree's words."""
        return cls(gold, gold.words, range(len(gold.words)))


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


def readings(bank: Treebank, model: LanguageModel | Grammar, mapping: Mapping = "aligned") -> list[Reading]:
    """Return the gold trees and, for each, what the model reads.

    "original" reads the scored words as the original code wrote them. "aligned" reads what the model's text would
    have: for models of the Penn Treebank's text, numbers as N and also "$" and "#", which are not scored, if the model
    knows them; for others, words as they stand or as the model's tokenizer writes them.
    """
    known = set(tokenizer_of(model).vocabulary)
    if mapping == "original":
        write = original
    elif "N" in known and all(word == "N" or word == word.lower() for word in known):
        write = aligned
    else:
        write = lambda word: word if word in known else word.lower()  # noqa: E731
    wider = _WIDER.get(bank.profile.name) if write is aligned and not bank.punctuation else None
    if not wider:
        return [Reading(gold, [write(word) for word in gold.words], range(len(gold.words))) for gold in bank.trees]
    wide = bank.view(profile=load_profile(wider))
    out = []
    for gold, tree, tags in zip(bank.trees, wide.trees, wide.tags, strict=True):
        leaves = [(word, bank.profile.role(tag, word) == "word") for tag, word in zip(tags, tree.words, strict=True)]
        read = [(write(word), scored) for word, scored in leaves if scored or word in known]
        positions = [i for i, (_, scored) in enumerate(read) if scored]
        out.append(Reading(gold, [word for word, _ in read], positions))
    return out


def overlap(run: Path | None, model: LanguageModel | Grammar, reads: Sequence[Reading]) -> tuple[float | None, float]:
    """Return the share in % of sentences that are lines of the run's training text, None without it; that of <unk>.

    Lines are compared as the model reads them; a sentence of more unknown than known words may be any line, and does
    not count.
    """
    tokenizer = tokenizer_of(model)
    ids = [tokenizer.ids(reading.words) for reading in reads]
    unknown = 100 * sum(map(tokenizer.unknown, ids)) / sum(map(len, ids))
    if not run or not (run / "corpus" / "corpus.json").is_file():
        return None, unknown
    train = corpus.load(run / "corpus").train
    known = [sentence for sentence in ids if 2 * tokenizer.unknown(sentence) <= len(sentence)]
    written = [bytes(np.array(sentence, train.dtype)) for sentence in known]
    ends = np.flatnonzero(train == tokenizer.eos_id)
    starts = np.concatenate(([0], ends[:-1] + 1))
    as_long = np.isin(ends - starts, [len(sentence) for sentence in known])
    lines = (bytes(train[start:end]) for start, end in zip(starts[as_long], ends[as_long], strict=True))
    seen = set(written).intersection(lines)
    return 100 * sum(line in seen for line in written) / len(ids), unknown


def given_trees(path: Path, bank: Treebank, other_words: bool = False) -> list[Tree]:
    """Return the trees of a file, brackets or parses in JSON, one for each of the treebank's sentences.

    Their words must be the sentences' own or, with `other_words`, as many.
    """
    content = files.read(path)
    if content.lstrip()[:1] == "{":
        trees = [_json_tree(line, f"{path}:{k}") for k, line in enumerate(content.split("\n"), 1) if line.strip()]
    else:
        trees = list(read_brackets(content, source=str(path)))
    if len(trees) != len(bank.trees):
        raise UserError(f"{path}: {len(trees)} trees for {len(bank.trees)} sentences; give one for each, in order")
    for k, (tree, gold, source) in enumerate(zip(trees, bank.trees, bank.sources, strict=True), start=1):
        if len(tree.words) != len(gold.words):
            what = "and all" if bank.punctuation else "left out"
            raise UserError(
                f"{path}: tree {k} has {len(tree.words)} words, but the sentence at {source} has {len(gold.words)}, "
                f"punctuation {what}"
            )
        if not other_words:
            _check_words(f"{path}: tree {k}", tree, gold, source)
    return trees


def _check_words(place: str, tree: Tree, gold: Tree, source: str) -> None:
    """Refuse a tree over other words; brackets write parentheses as -LRB- and -RRB-, and treebanks have either."""
    for number, pair in enumerate(zip(tree.words, gold.words, strict=True), 1):
        word, own = (word.replace("-LRB-", "(").replace("-RRB-", ")") for word in pair)
        if word != own:
            way = "parse the file of --words with --tokenized, or allow this with --other-words"
            raise UserError(
                f"{place}, word {number} is {pair[0]!r}, but {pair[1]!r} in the sentence at {source}; {way}"
            )


def _json_tree(line: str, place: str) -> Tree:
    try:
        return Tree.from_json(line)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
