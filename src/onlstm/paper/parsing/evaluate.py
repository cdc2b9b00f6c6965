"""`onlstm evaluate`: runs, or anybody's trees, against a treebank.

The model reads a sentence as its own text has it (mapping "aligned") or as the original code had it ("original"); which
of the sentences stood in its training text is counted, not guessed. What is chosen by the labels of the very treebank
it is reported on is said to be so.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import layer_numbers
from onlstm.paper.parsing.rows import Decoding, Forest, Layers, Row, agreed, baselines, forests, rows, untrained
from onlstm.paper.parsing.sentences import Reading, given_trees, is_penn, overlap, readings
from onlstm.paper.results_old import model_facts, save
from onlstm.parser import Gates, Parser
from onlstm.trees.f1 import RULES
from onlstm.trees.treebank import MAPPINGS, Split, Treebank, read_treebank

WIDER = {"ptb": "ptb-wide"}
"""By profile, the one that leaves what the language model's text keeps beside the scored words: "$" and "#"."""
MODELS = ("onlstm", "lstm-gates", "vote", "trees")
"""Systems that are no baselines."""
_TAGS = ("ADJP", "NP", "PP", "INTJ")
_LEFT_OUT = ("subset", "precision", "recall", "by_length")  # of a row, in the file that is kept


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `onlstm evaluate` was asked for."""

    runs: Sequence[Path]
    treebank: Path
    rules: Sequence[str] = ("on-lstm",)
    layers: Sequence[str] = ()
    """Numbers, names, or several joined by commas for an average; none: every layer alone."""
    decoders: Sequence[Decoding] = get_args(Decoding)
    gates: Gates | None = None
    """None: forget; of runs with LSTM layers, their own."""
    mapping: str = "aligned"
    profile: str = "auto"
    split: Split = "all"
    max_len: int | None = None
    strict: bool = False
    trees: Path | None = None
    """Brackets, or what `onlstm parse --format json` wrote, to score as well."""
    dev: Path | None = None
    """Another treebank, on which the headline's layer and decoder are chosen."""
    words: Path | None = None
    """A file to write the sentences to, one a line."""
    out: Path | None = None
    """A file to keep the result in, for `onlstm report`."""
    command: str = ""
    """As the user typed it, for that file."""


Say = Callable[[str], None]


def run(request: Request, say: Say = lambda line: None) -> dict[str, Any]:
    """Return what `onlstm evaluate --json` prints."""
    request = replace(request, rules=list(dict.fromkeys(request.rules)), decoders=list(dict.fromkeys(request.decoders)))
    _check(request)
    started = time.perf_counter()
    models = [_Model.of(request, LanguageModel.load(path), path) for path in request.runs]
    made: list[Row] = []
    overlaps: list[tuple[float | None, float]] = []
    for punctuated in sorted({RULES[name].punctuation for name in request.rules}, reverse=True):
        bank = _read(request, punctuated)
        reads = [_readings(request, bank, each.model) for each in models]
        others = _others(request, bank)
        trees = _forests(request, models, reads, say)
        trees += [*agreed(trees), *_blank(request, models, reads, say), *others]
        for rule in (name for name in request.rules if RULES[name].punctuation == punctuated):
            say(f"Scoring {len(trees)} sets of trees by rule {rule} …")
            made += rows(bank.trees, trees, rule)
        overlaps = [overlap(each.path, each.model, read) for each, read in zip(models, reads, strict=True)]
    made.sort(key=lambda row: request.rules.index(row.rule))
    for warning in bank.warnings:
        say(warning)
    if request.words:
        files.write(request.words, "".join(" ".join(tree.words) + "\n" for tree in bank.trees))
    found = {
        "treebank": _described(request, bank, overlaps),
        "mapping": request.mapping,
        "gates": request.gates or "forget",
        "headline": _headline(request, bank, models, made, say),
        "best": _best(made, request.rules[0]),
    }
    if request.out:
        _save(request.out, request, models, found | {"rows": _lean(made)}, time.perf_counter() - started)
    return found | {"rows": [asdict(row) for row in made]}


