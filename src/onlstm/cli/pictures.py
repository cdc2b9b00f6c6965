"""The command draw: trees from brackets, from parses in JSON, from a treebank or from a run, as pictures."""

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import notice
from onlstm.cli.inputs import Threads, exists, set_threads, sources, texts, trust
from onlstm.cli.main import app
from onlstm.errors import UserError
from onlstm.models import DEFAULT, is_run

if TYPE_CHECKING:
    from onlstm.draw import Diagram
    from onlstm.parser import Parser
    from onlstm.trees import Tree
    from onlstm.trees.treebank import Treebank

Format = Literal["tree", "svg", "html", "latex"]
_FORMATS: dict[str, Format] = {".svg": "svg", ".html": "html", ".htm": "html", ".tex": "latex", ".txt": "tree"}
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")
_TAGGED = re.compile(rb"\([^\s()a-z]+\s+[^\s()]+\s*\)")
_WORD = re.compile(rb"\s[^\s()]+(?=[\s)])")
_MARKS = r"[^\w\s]*"  # what may stand at a word in raw text
_EXAMPLE = 'onlstm draw "(S (NP the cat) (VP sat))"'


@dataclass(frozen=True, kw_only=True)
class _Sentence:
    """One sentence, as it was given."""

    text: str
    tree: "Tree | None" = None
    gold: "Tree | None" = None
    distances: Sequence[float] | None = None
    words: Sequence[str] = ()
    """As a model is to read them; of raw text, none."""
    kept: Sequence[int] = ()
    """Which of these are the gold tree's; none means all."""


@app.command
def draw(
    *words: Annotated[
        str,
        Parameter(
            name="[RUN] TREES",
            help='"(S (NP the cat) (VP sat))", a file of brackets or of parses in JSON, a treebank, or -; or a run '
            f"folder, then a text or a treebank for it to parse. Text without a run is parsed by {DEFAULT}.",
        ),
    ],
    format: Annotated[Format | None, Parameter(help="Default: as --out ends (.svg, .html, .tex); else tree.")] = None,
    out: Annotated[Path | None, Parameter(help="File to write (default: standard output).")] = None,
    gold: Annotated[str | None, Parameter(help="Treebank, or brackets, with the right trees to draw beside.")] = None,
    select: Annotated[str | None, Parameter(help="Sentences to draw, from 1: 4 or 1,5-7.")] = None,
    find: Annotated[str | None, Parameter(help="Draw the sentences that hold these words.")] = None,
    max: Annotated[int, Parameter(help="Draw so many sentences at most.")] = 50,
    plain: Annotated[bool, Parameter(negative="", help="Trees alone, as in the paper: no bars, gates, marks.")] = False,
    layer: Annotated[str | None, Parameter(help="Of a run: 1, middle, last or 1,2 (default: the run's).")] = None,
    decoder: Annotated[Literal["paper", "unbiased"], Parameter(help="How a run's distances become a tree.")] = "paper",
    profile: Annotated[str, Parameter(help="Kind of treebank (default: by its content).")] = "auto",
    threads: Threads = None,
) -> None:
    """Draw trees in the terminal, as SVG, as a web page or for LaTeX; with gold trees, both side by side.

    Figures 1 and A.1 of the paper, model left and gold right, are the like of
    `onlstm draw RUN --gold TREEBANK --select 4,10-14 --plain --out figure.tex`.
    """
    from onlstm.draw import Diagram

    kind = format or _format(out)
    run, source = _arguments(sources(*words), gold)
    found = [] if run else _read(str(source), profile)
    if not all(each.tree for each in found):
        run = DEFAULT
    if run:
        set_threads(threads)
        parser = _parser(run, layer, decoder)
        given = _with_gold(found, gold, profile) if found else _for_a_run(parser, source, gold, profile)
        chosen = _chosen(given, select, find, max)
        items = [item for each in chosen if (item := _parsed(parser, each))]
    else:
        chosen = _chosen(_with_gold(found, gold, profile), select, find, max)
        items = [Diagram(tree=each.tree, gold=each.gold, distances=each.distances) for each in chosen if each.tree]
    if not items:
        raise UserError("there is no sentence with words in it to draw")
    if plain:
        items = [replace(item, distances=None, gates=None, mark=False) for item in items]
    content = _content(kind, items, f"Trees of {Path(run).name}" if run else "Trees")
    if out:
        files.write(out, content)
        print(f"{out} written", file=sys.stderr)
    else:
        print(content, end="")


def _format(out: Path | None) -> Format:
    """Return the format that the name of a file asks for."""
    if out and not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist")
    if out and out.suffix.lower() not in _FORMATS:
        raise UserError(f"--out {out}: the name ends in {', '.join(_FORMATS)}, or there is a --format")
    return _FORMATS[out.suffix.lower()] if out else "tree"


