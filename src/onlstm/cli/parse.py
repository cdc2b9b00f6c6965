"""The command parse: sentences in, trees out, line by line and in order."""

import json as form
import shutil
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, NamedTuple

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import NAMED, notice, tell_of_bad, warn_of_unknown, watched
from onlstm.cli.engine import Engine
from onlstm.cli.inputs import (
    Device,
    Quiet,
    Threads,
    ToParse,
    check_output,
    line_count,
    run_and_text,
    set_threads,
    texts,
    trust,
)
from onlstm.cli.main import app
from onlstm.cli.shards import Marker, Shard
from onlstm.errors import UserError
from onlstm.models import DEFAULT, TREES, locate

if TYPE_CHECKING:
    from onlstm.parser import Parse, Parser

Format = Literal["brackets", "json", "conllu", "tree", "svg", "html", "latex"]
Inputs = list[Path | str]
"""Files and sentences."""

_SUFFIXES = {"brackets": "txt", "json": "jsonl", "tree": "txt", "latex": "tex"}
_FORMATS: dict[str, Format] = {".json": "json", ".jsonl": "json", ".conllu": "conllu"}
_FORMATS |= {".svg": "svg", ".html": "html", ".tex": "latex"}


class Record(NamedTuple):
    """A parse, and what is known of its line."""

    parse: "Parse"
    error: str
    """Why the line could not be read; empty if it could."""
    rows: tuple[str, ...]
    """Its comments and columns, if it is a sentence of CoNLL-U."""


