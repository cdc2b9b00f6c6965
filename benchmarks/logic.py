"""An epoch of logical inference at the paper's setting, against the straightforward way and an LSTM.

The straightforward way: the eager cell, pairs in random order, both sides padded to the longest formula of the batch.
Takes a tenth of the training pairs; steps of all alternate in one run. Prints ratios beside their targets, by wall and
by processor time (the one to trust on a busy machine), and writes results/logic.json. With --precision bfloat16 every
encoder is trained in both precisions, and what it gains is there too.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from onlstm import files, memory
from onlstm.layer import ONLSTM
from onlstm.paper.logic.classifier import Batch, Classifier, Problems
from onlstm.paper.logic.config import ModelConfig, Source, TrainConfig
from onlstm.paper.logic.data import Data
from onlstm.paper.logic.encoders import ENCODERS, Recurrent
from onlstm.paper.logic.training import ClassifierTraining
from onlstm.train import fit

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "logic" / "logic.zip"
TENTH, BATCH = 10, 128
FASTER, LSTM, OTHERS = 5.0, 1.1, 5.0
"""Targets: times the straightforward way; at most so much of the LSTM's time, the ON-LSTM and the other encoders."""
ROUNDED = ", bfloat16"
SIZES = {"ordered-memory": {"hidden_size": 128}, "gumbel-tree-lstm": {"hidden_size": 128}}
"""Of the encoders whose results are for fewer neurons."""


class Padded(Recurrent):
    """The ON-LSTM encoder as one writes it without a library."""

    def __init__(self) -> None:
        super().__init__(ModelConfig())
        assert isinstance(self.rnn, ONLSTM)
        self.rnn.backend = "eager"

    def forward(self, formulas: Sequence[Tensor]) -> Tensor:
        lengths = torch.tensor([len(ids) for ids in formulas])
        output, _ = self.rnn(self.dropout(self.embedding(pad_sequence(list(formulas)))))
        last: Tensor = output[lengths - 1, torch.arange(len(formulas))]
        return last


