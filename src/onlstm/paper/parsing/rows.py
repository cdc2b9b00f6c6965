"""Sets of trees and their scores: those of models beside those that any parser must beat. The paper's section 5.2.

A `Forest` is one set of trees for the gold trees' sentences, whoever made it. `rows` scores forests; forests of runs or
seeds that were made the same way also get a mean. `onlstm.paper.parsing.evaluate` puts both together.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, get_args

import torch

from onlstm.lm.model import LanguageModel
from onlstm.paper.parsing.alignment import Reading
from onlstm.paper.parsing.content import Layers, Row
from onlstm.paper.parsing.request import Decoding
from onlstm.parser import Parser
from onlstm.trees import average
from onlstm.trees import baselines as branching
from onlstm.trees.calibration import Calibration, calibration
from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.f1 import ParseScore, Rule, score, tied
from onlstm.trees.labels import labelled_score
from onlstm.trees.restrict import restricted
from onlstm.trees.tree import Tree

OnProgress = Callable[[float], object]
"""Called with the share of the work that is done."""
SUBSETS = {"all": math.inf, "len<=10": 10}
RANDOM_SEEDS = 5


@dataclass(frozen=True, kw_only=True)
class Forest:
    """One tree for each sentence."""

    system: str
    trees: Sequence[Tree]
    run: str | None = None
    """Which of several that were made the same way: a run, a seed."""
    layer: Layers = None
    decoder: Decoding | None = None
    distances: Sequence[Sequence[float]] | None = None
    """What the trees were made of, one for each word."""
    meaning: Mapping[str, str] | None = None
    """The gold label that each label of the trees stands for; None: not known, or there are none."""

    @property
    def key(self) -> tuple[str, Layers, Decoding | None]:
        """How it was made."""
        return self.system, self.layer, self.decoder


def baselines(gold: Sequence[Tree]) -> list[Forest]:
    """Return what stands beside every parser: left, right, balanced, random trees of five seeds, best binary trees."""
    fixed = {"left": branching.left, "right": branching.right, "balanced": branching.balanced}
    forests = [Forest(system=name, trees=[build(tree.words) for tree in gold]) for name, build in fixed.items()]
    for seed in range(RANDOM_SEEDS):
        rng = random.Random(seed)
        trees = [branching.random_tree(tree.words, rng) for tree in gold]
        forests.append(Forest(system="random", run=f"seed {seed}", trees=trees))
    return [*forests, Forest(system="oracle", trees=[branching.oracle(tree) for tree in gold])]


def forests(
    parser: Parser,
    reads: Sequence[Reading],
    *,
    system: str,
    run: str | None = None,
    layers: Sequence[Layers] | None = None,
    decoders: Sequence[Decoding] = ("paper", "unbiased"),
    on_progress: OnProgress = lambda share: None,
) -> list[Forest]:
    """Return a language model's trees: each of the layers (default: all) by each decoder; "vote": of all of these."""
    read = parser.distances([reading.words for reading in reads], lambda done: on_progress(done / len(reads)))
    distances = [
        [[layer[i] for i in reading.positions] for layer in sentence]
        for reading, sentence in zip(reads, read, strict=True)
    ]
    assert isinstance(parser.model, LanguageModel)
    plain: list[Decoder] = [decoder for decoder in decoders if decoder == "paper" or decoder == "unbiased"]
    sets: list[Forest] = []
    for layer in layers or range(1, parser.model.config.distance_layers + 1):
        chosen = _numbers(layer)
        d = [[statistics.fmean(word) for word in zip(*(s[k - 1] for k in chosen), strict=True)] for s in distances]
        for decoder in plain or get_args(Decoder):
            trees = [tree_from_distances(x, reading.gold.words, decoder) for x, reading in zip(d, reads, strict=True)]
            sets.append(Forest(system=system, run=run, layer=layer, decoder=decoder, trees=trees, distances=d))
    if "vote" in decoders and len(sets) > 1:
        numbers = tuple(sorted({k for forest in sets for k in _numbers(forest.layer)}))
        agreed = Forest(system=system, run=run, layer=numbers, decoder="vote", trees=votes(sets))
        return [*sets, agreed] if plain else [agreed]
    return sets


def grammar_forest(
    parser: Parser, reads: Sequence[Reading], run: str | None = None, on_progress: OnProgress = lambda share: None
) -> Forest:
    """Return the trees of a grammar, with labels of constituents and confidence, over the words that are scored."""
    trees = []
    parses = parser.parse_lines(list(reading.words) for reading in reads)
    for done, (reading, parse) in enumerate(zip(reads, parses, strict=True), 1):
        assert parse.tree
        on_progress(done / len(reads))
        nodes = tuple(node for node in parse.tree.nodes if node.end - node.start > 1)  # gold trees have no tags either
        trees.append(restricted(replace(parse.tree, nodes=nodes), reading.positions, reading.gold.words))
    return Forest(system="grammar", run=run, decoder=parser.decoder, trees=trees)


