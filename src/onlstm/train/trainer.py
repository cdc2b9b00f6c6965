"""The trainer of language models: windows of one long text, state carried from one to the next.

Two random generators, the carried state and the averages are in the checkpoint too. Many processes (`World`) hold
columns of the same batch and do the same arithmetic.
"""

import math
import random
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onlstm.errors import UserError
from onlstm.lm import folder as store
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel, Step
from onlstm.lm.score import evaluate
from onlstm.lm.stream import Columns
from onlstm.train import loop
from onlstm.train.averaging import Averages, CompatAverages, stalled, swapped
from onlstm.train.config import TrainConfig
from onlstm.train.distributed import World


@dataclass
class Progress(loop.Progress):
    """Where the training of a language model is. The cursor is a place in the columns."""

    length_sum: int = 0
    """Of this epoch's windows, by which its loss is weighted."""
    averaging_since: int | None = None
    """The epoch after which averaging began."""


class Trainer(loop.Loop):
    """Trains `model` on ids and keeps its folder up to date: the best weights, a checkpoint, a log."""

    model: LanguageModel
    config: TrainConfig
    progress: Progress

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
        listeners: Iterable[loop.Listener] = (),
        about: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(model, config, folder, world=world, listeners=listeners, about=about)
        self._own = self.world.columns(config.batch_size)
        self._columns = Columns(train, config.batch_size, self._own)
        self._valid = valid
        texts = {"training": (train, config.batch_size), "validation": (valid, config.valid_batch_size)}
        for what, (ids, batch) in texts.items():
            if len(ids) < 2 * batch:
                raise UserError(
                    f"the {what} text has {len(ids)} tokens; {batch} columns need at least {2 * batch}: "
                    "give more text, or a smaller train.batch_size or train.valid_batch_size"
                )
        self.progress = Progress()
        self._optimizer = self._new_optimizer()
        self._averages: Averages | CompatAverages | None = None
        self._limit = 4 * math.log(model.config.vocab_size) + 10
        self._state: Any = None
        self._lengths = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._masks = Masks(self._generator, config.batch_size, self._own.start)

    @property
    def _length(self) -> int:
        return self._columns.length

    def _over(self) -> bool:
        return self.progress.cursor >= max(1, self._length - 2)  # the original, too, leaves a last single word out

    def _advance(self) -> tuple[Step, dict[str, float]]:
        config, done = self.config, self.progress
        length = self._draw_length()
        ids, words = self._columns.window(done.cursor, length)
        self.model.train()
        out = self.model.loss(ids, words, self._state, self._masks)
        objective = out.nll + config.alpha * out.activation + config.beta * out.slowness
        record = self._descend(objective, out.nll, length / config.bptt if config.vary_bptt else 1)
        if self._averages:
            self._averages.update()
        self._state = tuple((h.detach(), c.detach()) for h, c in out.state)
        done.cursor += len(ids)
        done.loss_sum += record["loss"] * len(ids)
        done.length_sum += len(ids)
        record |= {"mean_loss": done.loss_sum / done.length_sum, "words": done.length_sum * config.batch_size}
        return out, record

    def _validate(self) -> float:
        """Return the mean loss on the validation text; if it is the best yet, save the (averaged) weights."""
        loss = 0.0
        if self.world.rank == 0:
            with self.averaged():
                loss = evaluate(self.model, self._valid, batch=self.config.valid_batch_size).nll
                if loss < self.progress.best:
                    store.save_weights(self.model, self.folder)
        return float(self.world.from_first(loss))

    def _turn(self, found: float) -> dict[str, Any]:
        done = self.progress
        train_loss = done.loss_sum / done.length_sum
        done.loss_sum, done.length_sum, self._state = 0.0, 0, None
        self._react(found)
        return {
            "train_loss": train_loss,
            "valid_loss": found,
            "valid_perplexity": math.exp(min(found, 700)),
            "averaging": done.averaging_since is not None,
        }

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

    def _kept(self) -> dict[str, Any]:
        return {
            "averages": self._averages and self._averages.state_dict(),
            "state": self._state and [tuple(self.world.gather(part) for part in layer) for layer in self._state],
            "lengths": self._lengths.getstate(),
            "generator": self._generator.get_state(),
        }

    def _put_back(self, content: dict[str, Any]) -> None:
        if content["averages"] is not None:
            self._averages = self._new_averages()
            self._averages.load_state_dict(content["averages"])
        state = content["state"]
        self._state = state and tuple(tuple(part[:, self._own].contiguous() for part in layer) for layer in state)
        version, words, gauss = content["lengths"]
        self._lengths.setstate((version, tuple(words), gauss))
        self._generator.set_state(content["generator"])
