"""The command draw: trees from brackets, from parses in JSON, from a treebank or from a run, as pictures."""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import notice
from onlstm.cli.inputs import Device, Quiet, Threads, check_output, exists, lines_of, set_threads, sources, trust
from onlstm.cli.main import app
from onlstm.errors import UserError
from onlstm.models import DEFAULT, TREES, is_run
from onlstm.records import from_json

if TYPE_CHECKING:
    from onlstm.draw import Diagram
    from onlstm.grammar.pcfg import Grammar
    from onlstm.lm.model import LanguageModel
    from onlstm.parser import Parser
    from onlstm.trees import Tree

    Model = LanguageModel | Grammar

Format = Literal["tree", "svg", "html", "latex", "png", "pdf"]
_FORMATS: dict[str, Format] = {".svg": "svg", ".html": "html", ".htm": "html", ".tex": "latex", ".txt": "tree"}
_FORMATS |= {".png": "png", ".pdf": "pdf"}
_ARCHIVES = (".zip", ".tar", ".tgz", ".txz", ".tbz2", ".tar.gz", ".tar.xz", ".tar.bz2")
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")
_MARKS = r"[^\w\s]*"  # what may stand at a word in raw text
_EXAMPLE = 'onlstm draw "(S (NP the cat) (VP sat))"'


@dataclass(frozen=True, kw_only=True)
class _Sentence:
    """One sentence of the input."""

    text: str
    number: int = 0
    """Its place in the input, from 1."""
    tree: "Tree | None" = None
    gold: "Tree | None" = None
    distances: Sequence[float] | None = None
    words: list[str] = field(default_factory=list)
    """As a model is to read them; empty for raw text."""
    positions: Sequence[int] | None = None
    """Which of these words the gold tree has; None means all."""


