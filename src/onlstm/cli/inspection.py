"""The command inspect: what the gates of a run do on a text, in a terminal, a picture or JSON."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import Json, json_text, say
from onlstm.cli.inputs import Sentences, Threads, lines_of, run_and_text, set_threads
from onlstm.cli.main import app
from onlstm.errors import UserError
from onlstm.models import is_run

if TYPE_CHECKING:
    from onlstm.draw import Diagram
    from onlstm.inspect import Inspection, Picture, Spread
    from onlstm.lm.config import LMConfig

_BARS, _SHADES = " ▁▂▃▄▅▆▇█", " ░▒▓█"
_COLUMNS = 25
"""Of a terminal, for the chunks of a layer."""
_TEXTS = {
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
    layer: Annotated[
        str | None, Parameter(help="Layers to draw: 1, middle, last or 1,2,3 (default: the run's).")
    ] = None,
    max: Annotated[int, Parameter(help="Read so many sentences at most.")] = 2000,
    out: Annotated[Path | None, Parameter(help="Picture of the sentence to write: FILE.html or FILE.svg.")] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Show the distances of every layer on a text, warn of layers that are stuck, and draw what a sentence updates."""
    from dataclasses import asdict

    started = time.perf_counter()
    if out and out.suffix.lower() not in (".html", ".svg"):
        raise UserError(f"--out {out}: the name of a picture ends in .html or .svg")
    if out and not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist")
    name, text = run_and_text(words)
    if not any(not is_run(word) for word in words):
        raise UserError(f'inspect: name a text too, - for the standard input: onlstm inspect {name} "the cat sat"')
    run, lines = Path(name), lines_of(text)
    set_threads(threads)
    from onlstm import inspect as task
    from onlstm.lm.model import LanguageModel

    model = LanguageModel.load(run)
    found = task.inspect(model, _watched(lines, max), layer=layer, sentence=sentence, limit=max)
    if found.more:
        say(f"There is more text than the first {max:,} sentences: --max reads more.", json=True)
    if out:
        from onlstm import draw

        items = list(_items(found))
        title = f"{run.name}: what a sentence updates"
        drawing = draw.svg if out.suffix.lower() == ".svg" else draw.html
        files.write(out, drawing(items, title=title))
    warnings = [
        {"layer": spread.layer, "gate": spread.gate, "problem": problem, "text": _TEXTS[problem].format(spread)}
        for spread in found.spreads
        for problem in spread.problems
    ]
    if json:
        more = {"warnings": warnings, "advice": _advice(found), "out": str(out) if out else None}
        print(
            json_text("inspect", started, None, {"run": str(run), "model": asdict(model.config)} | asdict(found) | more)
        )
        return
    print(
        "\n".join(
            chain(_head(run, model.config, found), _table(found.spreads), _findings(found, warnings), _drawing(found))
        )
    )
    if out:
        print(f"\n{out} written")


