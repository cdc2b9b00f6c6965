"""`onlstm convert RUN`: a run made ready to ship: its model alone, with a card and a line on how far to trust it.

The card's numbers are those of the run's result.json, or of its copy among the committed results, and of the results of
parsing there; nothing is typed twice.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm import folder as store
from onlstm.lm.model import LanguageModel
from onlstm.paper import report
from onlstm.paper.report.tables import network, number, table

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


def ship(
    run: Path, out: Path, *, half: bool, layer: int | None, results: Path | None, notes: Sequence[str]
) -> LanguageModel:
    """Return the model, written to `out` with its card; `layer` is the one that trees are to be made of."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out}: already there; name a new folder, or remove it first")
    model = LanguageModel.load(run)
    config = model.config
    model.config = replace(config, parse_layer=layer or config.parse_layer or config.num_layers // 2 + 1)
    trained, found = _result(run), report.collect(results) if results else []
    copy = next(
        (each.content for each in found if (each["kind"], each["name"]) == (trained["kind"], trained["name"])), {}
    )
    scores = list(_scores(found, trained["name"], model.config.parse_layer))
    card = _card(out.name, model, {**trained, **copy}, scores, notes, half)
    store.save_model(model, out, half=half, trust=_trust(scores))
    files.write(out / CARD, card)
    return model


def _result(run: Path) -> dict[str, Any]:
    try:
        found = json.loads((run / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    if "numbers" not in found:
        raise UserError(f"{run}: no result of `onlstm train` to make a card of; go on with it: --resume --out {run}")
    return dict(found)


def _scores(found: Sequence[report.Result], name: str, layer: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of the model's trees of that layer, each with its treebank and the score of right-branching.

    A treebank that was scored more than once, as with other seeds, has its rows once.
    """
    seen = set()
    for result in found:
        rows = result["rows"] if result["kind"] == "parsing" else []
        right = {row["rule"]: row["f1"] for row in rows if row["system"] == "right"}
        for row in rows:
            if row.get("run") and Path(row["run"]).name == name and row.get("layer") == layer and row["runs"] == 1:
                bank = result["treebank"]
                named = Path(bank["path"]).name.partition(".")[0]
                if (key := (named, bank["split"], row["rule"], row["decoder"])) in seen:
                    continue
                seen.add(key)
                yield {**row, "treebank": named, "seen": bank.get("seen_share"), "right": right.get(row["rule"])}


def _trust(scores: Sequence[dict[str, Any]]) -> str:
    """Return one line on how far to trust the trees."""
    told = [row for row in scores if (row["rule"], row["decoder"]) == (_RULE, "paper")]
    if not told:
        return "trees learnt from raw text and never held against a treebank: take them as guesses"
    banks = ", ".join(f"{row['treebank']} {row['f1']:.0f} ({number(row['right'], 0)})" for row in told)
    return f"trees learnt from raw text: take them as guesses; F1 (that of right-branching trees): {banks}"


def _card(
    name: str,
    model: LanguageModel,
    trained: dict[str, Any],
    scores: Sequence[dict[str, Any]],
    notes: Sequence[str],
    half: bool,
) -> str:
    config, numbers, data, notes = model.config, trained["numbers"], trained["data"], [*notes, *trained["notes"]]
    sizes = network(config.rnn, (config.embedding_size, *config.sizes))
    splits = ", ".join(f"{part} {data[part]['words']:,}" for part in ("train", "valid", "test") if part in data)
    perplexity = [f"{part} {numbers[f'{part}_perplexity']:.2f}" for part in ("valid", "test") if part in data]
    facts = {
        "model": f"{sizes}, {trained['parameters']:,} parameters{', weights in half precision' * half}",
        "trees": f"of the distances of layer {config.parse_layer}",
        "words": f"{config.vocab_size:,}, found by the profile `{data['profile']}`",
        "text": f"{data.get('name', 'unnamed')}; words: {splits}",
        "training": f"`{trained['command']}`; {numbers['epochs']} epochs, {trained['seconds'] / 3600:.1f} hours",
        "perplexity": f"{', '.join(perplexity)} (per token with `<eos>`)",
    }
    blocks = [f"# {name}", "\n".join(f"- {key}: {value}" for key, value in facts.items())]
    blocks += ["## Text, licence, remarks", "\n".join(f"- {note}" for note in notes)] if notes else []
    blocks += ["## Trees against treebanks", _table(scores) if scores else "Not measured.", "## Limits", _LIMITS]
    return "\n\n".join(blocks) + "\n"


def _table(scores: Sequence[dict[str, Any]]) -> str:
    head = [
        "treebank",
        "rule",
        "decoder",
        "F1",
        "≤10 words",
        "right-branching",
        "tied %",
        "to right",
        "sentences seen %",
    ]
    rows = [
        [row["treebank"], row["rule"], row["decoder"], number(row["f1"], 1), number(row["short"].get("f1"), 1)]
        + [number(row.get(key), 1) for key in ("right", "ties", "f1_to_right", "seen")]
        for row in scores
    ]
    return table(head, rows)