@app.command
def draw(
    *words: Annotated[
        str,
        Parameter(
            name="[RUN] TREES",
            help='"(S (NP the cat) (VP sat))", a file of brackets or of parses in JSON, a treebank, or -; or a run '
            f"folder, then a text or a treebank for it to parse. Text without a run is parsed by {TREES}.",
        ),
    ],
    format: Annotated[Format | None, Parameter(help="Default: from the suffix of --out; otherwise tree.")] = None,
    out: Annotated[Path | None, Parameter(help="File to write (default: standard output).")] = None,
    gold: Annotated[
        str | None, Parameter(help="Treebank, or brackets, with the gold trees to draw beside them.")
    ] = None,
    select: Annotated[str | None, Parameter(help="Sentences to draw, from 1: 4 or 1,5-7.")] = None,
    find: Annotated[str | None, Parameter(help="Draw the sentences that contain these words.")] = None,
    max: Annotated[int, Parameter(help="Draw at most this many sentences.")] = 50,
    plain: Annotated[bool, Parameter(help="Trees alone, as in the paper: no bars, gates, marks.")] = False,
    layer: Annotated[str | None, Parameter(help="For a run: 1, middle, last or 1,2 (default: the run's).")] = None,
    decoder: Annotated[
        Literal["paper", "unbiased", "mbr", "viterbi"] | None,
        Parameter(help="For a run: paper (default) or unbiased; for that of a grammar: mbr (default) or viterbi."),
    ] = None,
    labels: Annotated[bool, Parameter(help="For the run of a grammar: show its labels.")] = False,
    profile: Annotated[str, Parameter(help="Kind of treebank (default: by its content).")] = "auto",
    threads: Threads = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Draw trees in the terminal, as SVG, PNG or PDF, as a web page or for LaTeX; with gold trees, both side by side.

    PNG and PDF need rsvg-convert or CairoSVG.

    Figures 1 and A.1 of the paper, model left and gold right:
    `onlstm draw RUN --gold TREEBANK --select 4,10-14 --plain --out figure.tex`.
    """
    default = DEFAULT if layer or decoder in ("paper", "unbiased") else TREES
    run, source = _run_and_source(sources(*words), gold, default)
    check_output("--out", out, "tree.svg", [Path(name) for name in (source, gold, profile) if name and exists(name)])
    if out and not format and out.suffix.lower() not in _FORMATS:
        raise UserError(f"--out {out}: the name ends in {', '.join(_FORMATS)}, or there is a --format")
    kind = format or (_FORMATS[out.suffix.lower()] if out else "tree")
    render = _renderer(kind, out)
    sentences = [] if run else _read(source, profile)
    if run or not all(sentence.tree for sentence in sentences):
        set_threads(threads)
        run = run or default
        parser = _parser(run, quiet, layer=layer, decoder=decoder, labels=labels, device=device)
        sentences = sentences or _read(source, profile, scored=True, model=parser.model)
        sentences = [replace(s, gold=s.tree, words=list(s.tree.words)) if s.tree else s for s in sentences]
    if gold and not (gold == source and all(sentence.gold for sentence in sentences)):
        sentences = _with_gold(sentences, gold, profile)
    sentences = _chosen(sentences, select, find, max)
    drawn = ((s, parser.diagram(s.words or s.text, s.gold, s.positions) if run else _diagram(s)) for s in sentences)
    diagrams = [replace(diagram, number=sentence.number) for sentence, diagram in drawn if diagram]
    if not diagrams:
        raise UserError("there is no sentence with words in it to draw")
    if plain:
        diagrams = [replace(diagram, distances=None, gates=None, mark=False, sure=False) for diagram in diagrams]
    content = render(diagrams, f"Trees of {Path(run).name}" if run else "Trees")
    if out:
        files.write(out, content)
        notice("" if quiet else f"{out} written")
    else:
        print(content, end="")


def _run_and_source(words: Sequence[str], gold: str | None, default: str) -> tuple[str | None, str]:
    """Return the run, if one is named, and what to draw; a treebank that is only gold is what a run parses."""
    run = words[0] if words and is_run(words[0]) else None
    rest = words[1:] if run else words
    if not rest and gold:
        return run or default, gold
    if len(rest) != 1:
        way = f'a text after the run: onlstm draw {run} "the cat sat"' if run else f"one thing to draw: {_EXAMPLE}"
        raise UserError(f"draw: name {way}; text needs quotes around it")
    for name in filter(None, (None if run else rest[0], gold)):
        if name != "-" and not exists(name) and len(name.split()) < 2 and name[:1] not in "({":
            raise UserError(f'{name[:60]}: no such file; brackets begin with "(", as in {_EXAMPLE}')
    return run, rest[0]


def _read(name: str, profile: str, scored: bool = False, model: "Model | None" = None) -> list[_Sentence]:
    """Return the sentences of a treebank, of brackets, of parses in JSON or, else, of lines of text.

    Folders, archives, XML and whatever has a `profile` are treebanks; with `scored`, so are files of brackets with a
    tag over every word, which are otherwise drawn as they stand. A model reads a treebank's words as its text has them.
    """
    from onlstm.trees.tree import read_brackets

    inline = name != "-" and not exists(name)
    is_bank = not inline and (profile != "auto" or Path(name).is_dir() or name.lower().endswith(_ARCHIVES))
    text = "" if is_bank else "\n".join(lines_of([name])).lstrip("\ufeff")
    start, where = text.lstrip()[:1], "the brackets" if inline else "standard input" if name == "-" else Path(name).name
    trees = read_brackets(text, source=where) if start == "(" else iter(())
    first = next(trees, None)
    if is_bank or (exists(name) and (start == "<" or (scored and first and _is_tagged(first)))):
        return list(_treebank(name, profile, model))
    if first:
        return [_Sentence(text=" ".join(tree.words), tree=tree) for tree in (first, *trees)]
    lines = [(f"{where}:{k}", line) for k, line in enumerate(text.splitlines(), 1) if line.strip()]
    if start == "{":
        return [sentence for place, line in lines if (sentence := _record(line, place))]
    return [_Sentence(text=line) for _, line in lines]


def _is_tagged(tree: "Tree") -> bool:
    """Return whether there is a tag over every word, as in a treebank."""
    return len({node.start for node in tree.nodes if node.label and node.end - node.start == 1}) == len(tree.words)


def _treebank(name: str, profile: str, model: "Model | None") -> Iterator[_Sentence]:
    """Yield the sentences of a treebank: their trees, or, for a model, what it reads and the gold trees."""
    from onlstm.trees.treebank import read_treebank

    bank = read_treebank(name, profile=profile)
    if bank.skipped:
        notice(f"{name}: left out: {', '.join(f'{count:,} {why}' for why, count in bank.skipped.items())}")
    if not model:
        yield from (_Sentence(text=" ".join(tree.words), tree=tree) for tree in bank.trees)
        return
    from onlstm.paper.parsing.alignment import readings

    for tree, words, positions in readings(bank, model):
        yield _Sentence(text=" ".join(tree.words), gold=tree, words=list(words), positions=positions)


def _record(line: str, place: str) -> _Sentence | None:
    """Return the sentence of a line of `onlstm parse --format json`, unless it has no words."""
    from onlstm.draw import Diagram
    from onlstm.trees.tree import Tree

    try:
        record = from_json(line)
        if not record["words"]:
            return None
        diagram = Diagram(tree=Tree.from_json(line), distances=record.get("distances"))
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{place}: not a parse in JSON, with words and spans") from None
    return _Sentence(text=diagram.name, tree=diagram.tree, distances=diagram.distances)


def _parser(run: str, quiet: bool, **options: Any) -> "Parser":
    from onlstm.parser import Parser

    parser = Parser.load(run, **options)
    notice("" if quiet else trust(run))
    return parser


def _diagram(sentence: _Sentence) -> "Diagram | None":
    from onlstm.draw import Diagram

    if not sentence.tree:
        return None
    return Diagram(tree=sentence.tree, gold=sentence.gold, distances=sentence.distances)


def _with_gold(sentences: list[_Sentence], gold: str, profile: str) -> list[_Sentence]:
    trees = [sentence.tree for sentence in _read(gold, profile, scored=True)]
    if len(trees) != len(sentences) or not all(trees):
        raise UserError(f"--gold {gold[:60]}: {len(trees)} trees for {len(sentences)} sentences; give one for each")
    for number, (sentence, tree) in enumerate(zip(sentences, trees, strict=True), 1):
        pairs = zip(sentence.tree.words, tree.words, strict=False) if sentence.tree and tree else ()
        if other := next((pair for pair in pairs if pair[0].lower() != pair[1].lower()), None):
            notice(
                f"onlstm: sentence {number}: the gold tree has {other[1]!r} for {other[0]!r}; is it of this sentence?"
            )
            break
    return [replace(sentence, gold=tree) for sentence, tree in zip(sentences, trees, strict=True)]


def _chosen(sentences: list[_Sentence], select: str | None, find: str | None, limit: int) -> list[_Sentence]:
    """Return the sentences that were asked for, at most `limit`."""
    if limit < 1:
        raise UserError(f"--max {limit}: at least 1 is needed")
    numbers = _numbers(select, len(sentences)) if select else range(1, len(sentences) + 1)
    chosen = [replace(sentences[k - 1], number=k) for k in numbers]
    if find:
        words = rf"{_MARKS}\s+{_MARKS}".join(map(re.escape, find.lower().split()))
        pattern = re.compile(rf"(?<!\S){_MARKS}{words}{_MARKS}(?!\S)")
        chosen = [sentence for sentence in chosen if pattern.search(sentence.text.lower())]
        if not chosen:
            raise UserError(f"--find {find!r}: in none of {len(sentences):,} sentences")
    if len(chosen) > limit:
        notice(f"onlstm: the first {limit:,} of {len(chosen):,} sentences; --max draws more")
    return chosen[:limit]


def _numbers(select: str, count: int) -> Iterator[int]:
    for part in select.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise UserError(f"--select {select}: numbers and ranges are needed, as 4 or 1,5-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= count:
            raise UserError(f"--select {part.strip()}: the sentences are 1 to {count:,}")
        yield from range(first, last + 1)


def _renderer(kind: Format, out: Path | None) -> "Callable[[list[Diagram], str], str | bytes]":
    """Return what makes a picture of diagrams and a title."""
    from onlstm import draw as formats

    if kind in ("png", "pdf"):
        if not out:
            raise UserError(f"--format {kind}: name a file for it with --out")
        convert = formats.converter(kind)
        return lambda diagrams, title: convert(formats.svg(diagrams))
    if kind == "html":
        return lambda diagrams, title: formats.html(diagrams, title=title)
    text = {"svg": lambda diagrams: formats.svg(diagrams) + "\n", "latex": formats.latex, "tree": _for_terminal}[kind]
    return lambda diagrams, title: text(diagrams)


def _for_terminal(diagrams: "list[Diagram]") -> str:
    from onlstm import draw as formats

    width, blocks = shutil.get_terminal_size().columns, []
    for diagram in diagrams:
        lines = [*formats.text(diagram.tree, width)]
        if diagram.gold:
            score = f"model, F1 {formats.f1(diagram.tree, diagram.gold):.1f}"
            lines = [score, *lines, "gold", *formats.text(diagram.gold, width)]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)