def _arguments(words: Sequence[str], gold: str | None) -> tuple[str | None, str | None]:
    """Return the run and what to draw, either if given; of a treebank that is only gold, the default run's trees."""
    if not words and gold:
        return DEFAULT, None
    if not words or len(words) > 2:
        raise UserError(f"draw: one thing to draw, or a run folder and a text, not {len(words)}; as in {_EXAMPLE}")
    first, *rest = words
    if is_run(first):
        if not rest and not gold:
            raise UserError(f'{first} is a run: name a text too, as in onlstm draw {first} "the cat sat", or --gold')
        return first, rest[0] if rest else None
    if rest:
        raise UserError(f"{first[:60]} is not a run folder; one thing to draw needs quotes around it: {_EXAMPLE}")
    return None, first


def _parser(run: str, layer: str | None, decoder: Any) -> "Parser":
    from onlstm.lm.model import LanguageModel
    from onlstm.parser import Parser

    model = LanguageModel.load(run)
    notice(trust(run))
    gates: Any = "lstm" if model.config.rnn == "lstm" else "forget"
    return Parser(model, layer=layer, decoder=decoder, gates=gates)


def _for_a_run(parser: "Parser", source: str | None, gold: str | None, profile: str) -> list[_Sentence]:
    """Return the sentences that a run is to parse; trees that were given are gold."""
    name = source or str(gold)
    if source and gold and _is_bank(source, profile, brackets=True):
        raise UserError(f"{source} and --gold {gold}: one treebank is enough, its words are parsed")
    if _is_bank(name, profile, brackets=True):
        return list(_bank_sentences(parser, name, profile))
    given = _read(name, profile, sentence=bool(source))
    found = [replace(each, gold=each.tree, words=each.tree.words if each.tree else ()) for each in given]
    return _with_gold(found, gold, profile) if source else found


def _bank_sentences(parser: "Parser", name: str, profile: str) -> Iterator[_Sentence]:
    """Yield the sentences of a treebank as the model reads them, which is as `onlstm evaluate` has it."""
    from onlstm.paper.parsing.evaluate import WIDER
    from onlstm.paper.parsing.sentences import is_penn, readings
    from onlstm.trees.treebank import read_treebank

    bank = _bank(name, profile)
    wider = WIDER.get(bank.profile.name) if is_penn(parser.model) else None
    wide = read_treebank(name, profile=wider) if wider else None
    for tree, words, kept in readings(bank, parser.model, "aligned", wide):
        yield _Sentence(text=" ".join(tree.words), gold=tree, words=words, kept=kept)


def _with_gold(found: list[_Sentence], gold: str | None, profile: str) -> list[_Sentence]:
    if not gold:
        return found
    right = [each.tree for each in _read(gold, profile, brackets=True)]
    if len(right) != len(found) or not all(right):
        raise UserError(f"--gold {gold[:60]}: {len(right)} trees for {len(found)} sentences; give one for each")
    return [replace(each, gold=tree) for each, tree in zip(found, right, strict=True)]


def _read(source: str, profile: str, brackets: bool = False, sentence: bool = False) -> list[_Sentence]:
    """Return the trees of a treebank (a file of `brackets` too), of brackets or of JSON lines; else lines of text."""
    from onlstm.text.sources import read_lines, text_files
    from onlstm.trees.tree import read_brackets

    inline = source != "-" and not exists(source)
    raw = inline and source.lstrip()[:1] not in ("(", "{")
    if raw and len(source.split()) < 2 and not sentence:
        raise UserError(f'{source[:60]}: no such file; brackets begin with "(", as in {_EXAMPLE}')
    if raw:
        texts([source])  # which knows a mistyped name
    if _is_bank(source, profile, brackets):
        return [_Sentence(text=" ".join(tree.words), tree=tree) for tree in _bank(source, profile).trees]
    lines = source.splitlines() if inline else [line for path in text_files([source]) for line in read_lines(path)]
    name = "the brackets" if inline else "standard input" if source == "-" else Path(source).name
    start = "".join(lines).lstrip("\ufeff \t")[:1]
    if start == "{":
        return [each for k, line in enumerate(lines, 1) if line.strip() for each in _record(line, f"{name}:{k}")]
    if start == "(":
        trees = read_brackets("\n".join(lines).lstrip("\ufeff"), source=name)
        return [_Sentence(text=" ".join(tree.words), tree=tree) for tree in trees]
    return [_Sentence(text=line) for line in lines if line.strip()]


