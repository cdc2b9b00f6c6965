"""Training, to read from top to bottom: `step` moves the weights once, `fit` takes steps until the epochs are done.

What is trained, a `Training`, knows how to compute a batch and what follows an epoch: that of a language model is in
language_model.py. A checkpoint, between any two steps, holds all that the next step depends on: a run that was cut off
continues bit for bit.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from onlstm.device import failures
from onlstm.errors import UserError
from onlstm.train import checkpoint
from onlstm.train.averaging import Averages, schedule
from onlstm.train.checkpoint import StateDict
from onlstm.train.config import FitConfig
from onlstm.train.distributed import World
from onlstm.train.stop import Stop as Stop


@dataclass(frozen=True, kw_only=True)
class Record:
    """What listeners get after each step and epoch, and log.jsonl after each epoch and every `log_steps` steps."""

    event: Literal["tick", "step", "epoch"]
    """tick: a step that is not logged."""
    epoch: int
    step: int
    numbers: Mapping[str, float]
    seconds: float
    """Time spent on training so far."""


Listener = Callable[[Record], None]


class Diverged(UserError):
    """The loss or the gradient is no longer a sensible number."""


@dataclass
class Progress:
    """Where a run is; all of it goes into the checkpoint."""

    epoch: int = 0
    """Epochs finished."""
    step: int = 0
    cursor: int = 0
    """Place in the epoch where the next step starts."""
    loss_sum: float = 0.0
    """Of this epoch."""
    history: list[float] = field(default_factory=list)
    """The result of validation after each epoch."""
    best: float = math.inf
    best_epoch: int = 0
    lr_factor: float = 1.0
    """What plateaus have made of the learning rate."""
    seconds: float = 0.0
    """Time spent, validation included, over all sittings."""
    log_bytes: int = 0
    """Length of log.jsonl at the checkpoint; what a killed run wrote after it is cut off."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The result of a forward pass."""

    objective: Tensor
    """What to take the gradient of."""
    figures: Sequence[Tensor]
    """For `Training.count`, still on the device: the loss, over all processes, and what else is counted."""
    weight: int = 1
    """How much the loss counts in the epoch's mean."""
    lr_scale: float = 1.0
    """Factor of the learning rate for this batch alone."""
    numbers: Mapping[str, float]
    """More to log."""


class _Figures(NamedTuple):
    """What a step has computed, before it is fetched from the device."""

    step: int
    weight: int
    values: Tensor
    """Those of its batch, and the norm of the gradient."""


class Training(ABC):
    """What `fit` trains: a model, its optimizer and its data. `about` is stored in the checkpoint too.

    It happens on the device of the model.
    """

    optimizer: torch.optim.Optimizer
    averages: Averages | None = None
    loss_limit = math.inf
    """A loss above it counts as divergence."""
    length: int
    end: int
    """Of an epoch: the cursor reaches `end`, and `length` if nothing is left out."""

    def __init__(self, model: nn.Module, config: FitConfig, folder: Path, progress: Progress) -> None:
        self.model, self.config, self.folder, self.progress = model, config, folder, progress
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.world, self.about = World(), StateDict()
        self.pending: list[_Figures] = []
        self.fetched: dict[str, float] = {}

    @abstractmethod
    def forward(self) -> Batch:
        """Compute the batch at the cursor, and move that."""

    def count(self, weight: int, loss: float, *more: float) -> None:
        """Take in the figures of a batch."""
        self.progress.loss_sum += loss * weight

    @abstractmethod
    def means(self) -> dict[str, float]:
        """Return what to log of the figures of this epoch."""

    @abstractmethod
    def end_epoch(self) -> dict[str, float]:
        """Validate, save the best weights, prepare the next epoch; return what to log."""

    @abstractmethod
    def state(self) -> StateDict:
        """Return what else the checkpoint has to hold. Called in all processes."""

    @abstractmethod
    def load_state(self, content: StateDict) -> None:
        """Restore what `state` returned."""

    @property
    def done(self) -> float:
        """The share of the training that is done."""
        return (self.progress.epoch + self.progress.cursor / self.length) / self.config.passes

    @property
    def size(self) -> str:
        """The settings that the memory of a step grows with."""
        return f"train.batch_size {self.config.batch_size}"

    @property
    def where(self) -> str:
        """How far it is: step 132 of 5,600 (2 %); if windows vary in length, of about as many."""
        step, done = self.progress.step, self.done
        return f"step {step:,} of {round(step / done):,} ({100 * done:.0f} %)" if done else f"step {step:,}"


