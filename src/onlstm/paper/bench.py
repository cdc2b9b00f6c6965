"""`onlstm bench`: the fused ON-LSTM against `nn.LSTM` and against its own eager form, measured in one interleaved run.

A row is a stack of layers, a number of threads, and training (forward + backward) or inference. Nothing is measured
before fused and eager agree on values and gradients at every shape that was asked for. On a GPU `nn.LSTM` is cuDNN's,
with products in float32 as ours are.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from onlstm.errors import UserError, nearest
from onlstm.kernels import build
from onlstm.layer import ONLSTM

CPU = torch.device("cpu")
Kind = Literal["lstm", "fused", "eager"]
Mode = Literal["train", "infer"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A stack of one-direction layers and the batch that goes through it."""

    sizes: tuple[int, ...]
    """Input size, then each layer's hidden size."""
    chunk: int
    batch: int
    steps: int
    train: float
    """Ratio to nn.LSTM to stay under in training."""
    infer: float
    """The same in inference."""

    def flops(self, mode: Mode) -> float:
        """Return the additions and multiplications of one pass; training computes no gradient of the input."""
        gates = [(a, b, 4 * b + 2 * b // self.chunk) for a, b in pairwise(self.sizes)]
        forward = sum(g * (a + b) for a, b, g in gates)
        return 2.0 * self.batch * self.steps * (3 * forward - gates[0][0] * gates[0][2] if mode == "train" else forward)


_LARGE, _MID = (400, 1150, 1150, 400), (256, 512, 512, 256)
SHAPES = {
    "lm-large": Shape(sizes=_LARGE, chunk=10, batch=20, steps=70, train=1.10, infer=1.15),
    "lm-mid": Shape(sizes=_MID, chunk=8, batch=20, steps=70, train=1.00, infer=1.00),
    "logic-64": Shape(sizes=(128, 400), chunk=10, batch=64, steps=30, train=1.00, infer=1.05),
    "logic-256": Shape(sizes=(128, 400), chunk=10, batch=256, steps=20, train=1.00, infer=1.05),
    "parse-large-1": Shape(sizes=_LARGE, chunk=10, batch=1, steps=25, train=1.10, infer=1.15),
    "parse-large-64": Shape(sizes=_LARGE, chunk=10, batch=64, steps=25, train=1.10, infer=1.15),
    "parse-mid-1": Shape(sizes=_MID, chunk=8, batch=1, steps=25, train=1.00, infer=1.00),
    "parse-mid-64": Shape(sizes=_MID, chunk=8, batch=64, steps=25, train=1.00, infer=1.05),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement; milliseconds are medians, ratios medians of neighbouring pairs."""

    shape: str
    mode: Mode
    threads: int
    rounds: int
    milliseconds: float
    lstm_milliseconds: float
    ratio: float
    target: float | None
    """Only a CPU has one."""
    eager_ratio: float
    """How many times slower the eager backend is."""
    gflops: float
    peak_share: float
    """Of what torch.mm reaches at 2048 x 2048 x 2048 with the same threads."""
    device: str = "cpu"

    def __str__(self) -> str:
        target = "–" if self.target is None else f"{self.target:.2f}"
        return (
            f"{self.shape:15} {self.mode:5} {self.threads:7} {self.milliseconds:8.1f} {self.lstm_milliseconds:8.1f} "
            f"{self.ratio:6.3f} {target:>6} {self.eager_ratio:6.1f} {self.gflops:8.1f} {self.peak_share:8.0%}"
        )


HEADER = (
    "Milliseconds of one pass; ratio = ON-LSTM / nn.LSTM (target: at most); eager: times slower; peak: torch.mm\n"
    "shape           mode  threads  ON-LSTM  nn.LSTM  ratio target  eager  GFLOP/s  of peak"
)


def check_request(names: Sequence[str], seconds: float, device: torch.device = CPU) -> None:
    """Raise a `UserError` for what cannot be measured."""
    if unknown := [name for name in names if name not in SHAPES]:
        raise UserError(f"--shapes {unknown[0]}: {nearest(unknown[0], SHAPES, choices=True)}")
    if not 0 <= seconds < 1e6:
        raise UserError(f"seconds {seconds:g}: a number of 0 or more is needed")
    if device.type == "cpu" and not build.load():
        raise UserError("the C++ kernel could not be built, so there is nothing to measure (see the warning above)")


def run(
    names: Sequence[str],
    threads: Sequence[int],
    seconds: float,
    show: Callable[[Row], None],
    device: torch.device = CPU,
) -> list[Row]:
    """Return a row, shown at once, for every number of threads, shape and mode; eager takes longer than `seconds`."""
    for name in names:
        check(name, device=device)
    rows, before = [], torch.get_num_threads()
    for count in threads:
        torch.set_num_threads(count)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # left out, `enabled` is False
            peak = _matmul_gflops(device)
            for name, mode in product(names, get_args(Mode)):
                rows.append(_measure(name, mode, count, seconds, peak, device))
                show(rows[-1])
    torch.set_num_threads(before)
    return rows


def check(name: str, steps: int = 4, device: torch.device = CPU) -> None:
    """Raise unless fused and eager agree at this shape: output, distances and every gradient, to float32 rounding."""
    shape = SHAPES[name]
    torch.manual_seed(0)
    fused, eager = _stack(shape, "fused", device), _stack(shape, "eager", device)
    eager.load_state_dict(fused.state_dict())
    x = torch.randn(steps, shape.batch, shape.sizes[0], device=device)
    results = []
    for stack in (fused, eager):
        leaf = y = x.clone().requires_grad_()
        distances: list[Tensor] = []
        for layer in stack:
            assert isinstance(layer, ONLSTM)
            y, _, d = layer.scan(y)
            distances += [d.forget, d.input]
        (y.square().sum() + sum(d.sum() for d in distances)).backward()
        with torch.no_grad():
            inference = _forward(stack, x)
        results.append([y, *distances, leaf.grad, *(p.grad for p in stack.parameters()), inference])
    for k, (got, want) in enumerate(zip(*results, strict=True)):
        error = (got - want).abs().max() / want.abs().max().clamp(min=1e-3)
        if not error < 1e-4:
            raise RuntimeError(f"{name}: fused and eager differ (result {k}, relative error {error:.1e})")


def training_memory(name: str, device: torch.device = CPU) -> dict[str, float]:
    """Return the peak megabytes that one training step adds to a fresh process, by the kernel's own count (Linux).

    On a CUDA device, what it adds to the memory allocated there.
    """
    megabytes = {}
    kinds: tuple[tuple[str, Kind], ...] = (("onlstm_mb", "fused"), ("lstm_mb", "lstm"))
    for key, kind in kinds:
        if device.type == "cuda":
            megabytes[key] = _peak_on_cuda(name, kind, device)
            continue
        code = f"from onlstm.paper import bench; print(bench._peak_of_step({name!r}, {kind!r}))"
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        megabytes[key] = float(answer.stdout)
    return megabytes | {"ratio": megabytes["onlstm_mb"] / megabytes["lstm_mb"]}


def _measure(name: str, mode: Mode, threads: int, seconds: float, peak: float, device: torch.device) -> Row:
    shape, timed = SHAPES[name], partial(_seconds, device=device)
    x = torch.randn(shape.steps, shape.batch, shape.sizes[0], device=device)
    lstm, fused, eager = (partial(_step, _stack(shape, kind, device), x, mode) for kind in get_args(Kind))
    for work in (lstm, fused) * 2:
        work()
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(pairs) < 5:
        pairs.append((timed(lstm), timed(fused)))
    median = statistics.median(ours for _, ours in pairs)
    gflops = shape.flops(mode) / median / 1e9
    return Row(
        shape=name,
        mode=mode,
        threads=threads,
        rounds=len(pairs),
        milliseconds=median * 1e3,
        lstm_milliseconds=statistics.median(stock for stock, _ in pairs) * 1e3,
        ratio=statistics.median(ours / stock for stock, ours in pairs),
        target=None if device.type != "cpu" else shape.train if mode == "train" else shape.infer,
        eager_ratio=min(timed(eager) for _ in range(2)) / median,
        gflops=gflops,
        peak_share=gflops / peak,
        device=str(device),
    )


def _stack(shape: Shape, kind: Kind, device: torch.device = CPU) -> nn.ModuleList:
    if kind == "lstm":
        return nn.ModuleList(nn.LSTM(a, b, device=device) for a, b in pairwise(shape.sizes))
    chunk: Any = {"chunk_size": shape.chunk, "backend": kind, "device": device}
    return nn.ModuleList(ONLSTM(a, b, **chunk) for a, b in pairwise(shape.sizes))


def _forward(stack: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in stack:
        x, _ = layer(x)
    return x


def _step(stack: nn.ModuleList, x: Tensor, mode: Mode) -> None:
    with torch.set_grad_enabled(mode == "train"):
        y = _forward(stack, x)
        if mode == "train":
            y.sum().backward()


def _seconds(work: Callable[[], object], device: torch.device = CPU) -> float:
    """Return how long it takes until the device, too, has done it."""
    started = time.perf_counter()
    work()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter() - started


def _matmul_gflops(device: torch.device) -> float:
    a = torch.randn(2048, 2048, device=device)
    return 2 * 2048**3 / min(_seconds(lambda: a @ a, device) for _ in range(8)) / 1e9


def _peak_on_cuda(name: str, kind: Kind, device: torch.device) -> float:
    shape = SHAPES[name]
    stack, x = _stack(shape, kind, device), torch.randn(shape.steps, shape.batch, shape.sizes[0], device=device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    _step(stack, x, "train")
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _peak_of_step(name: str, kind: Kind) -> float:
    torch.set_num_threads(1)
    shape, small = SHAPES[name], Shape(sizes=(16, 32), chunk=4, batch=8, steps=8, train=1, infer=1)
    _step(_stack(small, kind), torch.randn(8, 8, 16), "train")  # libraries loaded, kernels built
    stack, x = _stack(shape, kind), torch.randn(shape.steps, shape.batch, shape.sizes[0])
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    _step(stack, x, "train")
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])
