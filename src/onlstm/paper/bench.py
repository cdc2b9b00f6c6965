"""`onlstm bench`: the fused ON-LSTM against `nn.LSTM` and against its own eager form, measured in one interleaved run.

A row is a stack of layers, a number of threads, and training (forward + backward) or inference. Nothing is reported
before fused and eager agree on values and gradients at every shape asked for.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path

import torch
from torch import Tensor, nn

from onlstm.errors import UserError
from onlstm.kernels import build
from onlstm.layer import ONLSTM


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

    def flops(self, mode: str) -> float:
        """Multiplications and additions of one pass; training computes no gradient of the input."""
        gates = [(a, b, 4 * b + 2 * b // self.chunk) for a, b in pairwise(self.sizes)]
        forward = sum(g * (a + b) for a, b, g in gates)
        all_ = 3 * forward - gates[0][0] * gates[0][2] if mode == "train" else forward
        return 2.0 * self.batch * self.steps * all_


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
    mode: str
    threads: int
    rounds: int
    milliseconds: float
    lstm_milliseconds: float
    ratio: float
    target: float
    eager_ratio: float
    """How many times slower the eager backend is."""
    gflops: float
    peak_share: float
    """Of what torch.mm reaches at 2048 x 2048 x 2048 with the same threads."""

    def __str__(self) -> str:
        return (
            f"{self.shape:15} {self.mode:5} {self.threads:7} {self.milliseconds:8.1f} {self.lstm_milliseconds:8.1f} "
            f"{self.ratio:6.3f} {self.target:6.2f} {self.eager_ratio:6.1f} {self.gflops:8.1f} {self.peak_share:8.0%}"
        )


HEADER = (
    "Milliseconds of one pass; ratio = ON-LSTM / nn.LSTM (target: at most); eager: times slower; peak: torch.mm\n"
    "shape           mode  threads  ON-LSTM  nn.LSTM  ratio target  eager  GFLOP/s  of peak"
)


def check_request(names: list[str], threads: list[int]) -> None:
    """Raise a `UserError` for shapes or threads that cannot be measured."""
    for name in names:
        if name not in SHAPES:
            raise UserError(f"--shapes {name}: no such shape; there are {', '.join(SHAPES)}")
    for count in threads:
        if count < 1:
            raise UserError(f"--threads {count}: at least 1 is needed")
    if not build.load():
        raise UserError("the C++ kernel is not to be had here, so there is nothing to measure (see the warning above)")


def run(
    names: list[str], threads: list[int], seconds: float, show: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Return a row for every shape, mode and number of threads; `seconds` go to each, less eager."""
    for name in names:
        check(name)
    rows = []
    for count in threads:
        with _threads(count):
            peak = _sgemm_peak()
            for name, mode in product(names, ("train", "infer")):
                rows.append(_measure(name, mode, count, seconds, peak))
                show(rows[-1])
    return rows


def check(name: str, steps: int = 4) -> None:
    """Raise unless fused and eager agree at this shape: output, distances and every gradient, to float32 rounding."""
    shape = SHAPES[name]
    torch.manual_seed(0)
    fused = _stack(shape, "fused")
    eager = _stack(shape, "eager")
    eager.load_state_dict(fused.state_dict())
    x = torch.randn(steps, shape.batch, shape.sizes[0])
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
            raise RuntimeError(
                f"{name}: fused and eager differ (result {k}, relative error {error:.1e}); not reporting"
            )


def training_memory(name: str, kind: str) -> float:
    """Return the peak megabytes that one training step adds to a fresh process, by the kernel's own count (Linux)."""
    code = f"from onlstm.paper import bench; print(bench._peak_of_step({name!r}, {kind!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def report(rows: list[Row], memory: dict[str, tuple[float, float]]) -> dict[str, object]:
    """Return everything measured, ready for JSON."""
    kept = {
        name: {"onlstm_mb": ours, "lstm_mb": stock, "ratio": ours / stock} for name, (ours, stock) in memory.items()
    }
    return {"rows": [asdict(row) for row in rows], "training_memory": kept, "torch": torch.__version__}


def _measure(name: str, mode: str, threads: int, seconds: float, peak: float) -> Row:
    shape = SHAPES[name]
    x = torch.randn(shape.steps, shape.batch, shape.sizes[0])
    stacks = _lstm(shape), _stack(shape, "fused"), _stack(shape, "eager")
    work = _train if mode == "train" else _infer
    for stack in stacks[:2] * 2:
        work(stack, x)
    lstm: list[float] = []
    ours: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ours) < 5:
        lstm.append(_seconds(lambda: work(stacks[0], x)))
        ours.append(_seconds(lambda: work(stacks[1], x)))
    eager = min(_seconds(lambda: work(stacks[2], x)) for _ in range(2))
    took = statistics.median(ours)
    gflops = shape.flops(mode) / took / 1e9
    return Row(
        shape=name,
        mode=mode,
        threads=threads,
        rounds=len(ours),
        milliseconds=took * 1e3,
        lstm_milliseconds=statistics.median(lstm) * 1e3,
        ratio=statistics.median(a / b for a, b in zip(ours, lstm, strict=True)),
        target=shape.train if mode == "train" else shape.infer,
        eager_ratio=eager / took,
        gflops=gflops,
        peak_share=gflops / peak,
    )


def _stack(shape: Shape, backend: str) -> nn.ModuleList:
    return nn.ModuleList(ONLSTM(a, b, chunk_size=shape.chunk, backend=backend) for a, b in pairwise(shape.sizes))  # type: ignore[arg-type]


def _lstm(shape: Shape) -> nn.ModuleList:
    return nn.ModuleList(nn.LSTM(a, b) for a, b in pairwise(shape.sizes))


def _forward(stack: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in stack:
        x, _ = layer(x)
    return x


def _train(stack: nn.ModuleList, x: Tensor) -> None:
    _forward(stack, x).sum().backward()


def _infer(stack: nn.ModuleList, x: Tensor) -> None:
    with torch.no_grad():
        _forward(stack, x)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _sgemm_peak() -> float:
    """Return the best GFLOP/s of torch.mm."""
    a = torch.randn(2048, 2048)
    return 2 * 2048**3 / min(_seconds(lambda: a @ a) for _ in range(8)) / 1e9


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _peak_of_step(name: str, kind: str) -> float:
    torch.set_num_threads(1)
    shape = SHAPES[name]
    make = _lstm if kind == "lstm" else (lambda shape: _stack(shape, "fused"))
    small = Shape(sizes=(16, 32), chunk=4, batch=8, steps=8, train=1, infer=1)
    _train(make(small), torch.randn(8, 8, 16))  # libraries loaded, kernels built
    stack, x = make(shape), torch.randn(shape.steps, shape.batch, shape.sizes[0])
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    _train(stack, x)
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])
