"""A run that is killed with SIGKILL, at any moment and inside a write, goes on to the same end as one that was not."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest
from small_runs import sentences

SLOW_WRITE = """
import sys, time
import torch
from onlstm.cli.main import main

save = torch.save
def slowly(content, file):
    file.write(b"the first half of a checkpoint" * 1000)
    file.flush()
    print("WRITING", file=sys.stderr, flush=True)
    time.sleep(0.6)
    file.seek(0)
    save(content, file)
torch.save = slowly
main()
"""
PLAIN = "from onlstm.cli.main import main\nmain()"
SETTINGS = {
    "recipe": "tiny",
    "threads": 1,
    "train.batch-size": 4,
    "train.bptt": 10,
    "train.checkpoint-minutes": 0.002,
    "train.log-steps": 20,
    "model.embedding-size": 16,
    "model.hidden-size": 16,
    "text.min-count": 1,
    "text.profile": "pretokenized",
}


def command(code, out, text=None, epochs=0):
    """Start a run on a text, or go on with it."""
    settings = SETTINGS | {"train.epochs": epochs} if text else {}
    options = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    return [sys.executable, "-c", code, "train", *([str(text)] if text else ["--resume"]), *options, "--out", str(out)]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(sentences(600)) + "\n")
    return path


def undisturbed(out, text, epochs):
    subprocess.run(command(PLAIN, out, text, epochs), check=True, capture_output=True)
    return ending(out)


def ending(out):
    """What a run comes to: its best weights, its numbers and its log, without times."""
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    for record in log:
        record.pop("seconds")
    return (
        (out / "model.safetensors").read_bytes(),
        json.loads((out / "result.json").read_text())["numbers"]["valid_perplexity"],
        log,
    )


@pytest.mark.slow
def test_twenty_kills_at_random_and_seven_inside_a_write(tmp_path, text):
    expected = undisturbed(tmp_path / "whole", text, 40)
    rng, out = random.Random(0), tmp_path / "killed"
    kills = inside = 0
    while not (out / "result.json").exists():
        before = written(out)
        slow = kills % 3 == 2
        code = SLOW_WRITE if slow else PLAIN
        start = command(code, out) if before else command(code, out, text, 40)
        process = subprocess.Popen(start, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        if kills >= 27:
            said = process.communicate()[1]
            assert process.returncode == 0, said
            break
        if slow:
            writing = next((line for line in process.stderr if "WRITING" in line), None)
            assert writing, "it ended before it wrote"
            time.sleep(rng.uniform(0.05, 0.5))
            inside += 1
        else:
            wait_for_training(out, process, before, rng.uniform(0, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
        kills += 1
    assert kills >= 20
    assert inside >= 5
    assert ending(out) == expected
    assert not [p.name for p in out.iterdir() if p.name.startswith(".trainer")], "halves left behind"


def wait_for_training(out, process, before, more):
    """Wait until it has written a checkpoint of its own, and then a little."""
    began = time.time()
    while time.time() - began < 60 and process.poll() is None and written(out) == before:
        time.sleep(0.02)
    time.sleep(more)


def written(out):
    path = out / "trainer.pt"
    return path.stat().st_mtime_ns if path.exists() else None


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_run_goes_on_to_the_same_end(tmp_path, text, number, code):
    out = tmp_path / "stopped"
    process = subprocess.Popen(command(PLAIN, out, text, 3), stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if "epoch   2" in line:
            process.send_signal(number)
            break
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait() == code
    assert "continue with onlstm train --resume --out " in rest
    assert not (out / "result.json").exists()
    subprocess.run(command(PLAIN, out), check=True, capture_output=True)
    assert ending(out) == undisturbed(tmp_path / "whole", text, 3)
