"""Unsupervised parsing, scored: trees of models beside those that any parser must beat. The paper's section 5.2.

A `Forest` is one set of trees for the gold trees' sentences, whoever made it. `rows` scores forests; scores of runs or
seeds whose trees were made the same way get a mean. The treebanks' side of it is in `onlstm.paper.parsing.evaluate`.
"""

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, get_args

import torch

from onlstm.lm.model import LanguageModel
from onlstm.paper.parsing.sentences import Reading
from onlstm.parser import Parser
from onlstm.trees import baselines as branching
from onlstm.trees.average import vote
from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.f1 import ParseScore, Rule, score, tied
from onlstm.trees.tree import Tree

Decoding = Literal["paper", "unbiased", "vote"]
Layers = int | tuple[int, ...] | None
SUBSETS = {"all": math.inf, "len<=10": 10}
RANDOM_SEEDS = 5


@dataclass(frozen=True, kw_only=True)
class Forest:
    """One tree for each sentence."""

    system: str
    """onlstm, lstm-gates, untrained, vote, trees, left, right, balanced, random, oracle."""
    trees: Sequence[Tree]
    run: str | None = None
    """Which of several that were made the same way: a run, a seed."""
    layer: Layers = None
    """Whose distances; several: the average of them, or their vote."""
    decoder: Decoding | None = None
    distances: Sequence[Sequence[float]] | None = None
    """What the trees were made of, one for each word."""

    @property
    def key(self) -> tuple[str, Layers, Decoding | None]:
        """How it was made."""
        return self.system, self.layer, self.decoder


@dataclass(frozen=True, kw_only=True)
class Row:
    """A forest's score by one rule on some of the sentences; undefined is None."""

    system: str
    run: str | None
    layer: Layers
    decoder: Decoding | None
    rule: str
    subset: str
    """"all" or "len<=10", in words."""
    f1: float | None
    precision: float | None
    recall: float | None
    ci95: tuple[float, float] | None
    """Bootstrap over sentences."""
    n: int
    """Sentences scored."""
    skipped: Mapping[str, int]
    """Sentences of the subset that the rule does not score, by reason."""
    depth: float | None
    ties: float | None
    f1_to_right: float | None
    """F1 of the trees against right-branching ones: 100 is no parser at all."""
    tags: Mapping[str, tuple[int, int]]
    by_length: Sequence[tuple[int, int, float, int]]
    """(shortest, longest, F1, sentences) of sentences by length."""
    runs: int = 1
    """How many runs or seeds it is the mean of; it has no interval then, and the tags of the best one."""
    deviation: float | None = None
    """Of the runs' F1, n - 1 in the denominator."""
    max: float | None = None


def baselines(gold: Sequence[Tree]) -> list[Forest]:
    """Return what stands beside every parser: left, right, balanced, random trees of five seeds, best binary trees."""
    fixed = {"left": branching.left, "right": branching.right, "balanced": branching.balanced}
    made = [Forest(system=name, trees=[make(tree.words) for tree in gold]) for name, make in fixed.items()]
    for seed in range(RANDOM_SEEDS):
        rng = random.Random(seed)
        trees = [branching.random_tree(tree.words, rng) for tree in gold]
        made.append(Forest(system="random", run=f"seed {seed}", trees=trees))
    return [*made, Forest(system="oracle", trees=[branching.oracle(tree) for tree in gold])]


def forests(
    parser: Parser,
    reads: Sequence[Reading],
    *,
    system: str,
    run: str | None = None,
    layers: Sequence[Layers] | None = None,
    decoders: Sequence[Decoding] = ("paper", "unbiased"),
) -> list[Forest]:
    """Return the trees of one model: for each of the layers (default: every one) and decoders; "vote": of all those."""
    found = [
        [[d[i] for i in reading.kept] for d in each]
        for reading, each in zip(reads, parser.distances([reading.words for reading in reads]), strict=True)
    ]
    plain: list[Decoder] = [name for name in decoders if name != "vote"]
    out: list[Forest] = []
    for layer in layers or range(1, parser.model.config.num_layers + 1):
        d = [_average(each, layer) for each in found]
        for decoder in plain or get_args(Decoder):
            trees = [
                tree_from_distances(each, reading.gold.words, decoder) for each, reading in zip(d, reads, strict=True)
            ]
            out.append(Forest(system=system, run=run, layer=layer, decoder=decoder, trees=trees, distances=d))
    if "vote" in decoders and len(out) > 1:
        every = tuple(sorted({k for forest in out for k in _numbers(forest.layer)}))
        agreed = Forest(system=system, run=run, layer=every, decoder="vote", trees=votes(out))
        out = [*out, agreed] if plain else [agreed]
    return out


