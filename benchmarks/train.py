"""Training the paper's language model: ON-LSTM against LSTM through the same code, a step's time and its memory.

Also the model in the box, its softmax in bfloat16 against float32, and what lies between the softmax's products. Prints
ratios beside their targets and writes results/train.json. Steps of the two that are compared alternate in one run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from onlstm import files, recipe
from onlstm.kernels import softmax
from onlstm.lm.model import LanguageModel
from onlstm.train import fit
from onlstm.train.language_model import LanguageModelTraining

OUT = Path(__file__).parent / "results" / "train.json"
WORDS = 10_000
GEMMS = ("onlstm_cpu::scan", "onlstm_cpu::scan_backward", "aten::mm", "aten::addmm", "aten::addmm_")


def training(name: str = "ptb-paper", precision: Any = "float32", **model: object) -> LanguageModelTraining:
    """A training with the settings of a recipe and invented text."""
    chosen = recipe.Recipe.of(recipe.read(name))
    torch.manual_seed(0)
    words = chosen.text.vocab_size or WORDS
    ids = np.random.default_rng(0).integers(0, words, 200_000).astype(np.uint16)
    network = LanguageModel(replace(chosen.model, **model, vocab_size=words))
    train = replace(chosen.train, vary_bptt=False, precision=precision)
    return LanguageModelTraining(network, ids, ids, train, Path(tempfile.mkdtemp()))


def seconds(run: LanguageModelTraining) -> float:
    started = time.perf_counter()
    fit.step(run)
    return time.perf_counter() - started


def compare(steps: int, **runs: LanguageModelTraining) -> dict[str, float]:
    """Tokens per second of two, and the ratio (median over neighbouring steps)."""
    for run in runs.values():
        fit.step(run)
    pairs = [[seconds(run) for run in runs.values()] for _ in range(steps)]
    tokens = {name: run.config.batch_size * run.config.bptt for name, run in runs.items()}
    speeds = {
        f"{name}_tokens_per_second": tokens[name] / statistics.median(each)
        for name, each in zip(runs, zip(*pairs, strict=True), strict=True)
    }
    return speeds | {"ratio": statistics.median(b / a for a, b in pairs), "steps": steps}


def share(steps: int) -> dict[str, object]:
    """How much of a step's processor time the recurrent stack and the softmax's matrix products take."""
    run = training()
    fit.step(run)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        started = time.perf_counter()
        for _ in range(steps):
            fit.step(run)
        took = time.perf_counter() - started
    ops = {event.key: event.self_cpu_time_total / 1e6 for event in found.key_averages()}
    top = sorted(ops.items(), key=lambda item: -item[1])[:12]
    return {"share": sum(ops.get(name, 0.0) for name in GEMMS) / took, "top": {k: v / took for k, v in top}}


def logits(rounds: int) -> dict[str, float]:
    """How many times as fast as PyTorch the kernel turns 419 rows of logits into their gradient (processor time)."""
    words, times = torch.randint(WORDS, (419,)), {}
    for dtype in (torch.float32, torch.bfloat16):
        passes: dict[str, list[float]] = {"kernel": [], "reference": []}
        for _ in range(rounds):
            for name, function in (("kernel", softmax.cross_entropy_), ("reference", softmax.reference)):
                rows = torch.randn(419, WORDS, dtype=dtype)
                started = time.process_time()
                function(rows, words, 1.0)
                passes[name].append(time.process_time() - started)
        pairs = zip(passes["reference"], passes["kernel"], strict=True)
        times[str(dtype).removeprefix("torch.")] = statistics.median(a / b for a, b in pairs)
    return times


def memory() -> float:
    """Peak resident gigabytes of a process that takes three steps."""
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); import train\n"
        "run = train.training()\n"
        "for _ in range(3): train.fit.step(run)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    rows = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        row: dict[str, Any] = (
            {"threads": threads} | compare(options.steps, onlstm=training(), lstm=training(rnn="lstm")) | share(4)
        )
        box = {name: training("en-small", softmax=name) for name in ("bfloat16", "full")}
        row["softmax"], row["logits"] = compare(5 * options.steps, **box), logits(5 * options.steps)
        rows.append(row)
        print(
            "{threads} threads: ON-LSTM {onlstm_tokens_per_second:,.0f} tokens/s, LSTM {lstm_tokens_per_second:,.0f}, "
            "ratio {ratio:.3f} (target 0.90); recurrent stack and products {share:.1%} of a step (target 90 %)".format(
                **row
            ),
            flush=True,
        )
        speed, times = row["softmax"]["bfloat16_tokens_per_second"], row["softmax"]["ratio"]
        print(
            f"  en-small: {speed:,.0f} tokens/s, {times:.3f} times as many as with its softmax in float32", flush=True
        )
        each = ", ".join(f"{dtype} {times:.1f}" for dtype, times in row["logits"].items())
        print(f"  from logits to their gradient, times as fast as PyTorch: {each}", flush=True)
    peak = memory()
    print(f"peak memory of a ptb-paper process {peak:.2f} GB (target 2)")
    files.write(OUT, json.dumps({"rows": rows, "peak_gb": peak, "torch": torch.__version__}, indent=1) + "\n")


if __name__ == "__main__":
    main()
