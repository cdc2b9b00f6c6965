"""The regularisers of AWD-LSTM (Merity et al. 2018): masks that stay the same over time, rows and weights dropped.

All masks of a step come from one `Masks`. It draws them for the whole batch, wherever that batch is computed: a process
that holds some of the batch's columns takes its part, so that many processes train exactly as one does.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm._layout import State
from onlstm.cell import Distances
from onlstm.layer import Scanned


class Masks(NamedTuple):
    """The source of dropout masks."""

    generator: torch.Generator | None = None
    """None: torch's own."""
    batch: int | None = None
    """Columns of the whole batch; None: those at hand."""
    first: int = 0
    """The first of them that is computed here."""

    def kept(self, shape: tuple[int, ...], p: float, like: Tensor) -> Tensor:
        """Return a tensor of ones and, with probability p, zeros, of the device and type of `like`.

        Four masks are cut from each random number: drawing the mask of a large weight one by one takes 5 % of a step.
        """
        count = math.prod(shape)
        numbers = torch.empty(-(-count // 4), dtype=torch.int64, device=like.device)
        numbers.random_(-(2**63), None, generator=self.generator)
        kept = numbers.view(torch.int16)[:count] >= round(p * 2**16) - 2**15
        return kept.view(shape).to(like.dtype)

    def locked(self, x: Tensor, p: float) -> Tensor:
        """Return x (T, B, H) with the same neurons of a column dropped at all times, the rest scaled up."""
        if not p:
            return x
        columns, size = x.shape[1:]
        mask = self.kept((1, self.batch or columns, size), p, x) / (1 - p)
        return x * mask[:, self.first : self.first + columns]

    def embed(self, table: Tensor, ids: Tensor, p: float) -> Tensor:
        """Return the rows of `table` for ids (T, B), with whole words dropped from the step, the rest scaled up."""
        x = F.embedding(ids, table)
        return x * (self.kept((table.shape[0], 1), p, table) / (1 - p))[ids] if p else x


class LSTM(nn.LSTM):
    """A one-layer `nn.LSTM` with drop-connect, called as `ONLSTM.scan` is."""

    def __init__(self, input_size: int, hidden_size: int, *, weight_dropout: float, weight_dropout_scale: str) -> None:
        super().__init__(input_size, hidden_size)
        self.weight_dropout, self.weight_dropout_scale = weight_dropout, weight_dropout_scale

    def scan(
        self, x: Tensor, state: State | None, *, weight_mask: list[Tensor] | None = None, gates: bool = False
    ) -> Scanned:
        """Return output, state and, if `gates` are asked for, the distances that this layer's own gates make."""
        if state is None:
            state = (x.new_zeros(1, x.shape[1], self.hidden_size),) * 2
        p, inverted = self.weight_dropout, self.weight_dropout_scale == "inverted"
        w_ih, w_hh, b_ih, b_hh = (p for p in self._flat_weights if p is not None)
        if weight_mask:
            w_hh = w_hh * (weight_mask[0] / (1 - p) if inverted else weight_mask[0])
        elif p and not inverted and not self.training:
            w_hh = w_hh * (1 - p)
        output, h, c = torch.lstm(x, state, [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, self.training, False, False)
        found = _own_distances(x, torch.cat((state[0], output[:-1])), w_ih, w_hh, b_ih + b_hh) if gates else None
        return Scanned(output, (h, c), found)  # type: ignore[arg-type]


def _own_distances(x: Tensor, h_prev: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> Distances:
    """Return 1 - mean forget gate and mean input gate, (1, T, B): what an LSTM has for distances (Dyer et al. 2019).

    All times at once: torch.lstm keeps its gates to itself, but they follow from the states before them.
    """
    rows = slice(2 * h_prev.shape[-1])  # of the input and the forget gate
    gates = F.linear(x, w_ih[rows], bias[rows]) + F.linear(h_prev, w_hh[rows])
    i, f = gates.sigmoid().unflatten(-1, (2, -1)).mean(-1).unbind(-1)
    return Distances(forget=1 - f[None], input=i[None])
