"""Products of matrices by the kernel (`onlstm.kernels.factor`) against torch's, at the sizes of the encoders of logic.

Both in turn, in one run, from float32 to float32; the first product of a size, for which torch compiles in bfloat16,
does not count. Prints ratios of times (above 1: the kernel is faster), with weights that are rearranged for one product
and with weights that were before; writes them and GFLOP/s to results/factor.json.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from onlstm import files
from onlstm.kernels.factor import Factor, multiply

ROOT = Path(__file__).resolve().parents[1]
SIZES = {
    "RRNet, a step of a token": (100, 528, 1600),
    "RRNet, the gradient of its weights": (1600, 2600, 528),
    "RL-SPINN, nodes of a depth": (200, 800, 2000),
    "Gumbel Tree-LSTM, few rows": (16, 256, 640),
    "Ordered Memory, keys of all slots": (1200, 128, 128),
    "Ordered Memory, the gradient of its weights": (512, 20480, 512),
}
"""Rows, sum over, columns."""


def seconds(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median processor time of each way, all in turn."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for k in range(repeats + 1):
        for name, way in ways.items():
            before = time.process_time()
            way()
            if k:
                spent[name].append(time.process_time() - before)
    return {name: sorted(times)[repeats // 2] for name, times in spent.items()}


def measure(M: int, K: int, N: int, *, narrow: bool, repeats: int) -> dict[str, float]:
    """Return the ratio and the speeds for a weight that is rearranged for one product, and for one that was before."""
    A, B = torch.randn(M, K), torch.randn(N, K).T
    known = Factor(B, narrow=narrow)

    def torchs() -> torch.Tensor:
        return (A.bfloat16() @ B.bfloat16()).float() if narrow else A @ B

    exact = [(x.bfloat16() if narrow else x).double() for x in (A, B)]
    expected = exact[0] @ exact[1]
    if not (difference := float((known.times(A) - expected).norm() / expected.norm())) < 1e-5:
        raise SystemExit(f"the kernel is off by {difference:.1e}; not reporting")
    ways = {"torch": torchs, "kernel": lambda: multiply(A, B, narrow=narrow), "repeated": lambda: known.times(A)}
    spent, work = seconds(ways, repeats), 2 * M * K * N / 1e9
    rates = {name: work / time for name, time in spent.items()}
    return {"faster": spent["torch"] / spent["kernel"], "repeated": spent["torch"] / spent["repeated"]} | {
        f"{name}_gflops": rate for name, rate in rates.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "factor.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{'times as fast as torch: alone, repeated':48} float32      bfloat16")
    for name, size in SIZES.items():
        rows[name] = {
            precision: measure(*size, narrow=precision == "bfloat16", repeats=options.repeats)
            for precision in ("float32", "bfloat16")
        }
        ratios = "   ".join(f"{row['faster']:.2f}, {row['repeated']:.2f}" for row in rows[name].values())
        print(f"{name + ' ' + ' × '.join(map(str, size)):66} {ratios}")
    machine = {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count()}
    content = {"threads": options.threads, "sizes": SIZES, "rows": rows, "machine": machine}
    files.write(options.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
