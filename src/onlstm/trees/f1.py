"""How well predicted trees match gold ones, by each rule that the field counts by.

One set of trees has a different F1 under each of the `RULES`, several points apart: every number goes with the name of
its rule. Gold trees are as `onlstm.trees.treebank` reads them: with unary chains, without tags among the nodes.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from types import MappingProxyType
from typing import Literal, NamedTuple

from onlstm.errors import UserError, one_of
from onlstm.trees.tree import Tree

_TINY = 1e-8  # in the denominators, as in the published evaluations


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How F1 is counted."""

    name: str
    """As in `RULES`."""
    average: Literal["sentence", "corpus"]
    """The mean of the sentences' F1, or the F1 of all brackets together."""
    about: str = ""
    """A line for people."""
    whole: Literal["never", "repeated", "always"] = "never"
    """When the bracket over the whole sentence counts; "repeated": if a unary chain repeats it."""
    unaries: bool = False
    """Whether brackets around one word count, and those of a unary chain once each."""
    shortest: int = 1
    """Sentences of fewer words are skipped."""
    punctuation: bool = False
    """Whether the trees are to hold punctuation; the reader of the treebank sees to it."""


_RULES = (
    Rule(
        name="on-lstm",
        about="mean F1 of sentences, no punctuation; those of 1 or 2 words score 100 (Shen et al. 2019)",
        average="sentence",
    ),
    Rule(
        name="kim2019",
        about="mean F1 of sentences of 2 words or more, no punctuation (Kim et al. 2019)",
        average="sentence",
        whole="repeated",
        shortest=2,
    ),
    Rule(
        name="kim2019-corpus",
        about="F1 of all brackets together, sentences of 2 words or more, no punctuation (Kim et al. 2019)",
        average="corpus",
        whole="repeated",
        shortest=2,
    ),
    Rule(
        name="evalb",
        about="EVALB: F1 of all brackets together, whole sentences and unary chains counted",
        average="corpus",
        whole="always",
        unaries=True,
    ),
    Rule(
        name="evalb-onlstm",
        about="EVALB as the code of Shen et al. calls it: whole sentences counted, unary chains not",
        average="corpus",
        whole="always",
    ),
    Rule(name="punct", about="as on-lstm, punctuation kept", average="sentence", punctuation=True),
)
RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in _RULES})
"""The rules by name."""


class Counts(NamedTuple):
    """Brackets of one sentence, or of many: in both trees, in the gold one, in the predicted one."""

    correct: int
    gold: int
    predicted: int


