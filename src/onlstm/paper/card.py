"""`onlstm convert RUN`: a run made ready to ship: its model alone, with a card and a line on how far to trust it.

The card's numbers are those of the run's result.json, or of its copy among the committed results, and of the parsing
results there; nothing is typed twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from onlstm import files, folder
from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.model import LanguageModel
from onlstm.paper import report, stages, training_result
from onlstm.paper.parsing.content import Content, TableRow
from onlstm.paper.results import Result, result
from onlstm.paper.tables import Table, number

CARD = "README.md"
_RULE, _DECODERS = "on-lstm", ("paper", "mbr")
_READING = {
    "model": """\
- They lean to the right, by decoder `paper` more than by `unbiased`; where *to right* is near 100 they say nothing.
- It reads one sentence at a time, left to right: a word's boundary is found before the words after it are seen.
- Words that are not in its vocabulary all look the same to it; `onlstm parse` warns if there are many.""",
    "grammar": """\
- Its labels are numbers of classes that it made up; what they stand for has to be looked up (`onlstm inspect`).
- It was trained on sentences of at most 30 words and is less sure of longer ones.
- Words that are not in its vocabulary it tells apart by their last letters at most; `onlstm parse` warns if there are
  many.""",
}
_LIMITS = """\
- The trees are guesses: binary, made from raw words alone; the model was never shown a tree. Look at the scores above
  before you count anything with them.
{reading}
- It knows the kind of text named above. In other registers, dialects and languages it may do much worse.
- It has learnt the views of its text's writers: do not judge people by its probabilities, or by what it generates."""

_Score = tuple[str, TableRow, float | None, float | None]
"""A treebank, a row of the model's trees, the F1 of right-branching trees, the share of sentences seen."""


_CONTENTS: Mapping[folder.Kind, tuple[str, type, str]] = {
    "model": ("language-model", training_result.Content, "train"),
    "grammar": ("induction", stages.Content, "induce"),
}
"""Of each kind of model: the kind of its result, the type of that, the command that writes it."""


def ship(
    run: Path, out: Path, *, half: bool, layer: int | None, results: Path | None, notes: Sequence[str]
) -> LanguageModel | Grammar:
    """Return the model, written to `out` with its card; `layer` is the one that trees are to be made of."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out}: already there; name a new folder, or remove it first")
    kind = folder.kind_of(run)
    if kind == "grammar" and layer is not None:
        raise UserError(f"--layer {layer}: a grammar has no layers; only a language model has")
    model: LanguageModel | Grammar = Grammar.load(run) if kind == "grammar" else _with_layer(run, layer)
    name, content, command = _CONTENTS[kind]
    if not (run / "result.json").exists():
        raise UserError(
            f"{run}: no result of `onlstm {command}` to make a card from; continue it with --resume --out {run}"
        )
    trained = result(run / "result.json", {name: content})
    committed = report.collect(results) if results else []
    for copy in committed:
        if (copy.origin.kind, copy.origin.name) == (name, trained.origin.name):
            trained = copy  # it may have notes
    evaluations = [copy.content for copy in committed if isinstance(copy.content, Content)]
    own_layer = model.config.parse_layer if isinstance(model, LanguageModel) else None
    scores = list(_scores(evaluations, trained.origin.name, own_layer))
    facts = _facts(model, trained) if isinstance(model, LanguageModel) else _grammar_facts(model, trained)
    facts |= {"weights": "in half precision"} if half else {}
    limits = _LIMITS.format(reading=_READING[kind])
    with files.new_folder(out):
        model.save(out, half=half, trust=_trust(scores))
        files.write(out / CARD, _card(out.name, facts, [*notes, *trained.origin.notes], scores, limits))
    return model


def _with_layer(run: Path, layer: int | None) -> LanguageModel:
    model = LanguageModel.load(run, device="cpu")
    config = model.config
    model.config = replace(config, parse_layer=layer or config.parse_layer or config.distance_layers // 2 + 1)
    return model


def _scores(evaluations: Sequence[Content], name: str, layer: int | None) -> Iterator[_Score]:
    """Yield the scores of the model's trees, of that layer if it has any; a treebank that was scored twice, once."""
    seen = set()
    for content in evaluations:
        bank = content.treebank
        treebank = Path(bank.path).name.partition(".")[0]
        right = {row.rule: row.f1 for row in content.rows if row.system == "right"}
        for row in content.rows:
            key = (treebank, bank.split, row.rule, row.decoder)
            own = row.run and Path(row.run).name == name and row.layer == layer and row.runs == 1
            if own and key not in seen:
                seen.add(key)
                yield treebank, row, right.get(row.rule), bank.seen_share