def _watched(lines: Iterable[str], total: int) -> Iterable[str]:
    """Return the lines, with a bar on a terminal's stderr while they are read."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(lines, "reading", total=total, console=console, transient=True, disable=not console.is_terminal)


def _head(run: Path, config: "LMConfig", found: "Inspection") -> Iterator[str]:
    sizes = "→".join(map(str, (config.embedding_size, *config.sizes)))
    if found.updates:
        yield f"{run}: ON-LSTM {sizes}, master gates of {', '.join(str(len(each)) for each in found.updates)} chunks"
    else:
        yield f"{run}: LSTM {sizes}, no master gates: distances are 1 - mean forget gate and mean input gate"
    yield f"{found.sentences:,} sentence{'s' * (found.sentences > 1)}, {found.words:,} words"
    if found.cut:
        yield f"{found.cut:,} line{'s' * (found.cut > 1)} too long, read in part; put one sentence on a line"


def _table(spreads: Sequence["Spread"]) -> Iterator[str]:
    yield ""
    yield f"layer gate   0 {'distances':^23} 1   mean   dev inside   min   max  ties stuck   right     left"
    for each in spreads:
        top = max(each.histogram)
        bars = "".join(_BARS[-(-8 * count // top)] for count in each.histogram)
        branching = "  ".join(" ".join(f"{f1:3.0f}" for f1 in side.values()) for side in (each.right, each.left))
        numbers = " ".join(f"{x:5.3f}" for x in (each.mean, each.deviation, each.inside, each.low, each.high))
        row = f"{each.layer:3}   {each.gate:6} {bars}  {numbers} {each.ties:5.1f} {each.stuck:5.1f}  {branching}"
        yield row.replace("nan", "  -")
    yield "inside: deviation inside sentences, first words left out. ties: % that occur again in their sentence."
    yield "stuck: % at an end of their range. right, left: F1 to one-way trees, decoders paper and unbiased."


def _findings(found: "Inspection", warnings: Sequence[dict[str, object]]) -> Iterator[str]:
    from onlstm.inspect import ENOUGH

    if found.correlations:
        pairs = ", ".join(f"{pair} {value:.2f}" for pair, value in found.correlations.items())
        yield f"correlation of forget distances between layers, inside sentences: {pairs.replace('nan', '-')}"
    yield ""
    for each in warnings:
        yield f"WARNING: layer {each['layer']}, {each['gate']} gate is {each['problem']}: {each['text']}"
    if warnings:
        yield f"What to do: {_advice(found)}"
    elif found.spreads[0].inner < ENOUGH:
        yield f"Too little text to judge the layers by: give some sentences, {ENOUGH} words or more in all."
    else:
        yield "No layer is saturated, flat, tied or one-way."


def _advice(found: "Inspection") -> str:
    """Return which layer to take instead of a bad one, and how to train a better one; nothing if all is well."""
    if not any(spread.problems for spread in found.spreads):
        return ""
    forget = [spread for spread in found.spreads if spread.gate == "forget"]
    good = [spread for spread in forget if not spread.problems]
    use = ""
    if good and len(good) < len(forget):
        use = f"parse with layer {max(good, key=lambda spread: spread.inside).layer} (--layer), or "
    if not found.updates:
        return f"{use}train an ON-LSTM (--model.rnn onlstm); an LSTM's gates are not made for trees"
    free = "--model.free-last-chunk true, " if _closed(found.updates[0]) else ""
    return (
        f"{use}train again with more text or epochs, more width (--model.hidden-size), smaller chunks "
        f"(--model.chunk-size), {free}or master-gate biases that start spread over the chunks"
    )


def _closed(updates: Sequence[float]) -> bool:
    """Return whether the last chunk is never updated, as in the paper's cell."""
    return updates[-1] < 1e-5  # but for rounding


def _drawing(found: "Inspection") -> Iterator[str]:
    """Yield the paper's Figure 2 (c) with the words downwards."""
    for picture in found.pictures:
        yield ""
        if not picture.erased:
            yield f"Layer {picture.layer}, sentence:"
            for d, word in zip(picture.distances, found.shown, strict=True):
                yield f"{'█' * round(40 * d):40} {d:5.3f} {word}"
            continue
        updates = found.updates[picture.layer - 1]
        width = min(_COLUMNS, len(updates))
        yield f"Layer {picture.layer}: what each word does to the {len(updates)} chunks, low-ranking at the left"
        yield f"{'erased':{width}}  {'written':{width}}  {'updated':{width}}   distance"
        rows = zip(picture.erased, picture.written, _updated(picture), picture.distances, found.shown, strict=True)
        for erased, written, updated, d, word in rows:
            yield f"{_shades(erased, width)}│ {_shades(written, width)}│ {_shades(updated, width)}│ {d:5.3f} {word}"
        yield f"{'':{2 * width + 4}}{_shades(updates, width)}│ mean of {found.words:,} words: the update frequency"
        some = sorted({1, (len(updates) + 1) // 2, len(updates)})
        shares = ", ".join(f"chunk {k} {abs(100 * updates[k - 1]):.0f} %" for k in some)
        dead = " (the paper's cell never writes the last)" if _closed(updates) else ""
        yield f"{'':{2 * width + 4}}{shares}{dead}"


def _updated(picture: "Picture") -> list[list[float]]:
    """Return, by word and chunk, what is not simply kept: erased, written, or both."""
    pairs = zip(picture.erased, picture.written, strict=True)
    return [[1 - (1 - e) * (1 - w) for e, w in zip(*pair, strict=True)] for pair in pairs]


def _shades(values: Sequence[float], width: int) -> str:
    """Return one shade for each of `width` groups of neighbours."""
    n = len(values)
    groups = [values[k * n // width : (k + 1) * n // width] for k in range(width)]
    return "".join(_SHADES[round(4 * sum(group) / len(group))] for group in groups)


def _items(found: "Inspection") -> Iterator["Diagram"]:
    """Yield what to draw of each layer: the tree, the distances and what is updated."""
    from onlstm.draw import Diagram
    from onlstm.trees import tree_from_distances

    for each in found.pictures:
        tree = tree_from_distances(each.distances, found.shown)
        rows = list(zip(*_updated(each), strict=True)) or None
        yield Diagram(
            tree=tree, distances=each.distances, gates=rows, title=f"Layer {each.layer}: {' '.join(found.shown)}"
        )