def votes(made: Sequence[Forest]) -> list[Tree]:
    """Return for each sentence the tree that the forests agree on most."""
    return [vote(trees) for trees in zip(*(forest.trees for forest in made), strict=True)]


def agreed(made: Sequence[Forest]) -> Iterator[Forest]:
    """Yield the votes of several runs, for each way their trees were made."""
    runs = sorted(made, key=lambda forest: str(forest.key))
    for (system, layer, decoder), group in groupby(runs, key=lambda forest: forest.key):
        each = list(group)
        if len(each) > 1:
            yield Forest(system="vote", run=f"{len(each)} {system}", layer=layer, decoder=decoder, trees=votes(each))


def untrained(model: LanguageModel, seed: int = 0) -> LanguageModel:
    """Return a model of the same shape with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(model.config, model.tokenizer).eval()


def rows(
    gold: Sequence[Tree], made: Sequence[Forest], rule: str | Rule = "on-lstm", subsets: Iterable[str] = SUBSETS
) -> list[Row]:
    """Return the scores of the forests in order, and, after forests that differ in their run alone, their mean."""
    out: list[Row] = []
    for subset in subsets:
        index = [i for i, tree in enumerate(gold) if len(tree.words) <= SUBSETS[subset]]
        part = [gold[i] for i in index]
        right = [branching.right(tree.words) for tree in part]
        alike: dict[object, list[Row]] = {}
        for forest in made:
            trees = [forest.trees[i] for i in index]
            ties = tied(forest.distances[i] for i in index) if forest.distances else math.nan
            row = _row(forest, subset, score(part, trees, rule), ties, score(right, trees, rule).f1)
            alike.setdefault(forest.key, []).append(row)
        for each in alike.values():
            out += each if len(each) == 1 else [*(each if each[0].system != "random" else []), _mean(each)]
    return out


def _row(forest: Forest, subset: str, found: ParseScore, ties: float, to_right: float) -> Row:
    return Row(
        system=forest.system,
        run=forest.run,
        layer=forest.layer,
        decoder=forest.decoder,
        rule=found.rule.name,
        subset=subset,
        f1=_defined(found.f1),
        precision=_defined(found.precision),
        recall=_defined(found.recall),
        ci95=found.interval() if found.n else None,
        n=found.n,
        skipped=found.skipped,
        depth=_defined(found.depth),
        ties=_defined(ties),
        f1_to_right=_defined(to_right),
        tags=found.tags,
        by_length=[(*length, *values) for length, values in found.by_length().items()],
    )


def _mean(each: Sequence[Row]) -> Row:
    """Return the mean of rows that differ in their run, with the details of the best."""
    if each[0].f1 is None:
        return replace(each[0], run=None, runs=len(each))
    best = max(each, key=lambda row: row.f1 or 0)
    names = ("f1", "precision", "recall", "depth", "ties", "f1_to_right")
    values = {name: [v for row in each if (v := getattr(row, name)) is not None] for name in names}
    means: dict[str, Any] = {name: statistics.fmean(found) if found else None for name, found in values.items()}
    lengths = [
        (*same[0][:2], statistics.fmean(f1 for _, _, f1, _ in same), same[0][3])
        for same in zip(*(row.by_length for row in each), strict=True)
    ]
    means |= {"run": None, "runs": len(each), "ci95": None, "by_length": lengths, "max": best.f1}
    return replace(best, deviation=statistics.stdev(values["f1"]), **means)


def _numbers(layer: Layers) -> tuple[int, ...]:
    return layer if isinstance(layer, tuple) else () if layer is None else (layer,)


def _average(layers: Sequence[Sequence[float]], chosen: Layers) -> list[float]:
    """Return the mean of the chosen layers' distances, word by word."""
    return [statistics.fmean(d) for d in zip(*(layers[k - 1] for k in _numbers(chosen)), strict=True)]


def _defined(x: float) -> float | None:
    return x if math.isfinite(x) else None
