"""What encoders of formulas begin with: embeddings of the tokens and dropout; and what those with trees promise."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from onlstm.device import moved
from onlstm.kernels.dropout import dropout
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.formulas import VOCABULARY

CPU = torch.device("cpu")
_NEW = 0.1
"""Share of a batch in the running mean of the rewards, as in the code of Williams et al. 2018."""
_CUTS = (3, 5, 7)
"""Where a batch of the published pairs branches most: an LSTM has a fifth less to compute than without."""


def by_step(formulas: Sequence[Tensor]) -> tuple[Tensor, list[int]]:
    """Return the tokens of formulas, longest first, step by step, and how many formulas have each step."""
    lengths = torch.tensor([len(ids) for ids in formulas])
    there = torch.arange(len(formulas[0]))[:, None] < lengths
    return pad_sequence(list(formulas))[there], there.sum(1).tolist()


class Part(NamedTuple):
    """The tokens between two cuts, of each distinct prefix."""

    tokens: Tensor
    """Time step by time step, longest first."""
    sizes: Tensor
    """How many there are at each time step."""
    parents: Tensor
    """The prefix in the previous part that each continues."""


def parts_of(
    formulas: Sequence[Tensor], device: torch.device = CPU, cuts: Sequence[int] = _CUTS
) -> tuple[list[Part], Tensor]:
    """Return formulas, longest first, in parts, and the place of each one's end among those of all parts.

    Up to each of the cuts in turn, those that are still equal there are one; no cuts: they are as they come. Parts are
    on the device, but for the sizes of steps.
    """
    lengths = np.array([len(ids) for ids in formulas])
    longest, done, ended = int(lengths[0]), 0, 0
    grid = np.zeros((longest, len(lengths)), np.int64)  # tokens from 1, by time; 0 behind the end
    grid.T[np.arange(longest) < lengths[:, None]] = torch.cat(list(formulas)).numpy() + 1
    row, places = np.zeros_like(lengths), np.empty_like(lengths)  # of each formula in the previous part, and in all
    parts = []
    for cut in (*(cut for cut in cuts if cut < longest), longest):
        alive = int((lengths > done).sum())
        parents, steps = row[:alive], grid[done:cut, :alive]
        first = row = np.arange(alive)  # to the end formulas are taken as different
        if cut < longest:
            code = reduce(lambda code, step: code * (len(VOCABULARY) + 1) + step, steps, parents)
            _, first, row = np.unique(code, return_index=True, return_inverse=True)
            order = first.argsort()  # the longest first again
            first, row = first[order], order.argsort()[row]
        there = steps[:, first] > 0
        tokens = steps[:, first][there] - 1
        rows, sizes, before = map(torch.from_numpy, (tokens, there.sum(1), parents[first]))
        parts.append(Part(moved(rows, device), sizes, moved(before, device)))
        places[:alive] = ended + row
        done, ended = cut, ended + len(first)
    return parts, moved(torch.from_numpy(places), device)


def hidden(left: Float[Tensor, "n S"], right: Float[Tensor, "n S"]) -> Float[Tensor, "n S"]:
    """Return the hidden states of nodes (h, c) that are composed, side by side."""
    return torch.cat([left.chunk(2, -1)[0], right.chunk(2, -1)[0]], -1)


def parents(
    left: Float[Tensor, "n S"], right: Float[Tensor, "n S"], sums: Float[Tensor, "n 5D"], forget: float = 0.0
) -> tuple[Float[Tensor, "n S"], list[Float[Tensor, "n D"]]]:
    """Return the parents (h, c) of nodes, as in a binary Tree-LSTM, and of what they are made: gates and tanh(c).

    `sums` are what the gates are the sigmoid or tanh of; `forget` is added to those of the forget gates.
    """
    i, f_l, f_r, o, g = sums.chunk(5, -1)
    i, f_l, f_r, o, g = gates = [i.sigmoid(), (f_l + forget).sigmoid(), (f_r + forget).sigmoid(), o.sigmoid(), g.tanh()]
    c = f_l * left.chunk(2, -1)[1] + f_r * right.chunk(2, -1)[1] + i * g
    tanh_c = c.tanh()
    return torch.cat([o * tanh_c, c], -1), [*gates, tanh_c]


class Dropout(nn.Dropout):
    """`nn.Dropout`, faster."""

    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, self.p) if self.training else input


class Encoder(nn.Module):
    """The embeddings of the tokens, and dropout. Formulas come on the CPU, wherever the encoder is."""

    narrow = False
    """Whether training rounds the factors of products to bfloat16; see `rounds`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.size = config.hidden_size
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.dropout = Dropout(config.dropout_of("embedding"))

    @property
    def rounds(self) -> bool:
        """Whether the factors of products are rounded now."""
        return self.narrow and self.training

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.embedding.weight.device


class TreeEncoder(Encoder, ABC):
    """An encoder that builds a tree of its own of each formula."""

    @abstractmethod
    def heights(self, formulas: Sequence[Tensor]) -> list[list[int]]:
        """Return the height of the split left of each token of formulas, longest first; 0 for the first token."""


class Sampler(TreeEncoder, ABC):
    """An encoder that samples its trees in training and learns from rewards which to sample: REINFORCE.

    Williams 1992: the gradient of the log-probability of what was sampled, times how much better than usual it did.
    """

    baseline: Tensor
    """The running mean of the rewards."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.register_buffer("baseline", torch.zeros(()))

    def forward(self, formulas: Sequence[Tensor]) -> Tensor:
        return self.sample(formulas)[0]

    @abstractmethod
    def sample(self, formulas: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the vectors (B, D) of formulas, longest first, and the log-probabilities (B,) of their trees."""

    @torch.no_grad()
    def advantage(self, reward: Tensor) -> Tensor:
        """Return how much larger than the running mean rewards are, and take them into that."""
        advantage = reward - self.baseline
        self.baseline.lerp_(reward.mean(), _NEW)
        return advantage