def _record(line: str, place: str) -> Iterator[_Sentence]:
    """Yield the sentence of a line of `onlstm parse --format json`, unless it has no words."""
    import json

    from onlstm.draw import Diagram
    from onlstm.trees.tree import Tree

    try:
        record = json.loads(line)
        if record["words"]:
            item = Diagram(tree=Tree.from_json(line), distances=record.get("distances"))
            yield _Sentence(text=item.name, tree=item.tree, distances=item.distances)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UserError(f"{place}: not a parse in JSON, with words and spans") from None


def _chosen(found: list[_Sentence], select: str | None, find: str | None, limit: int) -> list[_Sentence]:
    """Return the sentences that were asked for, at most `limit`."""
    if limit < 1:
        raise UserError(f"--max {limit}: at least 1 is needed")
    chosen = [found[k - 1] for k in _numbers(select, len(found))] if select else found
    if find:
        words = rf"{_MARKS}\s+{_MARKS}".join(map(re.escape, find.lower().split()))
        wanted = re.compile(rf"(?<!\S){_MARKS}{words}{_MARKS}(?!\S)")
        chosen = [each for each in chosen if wanted.search(each.text.lower())]
        if not chosen:
            raise UserError(f"--find {find!r}: in none of {len(found):,} sentences")
    if len(chosen) > limit:
        print(f"onlstm: the first {limit:,} of {len(chosen):,} sentences; --max draws more", file=sys.stderr)
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


def _parsed(parser: "Parser", sentence: _Sentence) -> "Diagram | None":
    """Return a sentence with the run's tree, distances and gates; None if it has no words."""
    from onlstm.draw import Diagram
    from onlstm.trees import tree_from_distances

    found = parser.parse(list(sentence.words) or sentence.text)
    kept = sentence.kept or range(len(found.words))
    if not kept:
        return None
    d = [found.distances[i] for i in kept]
    words = sentence.gold.words if sentence.gold and sentence.words else found.words
    gates = [[row[i] for i in kept] for row in _gates(parser, list(sentence.words) or sentence.text)]
    tree = tree_from_distances(d, words, parser.decoder)
    return Diagram(tree=tree, gold=sentence.gold, distances=d, gates=gates or None)


def _gates(parser: "Parser", sentence: str | list[str]) -> list[list[float]]:
    """Return the master forget gate of the layer that the parser reads, a row a chunk; nothing of several layers."""
    import torch

    from onlstm.lm.reader import words_and_ids

    model = parser.model
    if parser.gates == "lstm" or len(parser.layers) > 1:
        return []
    _, ids = words_and_ids(model.tokenizer, sentence)
    parts = [batch.master_gates[-1].forget for batch in model.read([ids], layers=parser.layers[0], master_gates=True)]
    return list(torch.cat(parts)[:, 0].float().T.tolist()) if parts else []


def _content(kind: Format, items: "list[Diagram]", title: str) -> str:
    from onlstm import draw as pictures

    if kind == "svg":
        return pictures.svg(items) + "\n"
    if kind != "tree":
        return pictures.html(items, title=title) if kind == "html" else pictures.latex(items)
    width, lines = shutil.get_terminal_size().columns, list[str]()
    for item in items:
        if item.gold:
            lines.append(f"model, F1 {pictures.f1(item.tree, item.gold):.1f}")
        lines += pictures.text(item.tree, width)
        lines += ["gold", *pictures.text(item.gold, width)] if item.gold else []
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _is_bank(name: str, profile: str, brackets: bool) -> bool:
    """Return whether it is a treebank: a folder, an archive, XML or, if these may be, brackets with a tag a word."""
    if not exists(name) or not Path(name).is_file():
        return exists(name) and Path(name).is_dir()
    with Path(name).open("rb") as file:
        head = file.read(2000).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith((b"PK", b"<")) or ".tar" in name or name.endswith((".tgz", ".txz", ".tbz2")):
        return True
    if name.lower().endswith((".gz", ".xz", ".bz2")):
        from onlstm.text.sources import read_lines

        head = "\n".join(islice(read_lines(name), 50)).encode().lstrip()
        if head.startswith(b"<"):
            return True
    tagged = len(_TAGGED.findall(head)) > 0.9 * len(_WORD.findall(head))
    return brackets and head.startswith(b"(") and (tagged or profile != "auto")


def _bank(name: str, profile: str) -> "Treebank":
    """Return the treebank; say what was left out of it."""
    from onlstm.trees.treebank import read_treebank

    bank = read_treebank(name, profile=profile)
    if bank.skipped:
        reasons = ", ".join(f"{count:,} {why}" for why, count in bank.skipped.items())
        print(f"onlstm: {Path(name).name}: left out: {reasons}", file=sys.stderr)
    return bank
