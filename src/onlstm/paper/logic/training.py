"""The training of a classifier of pairs.

The order of the pairs follows from the seed and the number of the epoch; dropout, from torch's random generator, which
is in the checkpoint too.
"""

import math
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from onlstm import files
from onlstm.folder import WEIGHTS
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import TrainConfig
from onlstm.paper.logic.formulas import VARIABLES, VOCABULARY
from onlstm.train import fit
from onlstm.train.averaging import swapped
from onlstm.train.checkpoint import StateDict
from onlstm.train.precision import round_products

_FIRST = 2
"""Operators of the pairs that come first."""
_POOL = 64
"""Batches' worth of shuffled pairs that are sorted by length at a time: like lengths together, and still mixed."""


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
        self, model: Classifier, train: Problems, valid: Problems, config: TrainConfig, folder: Path, *, seed: int = 0
    ) -> None:
        super().__init__(model, config, folder, Progress())
        if config.precision == "bfloat16":
            round_products(model)
        self._train, self._valid, self._seed = train, valid, seed
        options: Any = {"lr": config.lr, "betas": (config.beta1, 0.999), "eps": config.eps, "fused": True}
        self.optimizer = torch.optim.Adam(self.parameters, weight_decay=config.weight_decay, **options)
        self._ends = deque[list[Tensor]](maxlen=config.average_epochs)  # the weights at the ends of the last epochs
        self._begin_epoch()

    def forward(self) -> fit.Batch:
        progress, rows = self.progress, self._order[self.progress.cursor]
        batch = self._train.batch(rows, self.device)
        if self.config.rename:
            batch = batch._replace(formulas=self._renamed(batch.formulas))
        self.model.train()
        logits, losses = self.model.losses(batch)
        loss = F.cross_entropy(logits.detach(), batch.labels)
        progress.cursor += 1
        progress.pairs += len(rows)
        progress.words += int(self._train.lengths[self._train.sides[:, rows]].sum())
        right = (logits.argmax(-1) == batch.labels).sum()
        return fit.Batch(
            objective=losses.mean(),
            figures=[loss, right],
            weight=len(rows),
            numbers={"words": progress.words},
        )

    def count(self, weight: int, loss: float, *more: float) -> None:
        super().count(weight, loss)
        self.progress.right += int(more[0])

    def end_epoch(self) -> dict[str, float]:
        progress, numbers, means = self.progress, self.means(), None
        progress.pairs, progress.words, progress.loss_sum, progress.right = 0, 0, 0.0, 0
        if self.config.average_epochs > 1:
            self._ends.append([p.detach().clone() for p in self.parameters])
            means = [torch.stack(weights).mean(0) for weights in zip(*self._ends, strict=True)]
        with swapped(self.parameters, means):
            accuracy = 100 * float(self.model.right(self._valid).mean())
            self._react(accuracy)
        self._begin_epoch()
        return numbers | {"lr": self.optimizer.param_groups[0]["lr"], "valid_accuracy": accuracy}

    def _react(self, accuracy: float) -> None:
        """Note a validation accuracy: save the best weights, lower the learning rate on a plateau."""
        progress = self.progress
        progress.history.append(accuracy)
        progress.waited += 1
        if accuracy > progress.best:
            progress.best, progress.best_epoch, progress.waited = accuracy, progress.epoch, 0
            weights = {name: value.contiguous() for name, value in self.model.state_dict().items()}
            files.write(self.folder / WEIGHTS, save(weights))
        elif self.config.schedule == "plateau" and progress.waited > self.config.patience:
            progress.lr_factor /= 2
            progress.waited = 0

    def _begin_epoch(self) -> None:
        self._order = self._batches()
        self.length = self.end = len(self._order)

    def _batches(self) -> list[np.ndarray]:
        """Return the pairs of the epoch at hand, batch by batch."""
        rng = np.random.default_rng([self._seed, self.progress.epoch])
        order, lengths, size = rng.permutation(self._rows()), self._train.longest(), self.config.batch_size
        batches = []
        for first in range(0, len(order), _POOL * size):
            pool = order[first : first + _POOL * size]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += [pool[start : start + size] for start in range(0, len(pool), size)]
        return [batches[k] for k in rng.permutation(len(batches))]

    def _rows(self) -> np.ndarray:
        """Return the pairs to learn from in the epoch at hand: at first those of two operators, or the shortest."""
        operators, epoch, growing = self._train.operators, self.progress.epoch, self.config.growing_epochs
        if epoch >= growing:
            return np.arange(len(operators))
        most = _FIRST + epoch * (operators.max() - _FIRST) // growing
        return np.flatnonzero(operators <= max(most, operators.min()))

    def _renamed(self, formulas: list[Tensor]) -> list[Tensor]:
        """Return formulas with their variables swapped, another way in each step."""
        rng = np.random.default_rng([self._seed, self.progress.epoch, self.progress.cursor])
        table = torch.arange(len(VOCABULARY))
        table[: len(VARIABLES)] = torch.from_numpy(rng.permutation(len(VARIABLES)))
        return [table[ids] for ids in formulas]

    def means(self) -> dict[str, float]:
        progress = self.progress
        accuracy = 100 * progress.right / progress.pairs
        return {"train_loss": progress.loss_sum / progress.pairs, "train_accuracy": accuracy}

    def state(self) -> StateDict:
        on_gpu = self.device.type == "cuda"
        return {
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if on_gpu else None,
            "ends": list(self._ends),
        }

    def load_state(self, content: StateDict) -> None:
        torch.set_rng_state(content["random"])
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(self._seed + self.progress.step)  # for a run that comes from another device
            if (state := content.get("random_cuda")) is not None:
                torch.cuda.set_rng_state(state, self.device)
        self._ends.extend([weight.to(self.device) for weight in weights] for weights in content.get("ends", []))
        self._begin_epoch()