def _numbers(layer: Layers) -> tuple[int, ...]:
    return layer if isinstance(layer, tuple) else () if layer is None else (layer,)


def votes(forests: Sequence[Forest]) -> list[Tree]:
    """Return for each sentence the tree that the forests agree on most."""
    return average.votes([forest.trees for forest in forests])


def agreed(forests: Sequence[Forest]) -> Iterator[Forest]:
    """Yield the votes of several runs, for each way their trees were made."""
    ordered = sorted(forests, key=lambda forest: str(forest.key))
    for (system, layer, decoder), group in groupby(ordered, key=lambda forest: forest.key):
        runs = list(group)
        if len(runs) > 1:
            yield Forest(system="vote", run=f"{len(runs)} {system}", layer=layer, decoder=decoder, trees=votes(runs))


def mixed(forests: Sequence[Forest]) -> list[Forest]:
    """Return the vote of runs of several kinds, one forest of each run; nothing if they are all of one kind."""
    if len({forest.system for forest in forests}) < 2:
        return []
    return [Forest(system="vote", run=f"{len(forests)} runs", decoder="vote", trees=votes(forests))]


def untrained(model: LanguageModel, seed: int = 0) -> LanguageModel:
    """Return a model of the same shape with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(model.config, model.tokenizer).to(model.device).eval()


def rows(
    gold: Sequence[Tree],
    forests: Sequence[Forest],
    rule: str | Rule = "on-lstm",
    subsets: Iterable[str] = SUBSETS,
    on_progress: OnProgress = lambda share: None,
) -> list[Row]:
    """Return the scores of the forests in order, and, after forests that differ only in their run, their mean."""
    out: list[Row] = []
    done, subsets = 0, list(subsets)
    for subset in subsets:
        index = [i for i, tree in enumerate(gold) if len(tree.words) <= SUBSETS[subset]]
        part = [gold[i] for i in index]
        right = [branching.right(tree.words) for tree in part]
        groups: dict[object, list[Row]] = {}
        for forest in forests:
            trees = [forest.trees[i] for i in index]
            ties = tied(forest.distances[i] for i in index) if forest.distances else math.nan
            row = _row(forest, subset, score(part, trees, rule), ties, score(right, trees, rule).f1)
            if forest.meaning is not None:
                f1, accuracy = labelled_score(part, trees, forest.meaning, rule)
                row = replace(row, labelled_f1=_defined(f1), label_accuracy=_defined(accuracy))
            row = replace(row, confidence=calibration(part, trees))
            groups.setdefault(forest.key, []).append(row)
            done += 1
            on_progress(done / len(forests) / len(subsets))
        for group in groups.values():
            out += group if len(group) == 1 else [*(group if group[0].system != "random" else []), _mean(group)]
    return out


def _row(forest: Forest, subset: str, scored: ParseScore, ties: float, to_right: float) -> Row:
    numbers = {name: getattr(scored, name) for name in ("f1", "precision", "recall", "depth")}
    numbers |= {"ties": ties, "f1_to_right": to_right}
    defined: dict[str, Any] = {name: _defined(value) for name, value in numbers.items()}
    return Row(
        system=forest.system,
        run=forest.run,
        layer=forest.layer,
        decoder=forest.decoder,
        rule=scored.rule.name,
        subset=subset,
        ci95=scored.interval() if scored.n else None,
        n=scored.n,
        skipped=scored.skipped,
        tags=scored.tags,
        by_length=[(*length, *values) for length, values in scored.by_length().items()],
        **defined,
    )


def _defined(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _mean(group: Sequence[Row]) -> Row:
    """Return the mean of rows that differ in their run, with the details of the best."""
    if group[0].f1 is None:
        return replace(group[0], run=None, runs=len(group))
    best = max(group, key=lambda row: row.f1 or 0)
    means: dict[str, Any] = {}
    for name in ("f1", "precision", "recall", "depth", "ties", "f1_to_right", "labelled_f1", "label_accuracy"):
        values = [value for row in group if (value := getattr(row, name)) is not None]
        means[name] = statistics.fmean(values) if values else None
    means["by_length"] = [
        (*same[0][:2], statistics.fmean(f1 for _, _, f1, _ in same), same[0][3])
        for same in zip(*(row.by_length for row in group), strict=True)
    ]
    if all(sure := [row.confidence for row in group]):
        numbers = {name: statistics.fmean(getattr(one, name) for one in sure) for name in ("upper", "lower", "gap")}
        means["confidence"] = Calibration(**numbers)
    deviation = statistics.stdev(row.f1 or 0 for row in group)
    return replace(best, run=None, runs=len(group), ci95=None, max=best.f1, deviation=deviation, **means)
