"""A disk that is full: one line, and nothing half-written stays."""

import resource
from pathlib import Path

import pytest

from helpers import onlstm

RESULTS = Path(__file__).parents[2] / "results"
BANK = "( (S (NP (DT the) (NN owl)) (VP (VBZ sleeps))) )\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "text.txt").write_text("the owl sleeps\n" * 100)
    sizes = "--model.embedding-size 16 --model.hidden-size 16 --model.chunk-size 4 --train.epochs 1"
    done = onlstm("train", folder / "text.txt", "--recipe", "tiny", *sizes.split(), "--out", folder / "run")
    assert done.code == 0, done.err
    (folder / "bank.mrg").write_text(BANK * 40)
    return folder


@pytest.fixture
def small_files():
    """No file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "line",
    [
        "parse {inputs}/run {inputs}/text.txt --out trees.txt",
        "score {inputs}/run {inputs}/text.txt --out scores.tsv",
        "evaluate {inputs}/run {inputs}/bank.mrg --out result.json",
        "evaluate {inputs}/bank.mrg --trees {inputs}/bank.mrg --words words.txt",
        "sentences {inputs}/text.txt --out sentences.txt",
        "draw {inputs}/bank.mrg --out trees.svg",
        "inspect {inputs}/run {inputs}/text.txt --out gates.svg",
        "train {inputs}/text.txt --recipe tiny --out run",
        "induce {inputs}/text.txt --out run",
        "report {results} --out RESULTS.md",
    ],
)
def test_nothing_stays_of_an_output_that_could_not_be_written(line, inputs, small_files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_files(100)
    done = onlstm(*line.format(inputs=inputs, results=RESULTS).split())
    assert (done.code, done.err.splitlines()[-1].count("File too large")) == (2, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("most", [100, 700, 1500])
@pytest.mark.parametrize("out", ["shipped", "new/folder/shipped", "here"])
def test_convert_leaves_nothing(out, most, inputs, small_files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    small_files(most)
    done = onlstm("convert", inputs / "run", "--out", out)
    assert (done.code, done.err.count("File too large")) == (2, 1)
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]