@app.command
def parse(
    *words: ToParse,
    format: Annotated[
        Format | None,
        Parameter(help="Default: from the suffix of --out; otherwise a tree on a terminal and brackets in a pipe."),
    ] = None,
    layer: Annotated[
        str | None, Parameter(help="1, middle, last, or 1,2 for the average (default: the run's).")
    ] = None,
    decoder: Annotated[
        Literal["paper", "unbiased", "mbr", "viterbi"] | None,
        Parameter(
            help="How distances become a tree: paper (default) or unbiased; how a grammar's probabilities do: mbr "
            "(default) or viterbi."
        ),
    ] = None,
    gates: Annotated[
        Literal["forget", "input", "lstm", "own"] | None,
        Parameter(help="Which gates to read: forget, input, lstm (an LSTM's own forget gates), or own (of others)."),
    ] = None,
    labels: Annotated[
        bool, Parameter(help="Of a grammar: show its labels, N17 over constituents, T5 over words.")
    ] = False,
    confidence: Annotated[
        bool,
        Parameter(
            help="Of a grammar: how probable each span is, in JSON and as the weight of lines in SVG and HTML; in JSON "
            "also the share of votes if the run has members."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        Parameter(help="File to write; with --shard and --ray a folder, and for SVG a folder with one file each."),
    ] = None,
    shard: Annotated[str | None, Parameter(help="i/n: parse part i of n, unless --out has it already.")] = None,
    on_error: Annotated[Literal["skip", "stop"], Parameter(help="What to do about a line that is not UTF-8.")] = "skip",
    tokenized: Annotated[
        bool, Parameter(help="Lines are tokens with blanks between, as `evaluate --words` writes them.")
    ] = False,
    engine: Annotated[Engine, Parameter(name="*")] = Engine(),  # noqa: B008  (frozen)
    threads: Threads = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Annotated[bool, Parameter(name="--json", help="The same as --format json.")] = False,
) -> None:
    """Print the tree of each sentence. One line of text is one sentence; the order is kept.

    Without a RUN, the bundled model reads the text. The first word is a RUN if it is a folder with a model or
    the name of a bundled one; it is text if it is a file, a folder of text, -, or holds a space.

    Line n of the brackets always belongs to line n of the text: a line without words gives an empty line, or a JSON
    record without spans; so does one that is not UTF-8, with the reason as `error` in JSON. `id` counts lines from 0.

    A sentence of CoNLL-U counts as one line: its words, without multiword tokens and empty nodes, in which the run's
    rules find words as in other text; with --tokenized they are taken as they stand. `--format conllu` adds the tree
    as a comment `# parse = …` to the sentence as it was read; other text becomes columns with nothing but words.

    On a cluster: --ray ADDRESS --out FOLDER; or --shard 1/8 --out FOLDER to --shard 8/8 --out FOLDER, and again for one
    that was lost; then `cat FOLDER/part-*`.
    """
    refused = {"--format": format not in (None, "json"), "--shard": shard, "--on-error": on_error != "skip"}
    parts = engine.folder(out, refused)  # before torch is loaded: an address that nobody answers at costs seconds
    from onlstm.parser import Parser
    from onlstm.text.sources import read_inputs

    set_threads(threads)
    kind = "json" if parts else _format(format, out, json)
    part = Shard.of(shard) if shard else None
    run, text = run_and_text(words, DEFAULT if layer or gates or decoder in ("paper", "unbiased") else TREES)
    inputs = texts(text)
    if part and Path("-") in inputs:
        raise UserError("--shard: not with standard input, which only one process can read; name files")
    target = None if parts else _target(out, kind, part, inputs)
    _check_grammar(run, kind, labels, confidence)
    how: dict[str, Any] = {"layer": layer, "gates": gates, "labels": labels, "device": device}
    parser = Parser.load(run, decoder=decoder, votes=confidence, **how)
    if parts:
        how |= {"decoder": parser.decoder, "confidence": confidence}
        engine.run("ParseBatch", run, inputs, parts, threads, tokenized=tokenized, **how)
        return
    options: dict[str, object] = {"shard": shard, "format": kind, "layers": [*parser.layers]}
    options |= {"decoder": parser.decoder, "gates": parser.gates}
    # older marks have none of these
    options |= {"labels": labels or None, "confidence": confidence or None, "tokenized": tokenized or None}
    marker = (
        Marker.of(target.with_name(f"{target.name}.done"), locate(run), inputs, options) if part and target else None
    )
    if marker and target and marker.agrees(target) and target.is_file():
        notice(f"{target}: already finished")
        return
    notice(trust(run) if kind != "json" and not quiet else "")
    typed = Path("-") in inputs and sys.stdin.isatty()
    notice("One sentence per line; Ctrl-D ends." if typed else "")
    own = part.lines(sum(1 for _ in read_inputs(inputs))) if part else None
    lines = read_inputs(inputs) if own is None else islice(read_inputs(inputs), own.start, own.stop)
    records = _records(parser, lines, run, own.start if own else 0, on_error == "stop", typed, tokenized)
    unasked: Any = {name: None for name, asked in (("labels", labels), ("confidence", confidence)) if not asked}
    records = (record._replace(parse=replace(record.parse, **unasked)) for record in records)
    with ExitStack() as stack:
        if not typed and not quiet and (out or not sys.stdout.isatty()):
            total = line_count(inputs) if own is None else len(own)
            records = stack.enter_context(watched(records, "sentences", total))
        if target:
            _write(target, kind, records)
        else:
            for row in _rows(kind, records, shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
                print(row, end="", flush=True)
    if marker:
        marker.write()


def _check_grammar(run: str, kind: Format, labels: bool, confidence: bool) -> None:
    """Refuse what only a grammar has, of a language model, and what a format cannot show."""
    from onlstm.folder import kind_of

    asked = "--labels" if labels else "--confidence" if confidence else ""
    if asked and kind_of(Path(run)) == "model":
        raise UserError(f"{asked}: {run} is a language model and has none; name the run of a grammar")
    if confidence and kind not in ("json", "svg", "html"):
        raise UserError(f"--confidence: {kind} cannot show it; choose --format json, svg or html")


def _format(format: Format | None, out: Path | None, json: bool) -> Format:
    if json and format not in (None, "json"):
        raise UserError(f"--json and --format {format}: choose one of them")
    by_name = _FORMATS.get(out.suffix.lower(), "brackets") if out else "tree" if sys.stdout.isatty() else "brackets"
    return "json" if json else format or by_name


def _target(out: Path | None, kind: Format, part: Shard | None, inputs: Inputs) -> Path | None:
    """Return the file to write, or the folder for SVGs; a shard has a file of its own in a folder."""
    if not out:
        return None
    suffix = out.suffix.lower()
    if suffix in (".gz", ".xz", ".bz2"):
        raise UserError(f"--out {out}: the file is not compressed; name it {out.stem}, or compress a pipe's output")
    if (part or kind == "svg") and (out.is_dir() or suffix not in (*_FORMATS, ".txt")):
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {out}: cannot be made a folder ({error.strerror})") from None
        if not part:
            return out
        out /= part.file(_SUFFIXES.get(kind, kind))
    if out.is_file() or out.is_dir() or not out.exists():  # a pipe is written as it is
        example = f"trees.{_SUFFIXES.get(kind, kind)}"
        check_output("--out", out, example, [path for path in inputs if isinstance(path, Path)])
    return out


def _records(
    parser: "Parser", source: Iterator[tuple[str, str]], run: str, first: int, stop: bool, typed: bool, tokenized: bool
) -> Iterator[Record]:
    """Yield a record for each line, in order; then report bad lines, many unknown words, and what ended the text."""
    from onlstm.text.sources import blank_separated

    pending, failures = deque[tuple[str, tuple[str, ...]]](), list[UserError]()

    def lines() -> Iterator[str | list[str]]:
        try:
            for line, defect in source:
                if defect and stop:
                    raise UserError(f"{defect}; or go on without it: --on-error skip")
                line = "" if defect else line
                pending.append((defect, getattr(line, "rows", ())))
                yield blank_separated(line) if tokenized else line
        except UserError as error:  # after the trees of the lines before it
            failures.append(error)

    each = ((line, k) for k, line in enumerate(lines(), first))
    parses = (
        (p for line, k in each for p in parser.parse_lines([line], first=k))
        if typed
        else parser.parse_lines(lines(), first=first)
    )
    count = bad = words = unknown = 0
    named = list[str]()
    for parse in parses:
        defect, rows = pending.popleft()
        if defect:
            bad += 1
            named += [defect] * (bad <= NAMED)
        count, words, unknown = count + 1, words + len(parse.words), unknown + parse.unknown
        yield Record(parse, defect, rows)
    tell_of_bad(bad, count, named)
    warn_of_unknown(unknown / max(1, words), run, "do not trust these trees")
    if failures:
        raise failures[0]


def _rows(kind: Format, records: Iterable[Record], width: int | None = None) -> Iterator[str]:
    """Yield the text of each record; of pictures, one text for all."""
    from onlstm import draw

    if kind in ("svg", "html", "latex"):
        yield _picture(kind, records)
        return
    for parse, error, rows in records:
        if kind == "conllu":
            yield f"{parse.to_conllu(rows)}\n\n" if parse.words or rows else ""  # it has no sentences without words
        elif kind == "json":
            line = parse.to_json()
            yield (form.dumps(form.loads(line) | {"error": error}, ensure_ascii=False) if error else line) + "\n"
        elif kind == "tree" and parse.tree:
            yield "\n".join([*draw.text(parse.tree, width), "", ""])
        else:
            yield f"{parse.tree or ''}\n"


def _picture(kind: Format, records: Iterable[Record]) -> str:
    from onlstm import draw

    diagrams = [diagram for record in records if (diagram := record.parse.diagram())]
    if not diagrams:
        raise UserError("no sentence with words, so there is nothing to draw")
    picture = {"svg": draw.svg, "html": draw.html, "latex": draw.latex}[kind](diagrams)
    return f"{picture.rstrip()}\n"


def _write(target: Path, kind: Format, records: Iterable[Record]) -> None:
    """Write the file whole; if it is cut off, keep what there is beside it. Or write a picture each, into a folder."""
    if target.is_dir():
        for record in records:
            if record.parse.tree:
                files.write(target / f"{record.parse.id + 1}.svg", _picture(kind, [record]))
        return
    partial = target.with_name(f"{target.name}.partial")

    def content(file: BinaryIO) -> None:
        try:
            for row in _rows(kind, records):
                file.write(row.encode())
        except BaseException:
            file.flush()
            if file.tell():
                Path(file.name).replace(partial)
                notice(f"onlstm: cut off; what is finished is in {partial}")
            raise

    files.write(target, content)
    partial.unlink(missing_ok=True)
