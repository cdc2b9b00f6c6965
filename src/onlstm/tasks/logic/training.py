"""Training of a classifier of pairs; a run that was cut off goes on bit for bit.

What a step depends on is in the checkpoint: weights, optimizer, torch's random generator (dropout) and where the run
is. The order of the pairs follows from the seed and the number of the epoch.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.errors import UserError
from onlstm.settings import at_least
from onlstm.tasks.logic import classifier
from onlstm.tasks.logic.classifier import Classifier, Problems
from onlstm.tasks.logic.formulas import VARIABLES, VOCABULARY
from onlstm.train import checkpoint
from onlstm.train.ntasgd import schedule
from onlstm.train.trainer import Diverged, Listener

_POOL = 64
"""Batches' worth of shuffled pairs that are sorted by length at a time: like lengths together, and still mixed."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train; the defaults are the authors'."""

    epochs: int = 50
    """Passes over the pairs."""
    batch_size: int = 128
    """Pairs of a step."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    schedule: Literal["plateau", "constant", "cosine", "one-cycle"] = "plateau"
    """Of the learning rate: plateau halves it when validation accuracy stalls; cosine and one-cycle decay to zero."""
    patience: int = 2
    """Epochs without improvement that plateau lets pass."""
    warmup: float = 0.02
    """Share of the training in which cosine and one-cycle rise."""
    rename: bool = False
    """Swap the names of the variables at random, batch by batch: what holds of a and b holds of c and d."""
    beta1: float = 0.9
    """Adam's memory of gradients."""
    eps: float = 1e-9
    """Adam's smallest divisor."""
    weight_decay: float = 1.2e-6
    """Of all weights."""
    clip: float = 1.0
    """Largest global norm of the gradient; 0: any."""
    checkpoint_minutes: float = 5.0
    """Time between two checkpoints within an epoch."""
    log_steps: int = 200
    """Steps between two records of progress."""

    def __post_init__(self) -> None:
        at_least(self, "train.", epochs=1, batch_size=1, log_steps=1, patience=0, clip=0, weight_decay=0, eps=0)
        at_least(self, "train.", checkpoint_minutes=0)
        if not 0 < self.lr < math.inf:
            raise UserError(f"train.lr {self.lr}: a number above 0 is needed")
        for name in ("warmup", "beta1"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"train.{name} {getattr(self, name)}: from 0 to less than 1 is needed")


@dataclass
class Progress:
    """Where a run is."""

    epoch: int = 0
    """Epochs finished."""
    step: int = 0
    cursor: int = 0
    """Batches of this epoch that are done."""
    pairs: int = 0
    """Of this epoch, as are the next three."""
    words: int = 0
    loss_sum: float = 0.0
    right: int = 0
    history: list[float] = field(default_factory=list)
    """Validation accuracy in % after each epoch."""
    best: float = -math.inf
    best_epoch: int = 0
    waited: int = 0
    """Epochs since the best one or the last halving."""
    lr_factor: float = 1.0
    """What plateaus have made of the learning rate."""
    seconds: float = 0.0
    """Time spent, validation included, over all sittings."""
    log_bytes: int = 0
    """Length of log.jsonl at the checkpoint."""


