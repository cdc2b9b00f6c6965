"""The command as a user types it: help without torch, one line for a mistake, JSON that machines can read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import helpers

COMMAND = Path(sys.executable).with_name("onlstm")


def onlstm(*args, **options):
    return subprocess.run([COMMAND, *args], capture_output=True, text=True, check=False, **options)


def test_help_and_version_load_neither_torch_nor_numpy():
    """All in one process, which tells after each what it has loaded."""
    typed = ["--help", "--version", "demo --help", "train --help", "recipes", "recipes quick", ""]
    code = """
import sys
from onlstm.cli.main import main
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as end:
        print("loaded:", not end.code and {"torch", "numpy", "tokenizers"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code, *typed], capture_output=True, text=True, check=True)
    said = [line for line in done.stdout.splitlines() if line.startswith("loaded:")]
    assert dict(zip(typed, said, strict=True)) == dict.fromkeys(typed, "loaded: set()")


def test_version_is_the_packages():
    from onlstm import __version__

    assert onlstm("--version").stdout == f"onlstm {__version__}\n"
    module = subprocess.run([sys.executable, "-m", "onlstm", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == f"onlstm {__version__}\n"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["frobnicate"], 'Unknown command "frobnicate". Available commands: '),
        (["demo", "--minuts", "3"], "Unknown option: --minuts. Did you mean --minutes?"),
        (["demo", "--minutes", "many"], 'Invalid value for --minutes: unable to convert "many" into float.'),
        (["demo", "--minutes", "0"], "--minutes 0: a number above 0 is needed"),
        (["demo", "--grammar", "no/such/file"], "cannot read no/such/file: No such file or directory"),
        (["bench", "--shapes", "huge"], "--shapes huge: there are lm-large"),
        (["bench", "--threads", "0"], "--threads 0: at least 1 is needed"),
        (
            ["bench", "--out", "no/such/folder/x.json"],
            "--out no/such/folder/x.json: the folder no/such/folder does not",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(args, line):
    done = helpers.onlstm(*args)
    assert done.code == 2
    assert done.err.startswith(f"onlstm: {line}")
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_demo_learns_and_prints_one_json_object(tmp_path):
    args = ["demo", "--json", "--minutes", "0.02", "--seed", "3", "--out", str(tmp_path)]
    done = helpers.onlstm(*args)
    found = json.loads(done.out)
    common = {"command", "version", "argv", "seed", "seconds"}
    assert set(found) == common | {"rule", "headline", "best_trivial", "rows", "report"}
    assert (found["command"], found["argv"], found["seed"]) == ("demo", args, 3)
    assert found["rule"] == "on-lstm"
    assert set(found["headline"]) == {"layer", "decoder", "f1"}
    assert all(set(row) >= {"system", "layer", "decoder", "f1", "n", "ties"} for row in found["rows"])
    assert Path(found["report"]).read_text().startswith("<!DOCTYPE html>")
    assert "epoch   1" in done.err


def test_demo_names_the_line_of_a_grammar_that_is_wrong(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("S -> NP VP\nNP -> kim | lee\nVP -> sleeps | sees NP Adv")
    done = helpers.onlstm("demo", "--grammar", file, "--out", tmp_path / "out")
    assert done.code == 2
    assert done.err == f"onlstm: {file}:3: Adv has no rules; add some, or put it in quotes if it is a word\n"
    assert list(tmp_path.iterdir()) == [file]


def test_bench_measures_after_checking(tmp_path):
    out = tmp_path / "speed.json"
    done = helpers.onlstm("bench", "--shapes", "parse-mid-1", "--threads", "1", "--seconds", "0.1", "--out", out)
    assert done.code == 0, done.err
    found = json.loads(out.read_text())
    assert [(row["shape"], row["mode"], row["threads"]) for row in found["rows"]] == [
        ("parse-mid-1", "train", 1),
        ("parse-mid-1", "infer", 1),
    ]
    for row in found["rows"]:
        assert row["milliseconds"] > 0
        assert row["rounds"] >= 5
    assert found["training_memory"]["parse-mid-1"]["ratio"] > 0
    assert list(tmp_path.iterdir()) == [out]


def test_bench_refuses_to_report_a_kernel_that_is_wrong(monkeypatch):
    from onlstm.kernels import ops
    from onlstm.paper import bench

    right = ops.scan
    monkeypatch.setattr(ops, "scan", lambda x, *rest, **options: right(x * 1.01, *rest, **options))
    with pytest.raises(RuntimeError, match="parse-mid-1: fused and eager differ"):
        bench.run(["parse-mid-1"], [1], 0.1, print)


def test_bench_measures_the_lstm_of_cudnn_in_float32(monkeypatch):
    from onlstm.paper import bench

    flags = bench.torch.backends.cudnn
    monkeypatch.setattr(bench, "check", lambda *_, **__: None)
    monkeypatch.setattr(bench, "_matmul_gflops", lambda device: 1.0)
    monkeypatch.setattr(bench, "_measure", lambda *_: (flags.enabled, flags.allow_tf32))
    assert bench.run(["parse-mid-1"], [1], 0.1, lambda row: None) == [(True, False)] * 2


def test_completion_is_installed_for_the_shell_named(tmp_path):
    options = {"env": {**os.environ, "HOME": str(tmp_path)}}
    done = onlstm("--install-completion", "--shell", "bash", **options)
    assert (done.returncode, done.stderr) == (0, "")
    script = Path(done.stdout.split(" written; ")[0])
    assert script.is_relative_to(tmp_path)
    words = "COMP_WORDS=(onlstm draw --format ''); COMP_CWORD=3; _onlstm; echo ${COMPREPLY[@]}"
    typed = subprocess.run(["bash", "-c", f"source {script}; {words}"], capture_output=True, text=True, check=True)
    assert {"svg", "html", "latex"} <= set(typed.stdout.split())
    (tmp_path / "file").write_text("")
    refused = onlstm("--install-completion", "--shell", "fish", env={**os.environ, "HOME": str(tmp_path / "file")})
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


def test_help_shows_tokens_in_angle_brackets():
    shown = onlstm("generate", "--help").stdout
    assert "<unk>" in shown
    assert "<eos>" in shown
