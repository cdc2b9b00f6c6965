"""How training looks: a live bar on a terminal, plain lines anywhere else; TensorBoard on request."""

import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from onlstm.errors import UserError


class TrainingProgress:
    """A listener of the trainer that writes to `stream`."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=10),
            TextColumn("{task.percentage:.1f} % {task.fields[speed]:,.0f} tokens/s {task.fields[loss]} left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=1.0, epoch="", speed=0, loss="")
        self._rate = _Rate()

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)

    def __call__(self, record: dict[str, Any]) -> None:
        if record["event"] == "epoch":
            self.say(
                f"epoch {record['epoch']:3}  train {math.exp(record['train_loss']):8.2f}  "
                f"valid {record['valid_perplexity']:8.2f} perplexity  {record['seconds']:7.0f} s"
                + ("  averaged" if record["averaging"] else "")
                + ("" if record["best_epoch"] == record["epoch"] else f"  (best: epoch {record['best_epoch']})")
            )
            return
        speed = self._rate(record)
        loss, perplexity = record["mean_loss"], math.exp(min(record["mean_loss"], 99))
        shown = f"loss {loss:.3f} ppl {perplexity:.1f}"
        self._bar.update(self._task, completed=record["done"], epoch=record["epoch"], speed=speed, loss=shown)
        if record["event"] == "step" and self._bar.disable:
            left = record["seconds"] * (1 / record["done"] - 1) if record["done"] else math.inf
            self.say(
                f"epoch {record['epoch']:3}  step {record['step']:6}  loss {loss:.3f}, perplexity {perplexity:.1f}  "
                f"{speed:,.0f} tokens/s  lr {record['lr']:.3g}  gradient {record['gradient_norm']:.3g}  "
                f"{left / 60:.0f} min left"
            )


class _Rate:
    """Tokens per second since the step before, smoothed."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._smooth = 0.0

    def __call__(self, record: dict[str, Any]) -> float:
        words, now = record["words"], time.perf_counter()
        if self._last and words > self._last[0]:
            rate = (words - self._last[0]) / (now - self._last[1])
            self._smooth = 0.95 * self._smooth + 0.05 * rate if self._smooth else rate
        self._last = words, now
        return self._smooth


def tensorboard(folder: Path) -> Any:
    """Return a listener that writes scalars for TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("--tensorboard needs the extra `log`: pip install 'onlstm[log]'") from None
    writer: Any = None

    def write(record: dict[str, Any]) -> None:
        nonlocal writer
        if record["event"] == "tick":
            return
        writer = writer or SummaryWriter(folder / "tensorboard")
        for name, value in record.items():
            if isinstance(value, float | int) and name not in ("step", "epoch"):
                writer.add_scalar(f"{record['event']}/{name}", value, record["step"])
        writer.flush()

    return write
