"""`onlstm evaluate`: runs of language models and grammars, or anybody's trees, against a treebank.

The model reads a sentence as its own text has it (mapping "aligned") or as the original code had it ("original"); the
sentences that were in its training text are counted. What is chosen by the labels of the treebank it is reported on is
marked as such.
"""

import time
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from onlstm import files
from onlstm.device import check_grammar
from onlstm.errors import UserError, one_of
from onlstm.lm.model import LanguageModel
from onlstm.paper import results
from onlstm.paper.parsing.alignment import Reading, given_trees, overlap, readings
from onlstm.paper.parsing.ccm import SUBSET, tag_forests
from onlstm.paper.parsing.content import Choice, Content, Evaluation, Headline, Layers, Row, Scored, TreebankFacts
from onlstm.paper.parsing.request import Decoding, Request
from onlstm.paper.parsing.rows import Forest, agreed, baselines, mixed, rows, untrained
from onlstm.paper.parsing.system import System, Watch, decoders
from onlstm.paper.parsing.table import MODELS, paired, table_labels
from onlstm.parser.parse import GrammarDecoder
from onlstm.trees.f1 import RULES
from onlstm.trees.labels import many_to_one
from onlstm.trees.tree import Tree
from onlstm.trees.treebank import Treebank, read_treebank


def run(request: Request, watch: Watch = Watch()) -> Evaluation:  # noqa: B008  (frozen)
    """Return the scores of the runs' trees, of the trees given and of the baselines; write what was asked for."""
    _check(request)
    request = replace(request, rule=_rules(request, watch), decoder=tuple(dict.fromkeys(request.decoder)))
    started = time.perf_counter()
    models = [System.load(request, path) for path in request.runs]
    if models and all(model.system == "grammar" for model in models):
        if request.layers or request.gates:
            raise UserError(f"--layers and --gates: {request.runs[0]} is a grammar, which has neither")
        check_grammar(request.device, request.runs[0])
    _check_decoders(request, models)
    bank = _read(request)
    for warning in bank.warnings:
        watch.say(warning)
    views = [bank.view(punctuation=p) for p in sorted({RULES[rule].punctuation for rule in request.rule})]
    reads = [[readings(view, model.model, request.mapping) for model in models] for view in views]
    dev = _Dev.of(request, request.dev, views[0], models, watch) if request.dev else None
    scored = [
        row for view, read in zip(views, reads, strict=True) for row in _scored(request, models, view, read, dev, watch)
    ]
    scored.sort(key=lambda row: request.rule.index(row.rule))
    if request.words:
        files.write(request.words, "".join(" ".join(tree.words) + "\n" for tree in views[0].trees))
    shares = [overlap(model.path, model.model, read) for model, read in zip(models, reads[0], strict=True)]
    evaluation = Evaluation(
        treebank=_facts(request, views[0], shares),
        mapping=request.mapping,
        gates=request.gates or "forget",
        headline=_headline(request, models, scored, dev),
        best=_best(scored, request.rule[0]),
        rows=scored,
    )
    if request.out:
        content = _content(request, models, evaluation)
        seconds = time.perf_counter() - started
        results.save(request.out, kind="parsing", content=content, command=request.command, seed=None, seconds=seconds)
    return evaluation


def _check_decoders(request: Request, models: Sequence[System]) -> None:
    """Refuse decoders of which no run has any: the others would be used instead."""
    of_grammars = set(get_args(GrammarDecoder))
    for is_grammar, fitting in ((True, of_grammars), (False, set(get_args(Decoding)) - of_grammars)):
        kinds = {model.system == "grammar" for model in models}
        if kinds == {is_grammar} and request.decoder != Request.decoder and not fitting & set(request.decoder):
            there = ", ".join(sorted(fitting))
            raise UserError(f"--decoder {request.decoder[0]}: of {request.runs[0]} there are {there}")


def _rules(request: Request, watch: Watch) -> tuple[str, ...]:
    """Return the names of the rules, each once."""
    if "all" not in request.rule:
        return tuple(dict.fromkeys(request.rule))
    if not request.trees:
        return tuple(RULES)
    watch.say("Rule punct is left out: trees with punctuation are scored by --rule punct alone.")
    return tuple(rule for rule in RULES if not RULES[rule].punctuation)


