"""Training of a classifier of pairs.

The order of the pairs follows from the seed and the number of the epoch; dropout, from torch's random generator, which
is in the checkpoint too.
"""

import math
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
from onlstm.train import fit
from onlstm.train.checkpoint import StateDict
from onlstm.train.config import FitConfig

_POOL = 64
"""Batches' worth of shuffled pairs that are sorted by length at a time: like lengths together, and still mixed."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(FitConfig):
    """How to train a classifier; the defaults are the authors'."""

    epochs: int = 50
    batch_size: int = 128
    lr: float = 1e-3
    schedule: Literal["plateau", "constant", "cosine", "one-cycle"] = "plateau"
    patience: int = 2
    """Epochs without improvement after which plateau halves the learning rate."""
    warmup: float = 0.02
    clip: float = 1.0
    checkpoint_minutes: float = 5.0
    rename: bool = False
    """Swap the names of the variables at random, batch by batch: what holds of a and b holds of c and d."""
    beta1: float = 0.9
    """Adam's memory of gradients."""
    eps: float = 1e-9
    """Adam's smallest divisor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "train.", patience=0, eps=0)
        if not 0 <= self.beta1 < 1:
            raise UserError(f"train.beta1 {self.beta1}: from 0 to less than 1 is needed")


@dataclass
class Progress(fit.Progress):
    """Where the training of a classifier is. The cursor counts batches, loss_sum is weighted by their pairs."""

    best: float = -math.inf
    pairs: int = 0
    """Of this epoch, as are the next two."""
    words: int = 0
    right: int = 0
    waited: int = 0
    """Epochs since the best one or the last halving."""


class ClassifierTraining(fit.Training):
    """The training of `model`, whose weights were drawn after `torch.manual_seed`, to its best validation accuracy."""

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
        about: dict[str, int] | None = None,
    ) -> None:
        super().__init__(model, config, folder, Progress())
        self.about = about or {}
        self._train, self._valid, self._seed = train, valid, seed
        options: Any = {"lr": config.lr, "betas": (config.beta1, 0.999), "eps": config.eps, "fused": True}
        self.optimizer = torch.optim.Adam(self.parameters, weight_decay=config.weight_decay, **options)
        self._order = self._batches()
        self.length = self.end = len(self._order)

    def forward(self) -> fit.Batch:
        progress, rows = self.progress, self._order[self.progress.cursor]
        batch = self._train.batch(rows)
        if self.config.rename:
            batch = batch._replace(formulas=self._renamed(batch.formulas))
        self.model.train()
        logits = self.model(batch)
        objective = F.cross_entropy(logits, batch.labels)
        loss = objective.item()
        progress.cursor += 1
        progress.pairs += len(rows)
        progress.words += int(self._train.lengths[self._train.sides[:, rows]].sum())
        progress.loss_sum += loss * len(rows)
        progress.right += int((logits.argmax(-1) == batch.labels).sum())
        return fit.Batch(objective=objective, loss=loss, numbers=self._means() | {"words": progress.words})

    def end_epoch(self) -> dict[str, float]:
        accuracy = 100 * float(self.model.right(self._valid).mean())
        progress, numbers = self.progress, self._means()
        progress.pairs, progress.words, progress.loss_sum, progress.right = 0, 0, 0.0, 0
        self._react(accuracy)
        self._order = self._batches()
        return numbers | {"lr": self.optimizer.param_groups[0]["lr"], "valid_accuracy": accuracy}

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

    def state(self) -> StateDict:
        return {"random": torch.get_rng_state()}

    def load_state(self, content: StateDict) -> None:
        torch.set_rng_state(content["random"])
        self._order = self._batches()
