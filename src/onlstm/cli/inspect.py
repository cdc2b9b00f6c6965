"""`onlstm inspect`: what the gates of a run do on a text, or what a grammar has learnt; as tables, pictures or JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import Answer, Json, Progress, notice, warn_of_unknown
from onlstm.cli.grammar import inspect_grammar
from onlstm.cli.inputs import Device, Sentences, Threads, check_output, lines_of, run_and_text, set_threads
from onlstm.cli.main import app
from onlstm.device import check_grammar
from onlstm.errors import UserError, at_least_one
from onlstm.models import is_run
from onlstm.paper.tables import Table, network, number

if TYPE_CHECKING:
    from onlstm.inspect import Inspection, Picture

_BARS = " ▁▂▃▄▅▆▇█"
_HEAD = ("layer", "gate", f"0{'distances':^23}1")
_NUMBERS = ("mean", "dev", "inside", "min", "max", "ties", "stuck", "right", "left")
_LEGEND = """inside: deviation inside sentences, first words left out. ties: % that occur again in their sentence.
stuck: % at an end of their range. right, left: F1 to one-way trees, decoders paper and unbiased.
"""
_GOOD = "No layer is saturated, flat, tied or one-way."
_TOO_LITTLE = "Too little text to judge the layers by: give some more sentences."
_PROBLEMS = {
    "saturated": "{0.stuck:.0f} % of the distances are stuck at an end of their range",
    "flat": "inside a sentence distances deviate by {0.inside:.2g}, like those of a layer without training",
    "tied": "{0.ties:.0f} % of the distances occur again in their sentence; there the first word wins",
    "one-way": "its trees branch to one side whatever the words (right {0.right[unbiased]:.0f}, "
    "left {0.left[unbiased]:.0f} %)",
}


@app.command
def inspect(
    *words: Sentences,
    sentence: Annotated[int, Parameter(help="The sentence to draw, from 1.")] = 1,
    layer: Annotated[str | None, Parameter(help="Layers to draw: 1, middle, last or 1,2 (default: the run's).")] = None,
    max: Annotated[int, Parameter(help="Read at most this many sentences.")] = 2000,
    gold: Annotated[Path | None, Parameter(help="For a grammar: treebank to hold its labels against.")] = None,
    out: Annotated[Path | None, Parameter(help="Picture of the sentence to write: FILE.html or FILE.svg.")] = None,
    threads: Threads = None,
    device: Device = "auto",
    json: Json = False,
) -> Answer:
    """Show the distances of every layer on a text, warn of layers that are stuck, and draw the gates of a sentence.

    Of a grammar's run, show the rules and the words of its preterminals: by their use in a text, or by probability.
    """
    if out and out.suffix.lower() not in (".html", ".svg"):
        raise UserError(f"--out {out}: the name of a picture ends in .html or .svg")
    at_least_one(**{"--sentence": sentence, "--max": max})
    run, text = run_and_text(words)
    check_output("--out", out, "picture.svg", map(Path, text))
    from onlstm.folder import kind_of

    if kind_of(Path(run)) == "grammar":
        if layer or out:
            raise UserError(f"{'--layer' if layer else '--out'}: {run} is a grammar, which has no gates to show")
        check_grammar(device, run)
        set_threads(threads)
        return inspect_grammar(run, () if all(map(is_run, words)) else lines_of(text), max, gold, json)
    if gold:
        raise UserError(f"--gold: {run} is a language model, which has no labels; name the run of a grammar")
    if all(map(is_run, words)):
        raise UserError(f'inspect: name a text too, - for the standard input: onlstm inspect {run} "the cat sat"')
    lines = lines_of(text)
    set_threads(threads)
    from onlstm import inspect as task
    from onlstm.lm.model import LanguageModel

    model = LanguageModel.load(run, device=device)
    with Progress("sentences") as progress:
        inspection = task.inspect(model, lines, layer=layer, sentence=sentence, limit=max, on_progress=progress.update)
    if inspection.more:
        notice(f"There is more text than the first {max:,} sentences: --max reads more.")
    warn_of_unknown(inspection.unknown / inspection.words, run, "these numbers say little about it")
    if out:
        _draw(inspection, out, title=f"{Path(run).name}: the gates of a sentence")
    warnings = [
        {"layer": spread.layer, "gate": spread.gate, "problem": problem, "text": _PROBLEMS[problem].format(spread)}
        for spread in inspection.spreads
        for problem in spread.problems
    ]
    advice = _advice(inspection) if warnings else ""
    more = {"run": run, "model": model.config, "warnings": warnings, "advice": advice, "out": out}
    shown = [f"{run}: {network(model.config.rnn, (model.config.embedding_size, *model.config.sizes))}"]
    shown += _report(inspection)
    shown += ["WARNING: layer {layer}, {gate} gate is {problem}: {text}".format(**warning) for warning in warnings]
    good = _GOOD if inspection.spreads[0].inner >= task.ENOUGH else _TOO_LITTLE
    return Answer(vars(inspection) | more, [*shown, f"What to do: {advice}" if warnings else good], json)


def _report(inspection: "Inspection") -> Iterator[str]:
    """Yield the numbers and the distances of the sentence."""
    if not inspection.updates:
        yield "no master gates: distances are 1 - mean forget gate and mean input gate"
    counts = ((inspection.sentences, "sentence"), (inspection.words, "word"))
    yield ", ".join(f"{count:,} {noun}{'s' * (count != 1)}" for count, noun in counts)
    if inspection.cut:
        yield f"{inspection.cut:,} lines too long, read in part; put one sentence on a line"
    for picture in inspection.pictures:
        yield f"\nLayer {picture.layer}:"
        for d, word in zip(picture.distances, inspection.shown, strict=True):
            yield f"{d:5.3f} {'█' * round(40 * d):40} {word}"
    rows = []
    for spread in inspection.spreads:
        bars = "".join(_BARS[-(-8 * count // max(spread.histogram))] for count in spread.histogram)
        moments = (spread.mean, spread.deviation, spread.inside, spread.low, spread.high)
        one_way = (" ".join(number(f1, 0) for f1 in side.values()) for side in (spread.right, spread.left))
        numbers = [*(number(x, 3) for x in moments), number(spread.ties), number(spread.stuck), *one_way]
        rows.append([str(spread.layer), spread.gate, bars, *numbers])
    yield f"\n{Table(head=_HEAD + _NUMBERS, rows=rows).text()}\n{_LEGEND}"


def _advice(inspection: "Inspection") -> str:
    """Return which layer to take instead of a bad one, and how to train a better one."""
    forget = [spread for spread in inspection.spreads if spread.gate == "forget"]
    good = [spread for spread in forget if not spread.problems]
    best = max(good, key=lambda spread: spread.inside).layer if 0 < len(good) < len(forget) else None
    use = f"parse with layer {best} (--layer), or " if best else ""
    if not inspection.updates:
        return f"{use}train an ON-LSTM (--model.rnn onlstm); an LSTM's gates are not made for trees"
    return (
        f"{use}train again with more text or epochs, more width (--model.hidden-size), smaller chunks "
        "(--model.chunk-size) or a last chunk that can be written (--model.free-last-chunk true)"
    )


def _draw(inspection: "Inspection", out: Path, title: str) -> None:
    """Write a picture of each layer: the tree, the distances and the master forget gate, as `onlstm draw` does."""
    from onlstm import draw
    from onlstm.trees import tree_from_distances

    def diagram(picture: "Picture") -> draw.Diagram:
        gates = [[1 - erased for erased in chunk] for chunk in zip(*picture.erased, strict=True)]
        tree = tree_from_distances(picture.distances, inspection.shown)
        name = f"Layer {picture.layer}: {' '.join(inspection.shown)}"
        return draw.Diagram(tree=tree, distances=picture.distances, gates=gates or None, title=name)

    drawing = draw.svg if out.suffix.lower() == ".svg" else draw.html
    files.write(out, drawing(map(diagram, inspection.pictures), title=title))
    notice(f"{out} written")