def _trust(scores: Sequence[_Score]) -> str:
    """Return one line on how far to trust the trees."""
    usual = [score for score in scores if score[1].rule == _RULE and score[1].decoder in _DECODERS]
    if not usual:
        return "trees learnt from raw text and never compared with a treebank: take them as guesses"
    banks = ", ".join(f"{bank} {number(row.f1, 0)} ({number(right, 0)})" for bank, row, right, _ in usual)
    return f"trees learnt from raw text: take them as guesses; F1 (that of right-branching trees): {banks}"


def _facts(model: LanguageModel, trained: Result[training_result.Content]) -> dict[str, str]:
    data = trained.content.data
    words = [f"{name} {split.words:,}" for name in ("train", "valid", "test") if (split := getattr(data, name))]
    cells = training_result.cells(trained)
    return {
        **{key: cells[key] for key in ("model", "parameters", "epochs (best)", "minutes")},
        "perplexity": f"validation {cells['validation']}, test {cells['test']} (per token with `<eos>`)",
        "training": f"`{trained.origin.command}`",
        "text": f"{data.name or 'unnamed'}; words: {', '.join(words)}",
        "vocabulary": f"{model.config.vocab_size:,} words, found by the profile `{data.profile}`",
        "trees": f"of the distances of layer {model.config.parse_layer}",
    }


def _grammar_facts(model: Grammar, trained: Result[stages.Content]) -> dict[str, str]:
    symbols = f"{model.config.nonterminals} nonterminals, {model.config.preterminals} preterminals"
    reports = (
        f"{stage.name} {stage.seconds / 60:.0f} min, likelihood {number(stage.likelihood, 2)}, "
        f"agreement {number(stage.agreement)}"
        for stage in trained.content.stages
    )
    tokenizer = model.tokenizer
    assert tokenizer
    endings = len(tokenizer.unknown_ids) - 1
    words = f"{model.config.vocab_size - endings:,} words, found by the profile `{tokenizer.profile}`"
    return {
        "model": f"a simple probabilistic grammar: {symbols}",
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
        "training": f"`{trained.origin.command}`, {trained.origin.threads} processes",
        "stages (processor time; nats per held-out word; F1 between members)": "; ".join(reports),
        "vocabulary": f"{words}; {endings} endings of others" if endings else words,
        "trees": "the spans that are likeliest, all trees considered (decoder `mbr`)",
    }


def _card(name: str, facts: dict[str, str], notes: Sequence[str], scores: Sequence[_Score], limits: str) -> str:
    rows = [
        [treebank, row.rule, str(row.decoder)]
        + [number(value) for value in (row.f1, row.short.f1, right, row.ties, row.f1_to_right, seen)]
        for treebank, row, right, seen in scores
    ]
    head = ["treebank", "rule", "decoder", "F1", "≤10 words", "right-branching", "tied %", "to right", "seen %"]
    blocks = [f"# {name}", "\n".join(f"- {key}: {value}" for key, value in facts.items())]
    blocks += ["## Text, licence, remarks", "\n".join(f"- {note}" for note in notes)] if notes else []
    blocks += ["## Trees against treebanks", Table(head=head, rows=rows).markdown() if rows else "Not measured."]
    return "\n\n".join([*blocks, "## Limits", limits]) + "\n"
