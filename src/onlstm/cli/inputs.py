"""What the command line names: runs, texts, sentences, files to write, numbers of threads, devices."""

import difflib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onlstm import device
from onlstm.errors import UserError, at_least_one, at_most
from onlstm.models import DEFAULT, RUN_FILES, TREES, is_run, locate, names

STDIN = "/dev/stdin"
"""What - on the command line becomes, until `sources` turns it back."""
Run = Annotated[Path, Parameter(help=f"A run folder, or {DEFAULT}.")]
Text = Annotated[
    str, Parameter(name="TEXT", help="Text files (.txt, .conllu, .gz, .xz), folders with train/valid/test files, or -.")
]


def _run_and_sentences(default: str) -> Parameter:
    return Parameter(
        name="[RUN] TEXT",
        help=f"A run folder or {default} (the default) if the first word names one; then sentences in quotes, files "
        "(.txt, .gz, .xz) with one sentence per line or in CoNLL-U, or - (the default).",
    )


Sentences = Annotated[str, _run_and_sentences(DEFAULT)]
"""For a language model."""
ToParse = Annotated[str, _run_and_sentences(TREES)]
"""For whatever finds trees."""
Threads = Annotated[int | None, Parameter(help="Processor threads (default: all cores).")]
Device = Annotated[
    str,
    Parameter(
        help="Where the network runs: auto (a CUDA device if there is one), cpu, cuda, cuda:1 or mps.",
        validator=lambda kind, name: device.check(name),
    ),
]
Quiet = Annotated[bool, Parameter(help="Print neither progress nor the line on how far to trust the trees.")]
_MOST_THREADS = 1024
_SUFFIXES = tuple(".txt .conllu .json .jsonl .svg .html .tex .gz .xz .bz2 .mrg .psd .xml .zip .tar .tgz .txz".split())  # noqa: SIM905


def command_line() -> str:
    """Return the command as it was typed."""
    return shlex.join(["onlstm", *sys.argv[1:]])


def check_threads(count: int) -> None:
    """Refuse numbers of threads that no machine runs."""
    at_least_one(threads=count)
    at_most(threads=(count, _MOST_THREADS))


def set_threads(count: int | None) -> None:
    """Let torch use this many threads."""
    if count is not None:
        check_threads(count)
        import torch

        torch.set_num_threads(count)


def sources(*text: str) -> tuple[str, ...]:
    """Return the names of texts, - for the standard input."""
    return tuple("-" if name == STDIN else name for name in text)


def run_and_text(words: Sequence[str], default: str = DEFAULT) -> tuple[str, tuple[str, ...]]:
    """Return the run that the first word names, or the default one, and the texts; without any, standard input."""
    first, *rest = sources(*words) or ("-",)
    if late := [word for word in rest if is_run(word)]:
        raise UserError(f"{late[0]}: a run; name it first, before the text")
    if is_run(first):
        return first, tuple(rest) or ("-",)
    if first in ("", "-") or exists(first) or any(map(str.isspace, first)):
        return default, (first, *rest)
    parent = Path(first).parent
    neighbours = map(str, parent.iterdir()) if exists(str(parent)) and parent.is_dir() else ()
    close = difflib.get_close_matches(first, [*names(), *neighbours], n=1)
    word = "check the name" if _is_path(first) else f"for a sentence of one word, name the run too: {default} {first}"
    raise UserError(f"{first:.60}: no such run, file or folder; {f'did you mean {close[0]}?' if close else word:.100}")


def texts(words: Iterable[str]) -> list[Path | str]:
    """Return the files that words of the command line name; a word that names none is a sentence."""
    from onlstm.text.sources import text_files

    named: list[Path | str] = []
    for word in words:
        if word == "-" or exists(word):
            named += text_files([word])
        elif _is_path(word):
            raise UserError(f"{word}: no such file; check the name")
        else:
            named.append(word)
    return named


def lines_of(words: Iterable[str]) -> Iterator[str]:
    """Return an iterator over the lines of files, of folders' files, of standard input and of sentences."""
    from onlstm.text.sources import read_inputs

    def checked(line: str, defect: str) -> str:
        if defect:
            raise UserError(defect)
        return line

    return starmap(checked, read_inputs(texts(words)))  # a name without a file is refused at once


def line_count(inputs: Sequence[Path | str]) -> int | None:
    """Return how many lines files and sentences have; None if that cannot be known before they are read."""
    from onlstm.text.sources import read_inputs

    if any(isinstance(path, Path) and not path.is_file() for path in inputs):  # a pipe comes once
        return None
    with suppress(UserError):  # which comes again, in its place
        return sum(1 for _ in read_inputs(inputs))
    return None


def exists(name: str) -> bool:
    """Return whether there is a file, folder or link of that name, which may be a sentence and too long for one."""
    return os.path.lexists(name)


def _is_path(word: str) -> bool:
    """Return whether it looks like the name of a file rather than a sentence such as "he and/or she"."""
    if any(map(str.isspace, word)):
        return word.startswith("/") or ("/" in word and exists(word.rpartition("/")[0]))
    return "/" in word or word.lower().endswith(_SUFFIXES)


def trust(run: str) -> str:
    """Return the line of the run's folder on how far to trust its trees; empty if it has none."""
    from onlstm.folder import read_config

    line = read_config(locate(run)).get("trust")
    if not line:
        return ""
    if scores := re.findall(r" (\d+) \((\d+)\)", str(line)):  # F1 on each treebank, and that of right-branching trees
        ours, right = (
            "–".join(dict.fromkeys((min(f1, key=int), max(f1, key=int)))) for f1 in zip(*scores, strict=True)
        )
        banks = f"{len(scores)} treebank{'s' * (len(scores) > 1)}"
        line = f"its trees are guesses: F1 {ours} on {banks}, right-branching trees {right}"
    return f"{Path(run).name}: {line}"


def _is_of_a_run(path: Path) -> bool:
    return path.name in (*RUN_FILES, "tokenizer.json") and is_run(str(path.parent))


def _reads(source: Path, path: Path) -> bool:
    """Return whether a file is an input, or lies in a folder that is one; a run's folder may hold other files too."""
    if source.is_dir() and not is_run(str(source)):
        return source.samefile(path.parent)
    return source.exists() and path.samefile(source)


def check_outputs(outputs: Mapping[str, tuple[Path | None, str]], inputs: Iterable[Path] = ()) -> None:
    """Check outputs, each with an example, by their options; two of them must not be one file."""
    inputs, named = list(inputs), dict[Path, str]()
    for option, (path, example) in outputs.items():
        check_output(option, path, example, inputs)
        if path and (other := named.setdefault(path.resolve(), option)) != option:
            raise UserError(f"{option} {path}: the file of {other}; name another")


def check_output(option: str, path: Path | None, example: str, inputs: Iterable[Path] = ()) -> None:
    """Refuse, before the work, a file that could not be written after it or that would replace an input."""
    if path is None:
        return
    try:
        fits = path.is_file() or not path.exists()
        if fits:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        taken = path.exists() and (_is_of_a_run(path) or any(_reads(source, path) for source in inputs))
    except OSError as error:
        why = f"the folder {path.parent} does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        raise UserError(f"{option} {path}: {why}; name a file in an existing folder, such as {example}") from None
    if not fits or str(path).startswith("/dev/"):
        raise UserError(f"{option} {path}: not a file; name a file in an existing folder, such as {example}")
    if taken:
        raise UserError(f"{option} {path}: an input of this command, which it would replace; name another file")
