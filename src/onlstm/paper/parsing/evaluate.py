"""`onlstm evaluate`: runs, or anybody's trees, against a treebank.

The model reads a sentence as its own text has it (mapping "aligned") or as the original code had it ("original"); the
sentences that were in its training text are counted. What is chosen by the labels of the treebank it is reported on is
marked as such.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from onlstm import files
from onlstm.errors import UserError, one_of
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import layer_numbers
from onlstm.paper import results
from onlstm.paper.parsing.alignment import Reading, given_trees, overlap, readings
from onlstm.paper.parsing.content import Choice, Content, Evaluation, Headline, Layers, Row, Scored, TreebankFacts
from onlstm.paper.parsing.request import Request
from onlstm.paper.parsing.rows import Forest, agreed, baselines, forests, rows, untrained
from onlstm.paper.parsing.table import MODELS, paired, table_labels
from onlstm.parser import Parser
from onlstm.trees.f1 import RULES
from onlstm.trees.treebank import Treebank, read_treebank

Say = Callable[[str], None]


class _Model(NamedTuple):
    path: Path | None
    """None: untrained."""
    parser: Parser
    layers: list[Layers]
    """Those that were asked for, each once; none: every one."""

    @classmethod
    def of(cls, request: Request, model: LanguageModel, path: Path | None = None) -> "_Model":
        parser = Parser(model, gates=request.gates or ("lstm" if model.config.rnn == "lstm" else "forget"))
        asked = [layer_numbers(layers, model.config) for layers in request.layers]
        return cls(path, parser, list(dict.fromkeys(layer if len(layer) > 1 else layer[0] for layer in asked)))

    @property
    def network(self) -> LanguageModel:
        assert isinstance(self.parser.model, LanguageModel)
        return self.parser.model

    @property
    def system(self) -> str:
        return "untrained" if not self.path else "lstm-gates" if self.parser.gates == "lstm" else "onlstm"

    def forests(self, reads: Sequence[Reading], request: Request, say: Say) -> list[Forest]:
        """Return the model's trees; untrained, its layers do not vote."""
        say(f"Parsing {len(reads):,} sentences with {self.path or 'an untrained model'} …")
        decoders = [name for name in request.decoder if self.path or name != "vote"] or ["paper"]
        run = str(self.path) if self.path else None
        return forests(self.parser, reads, system=self.system, run=run, layers=self.layers, decoders=decoders)


def run(request: Request, say: Say = lambda line: None) -> Evaluation:
    """Return the scores of the runs' trees, of the trees given and of the baselines; write what was asked for."""
    _check(request)
    request = replace(request, rule=_rules(request, say), decoder=tuple(dict.fromkeys(request.decoder)))
    started = time.perf_counter()
    models = [_Model.of(request, LanguageModel.load(path), path) for path in request.runs]
    bank = _read(request)
    for warning in bank.warnings:
        say(warning)
    views = [bank.view(punctuation=p) for p in sorted({RULES[rule].punctuation for rule in request.rule})]
    reads = [[readings(view, model.network, request.mapping) for model in models] for view in views]
    scored = [row for view, read in zip(views, reads, strict=True) for row in _scored(request, models, view, read, say)]
    scored.sort(key=lambda row: request.rule.index(row.rule))
    if request.words:
        files.write(request.words, "".join(" ".join(tree.words) + "\n" for tree in views[0].trees))
    shares = [overlap(model.path, model.network, read) for model, read in zip(models, reads[0], strict=True)]
    evaluation = Evaluation(
        treebank=_facts(request, views[0], shares),
        mapping=request.mapping,
        gates=request.gates or "forget",
        headline=_headline(request, views[0], models, scored, say),
        best=_best(scored, request.rule[0]),
        rows=scored,
    )
    if request.out:
        content = _content(request, models, evaluation)
        seconds = time.perf_counter() - started
        results.save(request.out, kind="parsing", content=content, command=request.command, seed=None, seconds=seconds)
    return evaluation


def _rules(request: Request, say: Say) -> tuple[str, ...]:
    """Return the names of the rules, each once."""
    if "all" not in request.rule:
        return tuple(dict.fromkeys(request.rule))
    if not request.trees:
        return tuple(RULES)
    say("Rule punct is left out: trees with punctuation are scored by --rule punct alone.")
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
    return bank


