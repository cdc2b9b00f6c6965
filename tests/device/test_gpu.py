"""For a machine with a CUDA device (`make test-gpu`): training there follows training on a CPU, resumes, and scales."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from small_runs import config, ids, model, sentences

from helpers import onlstm
from onlstm import LanguageModel, Parser
from onlstm.lm.score import evaluate
from onlstm.train import checkpoint, fit
from onlstm.train.language_model import LanguageModelTraining

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
TEXT, VALID = ids(60), ids(20, seed=1)
WORKER = """
import json, sys
from pathlib import Path
from small_runs import config, ids, model
from onlstm.device import find
from onlstm.train import fit
from onlstm.train.distributed import World
from onlstm.train.language_model import LanguageModelTraining

device = find("cuda")
world, losses = World.join(device), []
texts = ids(60), ids(20, seed=1)
run = LanguageModelTraining(
    model().to(device), *texts, config(log_steps=1), Path(sys.argv[1]), seed=7, world=world, masks="cpu"
)
fit.fit(run, [lambda record: losses.append(record.numbers.get("loss"))], epochs=2)
if world.rank == 0:
    print(json.dumps(losses), flush=True)
world.leave()
"""


def training(folder, device, masks="device", seed=7, **more):
    made = model()
    made.save_description(folder)
    settings = config(log_steps=1, **more)
    return LanguageModelTraining(made.to(device), TEXT, VALID, settings, folder, seed=seed, masks=masks)


def losses(run, **options):
    found = []
    fit.fit(run, [lambda record: found.append(record.numbers.get("loss"))], **options)
    return [loss for loss in found if loss is not None]


@pytest.mark.parametrize(
    "rule", [{}, {"averaging": "asgd-compat", "patience": 0}, {"optimizer": "adamw", "averaging": "none"}]
)
def test_with_masks_of_the_cpu_both_devices_take_the_same_steps(tmp_path, rule):
    more = {"lr": 0.01} | rule if "optimizer" in rule else rule
    on_cpu, on_gpu = (losses(training(tmp_path / device, device, "cpu", **more)) for device in ("cpu", "cuda"))
    assert on_gpu == pytest.approx(on_cpu, rel=1e-9)


def test_a_run_goes_on_exactly(tmp_path):
    whole = losses(training(tmp_path / "whole", "cuda"))
    first = losses(training(tmp_path / "parts", "cuda"), epochs=2)
    run = training(tmp_path / "parts", "cuda", seed=99)
    fit.restore(run, checkpoint.load(tmp_path / "parts"))
    assert first + losses(run) == whole
    for key in ("generator", "generator_device"):
        assert key in checkpoint.load(tmp_path / "parts")


@pytest.mark.parametrize(("begun", "then"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_run_goes_on_elsewhere(tmp_path, begun, then):
    losses(training(tmp_path, begun), epochs=1)
    run = training(tmp_path, then)
    fit.restore(run, checkpoint.load(tmp_path))
    assert run.progress.epoch == 1
    assert losses(run)
    assert run.progress.history[-1] < run.progress.history[0]


def test_evaluation_scores_and_trees_are_those_of_the_cpu():
    here, there = (LanguageModel.load("en-small", device=device) for device in ("cpu", "cuda"))
    stream = np.random.default_rng(0).integers(0, 12_000, 2000)
    assert evaluate(there, stream, batch=4).nll == pytest.approx(evaluate(here, stream, batch=4).nll, abs=1e-4)
    lines = sentences(30)
    for ours, theirs in zip(there.score(lines), here.score(lines), strict=True):
        assert ours.surprisal == pytest.approx(theirs.surprisal, abs=1e-3)
    trees = [[parse.tree for parse in Parser(made).parse_text(lines)] for made in (there, here)]
    assert sum(map(lambda a, b: a == b, *trees)) >= 29  # a tie may fall otherwise


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_devices_train_as_one(tmp_path):
    alone = losses(training(tmp_path / "one", "cuda", "cpu"), epochs=2)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "two").mkdir()
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "two")],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert [loss for loss in json.loads(outputs[0]) if loss is not None] == pytest.approx(alone, rel=1e-9)


def test_commands(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(sentences(400)))
    sizes = [
        "--model.embedding-size",
        "16",
        "--model.hidden-size",
        "24",
        "--model.chunk-size",
        "4",
        "--train.epochs",
        "1",
    ]
    done = onlstm("train", "text.txt", "--recipe", "tiny", *sizes, "--out", "run", "--device", "cuda", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "on cuda:0" in done.out
    for words in (["score", "run"], ["parse", "run"], ["eval", "run", "text.txt"], ["generate", "run", "the"]):
        assert onlstm(*words, "--device", "cuda", input="the cat sees a dog\n", cwd=tmp_path).code == 0
    done = onlstm("bench", "--device", "cuda", "--shapes", "logic-64", "--seconds", "1", "--json")
    assert done.code == 0, done.err
    assert [row["device"] for row in json.loads(done.out)["rows"]] == ["cuda:0", "cuda:0"]
