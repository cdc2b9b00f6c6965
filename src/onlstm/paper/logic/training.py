"""Training of a classifier of pairs.

The order of the pairs follows from the seed and the number of the epoch; dropout, from torch's random generator, which
is in the checkpoint too.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from onlstm.errors import UserError, at_least
from onlstm.paper.logic import classifier
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.formulas import VARIABLES, VOCABULARY
from onlstm.train import loop

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
class Progress(loop.Progress):
    """Where the training of a classifier is. The cursor counts batches, loss_sum is weighted by their pairs."""

    best: float = -math.inf
    pairs: int = 0
    """Of this epoch, as are the next two."""
    words: int = 0
    right: int = 0
    waited: int = 0
    """Epochs since the best one or the last halving."""


class Trainer(loop.Loop):
    """Trains `model`, whose weights were drawn after `torch.manual_seed`, to the best accuracy in validation."""

    model: Classifier
    config: TrainConfig
    progress: Progress

    def __init__(
        self,
        model: Classifier,
        train: Problems,
        valid: Problems,
        config: TrainConfig,
        folder: Path,
        *,
        seed: int = 0,
        listeners: Iterable[loop.Listener] = (),
        about: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(model, config, folder, listeners=listeners, about=about)
        self.progress = Progress()
        self._train, self._valid, self._seed = train, valid, seed
        options: Any = {"lr": config.lr, "betas": (config.beta1, 0.999), "eps": config.eps, "fused": True}
        self._optimizer = torch.optim.Adam(self._parameters, weight_decay=config.weight_decay, **options)
        self._order = self._batches()

    @property
    def _length(self) -> int:
        return len(self._order)

    def _advance(self) -> tuple[None, dict[str, float]]:
        done, rows = self.progress, self._order[self.progress.cursor]
        batch = self._train.batch(rows)
        if self.config.rename:
            batch = batch._replace(formulas=self._renamed(batch.formulas))
        self.model.train()
        logits = self.model(batch)
        loss = F.cross_entropy(logits, batch.labels)
        record = self._descend(loss, loss)
        done.cursor += 1
        done.pairs += len(rows)
        done.words += int(self._train.lengths[self._train.sides[:, rows]].sum())
        done.loss_sum += record["loss"] * len(rows)
        done.right += int((logits.argmax(-1) == batch.labels).sum())
        return None, record | self._means() | {"words": done.words}

    def _validate(self) -> float:
        """Return the accuracy on the validation pairs, in %."""
        return 100 * float(self.model.right(self._valid).mean())

    def _turn(self, found: float) -> dict[str, Any]:
        done, record = self.progress, self._means()
        done.pairs, done.words, done.loss_sum, done.right = 0, 0, 0.0, 0
        self._react(found)
        self._order = self._batches()
        return record | {"lr": self._optimizer.param_groups[0]["lr"], "valid_accuracy": found}

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

    def _means(self) -> dict[str, float]:
        done = self.progress
        return {"train_loss": done.loss_sum / done.pairs, "train_accuracy": 100 * done.right / done.pairs}

    def _kept(self) -> dict[str, Any]:
        return {"random": torch.get_rng_state()}

    def _put_back(self, content: dict[str, Any]) -> None:
        torch.set_rng_state(content["random"])
        self._order = self._batches()
