"""The command parse."""

import json as form
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import notice
from onlstm.cli.inputs import Sentences, Threads, run_and_text, set_threads, texts, trust
from onlstm.cli.main import app
from onlstm.errors import UserError
from onlstm.models import locate

if TYPE_CHECKING:
    from onlstm.parser import Parse, Parser
    from onlstm.shards import Lines

Format = Literal["brackets", "json", "tree", "svg", "html", "latex"]
Record = tuple["Parse", str]
"""A parse and why its line could not be read, if so."""

_SUFFIXES = {"brackets": "txt", "json": "jsonl", "tree": "txt", "svg": "svg", "html": "html", "latex": "tex"}
_FORMATS: dict[str, Format] = {".json": "json", ".jsonl": "json", ".svg": "svg", ".html": "html", ".tex": "latex"}
_PACKED = (".gz", ".xz", ".bz2")
_PATHS = (*_FORMATS, ".txt", *_PACKED)
_SHOWN, _SECONDS, _UNKNOWN = 5, 60, 0.3
"""Bad lines that are named; time between lines of progress; share of unknown words that is too much."""


@app.command
def parse(
    *words: Sentences,
    format: Annotated[Format | None, Parameter(help="Default: as --out ends; on a terminal tree; brackets.")] = None,
    layer: Annotated[
        str | None, Parameter(help="1, 2, middle, last; or 1,2: the average (default: the run's).")
    ] = None,
    decoder: Annotated[Literal["paper", "unbiased"], Parameter(help="How distances become a tree.")] = "paper",
    gates: Annotated[
        Literal["forget", "input", "lstm"] | None,
        Parameter(help="Whose distances; lstm: an LSTM's own forget gates (default: forget; of LSTM runs, lstm)."),
    ] = None,
    out: Annotated[
        Path | None, Parameter(help="File to write; a folder for --shard, or for an SVG a sentence.")
    ] = None,
    shard: Annotated[str | None, Parameter(help="i/n: only part i of n, unless --out has it finished already.")] = None,
    on_error: Annotated[Literal["skip", "stop"], Parameter(help="What to do at a line that is not UTF-8.")] = "skip",
    threads: Threads = None,
    json: Annotated[bool, Parameter(name="--json", negative="", help="The same as --format json.")] = False,
) -> None:
    """Print the tree of each sentence. One line of text is one sentence, and the order stays.

    Without a RUN the model in the box, en-small, reads the text. The first word is a RUN if it is a folder with a model
    in it or a model's name; it is text if it is a file, a folder of text, - or has a blank in it; else it is a mistake.

    A line without words gives an empty line, or a JSON record without spans; so does one that is not UTF-8, with the
    reason as `error` in JSON: line n of the brackets always belongs to line n of the text. `id` counts lines from 0.

    For a cluster: --shard 1/8 --out FOLDER to --shard 8/8 --out FOLDER, again where one was lost; then
    `cat FOLDER/part-*.txt`.
    """
    from onlstm import shards
    from onlstm.lm.model import LanguageModel
    from onlstm.parser import Parser

    set_threads(threads)
    kind = _format("json" if json else None, format, out)
    part = shards.Shard.of(shard) if shard else None
    run, text = run_and_text(words)
    lines = shards.Lines(texts(text), stop=on_error == "stop")
    if part and not lines.again:
        raise UserError("--shard: not with the standard input, which only one process can read; name files")
    folder, target = locate(run), _target(out, kind, part.file(_SUFFIXES[kind]) if part else None)
    model = LanguageModel.load(folder)
    gates = gates or ("lstm" if model.config.rnn == "lstm" else "forget")
    parser = Parser(model, layer=layer, decoder=decoder, gates=gates)
    options = {"shard": shard, "format": kind, "layers": [*parser.layers], "decoder": decoder, "gates": gates}
    settings = shards.settings(folder, lines, **options) if part and target else None
    if target and settings and shards.done(target, settings):
        print(f"{target}: done already", file=sys.stderr)
        return
    if kind != "json":
        notice(trust(run))
    if lines.typed:
        print("One sentence a line; Ctrl-D ends.", file=sys.stderr)
    wanted = part.lines(lines.count()) if part else None
    quiet = lines.typed or (not out and sys.stdout.isatty())
    found = _watched(_records(parser, lines, wanted, run), lines, wanted, quiet)
    if target:
        _write(target, kind, found)
    else:
        for row in _rows(kind, found, shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
            print(row, end="", flush=lines.typed)
    if target and settings:
        shards.mark(target, settings)


def _format(alias: Format | None, given: Format | None, out: Path | None) -> Format:
    if alias and given not in (None, alias):
        raise UserError(f"--{alias} and --format {given}: choose one of them")
    by_name = _FORMATS.get(out.suffix.lower(), "brackets") if out else "tree" if sys.stdout.isatty() else "brackets"
    return alias or given or by_name


def _target(out: Path | None, kind: Format, part: str | None) -> Path | None:
    """Return what to write; a part of several has a file of its own in the folder, unless a file is named."""
    if not out:
        return None
    if out.suffix.lower() in _PACKED:
        raise UserError(f"--out {out}: the file is not packed; name it {out.stem}, or pack what a pipe gives you")
    single = out.suffix.lower() in _PATHS and not out.is_dir()
    if not single and (part or kind == "svg"):
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {out}: cannot be made a folder ({error.strerror})") from None
        return out / part if part else out
    if out.is_dir():
        raise UserError(f"--out {out}: a folder; name a file")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist")
    return out


def _records(parser: "Parser", lines: "Lines", wanted: range | None, run: str) -> Iterator[Record]:
    """Yield a record for each line, in order; then say which lines were bad, and if many words were unknown."""
    read = lines.read(wanted)
    parses = (each for line in read for each in parser.parse_lines([line])) if lines.typed else parser.parse_lines(read)
    first, count, bad, named = wanted.start if wanted else 0, 0, 0, list[str]()
    words = unknown = 0
    for count, each in enumerate(parses, 1):
        error = lines.bad.pop(first + count - 1, "")
        if error:
            bad += 1
            named += [error] * (bad <= _SHOWN)
        words, unknown = words + len(each.words), unknown + each.unknown
        yield replace(each, id=first + count - 1), error
    if bad:
        print(f"onlstm: {bad:,} of {count:,} lines skipped, their trees are empty:", file=sys.stderr)
        print(*named, *["…"] * (bad > _SHOWN), sep="\n", file=sys.stderr)
    if unknown and unknown >= _UNKNOWN * words:
        print(
            f"onlstm: {unknown / words:.0%} of the words are unknown to the model, so do not trust these trees; write "
            f"them as its text has them, in lower case and tokenised alike: onlstm doctor TEXT --run {run} shows how",
            file=sys.stderr,
        )
    if lines.failure:
        raise lines.failure


def _rows(kind: Format, records: Iterable[Record], width: int | None = None) -> Iterator[str]:
    """Yield the text of each record; of pictures, one text for all."""
    if kind in ("svg", "html", "latex"):
        yield _picture(kind, records)
        return
    for found, error in records:
        if kind == "json":
            line = found.to_json()
            yield (form.dumps(form.loads(line) | {"error": error}, ensure_ascii=False) if error else line) + "\n"
        elif kind == "tree" and found.tree:
            from onlstm import draw

            yield "\n".join([*draw.text(found.tree, width), "", ""])
        else:
            yield f"{found.tree or ''}\n"


def _picture(kind: Format, records: Iterable[Record]) -> str:
    from onlstm import draw

    items = [draw.Diagram(tree=found.tree, distances=found.distances) for found, _ in records if found.tree]
    if not items:
        raise UserError("no sentence with words, so there is nothing to draw")
    drawn = draw.svg(items) if kind == "svg" else draw.html(items) if kind == "html" else draw.latex(items)
    return f"{drawn.rstrip()}\n"


def _write(target: Path, kind: Format, records: Iterable[Record]) -> None:
    """Write the file whole; of one that is cut off, what there is stays beside it. Or a picture each, into a folder."""
    partial = target.with_name(f"{target.name}.partial")
    if target.is_dir():
        for found, error in records:
            if found.tree:
                files.write(target / f"{found.id + 1}.svg", _picture(kind, [(found, error)]))
        return

    def content(file: BinaryIO) -> None:
        try:
            for row in _rows(kind, records):
                file.write(row.encode())
        except BaseException:
            file.flush()
            if file.tell():
                Path(file.name).replace(partial)
                print(f"onlstm: cut off; what was done is in {partial}", file=sys.stderr)
            raise

    files.write(target, content)
    partial.unlink(missing_ok=True)


def _watched(records: Iterator[Record], lines: "Lines", wanted: range | None, quiet: bool) -> Iterator[Record]:
    """Yield the records and show on stderr how far they are: a bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, started = Console(stderr=True, highlight=False), time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("sentences, {task.fields[speed]:,.0f}/s, left"))
    hidden = quiet or not console.is_terminal
    total = len(wanted) if wanted else lines.count() if lines.again and not hidden else None
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=hidden) as bar:
        task, said = bar.add_task("", total=total, speed=0), started
        for done, record in enumerate(records, 1):
            yield record
            if done % 100:
                continue
            now = time.monotonic()
            speed = done / (now - started)
            bar.update(task, completed=done, speed=speed)
            if hidden and not quiet and now - said > _SECONDS:
                said = now
                print(f"{done:,} sentences, {speed:,.0f}/s", file=sys.stderr, flush=True)
