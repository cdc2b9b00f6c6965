"""The frame of a training: steps, epochs, validation, log and checkpoints; what is learnt is a subclass's matter.

A checkpoint, between any two steps, holds all that the next step depends on: a run that was cut off goes on bit for
bit.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onlstm.errors import UserError
from onlstm.train import checkpoint
from onlstm.train.averaging import schedule
from onlstm.train.distributed import World

Listener = Callable[[dict[str, Any]], None]
"""Is told what happens: the records of log.jsonl, and a record {"event": "tick"} after each step."""


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
    """What validation found after each epoch."""
    best: float = math.inf
    best_epoch: int = 0
    lr_factor: float = 1.0
    """What plateaus have made of the learning rate."""
    seconds: float = 0.0
    """Time spent, validation included, over all sittings."""
    log_bytes: int = 0
    """Length of log.jsonl at the checkpoint; what a killed run wrote after it is cut off."""


class Loop(ABC):
    """Trains `model` and keeps its folder up to date: the best weights, a checkpoint, a log.

    `about` is stored in the checkpoint and handed back by `checkpoint.load`.
    """

    model: Any
    config: Any
    """With epochs, lr, schedule, warmup, clip, weight_decay, checkpoint_minutes and log_steps."""
    progress: Any
    """A `Progress`, or more."""
    _optimizer: torch.optim.Optimizer
    _limit = math.inf
    """A loss above it is not sensible."""

    def __init__(
        self,
        model: nn.Module,
        config: Any,
        folder: Path,
        *,
        world: World | None = None,
        listeners: Iterable[Listener] = (),
        about: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.config, self.folder, self.about = model, config, folder, about or {}
        self.world = world or World()
        self.listeners = list(listeners)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._stop = False
        self._saved_at = time.monotonic()

    @property
    @abstractmethod
    def _length(self) -> int:
        """How far the cursor goes in an epoch."""

    @abstractmethod
    def _advance(self) -> tuple[Any, dict[str, float]]:
        """Compute a batch, `_descend`, move the cursor; return what `step` returns, and what to log."""

    @abstractmethod
    def _validate(self) -> float:
        """Return what the weights are worth now."""

    @abstractmethod
    def _turn(self, found: float) -> dict[str, Any]:
        """Begin the next epoch, `found` known of the last; return what to log of that."""

    @abstractmethod
    def _kept(self) -> dict[str, Any]:
        """Return what the checkpoint has to hold besides weights, optimizer and progress. Called in all processes."""

    @abstractmethod
    def _put_back(self, content: dict[str, Any]) -> None:
        """Restore what `_kept` returned."""

    def run(self, epochs: int | None = None) -> bool:
        """Train until `epochs` (default: the configured number) are done; return whether they are: `stop` ends it."""
        target = self.config.epochs if epochs is None else epochs
        while self.progress.epoch < target:
            if not self._finish_epoch():
                return False
        return True

    def stop(self) -> None:
        """Ask for an end after the step at hand, with a checkpoint. May be called from a signal handler."""
        self._stop = True

    def step(self) -> Any:
        """Take one step: a batch forwards and back, and the weights move."""
        began = time.perf_counter()
        out, record = self._advance()
        done = self.progress
        done.step += 1
        done.seconds += time.perf_counter() - began
        log = done.step % self.config.log_steps == 0
        told = {"event": "step" if log else "tick", "epoch": done.epoch + 1, "step": done.step}
        told |= record | {"done": self._share(), "seconds": done.seconds}
        if log:
            self._log(told)
        self._announce(told)
        return out

    def _finish_epoch(self) -> bool:
        """Go to the end of the epoch, validate and save; return False if told to stop on the way."""
        done = self.progress
        while not self._over():
            self.step()
            due = time.monotonic() - self._saved_at > 60 * self.config.checkpoint_minutes
            stop, save = self.world.largest(self._stop, due)
            if stop or save:
                self.save()
            if stop:
                return False
        began = time.perf_counter()
        found = self._validate()
        done.seconds += time.perf_counter() - began
        done.epoch, done.cursor = done.epoch + 1, 0
        record = {"event": "epoch", "epoch": done.epoch, "step": done.step} | self._turn(found)
        record |= {"best_epoch": done.best_epoch, "seconds": done.seconds}
        self._log(record)
        self.save()
        self._announce(record)
        return not self.world.largest(self._stop)[0] or done.epoch == self.config.epochs

    def _over(self) -> bool:
        return bool(self.progress.cursor >= self._length)

    def _share(self) -> float:
        """The share of the training that is done."""
        return float((self.progress.epoch + self.progress.cursor / self._length) / self.config.epochs)

    def _descend(self, objective: Tensor, loss: Tensor, scale: float = 1.0) -> dict[str, float]:
        """Move the weights, `scale` times as far as the schedule says; return loss, gradient norm and learning rate."""
        config = self.config
        self._optimizer.zero_grad()
        objective.backward()
        for p in self._parameters:
            if p.grad is None:  # rare words of an adaptive softmax; other processes may have met some
                p.grad = torch.zeros_like(p)
        self.world.average(p.grad for p in self._parameters if p.grad is not None)
        norm = nn.utils.clip_grad_norm_(self._parameters, config.clip or math.inf).item()
        found = self._checked(loss, norm)
        lr = config.lr * self.progress.lr_factor * schedule(config.schedule, self._share(), config.warmup)
        for group in self._optimizer.param_groups:
            group["lr"] = lr * scale
        self._optimizer.step()
        return {"loss": found, "gradient_norm": norm, "lr": lr}

    def _checked(self, loss: Tensor, norm: float) -> float:
        """Return the loss over all processes, or raise `Diverged`: before the weights have moved."""
        mean = loss.detach().clone()
        self.world.average([mean])
        found = mean.item()
        if math.isfinite(found) and math.isfinite(norm) and found < self._limit:
            return found
        done = self.progress
        last = "the last checkpoint is kept" if (self.folder / checkpoint.NAME).exists() else "nothing was saved yet"
        raise Diverged(
            f"step {done.step + 1} (epoch {done.epoch + 1}): loss {found:.4g}, gradient norm {norm:.4g}: training has "
            f"diverged; {last} ({self.folder}); try train.lr below {self.config.lr:g}"
            + ("" if self.config.clip else " or train.clip 0.25")
            + ", with --resume or in a new folder"
        )

    def _log(self, record: dict[str, Any]) -> None:
        """Write a record to log.jsonl."""
        if self.world.rank == 0:
            self.progress.log_bytes = checkpoint.append_log(self.folder, record)

    def _announce(self, record: dict[str, Any]) -> None:
        """Tell it to the listeners; if one fails (its pipe is closed, say), nothing is lost."""
        if self.world.rank == 0:
            try:
                for listener in self.listeners:
                    listener(record)
            except BaseException:
                if self.world.size == 1:  # saving takes all processes
                    self.save()
                raise

    def save(self) -> None:
        """Write a checkpoint (the first process does it)."""
        kept = self._kept()
        if self.world.rank == 0:
            content = {
                "about": self.about,
                "progress": asdict(self.progress),
                "model": self.model.state_dict(),
                "optimizer": self._optimizer.state_dict(),
            }
            checkpoint.save(self.folder, content | kept)
        self._saved_at = time.monotonic()

    def restore(self, content: dict[str, Any]) -> None:
        """Put everything back as `checkpoint.load` found it."""
        self.progress = type(self.progress)(**content["progress"])
        self.model.load_state_dict(content["model"])
        self._put_back(content)
        self._optimizer.load_state_dict(content["optimizer"])
        for group in self._optimizer.param_groups:
            group["weight_decay"] = self.config.weight_decay
        if self.world.rank == 0:
            checkpoint.cut_log(self.folder, self.progress.log_bytes)