def _check(request: Request) -> None:
    for rule in request.rule:
        one_of("--rule", rule, [*RULES, "all"])
    if (request.treebank / "model.safetensors").is_file():
        raise UserError(f"{request.treebank} is a run folder: name the treebank after it")
    if len({path.resolve() for path in request.runs}) < len(request.runs):
        raise UserError(f"{request.runs[0]}: a run is named twice; several runs are different seeds")
    if not request.runs and (request.layers or request.gates or request.dev):
        raise UserError("--layers, --gates and --dev are about runs: name a run folder before the treebank")
    for option, path in (("--dev", request.dev), ("--trees", request.trees)):
        if path and not path.exists():
            raise UserError(f"{option} {path}: No such file or directory")


def _read(request: Request) -> Treebank:
    bank = read_treebank(
        request.treebank,
        profile=request.profile,
        split=request.split,
        max_len=request.max_len,
        strict=request.strict,
    )
    if not bank.trees:
        why = ", ".join(f"{n} {what}" for what, n in bank.skipped.items()) or "none was found"
        way = "another --max-len or --split" if request.max_len or request.split != "all" else "another --profile"
        raise UserError(f"{request.treebank}: no trees to score by profile {bank.profile.name} ({why}); try {way}")
    if bank.defect_share > 0.5 and not request.allow_skipped:
        lost, by = bank.warnings[-1], f"by profile {bank.profile.name}"
        raise UserError(f"{request.treebank}, {by}: {lost}; try another --profile, or score the rest: --allow-skipped")
    return bank


def _scored(
    request: Request,
    models: Sequence[System],
    view: Treebank,
    reads: Sequence[Sequence[Reading]],
    dev: "_Dev | None",
    watch: Watch,
) -> list[Row]:
    """Return the rows of all systems, by the rules for trees with punctuation or for those without."""
    others = list[Forest]()
    if path := request.trees:
        others.append(Forest(system="trees", run=str(path), trees=given_trees(path, view, request.other_words)))
    by_model = [model.forests(read, request, watch) for model, read in zip(models, reads, strict=True)]
    if dev:
        by_model = [dev.with_meaning(trees, k) for k, trees in enumerate(by_model)]
    sets = [forest for trees in by_model for forest in trees]
    sets += [*agreed(sets), *mixed([model.reported(trees) for model, trees in zip(models, by_model, strict=True)])]
    for model, read in zip(models, reads, strict=True):
        if isinstance(model.model, LanguageModel):
            sets += System.of(request, untrained(model.model)).forests(read, request, watch)
            break
    sets += [*others, *baselines(view.trees)]
    of_tags = tag_forests(view, watch.say) if request.ccm else []
    scored = []
    for rule in request.rule:
        if RULES[rule].punctuation == view.punctuation:
            watch.say(f"Scoring {len(sets) + len(of_tags)} sets of trees by rule {rule} …")
            scored += rows(view.trees, sets, rule, on_progress=watch.progress)
            scored += rows(view.trees, of_tags, rule, [SUBSET])
    return scored


def _facts(request: Request, bank: Treebank, shares: Sequence[tuple[float | None, float]]) -> TreebankFacts:
    return TreebankFacts(
        path=str(request.treebank),
        profile=bank.profile.name,
        split=bank.split,
        sentences=len(bank.trees),
        words=sum(len(tree.words) for tree in bank.trees),
        skipped=bank.skipped,
        defects=bank.defects,
        outside=bank.outside,
        discontinuous=bank.discontinuous,
        seen_share=max((seen for seen, _ in shares if seen is not None), default=None),
        unk_share=shares[0][1] if shares else None,
    )


def _headline(request: Request, models: Sequence[System], scored: Sequence[Row], dev: "_Dev | None") -> Headline | None:
    """Return the one row to report, its layer and decoder chosen without the labels it is scored by."""
    if not models:
        return None
    first = models[0]
    layer, chosen = first.headline
    decoder: str | None = first.parsers[0].decoder if first.system == "grammar" else decoders(request)[0]
    if request.decoder == ("vote",) and first.system != "grammar":
        layer, chosen = scored[0].layer, "all layers that were asked for"
    if dev and (first.system != "grammar" or len(first.parsers) > 1):
        layer, decoder, chosen = dev.best(request.rule[0], models)
    key = (request.rule[0], first.system, layer, decoder)
    fits = [row for row in scored if row.key == key and row.subset == "all"]
    return Headline(**_named(fits[-1]), runs=fits[-1].runs, chosen=chosen) if fits else None