def _scored(
    request: Request, models: Sequence[_Model], view: Treebank, reads: Sequence[Sequence[Reading]], say: Say
) -> list[Row]:
    """Return the rows of all systems, by the rules for trees with punctuation or for those without."""
    others = [Forest(system="trees", run=str(path), trees=given_trees(path, view)) for path in [request.trees] if path]
    sets = [forest for model, read in zip(models, reads, strict=True) for forest in model.forests(read, request, say)]
    sets += agreed(sets)
    for model, read in zip(models[:1], reads, strict=False):
        sets += _Model.of(request, untrained(model.network)).forests(read, request, say)
    sets += [*others, *baselines(view.trees)]
    scored = []
    for rule in request.rule:
        if RULES[rule].punctuation == view.punctuation:
            say(f"Scoring {len(sets)} sets of trees by rule {rule} …")
            scored += rows(view.trees, sets, rule)
    return scored


def _facts(request: Request, bank: Treebank, shares: Sequence[tuple[float | None, float]]) -> TreebankFacts:
    return TreebankFacts(
        path=str(request.treebank),
        profile=bank.profile.name,
        split=bank.split,
        sentences=len(bank.trees),
        words=sum(len(tree.words) for tree in bank.trees),
        skipped=bank.skipped,
        discontinuous=bank.discontinuous,
        seen_share=max((seen for seen, _ in shares if seen is not None), default=None),
        unk_share=shares[0][1] if shares else None,
    )


def _headline(
    request: Request, bank: Treebank, models: Sequence[_Model], scored: Sequence[Row], say: Say
) -> Headline | None:
    """Return the one row to report, its layer and decoder chosen without the labels it is scored by."""
    if not models:
        return None
    config, asked = models[0].network.config, models[0].layers
    layer: Layers = config.parse_layer or config.num_layers // 2 + 1
    decoder: str | None = request.decoder[0]
    chosen = "the layer that the model folder names" if config.parse_layer else "the middle layer, as in the paper"
    if len(asked) == 1:
        layer, chosen = asked[0], "the layer that was asked for"
    if request.decoder == ("vote",):
        layer, chosen = scored[0].layer, "all layers that were asked for"
    if request.dev:
        layer, decoder, chosen = _chosen_on_dev(request, request.dev, bank, models, say)
    key = (request.rule[0], models[0].system, layer, decoder)
    fits = [row for row in scored if row.key == key and row.subset == "all"]
    return Headline(**_named(fits[-1]), runs=fits[-1].runs, chosen=chosen) if fits else None


def _chosen_on_dev(
    request: Request, path: Path, bank: Treebank, models: Sequence[_Model], say: Say
) -> tuple[Layers, str | None, str]:
    """Return the layer and decoder that are best on another treebank, without sentences of this one, and how."""
    dev = _read(replace(request, treebank=path, split="all", max_len=None))
    dev = dev.view(punctuation=RULES[request.rule[0]].punctuation)
    here = {tree.words for tree in bank.trees}
    new = [k for k, tree in enumerate(dev.trees) if tree.words not in here]
    if not new:
        raise UserError(f"--dev {path}: all of its sentences are in the treebank to be scored; choose on others")
    alike = [model for model in models if model.system == models[0].system]
    sets: list[Forest] = []
    for model in alike:
        reads = readings(dev, model.network, request.mapping)
        sets += model.forests([reads[k] for k in new], request, say)
    scored = rows([dev.trees[k] for k in new], sets, request.rule[0], ["all"])
    best = max((row for row in scored if row.runs == len(alike)), key=lambda row: row.f1 or 0)
    left_out = len(dev.trees) - len(new)
    note = f", {left_out:,} sentences left out that are scored here" if left_out else ""
    return best.layer, best.decoder, f"best on {path}{note}"


def _best(scored: Sequence[Row], rule: str) -> Choice | None:
    fits = [row for row in scored if row.system in MODELS and (row.rule, row.subset) == (rule, "all")]
    if len(fits) < 2:
        return None
    return Choice(**_named(max(fits, key=lambda row: row.f1 or 0)), chosen="selected on test labels")


def _named(row: Row) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(Scored)}


def _content(request: Request, models: Sequence[_Model], evaluation: Evaluation) -> Content:
    """Return what the result file keeps: for each rule and way to make trees one row, of several runs their mean."""
    table = paired(evaluation.rows)
    means = {row.key for row in table if row.runs > 1}
    chosen = [row for row in table if row.runs > 1 or row.key not in means]
    lean = [_rounded(replace(row, tags={tag: row.tags[tag] for tag in table_labels(row.tags)})) for row in chosen]
    common = {field.name: getattr(evaluation, field.name) for field in fields(evaluation) if field.name != "rows"}
    runs = [results.Model.of(model.path, model.network) for model in models if model.path]
    return Content(**common, rows=lean, runs=runs, rules={rule: RULES[rule].about for rule in request.rule})


def _rounded(value: Any) -> Any:
    """Return a row with numbers of four digits after the point."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _rounded(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    return round(value, 4) if isinstance(value, float) else value
