"""The training of a grammar: sentences of equal length by the batch, likelihood tilted towards a teacher's trees.

The tilt multiplies the probability of each tree by e^(λ Σ s(span)), where s is the share of the teacher's trees that
have the span: the grammar explains the words, but prefers the teacher's way of doing so. λ falls in the course of the
training.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar, batches
from onlstm.kernels.chart import has_bfloat16
from onlstm.train import fit
from onlstm.train.checkpoint import StateDict
from onlstm.train.config import GrammarTrainConfig

Sentences = Sequence[NDArray[np.integer]]
"""The ids of each sentence's words."""


class GrammarTraining(fit.Training):
    """The training of `model` on sentences of two words or more; its folder gets the weights after each epoch.

    Args:
        shares: for each sentence of n words, an (n + 1, n + 1) array: the share of the teacher's trees that have the
            span; None: no teacher.
        valid: held-out sentences, whose likelihood (without tilt) is reported.
    """

    model: Grammar
    config: GrammarTrainConfig

    def __init__(
        self,
        model: Grammar,
        train: Sentences,
        valid: Sentences,
        config: GrammarTrainConfig,
        folder: Path,
        *,
        shares: Sequence[NDArray[np.floating]] | None = None,
        seed: int = 0,
        about: StateDict | None = None,
    ) -> None:
        super().__init__(model, config, folder, fit.Progress())
        if not len(train) or not len(valid):
            raise UserError("no sentences of two words or more: give more text")
        self.about, self._seed = about or {}, seed
        self._train, self._valid, self._shares = train, valid, shares
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.lr, betas=(0.75, 0.999), fused=True)
        self._narrow = config.precision == "bfloat16" and has_bfloat16()
        self._order(0)

    def _order(self, epoch: int) -> None:
        """Draw the batches of an epoch."""
        generator = np.random.default_rng((self._seed, epoch))
        order = generator.permutation(len(self._train))
        pieces = list(batches([self._train[k] for k in order], self.config.batch_size))
        self._batches = [order[pieces[k]] for k in generator.permutation(len(pieces))]
        self.length = self.end = len(pieces)

    def forward(self) -> fit.Batch:
        progress = self.progress
        batch = self._batches[progress.cursor]
        ids, tilt = _stack(self._train, batch), self.config.tilt_at(self.done)
        scores = None
        if self._shares is not None and tilt:
            scores = tilt * torch.from_numpy(np.stack([self._shares[k] for k in batch])).float()
        self.model.train()
        total, _ = self.model(ids, scores, narrow=self._narrow)
        words = ids.numel()
        progress.cursor += 1
        return fit.Batch(
            objective=-total / len(batch),
            figures=[-total.detach().double() / words],
            numbers={"tilt": tilt},
        )

    def means(self) -> dict[str, float]:
        return {"mean_loss": self.progress.loss_sum / self.progress.cursor}

    def end_epoch(self) -> dict[str, float]:
        progress = self.progress
        train_loss, loss = progress.loss_sum / self.length, -likelihood(self.model, self._valid)
        progress.loss_sum = 0.0
        progress.history.append(loss)
        if loss < progress.best:
            progress.best, progress.best_epoch = loss, progress.epoch
        self._order(progress.epoch)
        return {"train_loss": train_loss, "valid_loss": loss}

    def state(self) -> StateDict:
        return {}

    def load_state(self, content: StateDict) -> None:
        self._order(self.progress.epoch)


@torch.no_grad()
def likelihood(grammar: Grammar, sentences: Sentences) -> float:
    """Return the mean log-probability, in nats per word, of sentences of two words or more."""
    grammar.eval()
    total: float = sum(grammar(_stack(sentences, batch))[0].item() for batch in batches(sentences, 64))
    return total / sum(map(len, sentences))


def _stack(sentences: Sentences, batch: Sequence[int] | NDArray[np.integer]) -> Tensor:
    return torch.from_numpy(np.stack([sentences[k] for k in batch]).astype(np.int64))
