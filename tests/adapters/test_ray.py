"""Ray Data: columns beside a batch's own, and corpora on a local cluster of two workers, as a user starts them."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra ray")
pytest.importorskip("ray", reason="needs the extra ray")

from pyarrow import parquet  # noqa: E402

from onlstm import LanguageModel, Parser, files  # noqa: E402
from onlstm.adapters.ray import ParseBatch, ScoreBatch  # noqa: E402
from onlstm.errors import UserError  # noqa: E402
from onlstm.models import locate  # noqa: E402

TEXT = "the a old dog cat man house river people company said knew that who was sold in of by with Xyzzy"
LOCAL = ("--ray", "local", "--workers", "2", "--out")


def command(*words):
    return [sys.executable, "-m", "onlstm", *map(str, words)]


def run(*words):
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=600)


def lines_of(count, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(TEXT.split(), k=rng.randint(0, 7))) for _ in range(count)]


def parts(folder):
    return sorted(folder.glob("part-*"))


def test_columns_are_added_to_those_of_the_batch():
    texts = ["The cat sat.", None, "", "Dogs that bark, bite."]
    table = ParseBatch("en-small", layer=2)({"id": [7, 5, 3, 1], "text": texts, "error": ["x"] * 4})
    assert table.column_names == ["id", "text", "words", "offsets", "distances", "spans", "error", "model"]
    rows = table.to_pylist()
    for row, parse in zip(
        [rows[0], rows[3]], Parser.load("en-small", layer=2).parse_text([texts[0], texts[3]]), strict=True
    ):
        assert row["words"] == list(parse.words)
        assert row["distances"] == pytest.approx(parse.distances, abs=1e-6)
        assert row["spans"] == [list(span) for span in parse.tree.spans()]
        assert row["error"] is None
    assert [row["id"] for row in rows] == [7, 5, 3, 1]
    assert (rows[1]["words"], rows[2]["words"], rows[2]["error"]) == ([], [], None)
    assert "a list of words is needed, not None" in rows[1]["error"]
    assert {row["model"] for row in rows} == {files.sha256(locate("en-small") / "model.safetensors")}


def test_lists_of_words_labels_and_surprisal():
    words = ["the", "cat", "that", "barks"]
    table = ParseBatch("en", labels=True, confidence=True)(pyarrow.table({"text": [words]}))
    (parse,) = Parser.load("en", labels=True).parse([words])
    assert table["labels"].to_pylist() == [list(parse.labels)]
    assert table["confidence"].to_pylist() == [list(parse.confidence)]
    assert "labels" not in ParseBatch("en")({"text": ["the cat"]}).column_names
    table = ScoreBatch()({"text": [words, None]})
    (scored,) = LanguageModel.load("en-small").score([words])
    assert table["surprisal"].to_pylist() == [pytest.approx(scored.surprisal), []]
    assert table["eos"].to_pylist() == [pytest.approx(scored.eos), None]
    assert table["error"].to_pylist() == [None, "line 2: not text"]


def test_a_batch_needs_text_and_an_actor_a_thread():
    with pytest.raises(UserError, match="no column text, but id, line"):
        ScoreBatch()({"id": [1], "line": ["a"]})
    with pytest.raises(UserError, match="threads 0: at least 1"):
        ParseBatch(threads=0)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:9", "Connection refused"),
        ("127.0.0.1", "write local or host:port"),
        ("a:x", "write local or host:port"),
    ],
)
def test_an_address_without_a_cluster_is_one_line(tmp_path, address, why):
    result = run("parse", "the cat", "--ray", address, "--out", tmp_path / "out")
    line = f"onlstm: --ray {address}: no Ray cluster can be reached ({why}); `ray start` prints the address\n"
    assert (result.returncode, result.stderr) == (2, line)


@pytest.mark.slow
def test_sentences_and_the_parts_of_others_are_refused(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("the cat\n")
    result = run("parse", "the cat", *LOCAL, tmp_path / "out")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--ray: name files, which all workers can read" in result.stderr
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "part-1-of-2.txt").write_text("( the cat )")
    result = run("parse", text, *LOCAL, tmp_path / "out")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "has parts of something else; name another folder" in result.stderr


def actors(ancestor):
    """Return the processes of Ray's actors below another one."""
    parents, titles = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            titles[int(folder.name)] = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue

    def is_below(process):
        while process > 1 and process != ancestor:
            process = parents.get(process, 0)
        return process == ancestor

    return [process for process, title in titles.items() if "MapWorker" in title and is_below(process)]


