"""The commands that look at a text before anything is trained on it: doctor, sentences."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from onlstm.cli.console import Answer, Json, put
from onlstm.cli.inputs import Text, check_output, sources
from onlstm.cli.main import app
from onlstm.models import locate
from onlstm.text.config import TextConfig

if TYPE_CHECKING:
    from onlstm.text.doctor import Diagnosis


@app.command
def doctor(
    *text: Text,
    profile: Annotated[
        Literal["auto", "ptb-en", "generic", "pretokenized"], Parameter(help="Rules of tokenisation.")
    ] = "auto",
    vocab_size: Annotated[
        int | None, Parameter(validator=Number(gte=3), help="Maximum number of entries in the vocabulary.")
    ] = None,
    min_count: Annotated[
        int, Parameter(validator=Number(gte=1), help="Leave words out of the vocabulary that occur less often.")
    ] = 1,
    run: Annotated[Path | None, Parameter(help="Use this run's tokenizer and vocabulary.")] = None,
    json: Json = False,
) -> Answer:
    """Look at a text before training: counts, unknown words, lengths, a sample, and how to solve each problem."""
    from onlstm.text.doctor import examine
    from onlstm.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(locate(run) / "tokenizer.json") if run else None
    config = TextConfig(profile=profile, vocab_size=vocab_size, min_count=min_count)
    diagnosis = examine(sources(*text), config, tokenizer=tokenizer)
    return Answer(diagnosis, page(diagnosis), json)


def page(diagnosis: "Diagnosis") -> Iterator[str]:
    """Yield the lines of a diagnosis for people."""
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
        yield f"  {number}. {finding.problem}\n     → {finding.remedy}"


@app.command
def sentences(
    *text: Text,
    wrapped: Annotated[bool, Parameter(help="Lines continue on the next one, up to an empty line.")] = False,
    out: Annotated[Path | None, Parameter(help="File to write (default: standard output).")] = None,
) -> None:
    """Split running text into one sentence per line, as training expects it; marks of tokenised text are joined.

    A sentence also ends with its line, unless the text is --wrapped. Headings of WikiText (= Title =) are left out.
    """
    from onlstm.text.sentences import paragraphs
    from onlstm.text.sentences import sentences as split
    from onlstm.text.sources import read_lines, text_files

    paths = text_files(sources(*text) or ("-",))
    check_output("--out", out, "sentences.txt", paths)
    texts = (paragraphs(read_lines(path)) if wrapped else read_lines(path) for path in paths)
    put((sentence for lines in texts for line in lines for sentence in split(line)), out)
