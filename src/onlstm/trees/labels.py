"""Induced labels against gold ones: which gold label each of them stands for, and how often that is right."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from onlstm.trees.f1 import RULES, Counts, Rule, average, brackets
from onlstm.trees.tree import Tree

Span = tuple[int, int]


class LabelledScore(NamedTuple):
    """From 0 to 100; nan where there was nothing to count."""

    f1: float
    """A bracket is correct if it is in the gold tree and its label stands for one of the gold labels there."""
    accuracy: float
    """The share of the brackets in both trees whose label is right."""


def many_to_one(gold: Sequence[Tree], predicted: Sequence[Tree], rule: str | Rule = "on-lstm") -> dict[str, str]:
    """Return, for each label of the predicted trees, the gold label that most of its correct brackets have.

    Of equally frequent labels the first in the alphabet wins. Labels without a correct bracket are left out.

    >>> gold = Tree.from_brackets("(S (NP the cat) (VP saw (NP the dog)))")
    >>> many_to_one([gold], [Tree.from_brackets("(N1 (N2 the cat) (N3 saw (N2 the dog)))")])
    {'N2': 'NP', 'N3': 'VP'}
    """
    together: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for target, guess in zip(gold, predicted, strict=True):
        names, theirs = _outermost(guess), _all_labels(target)
        for span in _shared(target, guess, _rule(rule)):
            if name := names.get(span):
                together[name].update(theirs[span])
    return {name: min(counts, key=lambda label: (-counts[label], label)) for name, counts in together.items() if counts}


def labelled_score(
    gold: Sequence[Tree], predicted: Sequence[Tree], meaning: Mapping[str, str], rule: str | Rule = "on-lstm"
) -> LabelledScore:
    """Return how well labelled trees match the gold ones; `meaning` has the gold label that each label stands for.

    Labels that it does not have are wrong.
    """
    rule = _rule(rule)
    counts, correct, shared = [], 0, 0
    for target, guess in zip(gold, predicted, strict=True):
        if len(target.words) < rule.shortest:
            continue
        names, theirs = _outermost(guess), _all_labels(target)
        both = _shared(target, guess, rule)
        right = sum(meaning.get(names.get(span, "")) in theirs[span] for span in both)
        counts.append(Counts(right, len(brackets(target, rule)), len(brackets(guess, rule))))
        correct, shared = correct + right, shared + len(both)
    return LabelledScore(average(counts, rule).f1, 100 * correct / shared if shared else math.nan)


def _rule(rule: str | Rule) -> Rule:
    return RULES[rule] if isinstance(rule, str) else rule


def _shared(gold: Tree, predicted: Tree, rule: Rule) -> list[Span]:
    """Return the brackets of both trees that the rule counts, those of a unary chain as often as it does."""
    return [(i, j) for i, j, _ in brackets(gold, rule) & brackets(predicted, rule)]


def _outermost(tree: Tree) -> dict[Span, str]:
    return {node[:2]: node.label for node in reversed(tree.nodes) if node.label}


def _all_labels(tree: Tree) -> defaultdict[Span, set[str]]:
    labels: defaultdict[Span, set[str]] = defaultdict(set)
    for start, end, label in tree.nodes:
        if label:
            labels[start, end].add(label)
    return labels