class _Dev(NamedTuple):
    """Another treebank, to choose on, without the sentences that are to be scored."""

    path: Path
    gold: list[Tree]
    left_out: int
    forests: list[list[Forest]]
    """Of each model; none of those that nothing is chosen for."""

    @classmethod
    def of(cls, request: Request, path: Path, bank: Treebank, models: Sequence[System], watch: Watch) -> "_Dev":
        dev = _read(replace(request, treebank=path, split="all", max_len=None))
        dev = dev.view(punctuation=RULES[request.rule[0]].punctuation)
        here = {tree.words for tree in bank.trees}
        new = [k for k, tree in enumerate(dev.trees) if tree.words not in here]
        if not new:
            raise UserError(f"--dev {path}: all of its sentences are in the treebank to be scored; choose on others")
        trees: list[list[Forest]] = [[] for _ in models]
        for model, forest in zip(models, trees, strict=True):
            if model.system in (models[0].system, "grammar"):
                reads = readings(dev, model.model, request.mapping)
                forest += model.forests([reads[k] for k in new], request, watch)
        return cls(path, [dev.trees[k] for k in new], len(dev.trees) - len(new), trees)

    def best(self, rule: str, models: Sequence[System]) -> tuple[Layers, str | None, str]:
        """Return the layer and decoder that are best for models like the first, and how they were chosen."""
        alike = [trees for model, trees in zip(models, self.forests, strict=True) if model.system == models[0].system]
        scored = rows(self.gold, [forest for trees in alike for forest in trees], rule, ["all"])
        best = max((row for row in scored if row.runs == len(alike)), key=lambda row: row.f1 or 0)
        note = f", {self.left_out:,} sentences left out that are scored here" if self.left_out else ""
        return best.layer, best.decoder, f"best on {self.path}{note}"

    def with_meaning(self, trees: Sequence[Forest], k: int) -> list[Forest]:
        """Return the trees of model k; those of a grammar with what its labels stand for here."""
        here = {forest.key: forest.trees for forest in self.forests[k] if forest.system == "grammar"}
        return [replace(forest, meaning=self._meaning(here.get(forest.key))) for forest in trees]

    def _meaning(self, trees: Sequence[Tree] | None) -> dict[str, str] | None:
        """Return what labels stand for inside sentences; those of whole sentences alone, what they stand for there."""
        if trees is None:
            return None
        return many_to_one(self.gold, trees, "evalb-onlstm") | many_to_one(self.gold, trees, "on-lstm")


def _best(scored: Sequence[Row], rule: str) -> Choice | None:
    fits = [row for row in scored if row.system in MODELS and (row.rule, row.subset) == (rule, "all")]
    if len(fits) < 2:
        return None
    return Choice(**_named(max(fits, key=lambda row: row.f1 or 0)), chosen="selected on test labels")


def _named(row: Row) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(Scored)}


def _content(request: Request, models: Sequence[System], evaluation: Evaluation) -> Content:
    """Return what the result file keeps: for each rule and way to make trees one row, of several runs their mean."""
    table = paired(evaluation.rows)
    means = {row.key for row in table if row.runs > 1}
    chosen = [row for row in table if row.runs > 1 or row.key not in means]
    lean = [_rounded(replace(row, tags={tag: row.tags[tag] for tag in table_labels(row.tags)})) for row in chosen]
    common = {field.name: getattr(evaluation, field.name) for field in fields(evaluation) if field.name != "rows"}
    runs = [results.Model.of(model.path, model.model) for model in models if model.path]
    return Content(**common, rows=lean, runs=runs, rules={rule: RULES[rule].about for rule in request.rule})


def _rounded(value: Any) -> Any:
    """Return a row with numbers of four digits after the point."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _rounded(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    return round(value, 4) if isinstance(value, float) else value