def step(training: Training) -> dict[str, float]:
    """Take one step: a batch forwards and back, and the weights move. Return what to log."""
    config, progress, parameters = training.config, training.progress, training.parameters
    started = time.perf_counter()
    lr = config.lr * progress.lr_factor * schedule(config.schedule, training.done, config.warmup)
    if config.decay_epoch:
        lr *= config.decay ** max(0, progress.epoch + 1 - config.decay_epoch)

    batch = training.forward()
    training.optimizer.zero_grad()
    batch.objective.backward()
    for p in parameters:
        if p.grad is None:  # rare words of an adaptive softmax; other processes may have met some
            p.grad = torch.zeros_like(p)
    training.world.average([p.grad for p in parameters if p.grad is not None])
    norm = nn.utils.clip_grad_norm_(parameters, config.clip or math.inf)
    values = torch.stack([*batch.figures, norm])
    training.pending.append(_Figures(progress.step + 1, batch.weight, values))
    if training.device.type == "cpu":  # a GPU does not wait, and notices divergence when figures are logged
        settle(training)

    for group in training.optimizer.param_groups:
        group["lr"] = lr * batch.lr_scale
    training.optimizer.step()
    if training.averages:
        training.averages.update()
    progress.step += 1
    if not training.fetched or progress.step % config.log_steps == 0:
        settle(training)
    progress.seconds += time.perf_counter() - started
    return {**training.fetched, "lr": lr, **batch.numbers, "done": training.done}


def settle(training: Training) -> None:
    """Fetch the figures of all steps since the last time; raise `Diverged` if one of them makes no sense."""
    pending, training.pending = training.pending, []
    if not pending:
        return
    rows = torch.stack([figures.values for figures in pending]).tolist()
    for (step, weight, _), (loss, *more, norm) in zip(pending, rows, strict=True):
        _check(training, step, loss, norm)
        training.count(weight, loss, *more)
    training.fetched = {"loss": loss, "gradient_norm": norm, **training.means()}


def fit(
    training: Training, listeners: Sequence[Listener] = (), *, epochs: int | None = None, stop: Stop | None = None
) -> bool:
    """Train until `epochs` (default: the configured number) are done; return whether they are, or `stop` ended it."""
    config, progress = training.config, training.progress
    stop, saved = stop or Stop(), time.monotonic()
    stop.fitting = True
    with failures(training.size):
        while progress.epoch < (config.epochs if epochs is None else epochs):
            share = config.last_epoch if progress.epoch + 1 == config.epochs else 1
            over = progress.cursor >= share * training.end
            numbers = _end_epoch(training) if over else step(training)
            _report(training, over, numbers, listeners)
            due = over or time.monotonic() - saved > 60 * config.checkpoint_minutes
            ended, due = training.world.any(stop.requested, due)
            if ended or due:
                save(training)
                saved = time.monotonic()
            if ended and progress.epoch < config.epochs:
                return False
    stop.fitting = False
    return True


def _end_epoch(training: Training) -> dict[str, float]:
    progress, started = training.progress, time.perf_counter()
    settle(training)
    progress.epoch, progress.cursor = progress.epoch + 1, 0
    numbers = training.end_epoch()
    progress.seconds += time.perf_counter() - started
    return numbers | {"best_epoch": progress.best_epoch}


def save(training: Training) -> None:
    """Write a checkpoint (the first process does it)."""
    settle(training)
    content = {
        "about": training.about,
        "progress": asdict(training.progress),
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        **training.state(),
    }
    if training.world.rank == 0:
        checkpoint.save(training.folder, content)


def restore(training: Training, content: StateDict) -> None:
    """Put everything back as `checkpoint.load` returned it."""
    training.progress = type(training.progress)(**content["progress"])
    training.model.load_state_dict(content["model"])
    training.load_state(content)
    group = training.optimizer.param_groups[0]
    own = {key: value for key, value in group.items() if key in ("weight_decay", "foreach", "fused")}
    training.optimizer.load_state_dict(content["optimizer"])
    training.optimizer.param_groups[0].update(own)  # the last sitting's may differ
    if training.world.rank == 0:
        checkpoint.cut_log(training.folder, training.progress.log_bytes)


def _check(training: Training, step: int, loss: float, norm: float) -> None:
    """Raise `Diverged` (on a CPU before the weights have moved) if loss or gradient make no sense."""
    if math.isfinite(loss) and math.isfinite(norm) and loss < training.loss_limit:
        return
    progress, config, folder = training.progress, training.config, training.folder
    advice = f"try train.lr below {config.lr:g}{'' if config.clip else ' or train.clip 0.25'}"
    last = "the last checkpoint is kept" if (folder / checkpoint.NAME).exists() else "nothing was saved yet"
    raise Diverged(
        f"step {step} (epoch {progress.epoch + 1}): loss {loss:.4g}, gradient norm {norm:.4g}: training "
        f"has diverged; {last} ({folder}); {advice}"
    )


def _report(training: Training, over: bool, numbers: dict[str, float], listeners: Sequence[Listener]) -> None:
    """Log a step or an epoch and tell the listeners; if one fails (its pipe is closed, say), nothing is lost."""
    if training.world.rank:
        return
    progress = training.progress
    record = Record(
        event="epoch" if over else "tick" if progress.step % training.config.log_steps else "step",
        epoch=progress.epoch if over else progress.epoch + 1,
        step=progress.step,
        numbers=numbers,
        seconds=progress.seconds,
    )
    if record.event != "tick":
        line = {key: value for key, value in vars(record).items() if key != "numbers"} | numbers
        progress.log_bytes = checkpoint.append_log(training.folder, line)
    try:
        for listener in listeners:
            listener(record)
    except BaseException:
        if training.world.size == 1:  # saving takes all processes
            save(training)
        raise
