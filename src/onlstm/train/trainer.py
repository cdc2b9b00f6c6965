"""The trainer: windows of one long text, state carried from one to the next, and a cursor that can be put back.

Everything that influences a step is in `Trainer`'s state: weights, optimizer, averages, two random generators, the
carried state, the cursor, the history. `checkpoint.save` stores it between any two steps, so a run that was cut off
goes on bit for bit. Many processes (`World`) hold columns of the same batch and do the same arithmetic.
"""

import math
import random
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onlstm.errors import UserError
from onlstm.lm import store
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel, Step
from onlstm.lm.score import evaluate
from onlstm.lm.stream import Columns
from onlstm.train import checkpoint
from onlstm.train.config import Progress, TrainConfig
from onlstm.train.ntasgd import Averages, CompatAverages, schedule, stalled, swapped
from onlstm.train.world import World

Listener = Callable[[dict[str, Any]], None]
"""Is told what happens: the records of log.jsonl, and a record {"event": "tick"} after each step."""


class Diverged(UserError):
    """The loss or the gradient is no longer a sensible number."""


class Trainer:
    """Trains `model` on ids and keeps its folder up to date: the best weights, a checkpoint, a log.

    `about` is stored in the checkpoint and handed back by `checkpoint.load`.
    """

    def __init__(
        self,
        model: LanguageModel,
        train: np.ndarray,
        valid: np.ndarray,
        config: TrainConfig,
        folder: Path,
        *,
        seed: int = 0,
        world: World | None = None,
        listeners: Iterable[Listener] = (),
        about: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.config, self.folder, self.about = model, config, folder, about or {}
        self.world = world or World()
        self._kept = self.world.columns(config.batch_size)
        self._columns = Columns(train, config.batch_size, self._kept)
        self._valid = valid
        texts = {"training": (train, config.batch_size), "validation": (valid, config.valid_batch_size)}
        for what, (ids, batch) in texts.items():
            if len(ids) < 2 * batch:
                raise UserError(
                    f"the {what} text has {len(ids)} tokens; {batch} columns need at least {2 * batch}: "
                    "give more text, or a smaller train.batch_size or train.valid_batch_size"
                )
        self.progress = Progress()
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = self._new_optimizer()
        self._averages: Averages | CompatAverages | None = None
        self._state: Any = None
        self._lengths = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._masks = Masks(self._generator, config.batch_size, self._kept.start)
        self.listeners = list(listeners)
        self._stop = False
        self._saved_at = time.monotonic()

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

    def step(self) -> Step:
        """Take one step: a window forwards and back, and the weights move."""
        began = time.perf_counter()
        config, done = self.config, self.progress
        length = self._draw_length()
        ids, words = self._columns.window(done.cursor, length)
        self.model.train()
        out = self.model.loss(ids, words, self._state, self._masks)
        self._optimizer.zero_grad()
        (out.nll + config.alpha * out.activation + config.beta * out.slowness).backward()
        for p in self._parameters:
            if p.grad is None:  # rare words of an adaptive softmax; other processes may have met some
                p.grad = torch.zeros_like(p)
        self.world.average(p.grad for p in self._parameters if p.grad is not None)
        norm = nn.utils.clip_grad_norm_(self._parameters, config.clip or math.inf).item()
        loss = self._checked(out.nll, norm)
        lr = config.lr * done.lr_factor * schedule(config.schedule, self._share(), config.warmup)
        for group in self._optimizer.param_groups:
            group["lr"] = lr * (length / config.bptt if config.vary_bptt else 1)
        self._optimizer.step()
        if self._averages:
            self._averages.update()
        self._state = tuple((h.detach(), c.detach()) for h, c in out.state)
        done.step += 1
        done.cursor += len(ids)
        done.loss_sum += loss * len(ids)
        done.length_sum += len(ids)
        done.seconds += time.perf_counter() - began
        self._tell(loss, norm, lr)
        return out

    def _finish_epoch(self) -> bool:
        """Go to the end of the epoch, validate and save; return False if told to stop on the way."""
        done = self.progress
        while done.cursor < max(1, self._columns.length - 2):  # the original, too, leaves a last single word out
            self.step()
            due = time.monotonic() - self._saved_at > 60 * self.config.checkpoint_minutes
            stop, save = self.world.largest(self._stop, due)
            if stop or save:
                self.save()
            if stop:
                return False
        began = time.perf_counter()
        loss = self._validate()
        done.seconds += time.perf_counter() - began
        train_loss = done.loss_sum / done.length_sum
        done.epoch, done.cursor, done.loss_sum, done.length_sum = done.epoch + 1, 0, 0.0, 0
        self._state = None
        self._react(loss)
        record = {
            "event": "epoch",
            "epoch": done.epoch,
            "step": done.step,
            "train_loss": train_loss,
            "valid_loss": loss,
            "valid_perplexity": math.exp(min(loss, 700)),
            "best_epoch": done.best_epoch,
            "averaging": done.averaging_since is not None,
            "seconds": done.seconds,
        }
        self._log(record)
        self.save()
        self._announce(record)
        return not self.world.largest(self._stop)[0] or done.epoch == self.config.epochs

    def _validate(self) -> float:
        """Return the mean loss on the validation text; if it is the best yet, save the (averaged) weights."""
        loss = 0.0
        if self.world.rank == 0:
            with self.averaged():
                loss = evaluate(self.model, self._valid, batch=self.config.valid_batch_size).nll
                if loss < self.progress.best:
                    store.save_weights(self.model, self.folder)
        return float(self.world.from_first(loss))

    def averaged(self) -> AbstractContextManager[None]:
        """Give the model its averaged weights for a while, if there are any."""
        return swapped(self._parameters, self._averages.means() if self._averages else None)

    def _react(self, loss: float) -> None:
        """Take note of a validation loss: best so far, plateau, averaging, fine-tuning."""
        done, config = self.progress, self.config
        if loss < done.best:
            done.best, done.best_epoch = loss, done.epoch
        elif config.schedule == "plateau":
            done.lr_factor /= 4
        restart = done.averaging_since is not None and done.epoch == config.finetune_epoch
        triggered = done.averaging_since is None and stalled(done.history, loss, config.patience)
        if config.averaging != "none" and (restart or triggered):
            self.start_averaging()
        done.history.append(loss)

    def start_averaging(self) -> None:
        """Begin to average the weights, from the next step on."""
        self.progress.averaging_since = self.progress.epoch
        self._averages = self._new_averages()

    def _new_averages(self) -> Averages | CompatAverages:
        if self.config.averaging == "asgd-compat":
            self._optimizer = torch.optim.ASGD(
                self._parameters, lr=self.config.lr, t0=0, lambd=0.0, weight_decay=self.config.weight_decay
            )
            return CompatAverages(self._parameters, self._optimizer)
        return Averages(self._parameters)

    def _new_optimizer(self) -> torch.optim.Optimizer:
        same: Any = {"lr": self.config.lr, "weight_decay": self.config.weight_decay, "foreach": True}
        if self.config.optimizer == "sgd":
            return torch.optim.SGD(self._parameters, **same)
        return torch.optim.AdamW(self._parameters, betas=(0.9, 0.99), **same)

    def _draw_length(self) -> int:
        if not self.config.vary_bptt:
            return self.config.bptt
        mean = self.config.bptt if self._lengths.random() < 0.95 else self.config.bptt / 2
        return max(5, int(self._lengths.gauss(mean, 5)))

    def _share(self) -> float:
        """The share of the training that is done."""
        return (self.progress.epoch + self.progress.cursor / self._columns.length) / self.config.epochs

    def _checked(self, nll: Tensor, norm: float) -> float:
        """Return the loss over all processes, or raise `Diverged`: before the weights have moved."""
        mean = nll.detach().clone()
        self.world.average([mean])
        loss = mean.item()
        limit = 4 * math.log(self.model.config.vocab_size) + 10
        if math.isfinite(loss) and math.isfinite(norm) and loss < limit:
            return loss
        done = self.progress
        last = "the last checkpoint is kept" if (self.folder / checkpoint.NAME).exists() else "nothing was saved yet"
        raise Diverged(
            f"step {done.step + 1} (epoch {done.epoch + 1}): loss {loss:.4g}, gradient norm {norm:.4g}: training has "
            f"diverged; {last} ({self.folder}); try train.lr below {self.config.lr:g}"
            + ("" if self.config.clip else " or train.clip 0.25")
            + ", with --resume or in a new folder"
        )

    def _tell(self, loss: float, norm: float, lr: float) -> None:
        done = self.progress
        record = {
            "event": "tick",
            "epoch": done.epoch + 1,
            "step": done.step,
            "done": self._share(),
            "loss": loss,
            "mean_loss": done.loss_sum / done.length_sum,
            "gradient_norm": norm,
            "lr": lr,
            "words": done.length_sum * self.config.batch_size,
            "seconds": done.seconds,
        }
        if done.step % self.config.log_steps == 0:
            record["event"] = "step"
            self._log(record)
        self._announce(record)

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
        state = self._state and [tuple(self.world.gather(part) for part in layer) for layer in self._state]
        if self.world.rank == 0:
            content = {
                "about": self.about,
                "progress": asdict(self.progress),
                "model": self.model.state_dict(),
                "optimizer": self._optimizer.state_dict(),
                "averages": self._averages and self._averages.state_dict(),
                "state": state,
                "lengths": self._lengths.getstate(),
                "generator": self._generator.get_state(),
            }
            checkpoint.save(self.folder, content)
        self._saved_at = time.monotonic()

    def restore(self, content: dict[str, Any]) -> None:
        """Put everything back as `checkpoint.load` found it."""
        self.progress = Progress(**content["progress"])
        self.model.load_state_dict(content["model"])
        if content["averages"] is not None:
            self._averages = self._new_averages()
            self._averages.load_state_dict(content["averages"])
        self._optimizer.load_state_dict(content["optimizer"])
        for group in self._optimizer.param_groups:
            group["weight_decay"] = self.config.weight_decay
        state = content["state"]
        self._state = state and tuple(tuple(part[:, self._kept].contiguous() for part in layer) for layer in state)
        version, words, gauss = content["lengths"]
        self._lengths.setstate((version, tuple(words), gauss))
        self._generator.set_state(content["generator"])
        if self.world.rank == 0:
            checkpoint.cut_log(self.folder, self.progress.log_bytes)