class Trainer:
    """Trains `model`, whose weights were drawn after `torch.manual_seed`, and keeps its folder up to date.

    There are the best weights by validation accuracy, a checkpoint with `about` in it, and a log.
    """

    def __init__(
        self,
        model: Classifier,
        train: Problems,
        valid: Problems,
        config: TrainConfig,
        folder: Path,
        *,
        seed: int = 0,
        listeners: Iterable[Listener] = (),
        about: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.config, self.folder, self.about = model, config, folder, about or {}
        self.progress = Progress()
        self.listeners = list(listeners)
        self._train, self._valid, self._seed = train, valid, seed
        options: Any = {"lr": config.lr, "betas": (config.beta1, 0.999), "eps": config.eps, "fused": True}
        self._optimizer = torch.optim.Adam(model.parameters(), weight_decay=config.weight_decay, **options)
        self._order = self._batches()
        self._stop = False
        self._saved_at = time.monotonic()

    def run(self) -> bool:
        """Train until all epochs are done; return whether they are: `stop` ends it."""
        while self.progress.epoch < self.config.epochs:
            if not self._finish_epoch():
                return False
        return True

    def stop(self) -> None:
        """Ask for an end after the step at hand, with a checkpoint. May be called from a signal handler."""
        self._stop = True

    def step(self) -> None:
        """Take one step: a batch forwards and back, and the weights move."""
        began = time.perf_counter()
        done, rows = self.progress, self._order[self.progress.cursor]
        batch = self._train.batch(rows)
        if self.config.rename:
            batch = batch._replace(formulas=self._renamed(batch.formulas))
        self.model.train()
        logits = self.model(batch)
        loss = F.cross_entropy(logits, batch.labels)
        self._optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf).item()
        if not math.isfinite(loss.item() + norm):
            raise Diverged(
                f"step {done.step + 1}: loss {loss.item():.4g}, gradient norm {norm:.4g}: training has diverged; "
                f"try --train.lr below {self.config.lr:g} in a new folder"
            )
        lr = self.config.lr * done.lr_factor * schedule(self.config.schedule, self._share(), self.config.warmup)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        done.step += 1
        done.cursor += 1
        done.pairs += len(rows)
        done.words += int(self._train.lengths[self._train.sides[:, rows]].sum())
        done.loss_sum += loss.item() * len(rows)
        done.right += int((logits.argmax(-1) == batch.labels).sum())
        done.seconds += time.perf_counter() - began
        self._tell(norm, lr)

    def _finish_epoch(self) -> bool:
        """Go to the end of the epoch, validate and save; return False if told to stop on the way."""
        done = self.progress
        while done.cursor < len(self._order):
            self.step()
            if self._stop or time.monotonic() - self._saved_at > 60 * self.config.checkpoint_minutes:
                self.save()
            if self._stop:
                return False
        began = time.perf_counter()
        accuracy = 100 * float(self.model.right(self._valid).mean())
        done.seconds += time.perf_counter() - began
        record = {"event": "epoch", "epoch": done.epoch + 1, "step": done.step} | self._means()
        record["lr"] = self._optimizer.param_groups[0]["lr"]
        done.epoch, done.cursor, done.pairs, done.words, done.loss_sum, done.right = done.epoch + 1, 0, 0, 0, 0.0, 0
        self._react(accuracy)
        self._order = self._batches()
        record |= {"valid_accuracy": accuracy, "best_epoch": done.best_epoch, "seconds": done.seconds}
        done.log_bytes = checkpoint.append_log(self.folder, record)
        self.save()
        self._announce(record)
        return not self._stop or done.epoch == self.config.epochs

    def _react(self, accuracy: float) -> None:
        """Take note of a validation accuracy: save the best weights, lower the learning rate on a plateau."""
        done = self.progress
        done.history.append(accuracy)
        done.waited += 1
        if accuracy > done.best:
            done.best, done.best_epoch, done.waited = accuracy, done.epoch, 0
            classifier.save_weights(self.model, self.folder)
        elif self.config.schedule == "plateau" and done.waited > self.config.patience:
            done.lr_factor /= 2
            done.waited = 0

    def _batches(self) -> list[np.ndarray]:
        """Return the pairs of the epoch at hand, batch by batch."""
        rng = np.random.default_rng([self._seed, self.progress.epoch])
        order, lengths, size = rng.permutation(len(self._train)), self._train.longest(), self.config.batch_size
        found = []
        for first in range(0, len(order), _POOL * size):
            pool = order[first : first + _POOL * size]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            found += [pool[start : start + size] for start in range(0, len(pool), size)]
        return [found[k] for k in rng.permutation(len(found))]

    def _renamed(self, formulas: list[Tensor]) -> list[Tensor]:
        """Return formulas with their variables swapped, another way in each step."""
        rng = np.random.default_rng([self._seed, self.progress.epoch, self.progress.cursor])
        places = np.arange(len(VOCABULARY))
        variables = [VOCABULARY.index(name) for name in VARIABLES]
        places[variables] = rng.permutation(variables)
        table = torch.from_numpy(places)
        return [table[ids] for ids in formulas]

    def _share(self) -> float:
        """The share of the training that is done."""
        return (self.progress.epoch + self.progress.cursor / len(self._order)) / self.config.epochs

    def _means(self) -> dict[str, float]:
        done = self.progress
        return {"train_loss": done.loss_sum / done.pairs, "train_accuracy": 100 * done.right / done.pairs}

    def _tell(self, norm: float, lr: float) -> None:
        done = self.progress
        record = {"event": "tick", "epoch": done.epoch + 1, "step": done.step} | self._means()
        record |= {"done": self._share(), "gradient_norm": norm, "lr": lr, "words": done.words, "seconds": done.seconds}
        if done.step % self.config.log_steps == 0:
            record["event"] = "step"
            done.log_bytes = checkpoint.append_log(self.folder, record)
        self._announce(record)

    def _announce(self, record: dict[str, Any]) -> None:
        """Tell it to the listeners; if one fails (its pipe is closed, say), nothing is lost."""
        try:
            for listener in self.listeners:
                listener(record)
        except BaseException:
            self.save()
            raise

    def save(self) -> None:
        """Write a checkpoint."""
        content = {
            "about": self.about,
            "progress": asdict(self.progress),
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        checkpoint.save(self.folder, content)
        self._saved_at = time.monotonic()

    def restore(self, content: dict[str, Any]) -> None:
        """Put everything back as `checkpoint.load` found it."""
        self.progress = Progress(**content["progress"])
        self.model.load_state_dict(content["model"])
        self._optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random"])
        self._order = self._batches()
        checkpoint.cut_log(self.folder, self.progress.log_bytes)
