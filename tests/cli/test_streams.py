"""Standard streams that are closed, full, or no longer read: one line, the right code, results as they are made."""

import io
import subprocess
import sys

import pytest

from helpers import random_model
from onlstm.cli import main
from onlstm.lm import generate, reader
from onlstm.text.tokenizer import Tokenizer

FULL = "onlstm: cannot write to the standard output: No space left on device\n"
CLOSED = "onlstm: cannot write to the standard output: Bad file descriptor\n"
NO_INPUT = "onlstm: the standard input is closed; name a file\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "model"
    random_model(Tokenizer.of_words(["the", "owl", "cat", "sleeps"])).save(folder)
    return folder


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("recipes > /dev/full", 2, FULL),
        ("recipes --help >&-", 2, CLOSED),
        ("sentences - <&-", 2, NO_INPUT),
        ("sentences - 2>&- <&-", 2, ""),
        ("sentences {text} | head -1", 141, ""),
    ],
)
def test_a_stream_that_fails_is_one_line(line, code, error, tmp_path):
    (tmp_path / "text.txt").write_text("the owl sleeps\n" * 100_000)
    command = f"set -o pipefail; {sys.executable} -m onlstm {line.format(text=tmp_path / 'text.txt')}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, error)
    assert done.stdout == ("the owl sleeps\n" if code == 141 else "")


class Reader(io.StringIO):
    """A standard output that is closed after so many lines."""

    def __init__(self, lines):
        super().__init__()
        self.left = lines

    def write(self, text):
        if not self.left:
            raise BrokenPipeError
        self.left -= text.count("\n")
        return super().write(text)


@pytest.mark.parametrize("command", ["parse", "score", "generate"])
def test_nothing_is_computed_for_a_reader_that_has_left(command, run, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("the owl sleeps\n" * 5000)
    what = {"parse": [tmp_path / "text.txt"], "score": [tmp_path / "text.txt"], "generate": ["--count", "5000"]}
    computed = []
    read, steps = reader.read, generate._steps
    monkeypatch.setattr(reader, "read", lambda *args, **more: computed.append(args[1]) or read(*args, **more))
    monkeypatch.setattr(generate, "_steps", lambda *args: computed.append(args[2]) or steps(*args))
    monkeypatch.setattr(sys, "argv", ["onlstm", command, str(run), *map(str, what[command])])
    monkeypatch.setattr(sys, "stdout", Reader(3))
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 141
    assert sys.stdout.getvalue().count("\n") == 3
    assert 0 < sum(map(len, computed)) <= 100


def test_a_line_is_printed_when_it_is_made(run, tmp_path, monkeypatch):
    class Flushed(io.StringIO):
        def flush(self):
            lines.append(self.getvalue().count("\n"))

    lines = []
    (tmp_path / "text.txt").write_text("the owl sleeps\n" * 50)
    monkeypatch.setattr(sys, "stdout", Flushed())
    monkeypatch.setattr(sys, "argv", ["onlstm", "parse", str(run), str(tmp_path / "text.txt")])
    with pytest.raises(SystemExit):
        main.main()
    assert lines[:50] == list(range(1, 51))


@pytest.mark.parametrize(
    "line", ["score {run}", "parse {run}", "generate {run} -", "evaluate {run} -", "draw -", "train - --out run"]
)
def test_an_input_that_is_closed(line, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "argv", ["onlstm", *line.format(run=run).split()])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(NO_INPUT)
    assert list(tmp_path.iterdir()) == []
