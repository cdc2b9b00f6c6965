"""What `onlstm demo` has found: scores for people and machines, and the report with trees, gates and curves."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from onlstm import draw
from onlstm.inspect import inspect
from onlstm.lm.model import LanguageModel
from onlstm.paper.parsing.rows import Row
from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.tree import Tree

RULE = "on-lstm"
LAYER = 1
DECODER: Decoder = "paper"

_NAMES = {"onlstm": "ON-LSTM", "lstm-gates": "LSTM's gates", "random": "random, mean of 5", "oracle": "best possible"}
_ABOUT_TABLE = (
    "Ties: distances that occur again in their sentence. To right: F1 against right-branching trees, which a layer "
    "with nothing to say decodes to; 100 is no parser."
)
_ABOUT_TREES = (
    "Left the model's tree, its distances and its master forget gate (a column a word, high-ranking neurons on top; "
    "dark keeps, light forgets); right the gold tree. Dashed are brackets that only one of the two has."
)
_SHOWN = 8
"""Sentences in the report."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What `run` returns."""

    rows: list[Row]
    """Scores on the test sentences."""
    out: Path
    """The folder for all."""

    @property
    def report(self) -> Path:
        """The page with trees, gates and curves."""
        return self.out / "report.html"

    @property
    def model(self) -> Path:
        """The ON-LSTM's folder, for `onlstm parse` and others."""
        return self.out / "model"

    @property
    def headline(self) -> Row:
        """The ON-LSTM's score by the layer and decoder fixed beforehand."""
        return next(row for row in self.rows if (row.system, row.layer, row.decoder) == ("onlstm", LAYER, DECODER))

    @property
    def best_trivial(self) -> float:
        """The best F1 of trees that know nothing of the words."""
        return max(row.f1 or 0 for row in self.rows if row.system in ("left", "right", "balanced", "random"))

    def summary(self) -> str:
        """Return the result in a sentence."""
        row = self.headline
        return (
            f"F1 {row.f1:.1f} (rule {RULE}) on {row.n} sentences that occur nowhere in training, layer {row.layer}, "
            f"decoder {row.decoder}; the best of left, right, balanced and random has {self.best_trivial:.1f}."
        )

    def table(self) -> Iterator[tuple[str, ...]]:
        """Yield the head and the rows of a table for people."""
        yield "trees of", "layer", "decoder", "F1", "ties %", "to right"
        for row in self.rows:
            mark = " (headline)" if row is self.headline else ""
            numbers = (f"{x:.1f}" if x is not None else "" for x in (row.f1, row.ties, row.f1_to_right))
            yield _NAMES.get(row.system, row.system) + mark, str(row.layer or ""), row.decoder or "", *numbers

    def to_json(self) -> dict[str, Any]:
        """Return what `onlstm demo --json` prints, but for the keys that all commands have."""
        return {
            "rule": RULE,
            "headline": {"layer": LAYER, "decoder": DECODER, "f1": self.headline.f1},
            "best_trivial": self.best_trivial,
            "rows": [
                {key: getattr(row, key) for key in ("system", "layer", "decoder", "f1", "n")} for row in self.rows
            ],
            "report": str(self.report),
        }


def page(
    found: Demo, gold: Sequence[Tree], model: LanguageModel, curves: Mapping[str, Sequence[Mapping[str, Any]]]
) -> str:
    """Return the report: scores, curves, and some test sentences with both trees, distances and gates."""
    head, *body = ([f"<td>{escape(cell)}</td>" for cell in row] for row in found.table())
    table = "".join(f"<tr>{''.join(row)}</tr>" for row in [[cell.replace("td>", "th>") for cell in head], *body])
    steps = [record["step"] for record in max(curves.values(), key=len)]
    perplexity = {name: [math.exp(record["loss"]) for record in curve] for name, curve in curves.items()}
    f1 = [record["f1"] for record in curves["ON-LSTM"]]
    against = {f"ON-LSTM, layer {LAYER}": f1, "best baseline": [found.best_trivial] * len(f1)}
    charts = [
        draw.curve([draw.Line(name=name, values=row) for name, row in rows.items()], x=steps, x_label="step", y_label=y)
        for rows, y in ((perplexity, "perplexity of the training text"), (against, f"F1 ({RULE}), validation"))
    ]
    chosen = sorted(gold, key=lambda tree: abs(len(tree.words) - 10))[:_SHOWN]
    return draw.page(
        "An ON-LSTM finds the trees of a grammar",
        [
            (found.summary(), f"<table>{table}</table><p class=grey>{_ABOUT_TABLE}</p>"),
            ("While it learns", f'<div class="pair">{"".join(charts)}</div>'),
            ("Test sentences", f"<p class=grey>{_ABOUT_TREES}</p>"),
            *((" ".join(tree.words), draw.pair(_item(model, tree))) for tree in chosen),
        ],
    )


def _item(model: LanguageModel, gold: Tree) -> draw.Diagram:
    picture = inspect(model, [" ".join(gold.words)], layer=LAYER).pictures[0]
    return draw.Diagram(
        tree=tree_from_distances(picture.distances, gold.words, DECODER),
        gold=gold,
        distances=picture.distances,
        gates=[[1 - x for x in row] for row in zip(*picture.erased, strict=True)],
    )
