"""Two processes that split the batch train exactly as one, and go on from each other's checkpoints."""

import json
import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
from small_runs import config, ids, model

from onlstm.errors import UserError
from onlstm.train import checkpoint, fit
from onlstm.train.distributed import World
from onlstm.train.language_model import LanguageModelTraining

WORKER = """
import json, os, sys
from pathlib import Path
import torch
from small_runs import config, ids, model
from onlstm.train import checkpoint, fit
from onlstm.train.language_model import LanguageModelTraining
from onlstm.train.distributed import World

torch.set_num_threads(1)
folder, epochs, resume = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resume"
world = World.join()
losses = []
settings, more = config(patience=1, lr=20.0), json.loads(sys.argv[4])
run = LanguageModelTraining(model(**more), ids(60), ids(20, seed=1), settings, folder, seed=7, world=world)
if resume:
    fit.restore(run, checkpoint.load(folder))
fit.fit(run, [lambda record: losses.append(record.numbers.get("loss"))], epochs=epochs)
if world.rank == 0:
    print(json.dumps(losses), flush=True)
world.leave()
os._exit(0)  # now and then gloo's threads abort a process while Python shuts down
"""


def two_processes(folder, epochs, resume="start", **more):
    """Return the losses that two processes print."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    paths = os.pathsep.join(path for path in sys.path if path)
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": paths}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), str(epochs), resume, json.dumps(more)],
            env=os.environ | common | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return json.loads(outputs[0])


def one_process(folder, epochs, resume=False, **more):
    folder.mkdir(exist_ok=True)
    losses = []
    settings = config(patience=1, lr=20.0)
    run = LanguageModelTraining(model(**more), ids(60), ids(20, seed=1), settings, folder, seed=7)
    if resume:
        fit.restore(run, checkpoint.load(folder))
    fit.fit(run, [lambda r: losses.append(r.numbers.get("loss"))], epochs=epochs)
    return [loss for loss in losses if loss is not None]


def test_two_processes_follow_one_with_dropout_averaging_and_resume(tmp_path):
    alone = one_process(tmp_path / "one", 4)
    (tmp_path / "two").mkdir()
    first = [loss for loss in two_processes(tmp_path / "two", 2) if loss is not None]
    shutil.copytree(tmp_path / "two", tmp_path / "then one")
    second = [loss for loss in two_processes(tmp_path / "two", 4, "resume") if loss is not None]
    then_one = one_process(tmp_path / "then one", 4, resume=True)
    assert len(alone) == len(first + second)
    assert np.abs(np.array(first + second) - alone).max() < 1e-10
    assert np.abs(np.array(first + then_one) - alone).max() < 1e-10, "one process goes on where two stopped"
    assert checkpoint.load(tmp_path / "two")["progress"]["averaging_since"] is not None


def test_processes_that_meet_other_rare_words_agree(tmp_path):
    adaptive = {"tied": False, "softmax": "adaptive"}
    (tmp_path / "two").mkdir()
    two = [loss for loss in two_processes(tmp_path / "two", 1, **adaptive) if loss is not None]
    assert np.abs(np.array(two) - one_process(tmp_path / "one", 1, **adaptive)).max() < 1e-10


def test_columns_must_be_shared_out_evenly():
    assert World(1, 2).columns(6) == slice(3, 6)
    with pytest.raises(UserError, match=r"train\.batch_size 7: 2 processes need a multiple of 2"):
        World(0, 2).columns(7)
