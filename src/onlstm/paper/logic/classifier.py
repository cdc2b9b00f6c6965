"""The paper's classifier of sentence pairs, and the batches that it reads.

Both sides of a batch go through the encoder in one pass, longest formula first and each distinct formula once: no
formula is padded to its partner's length or computed twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm import memory
from onlstm.device import moved
from onlstm.paper.logic import encoders
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import CPU, Dropout, Encoder, Sampler
from onlstm.paper.logic.formulas import RELATIONS, VOCABULARY, Pair
from onlstm.paper.logic.linear import Linear

_AT_ONCE = 512
"""Pairs that are evaluated together."""


class Batch(NamedTuple):
    """Some pairs, as `Classifier` reads them."""

    formulas: list[Tensor]
    """Distinct, longest first; each the places of its tokens in the vocabulary, on the CPU."""
    sides: Tensor
    """(2, B): where the left and right formulas of the pairs stand among them."""
    labels: Tensor
    """(B,): places of the relations in `RELATIONS`."""


@dataclass(frozen=True, kw_only=True)
class Problems:
    """Pairs as numbers."""

    formulas: list[Tensor]
    """Each distinct formula once."""
    lengths: np.ndarray
    """Tokens of each."""
    sides: np.ndarray
    """(2, N): the formulas of the pairs."""
    labels: np.ndarray
    """(N,): places of their relations in `RELATIONS`."""
    operators: np.ndarray
    """(N,): operators in the longer side."""

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> "Problems":
        place = {token: k for k, token in enumerate(VOCABULARY)}
        known: dict[str, int] = {}
        sides = [[known.setdefault(text, len(known)) for text in (pair.left, pair.right)] for pair in pairs]
        formulas = [torch.tensor([place[token] for token in text.split()]) for text in known]
        return cls(
            formulas=formulas,
            lengths=np.array([len(ids) for ids in formulas], np.int64),
            sides=np.array(sides, np.int64).reshape(-1, 2).T.copy(),
            labels=np.array([RELATIONS.index(pair.relation) for pair in pairs], np.int64),
            operators=np.array([pair.length for pair in pairs], np.int64),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def longest(self) -> np.ndarray:
        """Return the tokens of the longer side of each pair."""
        return np.asarray(self.lengths[self.sides].max(0))

    def batch(self, rows: np.ndarray, device: torch.device = CPU) -> Batch:
        """Return the pairs in these rows, for a classifier on this device."""
        distinct, inverse = np.unique(self.sides[:, rows], return_inverse=True)
        order = np.argsort(-self.lengths[distinct], kind="stable")
        sides = np.argsort(order)[inverse.reshape(2, -1)]
        formulas = [self.formulas[k] for k in distinct[order]]
        return Batch(formulas, *(moved(torch.from_numpy(each), device) for each in (sides, self.labels[rows])))


class Classifier(nn.Module):
    """Logits of the seven relations from (h1, h2, h1 * h2, |h1 - h2|) of the encoded sides."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        memory.check(config.least_bytes, "model", "choose smaller sizes")
        self.config = config
        self.encoder = encoders.build(config)
        size = int(self.encoder.size)  # type: ignore[arg-type]
        p = config.dropout_of("classifier")
        self.head = nn.Sequential(
            Dropout(p),
            Linear(4 * size, config.hidden_size),
            nn.ELU(),
            Dropout(p),
            nn.Linear(config.hidden_size, len(RELATIONS)),
        )

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits (B, 7)."""
        return self._relations(self.encoder(self._moved(batch.formulas)), batch.sides)

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits (B, 7) and, of each pair, what to minimise (B,): cross-entropy, or that and REINFORCE's.

        The reward of a tree that an encoder samples is the log-probability of the right relation.
        """
        if not isinstance(self.encoder, Sampler):
            logits = self(batch)
            return logits, F.cross_entropy(logits, batch.labels, reduction="none")
        states, log_p = self.encoder.sample(batch.formulas)
        logits = self._relations(states, batch.sides)
        nll = F.cross_entropy(logits, batch.labels, reduction="none")
        return logits, nll - self.encoder.advantage(-nll) * log_p[batch.sides].sum(0)

    def _moved(self, formulas: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return formulas where the encoder wants them: ours arrange them first, and move the result."""
        return formulas if isinstance(self.encoder, Encoder) else [moved(ids, self.device) for ids in formulas]

    def _relations(self, states: Tensor, sides: Tensor) -> Tensor:
        h_1, h_2 = (states.index_select(0, side) for side in sides)
        logits: Tensor = self.head(torch.cat([h_1, h_2, h_1 * h_2, (h_1 - h_2).abs()], -1))
        return logits

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.parameters()).device

    @torch.no_grad()
    def logits(self, problems: Problems) -> Tensor:
        """Return the logits (N, 7) of all pairs, in order, without dropout; pairs of like length are done together."""
        training = self.training
        self.eval()
        logits = next(self.parameters()).new_empty(len(problems), len(RELATIONS))
        order = np.argsort(problems.longest(), kind="stable")
        for first in range(0, len(order), _AT_ONCE):
            rows = order[first : first + _AT_ONCE]
            logits[moved(torch.from_numpy(rows), self.device)] = self(problems.batch(rows, self.device))
        self.train(training)
        return logits

    def right(self, problems: Problems) -> np.ndarray:
        """Return of each pair whether its relation is found."""
        return np.asarray(self.logits(problems).argmax(-1).cpu().numpy() == problems.labels)
