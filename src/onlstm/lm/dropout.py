"""The regularisers of AWD-LSTM (Merity et al. 2018): masks that stay the same over time, rows and weights dropped.

All masks of a step come from one `Masks`. It draws them for the whole batch, wherever that batch is computed: a process
that holds some of the batch's columns takes its part, so that many processes train exactly as one does.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Masks(NamedTuple):
    """The source of dropout masks."""

    generator: torch.Generator | None = None
    """None: torch's own. One on the CPU gives every device the same masks."""
    batch: int | None = None
    """Columns of the whole batch; None: those at hand."""
    first: int = 0
    """The first of them that is computed here."""

    def kept(self, shape: tuple[int, ...], p: float, like: Tensor) -> Tensor:
        """Return a tensor of ones and, with probability p, zeros, of the device and type of `like`.

        Four masks are cut from each random number: drawing the mask of a large weight one by one takes 5 % of a step.
        """
        count = math.prod(shape)
        numbers = torch.empty(-(-count // 4), dtype=torch.int64, device=self._device(like))
        numbers.random_(-(2**63), None, generator=self.generator)
        mask = numbers.view(torch.int16)[:count] >= round(p * 2**16) - 2**15
        return mask.view(shape).to(like)

    def chances(self, x: Tensor) -> Tensor:
        """Return a number from U(0, 1) for each column of x (T, B, …)."""
        columns, device = x.shape[1], self._device(x)
        chances = torch.rand(self.batch or columns, generator=self.generator, device=device, dtype=x.dtype)
        return chances[self.first : self.first + columns].to(x.device)

    def _device(self, like: Tensor) -> torch.device:
        """Where random numbers are drawn: where they are used, unless the generator is on the CPU."""
        return like.device if self.generator is None else self.generator.device

    def locked(self, x: Tensor, p: float, each_step: bool = False) -> Tensor:
        """Return x (T, B, H) with the same neurons of a column dropped at all times, the rest scaled up.

        With `each_step`, others at each time.
        """
        if not p:
            return x
        columns, size = x.shape[1:]
        mask = self.kept((len(x) if each_step else 1, self.batch or columns, size), p, x) / (1 - p)
        return x * mask[:, self.first : self.first + columns]

    def embed(self, table: Tensor, ids: Tensor, p: float) -> Tensor:
        """Return the rows of `table` for ids (T, B), with whole words dropped from the step, the rest scaled up."""
        x = F.embedding(ids, table)
        return x * (self.kept((table.shape[0], 1), p, table) / (1 - p))[ids] if p else x