@pytest.mark.slow
def test_two_workers_one_of_them_killed_write_what_one_process_does(tmp_path):
    lines = lines_of(22_000)
    texts = [tmp_path / "a.txt", tmp_path / "b.txt.gz"]
    texts[0].write_bytes("\n".join(lines[:15_000]).encode() + b"\nbad \xff line\n")
    texts[1].write_bytes(gzip.compress("\n".join(lines[15_000:]).encode()))
    whole = run("parse", "en", *texts, "--json").stdout.splitlines()
    out = tmp_path / "out"
    with subprocess.Popen(command("parse", "en", *texts, *LOCAL, out), stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 300
        while not parts(out) and time.monotonic() < end:
            time.sleep(0.05)
        victims = actors(process.pid)
        os.kill(victims[0], signal.SIGKILL)
        _, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    assert f"onlstm: 1 of 22,001 lines skipped, their records are empty:\n{texts[0]}:15001: not UTF-8" in err
    assert "Traceback" not in err
    assert [path.name for path in parts(out)] == [f"part-{k:012}.jsonl" for k in (0, 5000, 10000, 15000, 15001, 20001)]
    rows = [json.loads(line) for path in parts(out) for line in path.read_text().splitlines()]
    assert {row.pop("model") for row in rows} == {files.sha256(locate("en") / "model.safetensors")}
    assert rows == [json.loads(line) for line in whole]

    parts(out)[1].unlink()
    parts(out)[0].write_text("left as it is")
    again = run("parse", "en", *texts, *LOCAL, out)
    assert again.returncode == 0, again.stderr
    assert parts(out)[0].read_text() == "left as it is"
    assert [json.loads(line)["id"] for line in parts(out)[1].read_text().splitlines()] == list(range(5000, 10000))


@pytest.mark.slow
def test_parquet_in_and_out_surprisal(tmp_path):
    lines = lines_of(300)
    text, table, out = tmp_path / "a.txt", tmp_path / "a.parquet", tmp_path / "out"
    text.write_text("".join(f"{line}\n" for line in lines))
    parquet.write_table(pyarrow.table({"text": [*lines, None], "other": range(301)}), table)
    expected = [json.loads(line) for line in run("score", text, "--json").stdout.splitlines()]
    result = run("score", "en-small", table, "--parts", "parquet", *LOCAL, out)
    assert result.returncode == 0, result.stderr
    rows = parquet.read_table(parts(out)).to_pylist()
    assert [row["id"] for row in rows] == list(range(301))
    for row, golden in zip(rows, expected, strict=False):
        assert row["words"] == golden["words"]
        assert [*row["surprisal"], row["eos"]] == pytest.approx([*golden["surprisal"], golden["eos"]], rel=1e-5)
    assert (rows[300]["error"], rows[300]["eos"]) == ("line 301: not text", None)
    other = run("score", "en-small", text, *LOCAL, out)
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)
    assert f"{out}: made with other settings (inputs, parts)" in other.stderr
    parquet.write_table(pyarrow.table({"line": lines}), table)
    bad = run("score", "en-small", table, *LOCAL, tmp_path / "other")
    assert (bad.returncode, bad.stderr.splitlines()[-1]) == (2, f"onlstm: {table}: no column text; there are line")
