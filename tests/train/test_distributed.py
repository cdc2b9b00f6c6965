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
world = World.join()
for folder, epochs, resume, more in json.loads(sys.argv[1]):
    losses, settings = [], config(patience=1, lr=20.0)
    run = LanguageModelTraining(model(**more), ids(60), ids(20, seed=1), settings, Path(folder), seed=7, world=world)
    if resume:
        fit.restore(run, checkpoint.load(Path(folder)))
    fit.fit(run, [lambda record: losses.append(record.numbers.get("loss"))], epochs=epochs)
    if world.rank == 0:
        print(json.dumps([loss for loss in losses if loss is not None]), flush=True)
world.leave()
os._exit(0)  # now and then gloo's threads abort a process while Python shuts down
"""


def two_processes(*jobs):
    """Return the losses of each job, which is a folder, epochs, whether to resume and settings, in two processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    paths = os.pathsep.join(path for path in sys.path if path)
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": paths}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, json.dumps(jobs)],
            env=os.environ | common | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return [json.loads(line) for line in outputs[0].splitlines()]


def one_process(folder, epochs, resume=False, **more):
    folder.mkdir(exist_ok=True)
    losses = []
    settings = config(patience=1, lr=20.0)
    run = LanguageModelTraining(model(**more), ids(60), ids(20, seed=1), settings, folder, seed=7)
    if resume:
        fit.restore(run, checkpoint.load(folder))
    fit.fit(run, [lambda r: losses.append(r.numbers.get("loss"))], epochs=epochs)
    return [loss for loss in losses if loss is not None]


ADAPTIVE = {"tied": False, "softmax": "adaptive"}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """What two processes began: the folder and losses of two epochs, and the losses of one with rare words apart."""
    folders = [tmp_path_factory.mktemp(name) for name in ("two", "adaptive")]
    losses = two_processes([str(folders[0]), 2, False, {}], [str(folders[1]), 1, False, ADAPTIVE])
    return folders[0], *losses


def test_two_processes_follow_one_with_dropout_averaging_and_resume(begun, tmp_path):
    folder, first, _ = begun
    alone = one_process(tmp_path / "one", 4)
    two, then_one = (shutil.copytree(folder, tmp_path / name) for name in ("two", "then one"))
    (second,) = two_processes([str(two), 4, True, {}])
    then_one = one_process(then_one, 4, resume=True)
    assert len(alone) == len(first + second)
    assert np.abs(np.array(first + second) - alone).max() < 1e-10
    assert np.abs(np.array(first + then_one) - alone).max() < 1e-10, "one process goes on where two stopped"
    assert checkpoint.load(two)["progress"]["averaging_since"] is not None


def test_processes_that_meet_other_rare_words_agree(begun, tmp_path):
    *_, two = begun
    assert np.abs(np.array(two) - one_process(tmp_path / "one", 1, **ADAPTIVE)).max() < 1e-10


def test_columns_must_be_shared_out_evenly():
    assert World(1, 2).columns(6) == slice(3, 6)
    with pytest.raises(UserError, match=r"train\.batch_size 7: 2 processes need a multiple of 2"):
        World(0, 2).columns(7)
