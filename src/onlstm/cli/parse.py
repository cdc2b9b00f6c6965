"""The command parse: sentences in, trees out, line by line; or one shard of them, for a cluster."""

import json as json_module
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, NamedTuple

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import Progress, notice
from onlstm.cli.inputs import Sentences, Threads, check_output, run_and_text, set_threads, texts, trust
from onlstm.cli.main import app
from onlstm.cli.shards import Marker, Shard
from onlstm.errors import UserError
from onlstm.models import locate

if TYPE_CHECKING:
    from onlstm.parser import Parse, Parser

Format = Literal["brackets", "json", "tree", "svg", "html", "latex"]
Gates = Annotated[
    Literal["forget", "input", "lstm"] | None,
    Parameter(help="Which gates to read: forget, input, or lstm (an LSTM's own forget gates; default for LSTM runs)."),
]
_SUFFIXES = {"brackets": "txt", "json": "jsonl", "tree": "txt", "svg": "svg", "html": "html", "latex": "tex"}
_FORMATS: dict[str, Format] = {".json": "json", ".jsonl": "json", ".svg": "svg", ".html": "html", ".tex": "latex"}
_PACKED = (".gz", ".xz", ".bz2")
_NAMED, _UNKNOWN = 5, 0.3
"""Bad lines that are listed; share of unknown words from which trees are not to be trusted."""


