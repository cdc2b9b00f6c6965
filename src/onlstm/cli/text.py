"""The commands that look at a text before anything is trained on it: doctor, sentences."""

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onlstm.cli.console import Json, emit
from onlstm.cli.inputs import Text, check_output
from onlstm.cli.inputs import sources as text_sources
from onlstm.cli.main import app
from onlstm.models import locate


@app.command
def doctor(
    *text: Text,
    profile: Annotated[str, Parameter(help="auto, ptb-en, generic or pretokenized.")] = "auto",
    vocab_size: Annotated[int | None, Parameter(help="Maximum number of entries in the vocabulary.")] = None,
    min_count: Annotated[int, Parameter(help="How often a word occurs to be in the vocabulary.")] = 1,
    run: Annotated[Path | None, Parameter(help="Look with this run's tokenizer and vocabulary.")] = None,
    json: Json = False,
) -> None:
    """Look at a text before training: counts, unknown words, lengths, a sample, and how to solve each problem."""
    from onlstm.text import doctor as task
    from onlstm.text.tokenizer import Tokenizer

    started = time.perf_counter()
    tokenizer = Tokenizer.load(locate(run) / "tokenizer.json") if run else None
    sources = text_sources(*text)
    diagnosis = task.examine(sources, profile=profile, size=vocab_size, min_count=min_count, run_tokenizer=tokenizer)
    if json:
        emit("doctor", started, None, diagnosis)
    else:
        print(task.render(diagnosis))


@app.command
def sentences(
    *text: Text,
    wrapped: Annotated[bool, Parameter(help="Lines continue on the next one, up to an empty line.")] = False,
    out: Annotated[Path | None, Parameter(help="File to write (default: standard output).")] = None,
) -> None:
    """Split running text into one sentence per line, as training expects it; marks of tokenised text are joined.

    A sentence also ends with its line, unless the text is --wrapped. Headings of WikiText (= Title =) are left out.
    """
    from onlstm import files
    from onlstm.text.sentences import paragraphs
    from onlstm.text.sentences import sentences as split
    from onlstm.text.sources import read_lines, text_files

    paths = text_files(text_sources(*text) or ("-",))
    check_output("--out", out, "sentences.txt", paths)
    texts = (paragraphs(read_lines(path)) if wrapped else read_lines(path) for path in paths)
    rows = (sentence for lines in texts for line in lines for sentence in split(line))
    if out:
        files.write(out, lambda file: [file.write(f"{row}\n".encode()) for row in rows])
        return
    for row in rows:
        print(row)