def straightforward(problems: Problems) -> tuple[Classifier, Callable[[np.ndarray], Batch], Callable[[], None]]:
    """Return the model, its batches and what takes a step."""
    torch.manual_seed(0)
    model = Classifier(ModelConfig())
    model.encoder = Padded()
    config = TrainConfig()
    optimizer = torch.optim.Adam(model.parameters(), config.lr, eps=config.eps, weight_decay=config.weight_decay)
    order = iter(np.random.default_rng(0).permutation(len(problems)))

    def batch(rows: np.ndarray) -> Batch:
        formulas = [problems.formulas[k] for k in problems.sides[:, rows].flat]
        sides = torch.arange(len(formulas)).view(2, -1)
        return Batch(formulas, sides, torch.from_numpy(problems.labels[rows]))

    def step() -> None:
        some = batch(np.array([row for row, _ in zip(order, range(BATCH), strict=False)]))
        optimizer.zero_grad()
        F.cross_entropy(model(some), some.labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()

    return model, batch, step


def ours(encoder: str, problems: Problems, precision: Literal["float32", "bfloat16"] = "float32") -> ClassifierTraining:
    torch.manual_seed(0)
    model = Classifier(ModelConfig(encoder=encoder, **SIZES.get(encoder, {})))
    return ClassifierTraining(model, problems, problems, TrainConfig(precision=precision), Path(tempfile.mkdtemp()))


def rounded(spent: Mapping[str, np.ndarray]) -> dict[str, dict[str, dict[str, float]]]:
    """Print and return what encoders gain by bfloat16, and their times of the LSTM's in float32."""
    ratios = {}
    for name in (name for name in ENCODERS if name + ROUNDED in spent):
        own = spent[name + ROUNDED]
        faster, share = spent[name] / own, own / spent["lstm"]
        print(f"{name}: bfloat16 is {faster[0]:.2f} times as fast, {faster[1]:.2f} by cpu; it takes", end=" ")
        print(f"{share[0]:.2f} times the LSTM's time in float32 (target {OTHERS:g}), {share[1]:.2f} by cpu")
        pairs = {"faster": faster, "to_lstm_in_float32": share}
        ratios[name] = {key: {"wall": wall, "processor": cpu} for key, (wall, cpu) in pairs.items()}
    return ratios


def check(ours: Classifier, plain: Classifier, batch: Callable[[np.ndarray], Batch], problems: Problems) -> None:
    """Refuse to compare what does not compute the same."""
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    plain.load_state_dict(ours.state_dict())
    ours.eval(), plain.eval()
    rows = np.arange(BATCH)
    with torch.no_grad():
        difference = (ours(problems.batch(rows)) - plain(batch(rows))).abs().max().item()
    if not difference < 1e-4:
        raise SystemExit(f"the two ways differ by {difference:.1e}; not reporting")
    plain.load_state_dict(before)
    ours.train(), plain.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, help="instead of a tenth of an epoch")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--encoder", nargs="+", choices=list(ENCODERS), default=list(ENCODERS), help="beside the LSTMs")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "logic.json")
    options = parser.parse_args()
    if not DATA.is_file():
        raise SystemExit(f"{DATA}: not there; the benchmark takes the published pairs")
    torch.set_num_threads(options.threads)
    memory.keep()  # as the command does
    data = Data.load(Source(path=str(DATA)))
    whole = len(data.train) + len(data.valid)
    problems = Problems.of((data.train + data.valid)[::TENTH])
    plain, batch, step = straightforward(problems)
    names = dict.fromkeys(["onlstm", "lstm", *options.encoder])
    trainings = {name: ours(name, problems) for name in names}
    if options.precision == "bfloat16":
        trainings |= {name + ROUNDED: ours(name, problems, "bfloat16") for name in names}
    check(trainings["onlstm"].model, plain, batch, problems)
    ways = {"straightforward": step} | {name: partial(fit.step, training) for name, training in trainings.items()}
    spent = {name: np.zeros(2) for name in ways}
    for k in range(steps := options.steps or len(problems) // BATCH):
        for name, way in ways.items():
            before = np.array([time.perf_counter(), time.process_time()])
            way()
            spent[name] += np.array([time.perf_counter(), time.process_time()]) - before
        if k % 10 == 9:
            print(f"{k + 1} of {steps} steps", flush=True)
    epoch = {name: (total / steps * whole / BATCH).tolist() for name, total in spent.items()}
    faster, share = spent["straightforward"] / spent["onlstm"], spent["onlstm"] / spent["lstm"]
    for name, (wall, cpu) in epoch.items():
        print(f"{name:26} {wall:6.0f} s an epoch of {whole:,} pairs, processor time {cpu:6.0f} s")
    print(
        f"ON-LSTM {faster[0]:.2f} times as fast as the straightforward way (target {FASTER:g}), {faster[1]:.2f} by cpu"
    )
    print(f"ON-LSTM takes {share[0]:.2f} of the LSTM's time (target {LSTM:g}), {share[1]:.2f} by cpu")
    others = {name: spent[name] / spent["lstm"] for name in names if name not in ("onlstm", "lstm")}
    for name, (wall, cpu) in others.items():
        print(f"{name} takes {wall:.2f} times the LSTM's time (target {OTHERS:g}), {cpu:.2f} by cpu")
    found = {
        "pairs": whole,
        "steps": steps,
        "batch_size": BATCH,
        "threads": options.threads,
        "epoch_seconds": {name: wall for name, (wall, _) in epoch.items()},
        "epoch_processor_seconds": {name: cpu for name, (_, cpu) in epoch.items()},
        "faster": {"wall": faster[0], "processor": faster[1], "target": FASTER},
        "onlstm_to_lstm": {"wall": share[0], "processor": share[1], "target": LSTM},
        "others_to_lstm": {n: {"wall": wall, "processor": cpu, "target": OTHERS} for n, (wall, cpu) in others.items()},
        "bfloat16": rounded(spent),
        "machine": {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count()},
    }
    files.write(options.out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
