"""The command as a user types it: help without torch, one line for a mistake, JSON that machines can read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("onlstm")


def onlstm(*args, **options):
    return subprocess.run([COMMAND, *args], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["demo", "--help"], ["train", "--help"], ["recipes"], ["recipes", "quick"], []]
)
def test_help_and_version_load_no_torch(args):
    code = "import sys\nfrom onlstm.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_version_is_the_packages():
    from onlstm import __version__

    assert onlstm("--version").stdout == f"onlstm {__version__}\n"
    module = subprocess.run([sys.executable, "-m", "onlstm", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == f"onlstm {__version__}\n"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["parze"], 'Unknown command "parze". Available commands: demo, bench, recipes, train, '),
        (["demo", "--stepz", "3"], "Unknown option: --stepz. Did you mean --steps?"),
        (["demo", "--steps", "many"], 'Invalid value for --steps: unable to convert "many" into int.'),
        (["demo", "--steps", "0"], "--steps 0: at least 1 is needed"),
        (["bench", "--shapes", "huge"], "--shapes huge: no such shape; there are lm-large"),
        (["bench", "--threads", "0"], "--threads 0: at least 1 is needed"),
        (
            ["bench", "--out", "no/such/folder/x.json"],
            "--out no/such/folder/x.json: the folder no/such/folder does not",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(args, line):
    done = onlstm(*args)
    assert done.returncode == 2
    assert done.stderr.startswith(f"onlstm: {line}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_demo_learns_and_prints_one_json_object():
    done = onlstm("demo", "--json", "--steps", "150", "--seed", "3")
    found = json.loads(done.stdout)
    assert found["command"] == "demo"
    assert found["argv"] == ["demo", "--json", "--steps", "150", "--seed", "3"]
    assert found["seed"] == 3
    assert found["floor"] < found["loss"] < found["unigram"] - 0.2
    assert found["closing"] > 95
    assert "step  150" in done.stderr


def test_bench_measures_after_checking(tmp_path):
    out = tmp_path / "speed.json"
    done = onlstm("bench", "--shapes", "parse-mid-1", "--threads", "1", "--seconds", "0.1", "--out", str(out))
    assert done.returncode == 0, done.stderr
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
    from onlstm.tasks import bench

    right = ops.scan
    monkeypatch.setattr(ops, "scan", lambda x, *rest: right(x * 1.01, *rest))
    with pytest.raises(RuntimeError, match="parse-mid-1: fused and eager differ"):
        bench.run(["parse-mid-1"], [1], 0.1)