@app.command
def parse(
    *words: Sentences,
    format: Annotated[
        Format | None,
        Parameter(help="Default: from the suffix of --out; otherwise a tree on a terminal and brackets in a pipe."),
    ] = None,
    layer: Annotated[
        str | None, Parameter(help="1, 2, middle, last; or 1,2 for the average (default: the run's).")
    ] = None,
    decoder: Annotated[Literal["paper", "unbiased"], Parameter(help="How distances become a tree.")] = "paper",
    gates: Gates = None,
    out: Annotated[
        Path | None, Parameter(help="File to write; a folder for --shard or for one SVG per sentence.")
    ] = None,
    shard: Annotated[str | None, Parameter(help="i/n: only part i of n; skipped if --out has it already.")] = None,
    on_error: Annotated[Literal["skip", "stop"], Parameter(help="What to do at a line that is not UTF-8.")] = "skip",
    threads: Threads = None,
    json: Annotated[bool, Parameter(name="--json", help="The same as --format json.")] = False,
) -> None:
    """Print the tree of each sentence. One line of text is one sentence, and the order stays.

    Without a RUN the bundled model en-small reads the text. The first word is a RUN if it is a folder with a model in
    it or the name of a bundled model; it is text if it is a file, a folder of text, - or contains a space.

    A line without words gives an empty line, or a JSON record without spans; so does one that is not UTF-8, with the
    reason as `error` in JSON: line n of the brackets always belongs to line n of the text. `id` counts lines from 0.

    For a cluster: --shard 1/8 --out FOLDER to --shard 8/8 --out FOLDER, again where one was lost; then
    `cat FOLDER/part-*.txt`.
    """
    from onlstm.lm.model import LanguageModel
    from onlstm.parser import Parser

    set_threads(threads)
    if json and format not in (None, "json"):
        raise UserError(f"--json and --format {format}: choose one of them")
    kind = "json" if json else format or _default_format(out)
    part = Shard.of(shard) if shard else None
    run, text = run_and_text(words)
    lines = _Lines(texts(text), stop=on_error == "stop")
    if part and not lines.rereadable:
        raise UserError("--shard: not with standard input, which only one process can read; name files")
    target = _target(out, kind, part, [path for path in lines.inputs if isinstance(path, Path)])
    model = LanguageModel.load(run)
    parser = Parser(model, layer=layer, decoder=decoder, gates=gates or _gates_of(model))
    options = {"shard": shard, "format": kind, "layers": [*parser.layers], "decoder": decoder, "gates": parser.gates}
    marker = Marker.of(target, locate(run), lines.inputs, options) if part and target else None
    if marker and marker.finished():
        notice(f"{target}: already finished")
        return
    if kind != "json":
        notice(trust(run))
    if lines.typed:
        notice("One sentence per line; Ctrl-D ends.")
    wanted = part.lines(lines.count()) if part else None
    silent = lines.typed or (not out and sys.stdout.isatty())
    records = _counted(_records(parser, lines, wanted, run), None if silent else len(wanted) if wanted else 0)
    if target:
        _write(target, kind, records)
    else:
        for row in _rows(kind, records, shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
            print(row, end="", flush=lines.typed)
    if marker:
        marker.write()


def _gates_of(model: Any) -> Any:
    return "lstm" if model.config.rnn == "lstm" else "forget"


def _default_format(out: Path | None) -> Format:
    return _FORMATS.get(out.suffix.lower(), "brackets") if out else "tree" if sys.stdout.isatty() else "brackets"


class _Record(NamedTuple):
    """A parse, and why its line could not be read, if so."""

    parse: "Parse"
    error: str


class _Lines:
    """The lines of files (paths; `-` is standard input) and of sentences (strings), one after the other.

    A line that is not UTF-8 comes out empty and gets an entry in `defects`, by its number from 0; or it ends the lines,
    if `stop` says so. What ends them too early is in `failure` afterwards.
    """

    def __init__(self, inputs: Iterable[Path | str], *, stop: bool = False) -> None:
        self.inputs, self._stop = tuple(inputs), stop
        self.defects: dict[int, str] = {}
        self.failure: UserError | None = None
        self.rereadable = Path("-") not in self.inputs
        self.typed = not self.rereadable and sys.stdin.isatty()
        """Whether somebody types them now and waits for an answer."""

    def count(self) -> int:
        """Return how many there are."""
        from onlstm.text.sources import read_inputs

        return sum(1 for _ in read_inputs(self.inputs))

    def read(self, wanted: range | None = None) -> Iterator[str]:
        """Yield the lines, or those with the wanted numbers."""
        from onlstm.text.sources import read_inputs

        try:
            for number, (line, defect) in enumerate(read_inputs(self.inputs)):
                if wanted and number >= wanted.stop:
                    return
                if wanted and number < wanted.start:
                    continue
                if defect and self._stop:
                    raise UserError(f"{defect}; or continue without it: --on-error skip")
                if defect:
                    self.defects[number] = defect
                yield "" if defect else line
        except UserError as error:
            self.failure = error


def _target(out: Path | None, kind: Format, part: Shard | None, inputs: list[Path]) -> Path | None:
    """Return the file to write, or the folder for SVGs; a shard has a file of its own in a folder."""
    if out and out.suffix.lower() in _PACKED:
        raise UserError(
            f"--out {out}: the file is not compressed; name it {out.stem}, or compress the output of a pipe"
        )
    if out and (part or kind == "svg") and (out.is_dir() or out.suffix.lower() not in (*_FORMATS, ".txt")):
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {out}: cannot be made a folder ({error.strerror})") from None
        return out / part.file(_SUFFIXES[kind]) if part else out
    if out and not (out.exists() and not out.is_file() and not out.is_dir()):  # a pipe is written as it is
        check_output("--out", out, f"trees.{_SUFFIXES[kind]}", inputs)
    return out


def _records(parser: "Parser", lines: _Lines, wanted: range | None, run: str) -> Iterator[_Record]:
    """Yield a record for each line, in order; then report bad lines, and whether many words were unknown."""
    read = lines.read(wanted)
    parses = (
        (parse for line in read for parse in parser.parse_lines([line])) if lines.typed else parser.parse_lines(read)
    )
    count = words = unknown = 0
    errors: list[str] = []
    for number, parse in enumerate(parses, wanted.start if wanted else 0):
        error = lines.defects.pop(number, "")
        errors += [error] * bool(error)
        count, words, unknown = count + 1, words + len(parse.words), unknown + parse.unknown
        yield _Record(replace(parse, id=number), error)
    if errors:
        notice(f"onlstm: {len(errors):,} of {count:,} lines skipped, their trees are empty:")
        notice("\n".join(errors[:_NAMED] + ["…"] * (len(errors) > _NAMED)))
    if unknown and unknown >= _UNKNOWN * words:
        notice(
            f"onlstm: {unknown / words:.0%} of the words are unknown to the model, so do not trust these trees; write "
            f"them as in its text, in lower case and tokenised alike: onlstm doctor TEXT --run {run} shows how"
        )
    if lines.failure:
        raise lines.failure


def _counted(records: Iterator[_Record], total: int | None) -> Iterator[_Record]:
    """Yield the records and show progress, unless `total` is None; 0 is an unknown total."""
    if total is None:
        yield from records
        return
    with Progress("sentences", total or None) as progress:
        for number, record in enumerate(records, 1):
            yield record
            if number % 100 == 0:
                progress.update(number)


def _rows(kind: Format, records: Iterable[_Record], width: int | None = None) -> Iterator[str]:
    """Yield the text of each record; for pictures, one text for all."""
    from onlstm import draw

    if kind in ("svg", "html", "latex"):
        yield _picture(kind, records)
        return
    for parse, error in records:
        if kind == "json":
            line = parse.to_json()
            yield (f'{line[:-1]}, "error": {json_module.dumps(error)}}}' if error else line) + "\n"
        elif kind == "tree" and parse.tree:
            yield "\n".join([*draw.text(parse.tree, width), "", ""])
        else:
            yield f"{parse.tree or ''}\n"


def _picture(kind: Format, records: Iterable[_Record]) -> str:
    from onlstm import draw

    diagrams = [draw.Diagram(tree=parse.tree, distances=parse.distances) for parse, _ in records if parse.tree]
    if not diagrams:
        raise UserError("no sentence with words, so there is nothing to draw")
    picture = {"svg": draw.svg, "html": draw.html, "latex": draw.latex}[kind](diagrams)
    return f"{picture.rstrip()}\n"


def _write(target: Path, kind: Format, records: Iterable[_Record]) -> None:
    """Write a file whole, or keep beside it what there is when it is cut off; or an SVG per sentence into a folder."""
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
