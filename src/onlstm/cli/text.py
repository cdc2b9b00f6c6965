"""The commands that look at a text before anything is trained on it: doctor, sentences."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from onlstm.cli.console import Answer, Json, Progress, put
from onlstm.cli.inputs import Text, check_output, sources
from onlstm.cli.main import app
from onlstm.models import locate
from onlstm.text.config import TextConfig

if TYPE_CHECKING:
    from onlstm.text.doctor import Diagnosis


@app.command
def doctor(
    *text: Text,
    recipe: Annotated[str, Parameter(help="Read the text as `onlstm train` does with this recipe.")] = "quick",
    profile: Annotated[
        Literal["auto", "ptb-en", "generic", "pretokenized"] | None,
        Parameter(help="Rules of tokenisation (default: the recipe's)."),
    ] = None,
    vocab_size: Annotated[
        int | None,
        Parameter(validator=Number(gte=3), help="Maximum number of entries in the vocabulary (default: the recipe's)."),
    ] = None,
    min_count: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            help="Leave words out of the vocabulary that occur less often (default: the recipe's).",
        ),
    ] = None,
    run: Annotated[Path | None, Parameter(help="Use this run's tokenizer and vocabulary.")] = None,
    json: Json = False,
) -> Answer:
    """Look at a text before training: counts, unknown words, lengths, a sample, and how to solve each problem."""
    from onlstm.recipe import Recipe, read
    from onlstm.text.doctor import examine
    from onlstm.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(locate(run) / "tokenizer.json") if run else None
    base = Recipe.of(read(recipe)).text
    config = replace(
        base,
        profile=profile or base.profile,
        vocab_size=vocab_size or base.vocab_size,
        min_count=min_count or base.min_count,
    )
    with Progress():
        diagnosis = examine(sources(*text), config, tokenizer=tokenizer)
    return Answer(diagnosis, page(diagnosis, _ways(config) if not run else {}), json)


def _ways(config: TextConfig) -> dict[str, str]:
    """Return what to type against each kind of problem."""
    larger = 2 * (config.vocab_size or 0)
    return {
        "paragraphs": "onlstm sentences TEXT --out SENTENCES",
        "cut": f"onlstm train --text.vocab-size {larger}",
        "known": "onlstm train --text.min-count 2",
        "large": "onlstm train --text.vocab-size 50000",
        "tokenised": "onlstm train --text.profile pretokenized",
        "raw": "onlstm train --text.profile generic",
        "upper": "onlstm train --text.profile generic",
        "unspaced": "onlstm train --text.profile pretokenized",
    }


def page(diagnosis: "Diagnosis", ways: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a diagnosis for people; `ways` has, by kind of problem, what to type against it."""
    d, more = diagnosis, len(diagnosis.files) - 3
    blank = f", {d.blank:,} blank" + (" (skipped)" if d.profile != "pretokenized" else "") if d.blank else ""
    yield f"Text        {', '.join(d.files[:3]) or 'none'}" + (f" and {more} more" if more > 0 else "")
    yield f"Profile     {d.profile}: {d.reason}"
    yield f"Lines       {d.lines:,}{blank}; the longest has {d.longest:,} words"
    yield f"Words       {d.words:,}"
    yield f"Tokens      {d.tokens:,} with one <eos> per line"
    yield f"Vocabulary  {d.vocabulary:,} entries with <unk> and <eos>; {d.once:,} words occur once"
    yield f"Unknown     {d.unknown:.2f} % " + ("of the words it is built from" if d.held_out else "of these words")
    if d.held_out_unknown is not None:
        yield f"            {d.held_out_unknown:.2f} % in {d.held_out}"
    if d.missed:
        yield f"            most often: {', '.join(d.missed)}"
    if d.words:
        yield "\nWords per line"
        lines = sum(count for _, count in d.histogram)
        most = max(count for _, count in d.histogram)
        for label, count in d.histogram:
            bar = "█" * round(30 * count / most) or "▏" * bool(count)
            yield f"  {label:>8}  {count:>10,}  {count / lines:6.1%}  {bar}".rstrip()
    if d.sample:
        yield "\nAs the model reads it (words between ·, unknown ones in [ ])"
        for line in d.sample:
            yield "  " + " · ".join(word if known else f"[{word}]" for word, known in line)
    yield "\nWhat to do" if d.findings else "\nNothing to fix."
    for number, finding in enumerate(d.findings, 1):
        way = ways.get(finding.kind)
        yield f"  {number}. {finding.problem}\n     → {finding.remedy}" + (f": {way}" if way else "")


@app.command
def sentences(
    *text: Text,
    wrapped: Annotated[bool, Parameter(help="Lines continue on the next one, up to an empty line.")] = False,
    out: Annotated[Path | None, Parameter(help="File to write (default: standard output).")] = None,
) -> None:
    """Split running text into one sentence per line, as training expects it; marks of tokenised text are joined.

    A sentence also ends with its line, unless the text is --wrapped. Headings of WikiText (= Title =) are left out. The
    sentences of CoNLL-U are printed as they were written (`# text`).
    """
    from onlstm.text.conllu import ConlluLine
    from onlstm.text.sentences import paragraphs
    from onlstm.text.sentences import sentences as split
    from onlstm.text.sources import read_lines, text_files

    paths = text_files(sources(*text) or ("-",))
    check_output("--out", out, "sentences.txt", paths)

    def split_file(path: Path) -> Iterator[str]:
        for kind, lines in groupby(read_lines(path), type):
            if kind is ConlluLine:
                yield from (line.text for line in lines if isinstance(line, ConlluLine))
            else:
                yield from (sentence for line in (paragraphs(lines) if wrapped else lines) for sentence in split(line))

    put((sentence for path in paths for sentence in split_file(path)), out)
