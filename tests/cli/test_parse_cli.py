"""`onlstm parse` as a user types it: one record a line and in order, whatever the input, the format or the shard."""

import gzip
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import onlstm.cli.parse  # noqa: F401  (registers the command)
from onlstm.cli.main import main
from onlstm.cli.shards import Shard
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees import read_brackets

COMMAND = [sys.executable, "-c", "import onlstm.cli.parse; from onlstm.cli.main import main; main()", "parse"]
LINES = ["The old cat saw a dog.", "", "Dog!", "… --", "A dog (that slept) saw the old cat, 3.5 times", "the zébra"]
BAD = b"the cat\ncaf\xe9 dog\na \xef\xbf\xbd dog slept\n\n\xff\nthe old dog slept\n"


class Done(NamedTuple):
    code: int
    out: str
    err: str


def parse(*args, input=b""):
    """Run the command in this process, which has torch loaded already."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["onlstm", "parse", *map(str, args)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input)))
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Done(code, out.getvalue(), err.getvalue())


def answer(*args, **options):
    done = parse(*args, **options)
    assert done.code == 0, done.err
    return done.out


def records(*args, **options):
    return [json.loads(line) for line in answer(*args, "--json", **options).split("\n")[:-1]]


def make(folder, **options):
    torch.manual_seed(0)
    tokenizer = Tokenizer.of_words(["the", "a", "cat", "dog", "saw", "slept", "that", "old", "times"], "generic")
    config = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 12, "chunk_size": 2}
    model = LanguageModel(LMConfig(**config | options), tokenizer).double()  # no rounding can turn a tree
    with torch.no_grad():
        for p in model.parameters():
            p.uniform_(-1.5, 1.5)
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make(tmp_path_factory.mktemp("runs") / "onlstm")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_brackets_belong_to_the_lines_and_can_be_read_again(run, text):
    out = answer(run, text)
    trees = [Parser.load(run).parse(line).tree for line in LINES]
    assert out.split("\n") == [*(str(tree or "") for tree in trees), ""]
    assert out.split("\n")[2] == "Dog"
    assert list(read_brackets(out)) == [tree for tree in trees if tree]


def test_json_has_the_parses_under_the_numbers_of_their_lines(run, text):
    parser = Parser.load(run)
    rows = records(run, text)
    assert [list(row) for row in rows] == [
        ["id", "text", "words", "offsets", "distances", "spans", "layer", "decoder"]
    ] * len(LINES)
    for k, (row, line) in enumerate(zip(rows, LINES, strict=True)):
        expected = json.loads(parser.parse(line).to_json())
        assert row.pop("distances") == pytest.approx(expected.pop("distances"), abs=1e-12)
        assert row == expected | {"id": k}
    assert records(run, text) == [json.loads(line) for line in answer(run, text, "--format", "json").splitlines()]


def test_options_reach_the_parser(run, text):
    (row,) = records(run, LINES[0], "--layer", "1,last", "--decoder", "unbiased", "--gates", "input")
    parser = Parser.load(run, layer=[1, 3], decoder="unbiased", gates="input")
    assert row == json.loads(parser.parse(LINES[0]).to_json())
    assert (row["layer"], row["decoder"]) == ([1, 3], "unbiased")


def test_the_gates_of_an_lstm_are_its_default(tmp_path):
    lstm = make(tmp_path / "lstm", rnn="lstm")
    (row,) = records(lstm, LINES[0])
    assert row == json.loads(Parser.load(lstm, gates="lstm").parse(LINES[0]).to_json())
    assert "gates forget: a model with LSTM layers" in parse(lstm, LINES[0], "--gates", "forget").err


def test_text_may_come_from_anywhere(run, text, tmp_path):
    expected = answer(run, text)
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    windows = "\ufeff" + "\r\n".join(LINES)
    assert answer(run, packed) == expected
    assert answer(run, input=text.read_bytes()) == expected
    assert answer(run, "-", input=windows.encode()) == expected
    assert answer(run, *(line for line in LINES if line)) == expected.replace("\n\n", "\n", 1)
    assert [row["id"] for row in records(run, text, "the dog", packed)] == list(range(2 * len(LINES) + 1))
    assert answer(run, text, "the old dog\nthe cat", text).split("\n")[len(LINES) + 1] == "( the cat )"
    assert answer(run, input=b"") == ""
    assert answer(run, "A dog and/or a cat. " * 500).count("(") == 2999


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("none.txt",), "none.txt: no such file; check the name"),
        (("some/where",), "some/where: no such file"),
        (("TEXT.GZ",), "TEXT.GZ: no such file"),
        (("a dog", "--layer", "4"), "layer '4': there are 1, 2, 3"),
        (("a dog", "--format", "svg", "--json"), "--json and --format svg: choose one of them"),
        (("a dog", "--format", "xml"), "--format"),
        (("a dog", "--gates", "lstm"), "only for models with LSTM layers"),
        (("a dog", "--shard", "0/2"), "--shard 0/2: i/n is needed"),
        (("-", "--shard", "1/2"), "--shard: not with standard input"),
        (("a dog", "--workers", "2"), "--workers: only with --ray"),
        (("a dog", "--parts", "parquet"), "--parts: only with --ray"),
        (("a dog", "--ray", "local"), "--ray: --out FOLDER is needed"),
        (("a dog", "--ray", "local", "--out", "x", "--workers", "0"), "--workers 0: at least 1 is needed"),
        (("a dog", "--ray", "local", "--out", "x", "--shard", "1/2"), "--shard: not with --ray"),
        (("a dog", "--ray", "local", "--out", "x", "--format", "svg"), "--format: not with --ray"),
        (("a dog", "--out", "none/trees.txt"), "--out none/trees.txt: the folder none does not exist"),
        (("a dog", "--out", "trees.txt.gz"), "--out trees.txt.gz: the file is not compressed; name it trees.txt"),
        (("a dog", "--out", "/"), "--out /: not a file; name a file"),
        (("a dog", "--out", "/dev/null/x", "--shard", "1/2"), "--out /dev/null/x: cannot be made a folder"),
        (("...", "--format", "html"), "no sentence with words"),
        (("a dog", "--threads", "0"), "--threads 0: at least 1"),
    ],
)
def test_mistakes_are_one_line(run, args, message):
    done = parse(run, *args)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.startswith("onlstm: ")
    assert done.err.count("\n") == 1


def test_bad_lines_are_skipped_and_counted(run, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(BAD)
    done = parse(run, path)
    assert done.code == 0
    third = BAD.splitlines()[2]  # has a replacement character, but is UTF-8
    good = answer(run, input=b"the cat\n\n" + third + b"\n\n\nthe old dog slept\n")
    assert done.out == good
    assert done.err.splitlines()[0] == "onlstm: 2 of 6 lines skipped, their trees are empty:"
    bad = [line.partition(": not UTF-8")[0] for line in done.err.splitlines()[1:]]
    assert bad == [f"{path}:2", f"{path}:5"]
    rows = records(run, path)
    assert [row["id"] for row in rows] == list(range(6))
    assert [k for k, row in enumerate(rows) if "error" in row] == [1, 4]
    assert rows[1].keys() - rows[0].keys() == {"error"}
    assert (rows[1]["words"], rows[1]["spans"]) == ([], [])


def test_not_all_of_many_bad_lines_are_named(run):
    done = parse(run, "-", input=b"\xe9\n" * 2000 + b"the dog")
    assert done.out == "\n" * 2000 + "( the dog )\n"
    assert done.err.startswith("onlstm: 2,000 of 2,001 lines skipped")
    assert done.err.count("\n") == 7


def test_arguments_that_are_not_utf8_are_bad_lines_too(run):
    done = parse(run, "the dog", b"caf\xe9 dog".decode("utf-8", "surrogateescape"), "a cat")
    assert done.out == "( the dog )\n\n( a cat )\n"
    assert "1 of 3 lines skipped" in done.err


def test_stop_ends_at_the_first_bad_line_after_those_before(run, tmp_path):
    path, out = tmp_path / "bad.txt", tmp_path / "trees.txt"
    path.write_bytes(BAD)
    done = parse(run, path, "--on-error", "stop")
    assert (done.code, done.out) == (2, "( the cat )\n")
    assert done.err.startswith(f"onlstm: {path}:2: not UTF-8")
    assert done.err.count("\n") == 1
    assert parse(run, path, "--on-error", "stop", "--out", out).code == 2
    assert not out.exists()
    assert (tmp_path / "trees.txt.partial").read_text() == "( the cat )\n"
    answer(run, path, "--out", out)
    assert {each.name for each in tmp_path.iterdir()} == {"bad.txt", "trees.txt"}


def test_a_broken_archive_loses_nothing_before_the_break(run, tmp_path):
    packed = tmp_path / "text.gz"
    packed.write_bytes(
        gzip.compress((b"." * 20_000 + b" the cat\n") * 100)[:-20]
    )  # two megabytes, of which one is read
    done = parse(run, packed)
    assert done.code == 2
    assert "broken or truncated archive" in done.err
    assert done.out.startswith("( the cat )\n" * 52)


@given(st.integers(0, 40), st.integers(1, 50))
def test_shards_share_the_lines_out_in_order(lines, n):
    shards = [Shard.of(f"{i}/{n}") for i in range(1, n + 1)]
    parts = [shard.lines(lines) for shard in shards]
    assert [k for part in parts for k in part] == list(range(lines))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert sorted(shards, key=lambda shard: shard.file("txt")) == shards


@pytest.mark.parametrize("text", ["", "1", "1/", "0/3", "4/3", "-1/3", "1/0", "a/b", "1/2/3", "1.0/2", "²/3"])
def test_other_shards_there_are_none(text):
    with pytest.raises(UserError, match=r"^--shard"):
        Shard.of(text)


@pytest.mark.parametrize("n", [1, 2, 4, 15])
def test_shards_together_are_the_whole(run, text, tmp_path, n):
    inputs = (text, "the cat saw that dog", text)
    whole, out = answer(run, *inputs), tmp_path / "trees"
    jobs = [(run, *inputs, "--shard", f"{i}/{n}") for i in range(1, n + 1)]
    assert "".join(answer(*job) for job in jobs) == whole
    assert [row["id"] for job in jobs for row in records(*job)] == list(range(2 * len(LINES) + 1))
    for job in reversed(jobs):
        assert answer(*job, "--out", out) == ""
    found = sorted(path for path in out.iterdir() if path.suffix != ".done")
    assert len(found) == n
    assert "".join(path.read_text() for path in found) == whole


def test_finished_shards_are_left_and_others_made_again(run, text, tmp_path):
    job = (run, text, "--shard", "1/2", "--out", tmp_path / "trees")
    part = tmp_path / "trees" / "part-1-of-2.txt"
    answer(*job)
    whole = part.read_text()
    part.write_text("as it was")
    assert "already finished" in parse(*job).err
    assert part.read_text() == "as it was"
    done = parse(*job, "--decoder", "unbiased")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "made with other settings (decoder)" in done.err
    text.write_text(text.read_text() + "one more\n")
    assert "other settings (inputs)" in parse(*job).err
    text.write_text("\n".join(LINES) + "\n")
    for broken in ("", "[]", '{"settings": 3}', None):
        marker = part.with_name(f"{part.name}.done")
        marker.unlink() if broken is None else marker.write_text(broken)
        part.write_text("cut off")
        answer(*job)
        assert part.read_text() == whole
    part.unlink()
    answer(*job)
    assert part.read_text() == whole


def test_a_file_holds_one_shard(run, text, tmp_path):
    out = tmp_path / "trees.jsonl"
    answer(run, text, "--shard", "1/2", "--out", out)
    before = out.read_text()
    assert "other settings (shard)" in parse(run, text, "--shard", "2/2", "--out", out).err
    assert out.read_text() == before
    assert [json.loads(line)["id"] for line in before.splitlines()] == [0, 1, 2]


def test_the_name_of_the_file_chooses_the_format(run, text, tmp_path):
    for suffix, option in {".txt": "brackets", ".jsonl": "json", ".json": "json", ".tex": "latex"}.items():
        out = tmp_path / f"out{suffix}"
        assert answer(run, text, "--out", out) == ""
        assert out.read_text() == answer(run, text, "--format", option)
    answer(run, text, "--out", tmp_path / "trees", "--format", "tree")
    assert (tmp_path / "trees").read_text() == answer(run, text, "--format", "tree")


def test_pictures(run, text, tmp_path):
    page = answer(run, text, "--format", "html")
    assert page.count("zébra") >= 1
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert answer(run, text, "--format", "latex").count(r"\begin{forest}") == 4
    ElementTree.fromstring(answer(run, text, "--format", "svg"))
    answer(run, text, "--format", "svg", "--out", tmp_path / "pictures")
    found = {
        path.name: "".join(ElementTree.parse(path).getroot().itertext()) for path in (tmp_path / "pictures").iterdir()
    }
    assert found.keys() == {"1.svg", "3.svg", "5.svg", "6.svg"}
    assert "zébra" in found["6.svg"]


@pytest.mark.slow
def test_on_a_terminal_there_are_trees_line_by_line(run):
    leader, follower = pty.openpty()
    with subprocess.Popen([*COMMAND, run, "--threads", "1"], stdin=follower, stdout=follower, stderr=follower) as child:
        os.close(follower)
        os.write(leader, b"the old dog\n")
        seen = b""
        while seen.count("─ dog".encode()) < 1:
            seen += os.read(leader, 1000)
        os.write(leader, b"caf\xe9\nthe cat\n\x04")
        while child.poll() is None and b"skipped" not in seen:
            seen += os.read(leader, 1000)
    os.close(leader)
    assert child.returncode == 0
    assert b"Ctrl-D ends" in seen
    assert "┬─".encode() in seen
    assert "─ cat".encode() in seen


@pytest.mark.slow
def test_what_is_done_survives_an_interrupt_and_a_closed_pipe(run, tmp_path):
    out = tmp_path / "trees.txt"
    with subprocess.Popen([*COMMAND, run, "--out", out], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdin.write((b"." * 110 + b" the old dog\n") * 20_000)  # it reads two megabytes and waits for the third
        while not (halves := [*tmp_path.glob(".trees*")]) or not halves[0].stat().st_size:
            time.sleep(0.1)
        time.sleep(2)  # Python misses a signal between two reads of a pipe
        child.send_signal(signal.SIGINT)
        assert b"trees.txt.partial" in child.stderr.read()
    assert child.returncode == 130
    kept = (tmp_path / "trees.txt.partial").read_text()
    assert kept.endswith("\n")
    assert len(set(kept.split("\n"))) == 2
    assert not out.exists()
    text = tmp_path / "text.txt"
    text.write_text("the old dog\n" * 11_000)
    with subprocess.Popen([*COMMAND, run, text], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout.readline()
        child.stdout.close()
        assert b"Traceback" not in child.stderr.read()
    assert child.returncode == 141


def test_many_unknown_words_are_told_once_at_the_end(run, tmp_path):
    out = tmp_path / "trees.txt"
    done = parse(run, "the zebu saw a gnu", "gnus slept", "--out", out)  # 3 of 7
    assert (done.code, done.err.count("\n"), out.read_text().count("\n")) == (0, 1, 2)
    assert "43% of the words are unknown" in done.err
    assert f"lower case and tokenised alike: onlstm doctor TEXT --run {run}" in done.err
    assert parse(run, "the old zebu and a cat that saw the dog").err == ""  # 2 of 10
    assert "30%" in parse(run, "gnus and zebus saw the old dog that slept a").err  # 3 of 10
    assert parse(run, "", "…").err == ""
