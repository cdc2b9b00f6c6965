"""Induced labels against gold ones: what a grammar's symbols are in the trees of a treebank."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onlstm.grammar.pcfg import Grammar
from onlstm.paper.parsing.alignment import readings
from onlstm.paper.parsing.rows import grammar_forest
from onlstm.parser import Parser
from onlstm.trees.treebank import read_treebank

NONE = "none"
"""In place of a gold label, for spans that are no constituent."""


@dataclass(frozen=True, kw_only=True)
class InducedLabel:
    """A symbol of a grammar, in its trees of a treebank's sentences."""

    label: str
    spans: int
    """Of two words or more that it is the label of."""
    gold: Mapping[str, int]
    """By gold label, most frequent first: how many of these spans have it; "none": no constituent."""


def induced_labels(grammar: Grammar, treebank: Path) -> list[InducedLabel]:
    """Return the grammar's labels, most frequent first, and their gold labels; of a unary chain, the topmost."""
    bank = read_treebank(treebank)
    forest = grammar_forest(Parser(grammar, labels=True), readings(bank, grammar))
    together: dict[str, Counter[str]] = {}
    for gold, tree in zip(bank.trees, forest.trees, strict=True):
        names = {node[:2]: node.label for node in reversed(gold.nodes) if node.label}
        for start, end, label in tree.nodes:
            if label and end - start > 1:
                together.setdefault(label, Counter())[names.get((start, end), NONE)] += 1
    rows = [
        InducedLabel(label=label, spans=counts.total(), gold=dict(counts.most_common()))
        for label, counts in together.items()
    ]
    return sorted(rows, key=lambda row: -row.spans)
