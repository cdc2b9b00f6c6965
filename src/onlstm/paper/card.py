"""`onlstm convert RUN`: a run made ready to ship: its model alone, with a card and a line on how far to trust it.

The card's numbers are those of the run's result.json, or of its copy among the committed results, and of the parsing
results there; nothing is typed twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm import folder as store
from onlstm.lm.model import LanguageModel
from onlstm.paper import report
from onlstm.paper.parsing.content import Content as Parsing
from onlstm.paper.parsing.content import TableRow
from onlstm.paper.results import Origin, Result, read, typed
from onlstm.paper.tables import Table, network, number
from onlstm.paper.training_result import Content as Training

CARD = "README.md"
_RULE = "on-lstm"
_LIMITS = """\
- The trees are guesses: unlabelled, binary, made from raw words alone; the model was never shown a tree. Look at the
  scores above before you count anything with them.
- They lean to the right, by decoder `paper` more than by `unbiased`; where *to right* is near 100 they say nothing.
- It reads one sentence at a time, left to right: a word's boundary is found before the words after it are seen.
- Words that are not in its vocabulary all look the same to it; `onlstm parse` warns if there are many.
- It knows the kind of text named above. In other registers, dialects and languages it may do much worse.
- It has learnt the views of its text's writers: do not judge people by its probabilities, or by what it generates."""


class _Score(NamedTuple):
    """A row of the model's trees, with its treebank and the score of right-branching trees there."""

    row: TableRow
    treebank: str
    seen: float | None
    right: float | None


def ship(
    run: Path, out: Path, *, half: bool, layer: int | None, results: Path | None, notes: Sequence[str]
) -> LanguageModel:
    """Return the model, written to `out` with its card; `layer` is the one that trees are to be made of."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out}: already there; name a new folder, or remove it first")
    model = LanguageModel.load(run)
    config = model.config
    model.config = replace(config, parse_layer=layer or config.parse_layer or config.num_layers // 2 + 1)
    trained, committed = _trained(run), report.collect(results) if results else []
    names = trained.origin.kind, trained.origin.name
    copies = [result for result in committed if (result.origin.kind, result.origin.name) == names]
    scores = list(_scores(committed, trained.origin.name, model.config.parse_layer))
    card = _card(out.name, model, copies[0] if copies else trained, scores, notes, half)
    store.save_model(model, out, half=half, trust=_trust(scores))
    files.write(out / CARD, card)
    return model


def _trained(run: Path) -> Result[Training]:
    path = run / "result.json"
    if not path.exists():
        raise UserError(f"{run}: no result of `onlstm train` to make a card of; go on with it: --resume --out {run}")
    record = read(path)
    return Result(file=run.name, origin=typed(Origin, record, str(path)), content=typed(Training, record, str(path)))


def _scores(committed: Sequence[Result[Any]], name: str, layer: int) -> Iterator[_Score]:
    """Yield the scores of the model's trees of that layer; those of a treebank that was scored twice, once."""
    seen = set()
    for content in (result.content for result in committed if isinstance(result.content, Parsing)):
        bank = content.treebank
        treebank = Path(bank.path).name.partition(".")[0]
        right = {row.rule: row.f1 for row in content.rows if row.system == "right"}
        for row in content.rows:
            key = (treebank, bank.split, row.rule, row.decoder)
            own = row.run and Path(row.run).name == name and row.layer == layer and row.runs == 1
            if own and key not in seen:
                seen.add(key)
                yield _Score(row, treebank, bank.seen_share, right.get(row.rule))


def _trust(scores: Sequence[_Score]) -> str:
    """Return one line on how far to trust the trees."""
    banks = [
        f"{score.treebank} {number(score.row.f1, 0)} ({number(score.right, 0)})"
        for score in scores
        if (score.row.rule, score.row.decoder) == (_RULE, "paper")
    ]
    if not banks:
        return "trees learnt from raw text and never held against a treebank: take them as guesses"
    return f"trees learnt from raw text: take them as guesses; F1 (that of right-branching trees): {', '.join(banks)}"


def _card(
    name: str,
    model: LanguageModel,
    trained: Result[Training],
    scores: Sequence[_Score],
    notes: Sequence[str],
    half: bool,
) -> str:
    config, origin, content = model.config, trained.origin, trained.content
    data, numbers, notes = content.data, content.numbers, [*notes, *origin.notes]
    splits = [f"{name} {part.words:,}" for name in ("train", "valid", "test") if (part := getattr(data, name))]
    perplexities = [f"valid {numbers.valid_perplexity:.2f}"]
    perplexities += [f"test {numbers.test_perplexity:.2f}"] if numbers.test_perplexity is not None else []
    sizes = network(config.rnn, (config.embedding_size, *config.sizes))
    facts = {
        "model": f"{sizes}, {content.parameters:,} parameters{', weights in half precision' * half}",
        "trees": f"of the distances of layer {config.parse_layer}",
        "words": f"{config.vocab_size:,}, found by the profile `{data.profile}`",
        "text": f"{data.name or 'unnamed'}; words: {', '.join(splits)}",
        "training": f"`{origin.command}`; {numbers.epochs} epochs, {origin.seconds / 3600:.1f} hours",
        "perplexity": f"{', '.join(perplexities)} (per token with `<eos>`)",
    }
    blocks = [f"# {name}", "\n".join(f"- {key}: {value}" for key, value in facts.items())]
    blocks += ["## Text, licence, remarks", "\n".join(f"- {note}" for note in notes)] if notes else []
    blocks += ["## Trees against treebanks", _table(scores) if scores else "Not measured.", "## Limits", _LIMITS]
    return "\n\n".join(blocks) + "\n"


def _table(scores: Sequence[_Score]) -> str:
    head = ["treebank", "rule", "decoder", "F1", "≤10 words", "right-branching", "tied %", "to right"]
    rows = []
    for row, treebank, seen, right in scores:
        values = (row.f1, row.short.f1, right, row.ties, row.f1_to_right, seen)
        rows.append([treebank, row.rule, str(row.decoder), *map(number, values)])
    return Table(head=[*head, "sentences seen %"], rows=rows).markdown()