class PRF(NamedTuple):
    """Precision, recall and F1, from 0 to 100."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class ParseScore:
    """What `score` returns; values from 0 to 100 and unrounded, nan where no sentence was scored."""

    rule: Rule
    f1: float
    precision: float
    recall: float
    """If F1 is a mean over sentences, it is not the harmonic mean of precision and recall."""
    n: int
    """Sentences scored."""
    skipped: Mapping[str, int]
    """Sentences not scored, by reason."""
    per_sentence: tuple[float | None, ...]
    """F1 of each sentence alone; None where it was skipped."""
    counts: tuple[Counts | None, ...]
    """Brackets of each sentence; None where it was skipped."""
    lengths: tuple[int, ...]
    """Words of each sentence."""
    tags: Mapping[str, tuple[int, int]]
    """By gold label: how many of its spans of two words or more are predicted, and how many there are. The whole
    sentence's span counts by every rule, and a label that a unary chain repeats counts once."""
    depth: float
    """The mean over sentences of the mean number of predicted brackets around a word."""

    def interval(self, resamples: int = 1000, seed: int = 0) -> tuple[float, float]:
        """Return the 95 % bootstrap interval of F1, over sentences."""
        scored = [counts for counts in self.counts if counts]
        if not scored:
            return math.nan, math.nan
        import numpy as np  # only here: the rest of this package does without

        rng, counts, values = np.random.default_rng(seed), np.array(scored), list[float]()
        f1 = np.array([_prf(sentence).f1 for sentence in scored])
        for _ in range(resamples):
            sample = rng.integers(len(scored), size=len(scored))
            corpus = self.rule.average == "corpus"
            values.append(_prf(Counts(*counts[sample].sum(0).tolist())).f1 if corpus else f1[sample].mean())
        low, high = np.quantile(values, (0.025, 0.975))
        return float(low), float(high)

    def by_length(self, width: int = 10) -> dict[tuple[int, int], tuple[float, int]]:
        """Return F1 and number of sentences by length, as {(1, 10): (f1, n), (11, 20): …}; empty ones are left out."""
        bins: dict[int, list[Counts]] = {}
        for length, counts in sorted(zip(self.lengths, self.counts, strict=True), key=lambda pair: pair[0]):
            if counts:
                bins.setdefault((length - 1) // width, []).append(counts)
        return {
            (k * width + 1, (k + 1) * width): (average(scored, self.rule).f1, len(scored)) for k, scored in bins.items()
        }


def score(gold: Sequence[Tree], predicted: Sequence[Tree], rule: str | Rule = "on-lstm") -> ParseScore:
    """Return how well the predicted trees match the gold ones over the same words, in the same order.

    >>> gold = Tree.from_brackets("(S (NP the cat) (VP sat (PP on it)))")
    >>> result = score([gold], [Tree.from_brackets("(the (cat (sat (on it))))")])
    >>> round(result.f1, 1), result.tags["NP"], result.tags["VP"]
    (66.7, (0, 1), (1, 1))
    """
    if isinstance(rule, str):
        one_of("rule", rule, RULES)
        rule = RULES[rule]
    if len(gold) != len(predicted):
        raise UserError(f"{len(gold)} gold trees but {len(predicted)} predicted ones: give one for each sentence")
    pairs = list(zip(gold, predicted, strict=True))
    for i, (target, guess) in enumerate(pairs, start=1):
        if len(guess.words) != len(target.words):
            raise UserError(
                f"sentence {i}: the gold tree has {len(target.words)} words, the predicted one {len(guess.words)}"
            )
    counts = [_count(target, guess, rule) if len(target.words) >= rule.shortest else None for target, guess in pairs]
    pairs = list(compress(pairs, counts))
    scored = [sentence for sentence in counts if sentence]
    precision, recall, f1 = average(scored, rule)
    short = len(counts) - len(scored)
    return ParseScore(
        rule=rule,
        f1=f1,
        precision=precision,
        recall=recall,
        n=len(scored),
        skipped={f"fewer than {rule.shortest} words": short} if short else {},
        per_sentence=tuple(_prf(sentence).f1 if sentence else None for sentence in counts),
        counts=tuple(counts),
        lengths=tuple(len(tree.words) for tree in gold),
        tags=_tags(pairs),
        depth=math.fsum(_depth(guess) for _, guess in pairs) / len(pairs) if pairs else math.nan,
    )


def tied(distances: Iterable[Sequence[float]]) -> float:
    """Return the share, 0 to 100, of distances that occur again in their sentence; nan if there are none.

    A layer whose distances are all the same decodes to the right-branching tree, which says nothing about the model.

    >>> tied([[0.5, 0.5, 0.2, 0.1], [0.3]])
    40.0
    """
    repeated = total = 0
    for sentence in distances:
        total += len(sentence)
        repeated += sum(n for n in Counter(sentence).values() if n > 1)
    return 100 * repeated / total if total else math.nan


def brackets(tree: Tree, rule: Rule) -> set[tuple[int, int, int]]:
    """Return the brackets that count, as (start, end, 0); those of a unary chain, where all count, with 0, 1, 2, …"""
    n = len(tree.words)
    times = Counter((start, end) for start, end, _ in tree.nodes)
    if rule.unaries:
        times[0, n] = times[0, n] or 1  # EVALB sees one around a single word too
        return {(i, j, k) for (i, j), count in times.items() for k in range(count)}
    brackets = {(i, j, 0) for i, j in times if 1 < j - i < n}
    if n > 1 and (rule.whole == "always" or (rule.whole == "repeated" and times[0, n] > 1)):
        brackets.add((0, n, 0))
    return brackets


def _count(gold: Tree, predicted: Tree, rule: Rule) -> Counts:
    ours, theirs = brackets(predicted, rule), brackets(gold, rule)
    return Counts(len(ours & theirs), len(theirs), len(ours))


def _depth(tree: Tree) -> float:
    """Return the mean number of brackets of two words or more around a word."""
    spans = {node[:2] for node in tree.nodes}
    return sum(end - start for start, end in spans if end - start > 1) / len(tree.words)


def _tags(pairs: Iterable[tuple[Tree, Tree]]) -> Mapping[str, tuple[int, int]]:
    """Return for each label of the gold trees how many of its spans of two words or more are predicted, of how many."""
    correct: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for gold, predicted in pairs:
        spans = {node[:2] for node in predicted.nodes}
        for start, end, label in set(gold.nodes):
            if label and end - start > 1:
                total[label] += 1
                correct[label] += (start, end) in spans
    return {label: (correct[label], total[label]) for label in sorted(total)}


def _prf(counts: Counts) -> PRF:
    """Return the scores of the counts; with no gold bracket recall is 100, and precision if none is predicted."""
    correct, gold, predicted = counts
    precision = correct / (predicted + _TINY) if gold or predicted else 1.0
    recall = correct / (gold + _TINY) if gold else 1.0
    return PRF(100 * precision, 100 * recall, 100 * 2 * precision * recall / (precision + recall + _TINY))


def average(counts: Sequence[Counts], rule: Rule) -> PRF:
    if not counts:
        return PRF(math.nan, math.nan, math.nan)
    if rule.average == "corpus":
        return _prf(Counts(*map(sum, zip(*counts, strict=True))))
    return PRF(*(math.fsum(values) / len(counts) for values in zip(*map(_prf, counts), strict=True)))
