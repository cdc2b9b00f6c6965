"""The result of `onlstm demo`: scores for people and machines, and the report with trees, gates and curves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onlstm import draw
from onlstm.lm.model import LanguageModel
from onlstm.paper.parsing.content import Row
from onlstm.paper.tables import Table, number
from onlstm.parser import Parser
from onlstm.trees.decode import Decoder
from onlstm.trees.tree import Tree

RULE = "on-lstm"
LAYER = 1
DECODER: Decoder = "paper"
_NAMES = {"onlstm": "ON-LSTM", "lstm-gates": "LSTM's gates", "random": "random, mean of 5", "oracle": "best possible"}
_SHOWN = 8
"""Sentences in the report."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The ON-LSTM's score by the layer and decoder fixed beforehand."""

    layer: int
    decoder: str
    f1: float


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What `onlstm demo --json` prints."""

    rule: str
    headline: Headline
    best_trivial: float
    """The best F1 of trees that know nothing of the words."""
    rows: Sequence[Row]
    """The scores of all systems on the test sentences, as `onlstm evaluate` has them."""
    report: Path

    @classmethod
    def of(cls, rows: Sequence[Row], report: Path) -> "Demo":
        """Return the result of these scores."""
        f1 = {(row.system, row.layer, row.decoder): row.f1 or 0.0 for row in rows}
        trivial = max(f1[system, None, None] for system in ("left", "right", "balanced", "random"))
        headline = Headline(layer=LAYER, decoder=DECODER, f1=f1["onlstm", LAYER, DECODER])
        return cls(rule=RULE, headline=headline, best_trivial=trivial, rows=rows, report=report)

    def __str__(self) -> str:
        return (
            f"F1 {self.headline.f1:.1f} (rule {RULE}) on {self.rows[0].n} sentences that occur nowhere in training, "
            f"layer {LAYER}, decoder {DECODER}; best of left, right, balanced and random: {self.best_trivial:.1f}."
        )

    def table(self) -> Table:
        """Return the scores with what tells a parser from a layer that says nothing: ties and F1 to right-branching."""
        head = ["trees of", "layer", "decoder", "F1", "ties %", "to right"]
        names = [[_NAMES.get(row.system, row.system), str(row.layer or ""), row.decoder or ""] for row in self.rows]
        numbers = [map(number, (row.f1, row.ties, row.f1_to_right)) for row in self.rows]
        return Table(head=head, rows=[[*left, *right] for left, right in zip(names, numbers, strict=True)])


def page(
    demo: Demo,
    gold: Sequence[Tree],
    model: LanguageModel,
    losses: Mapping[str, Mapping[int, float]],
    f1: Sequence[float],
) -> str:
    """Return the report: scores, curves, and some test sentences with both trees, distances and gates.

    Args:
        losses: on the training text, by network and step.
        f1: of validation sentences, at the steps of the ON-LSTM.
    """
    perplexity = [
        draw.Line(name=name, values=[math.exp(loss) for loss in by_step.values()]) for name, by_step in losses.items()
    ]
    learned = [
        draw.Line(name=f"ON-LSTM, layer {LAYER}", values=f1),
        draw.Line(name="best baseline", values=[demo.best_trivial] * len(f1)),
    ]
    steps = sorted(set().union(*losses.values()))
    charts = [
        draw.curve(perplexity, x=steps, x_label="step", y_label="perplexity of the training text"),
        draw.curve(learned, x=steps, x_label="step", y_label=f"F1 ({RULE}) of validation trees"),
    ]
    parser = Parser(model, layer=LAYER, decoder=DECODER)
    chosen = sorted(gold, key=lambda tree: abs(len(tree.words) - 10))[:_SHOWN]
    diagrams = [diagram for tree in chosen if (diagram := parser.diagram(tree.words, tree))]
    halves = "".join(f'<div class="half">{half}</div>' for half in (demo.table().html(), "".join(charts)))
    return draw.page(
        "An ON-LSTM finds the trees of a grammar",
        [
            (str(demo), f'<div class="pair">{halves}</div>'),
            *draw.sections(diagrams),
        ],
    )
