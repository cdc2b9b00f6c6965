"""Training in bfloat16 against float32: the recurrent stack and the whole language model, interleaved in one run.

Beside them `nn.LSTM` in float32 and under autocast. Prints ratios beside their targets and writes
results/precision.json; a ratio is the median over neighbouring passes, milliseconds the fastest pass.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from onlstm import files
from onlstm.kernels import build
from onlstm.layer import ONLSTM
from onlstm.paper.bench import SHAPES, _stack, _step
from onlstm.train import fit
from train import training

OUT = Path(__file__).parent / "results" / "precision.json"
TARGETS = {"lm-large": 1.6, "lm-mid": 1.4, "ptb-paper": 1.6}


def stacks(name: str) -> dict[str, Callable[[], object]]:
    """One pass of training through a stack of layers, in each precision."""
    shape = SHAPES[name]
    x = torch.randn(shape.steps, shape.batch, shape.sizes[0])

    def under_autocast(stack: Any) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            _step(stack, x, "train")

    narrow = _stack(shape, "fused")
    for layer in narrow:
        assert isinstance(layer, ONLSTM)
        layer.narrow = True
    return {
        "float32": partial(_step, _stack(shape, "fused"), x, "train"),
        "bfloat16": partial(_step, narrow, x, "train"),
        "autocast": partial(under_autocast, _stack(shape, "fused")),
        "lstm": partial(_step, _stack(shape, "lstm"), x, "train"),
        "lstm_autocast": partial(under_autocast, _stack(shape, "lstm")),
    }


def models() -> dict[str, Callable[[], object]]:
    """One step of training the paper's language model."""
    runs = {
        "float32": training(),
        "bfloat16": training(precision="bfloat16"),
        "lstm": training(rnn="lstm"),
        "lstm_bfloat16": training(rnn="lstm", precision="bfloat16"),
    }
    return {kind: partial(fit.step, run) for kind, run in runs.items()}


def measure(work: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Any]:
    """Milliseconds of each, and how many times as fast as float32 each is."""
    for once in work.values():
        once()
    passes: dict[str, list[float]] = {kind: [] for kind in work}
    for _ in range(rounds):
        for kind, once in work.items():
            started = time.perf_counter()
            once()
            passes[kind].append(time.perf_counter() - started)
    ratios = {k: [a / b for a, b in zip(passes["float32"], each, strict=True)] for k, each in passes.items()}
    return {
        "rounds": rounds,
        "milliseconds": {kind: 1e3 * min(each) for kind, each in passes.items()},
        "times_float32": {kind: statistics.median(each) for kind, each in ratios.items() if kind != "float32"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    if not build.has_bfloat16():
        parser.exit(2, "this processor does not multiply in bfloat16: nothing to measure\n")
    rows = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for name, target in TARGETS.items():
            work = models() if name == "ptb-paper" else stacks(name)
            row = {"name": name, "threads": threads, "target": target} | measure(work, options.rounds)
            rows.append(row)
            times = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in row["times_float32"].items())
            print(f"{name} {threads} threads: float32 {row['milliseconds']['float32']:.0f} ms; times as fast: {times} "
                  f"(target for bfloat16 {target})", flush=True)  # fmt: skip
    files.write(OUT, json.dumps({"rows": rows, "torch": torch.__version__}, indent=1) + "\n")


if __name__ == "__main__":
    main()
