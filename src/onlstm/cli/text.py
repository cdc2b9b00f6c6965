"""The commands that look at a text before anything is trained on it: doctor, sentences."""

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onlstm.cli.common import Json, app, json_text, sources
from onlstm.models import locate

Text = Annotated[str, Parameter(help="Text files (.txt, .gz, .xz), folders with train/valid/test files, or -.")]


@app.command
def doctor(
    *text: Text,
    profile: Annotated[str, Parameter(help="auto, ptb-en, generic or pretokenized.")] = "auto",
    vocab_size: Annotated[int | None, Parameter(help="Entries of the vocabulary at most.")] = None,
    min_count: Annotated[int, Parameter(help="How often a word occurs to be in the vocabulary.")] = 1,
    run: Annotated[Path | None, Parameter(help="Look with this run's tokenizer and vocabulary.")] = None,
    json: Json = False,
) -> None:
    """Look at a text before training: counts, unknown words, lengths, a sample, and what to do about each problem."""
    from dataclasses import asdict

    from onlstm.text import doctor as task
    from onlstm.text.tokenizer import Tokenizer

    started = time.perf_counter()
    known = Tokenizer.load(locate(run) / "tokenizer.json") if run else None
    found = task.examine(sources(*text), profile=profile, size=vocab_size, min_count=min_count, run_tokenizer=known)
    print(json_text("doctor", started, None, asdict(found)) if json else task.render(found))


@app.command
def sentences(
    *text: Text,
    wrapped: Annotated[bool, Parameter(negative="", help="Lines go on in the next one, up to an empty one.")] = False,
    out: Annotated[Path | None, Parameter(help="File to write (default: standard output).")] = None,
) -> None:
    """Put running text one sentence a line, as training wants it; marks of tokenised text (@-@, n't, " .") are joined.

    A sentence ends with its line, too, unless the text is --wrapped. Headings of WikiText (= Title =) are left out.
    """
    from onlstm import files
    from onlstm.text.sentences import paragraphs
    from onlstm.text.sentences import sentences as split
    from onlstm.text.sources import read_lines, text_files

    paths = text_files(sources(*text) or ("-",))
    if out:
        files.check_target("--out", out, "sentences.txt", paths)
    texts = (paragraphs(read_lines(path)) if wrapped else read_lines(path) for path in paths)
    found = (sentence for lines in texts for line in lines for sentence in split(line))
    if out:
        files.write(out, lambda file: [file.write((sentence + "\n").encode()) for sentence in found])
        return
    for sentence in found:
        print(sentence)