def table_labels(tags: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the labels of the paper's table; if the treebank has not most of them, its four most frequent ones."""
    if len(tags.keys() & set(_TAGS)) > 2:
        return list(_TAGS)
    return sorted(tags, key=lambda tag: -tags[tag][1])[:4]


def _check(request: Request) -> None:
    for option, given, known in (
        ("--rule", request.rules, tuple(RULES)),
        ("--decoder", request.decoders, get_args(Decoding)),
        ("--mapping", [request.mapping], tuple(MAPPINGS)),
    ):
        for name in given:
            if name not in known:
                raise UserError(f"{option} {name}: there are {', '.join(known)}")
    if (request.treebank / "model.safetensors").is_file():
        raise UserError(f"{request.treebank} is a run folder: name the treebank after it")
    if len({path.resolve() for path in request.runs}) < len(request.runs):
        raise UserError(f"{request.runs[0]}: a run is named twice; several runs are different seeds")
    if not request.runs and (request.layers or request.gates or request.dev):
        raise UserError("--layers, --gates and --dev are about runs: name a run folder before the treebank")
    for option, path in (("--dev", request.dev), ("--trees", request.trees)):
        if path and not path.exists():
            raise UserError(f"{option} {path}: No such file or directory")
    if request.words and not request.words.parent.is_dir():
        raise UserError(f"--words {request.words}: the folder {request.words.parent} does not exist")
    if request.out:
        files.check_target("--out", request.out, "results/NAME.json", [Path(request.treebank)])


def _read(request: Request, punctuation: bool = False) -> Treebank:
    bank = read_treebank(
        request.treebank,
        profile=request.profile,
        split=request.split,
        max_len=request.max_len,
        punctuation=punctuation,
        strict=request.strict,
    )
    if not bank.trees:
        why = ", ".join(f"{n} {what}" for what, n in bank.skipped.items()) or "none was found"
        way = "another --max-len or --split" if request.max_len or request.split != "all" else "another --profile"
        raise UserError(f"{request.treebank}: no trees to score by profile {bank.profile.name} ({why}); try {way}")
    return bank


def _described(request: Request, bank: Treebank, overlaps: Sequence[tuple[float | None, float]]) -> dict[str, Any]:
    return {
        "path": str(request.treebank),
        "profile": bank.profile.name,
        "split": bank.split,
        "sentences": len(bank.trees),
        "words": sum(len(tree.words) for tree in bank.trees),
        "skipped": dict(bank.skipped),
        "discontinuous": bank.discontinuous,
        "seen_share": max((seen for seen, _ in overlaps if seen is not None), default=None),
        "unk_share": overlaps[0][1] if overlaps else None,
    }


class _Model(NamedTuple):
    path: Path | None
    """None: untrained."""
    parser: Parser
    layers: list[Layers]
    """Those that were asked for, each once; none: every one."""

    @classmethod
    def of(cls, request: Request, model: LanguageModel, path: Path | None = None) -> "_Model":
        parser = Parser(model, gates=request.gates or ("lstm" if model.config.rnn == "lstm" else "forget"))
        found = [layer_numbers(given, model.config) for given in request.layers]
        layers = dict.fromkeys(numbers if len(numbers) > 1 else numbers[0] for numbers in found)
        return cls(path, parser, list(layers))

    @property
    def model(self) -> LanguageModel:
        return self.parser.model

    @property
    def system(self) -> str:
        return "untrained" if not self.path else "lstm-gates" if self.model.config.rnn == "lstm" else "onlstm"


def _forests(request: Request, models: Sequence[_Model], reads: Sequence[Sequence[Reading]], say: Say) -> list[Forest]:
    """Return the trees of all models."""
    made: list[Forest] = []
    for each, read in zip(models, reads, strict=True):
        say(f"Parsing {len(read):,} sentences with {each.path or 'an untrained model'} …")
        run = str(each.path) if each.path else None
        made += forests(each.parser, read, system=each.system, run=run, layers=each.layers, decoders=request.decoders)
    return made


def _blank(request: Request, models: Sequence[_Model], reads: Sequence[Sequence[Reading]], say: Say) -> list[Forest]:
    """Return the trees of the first model without its training."""
    decoders = [name for name in request.decoders if name != "vote"] or ["paper"]
    blank = [_Model.of(request, untrained(each.model)) for each in models[:1]]
    return _forests(replace(request, decoders=decoders), blank, reads[:1], say)


def _others(request: Request, bank: Treebank) -> list[Forest]:
    """Return the given trees and the baselines."""
    given = [Forest(system="trees", run=str(path), trees=given_trees(path, bank)) for path in [request.trees] if path]
    return given + baselines(bank.trees)


def _readings(request: Request, bank: Treebank, model: LanguageModel) -> list[Reading]:
    wide = None
    if request.mapping == "aligned" and not bank.punctuation and bank.profile.name in WIDER and is_penn(model):
        wide = read_treebank(request.treebank, profile=WIDER[bank.profile.name], split=request.split)
    return readings(bank, model, request.mapping, wide)


def _headline(
    request: Request, bank: Treebank, models: Sequence[_Model], made: Sequence[Row], say: Say
) -> dict[str, Any] | None:
    """Return the one row to report, its layer and decoder chosen without the labels it is scored by."""
    if not models:
        return None
    config, rule, asked = models[0].model.config, request.rules[0], models[0].layers
    layer: Layers = config.parse_layer or config.num_layers // 2 + 1
    decoder: Decoding | None = request.decoders[0]
    chosen = "the layer that the model folder names" if config.parse_layer else "the middle layer, as in the paper"
    if len(asked) == 1:
        layer, chosen = asked[0], "the layer that was asked for"
    if request.decoders == ["vote"]:
        layer, chosen = made[0].layer, "all layers that were asked for"
    if request.dev:
        layer, decoder, chosen = _chosen_on_dev(request, bank, models, say)
    how = (models[0].system, layer, decoder, rule, "all")
    fits = [row for row in made if (row.system, row.layer, row.decoder, row.rule, row.subset) == how]
    return _short(fits[-1]) | {"runs": fits[-1].runs, "chosen": chosen} if fits else None


def _chosen_on_dev(
    request: Request, bank: Treebank, models: Sequence[_Model], say: Say
) -> tuple[Layers, Decoding | None, str]:
    """Return the layer and decoder that are best on the other treebank, sentences of this one left out, and how."""
    assert request.dev
    there = replace(request, treebank=request.dev, split="all", max_len=None)
    dev = _read(there, RULES[request.rules[0]].punctuation)
    these = {tree.words for tree in bank.trees}
    kept = [k for k, tree in enumerate(dev.trees) if tree.words not in these]
    if not kept:
        raise UserError(f"--dev {request.dev}: all of its sentences are in the treebank to be scored; choose on others")
    same = [each for each in models if each.system == models[0].system]
    reads = [[each[k] for k in kept] for each in (_readings(there, dev, one.model) for one in same)]
    found = rows([dev.trees[k] for k in kept], _forests(there, same, reads, say), request.rules[0], ["all"])
    best = max((row for row in found if row.runs == len(same)), key=lambda row: row.f1 or 0)
    out = f", {left:,} sentences left out that are scored here" if (left := len(dev.trees) - len(kept)) else ""
    return best.layer, best.decoder, f"best on {request.dev}{out}"


def _best(made: Sequence[Row], rule: str) -> dict[str, Any] | None:
    fits = [row for row in made if row.system in MODELS[:-1] and (row.rule, row.subset) == (rule, "all")]
    if len(fits) < 2:
        return None
    return _short(max(fits, key=lambda row: row.f1 or 0)) | {"chosen": "selected on test labels"}


def _save(out: Path, request: Request, models: Sequence[_Model], found: dict[str, Any], seconds: float) -> None:
    found["runs"] = [model_facts(each.path, each.model) for each in models if each.path]
    found["rules"] = {name: RULES[name].about for name in request.rules}
    save(out, kind="parsing", name=out.stem, command=request.command, seed=None, seconds=seconds, **found)


def _lean(made: Sequence[Row]) -> list[dict[str, Any]]:
    """Return, for each rule and way to make trees, what a table shows; of several runs their mean alone."""
    means = {_way(row) for row in made if row.runs > 1}
    shown = [row for row in made if row.runs > 1 or _way(row) not in means]
    short = {(_way(row), row.run): row for row in shown if row.subset != "all"}
    out = []
    for row in shown:
        if row.subset == "all":
            few = short[_way(row), row.run]
            entry = {name: value for name, value in asdict(row).items() if name not in _LEFT_OUT}
            entry["tags"] = {label: row.tags[label] for label in table_labels(row.tags) if label in row.tags}
            entry["short"] = {name: getattr(few, name) for name in ("n", "f1", "deviation", "max")}
            out.append(_brief(entry))
    return out


def _way(row: Row) -> tuple[object, ...]:
    return row.rule, row.system, row.layer, row.decoder


def _brief(value: Any) -> Any:
    """Return what is defined, with four digits after the point."""
    if isinstance(value, dict):
        return {key: _brief(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_brief(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def _short(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("system", "run", "layer", "decoder", "rule", "f1")}
