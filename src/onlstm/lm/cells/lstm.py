"""The LSTM layer that an ON-LSTM is compared with, and the distances that its own gates make."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.cell import Distances
from onlstm.kernels import ops
from onlstm.lm.cells.recurrent import Called, LayerState, Reading, drop_connect
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks

_OPEN = (-1e3, 1e3, 1e3, -1e3)
"""Logits of two master gates over one chunk, open to write it: after the softmax exactly (0, 1) and (1, 0)."""


class LSTM(Called, nn.LSTM):  # type: ignore[misc]
    """A one-layer `nn.LSTM` with drop-connect."""

    narrow = False
    """Whether training rounds the factors of products to bfloat16."""

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.config = config

    def start(self, batch: int, like: Tensor) -> LayerState:
        return (like.new_zeros(1, batch, self.hidden_size),) * 2

    def read(
        self, x: Tensor, state: LayerState, masks: Masks, *, distances: bool = False, gates: bool = False
    ) -> Reading:
        """Return output, state and, if asked for, the distances that this layer's own gates make."""
        w_ih, w_hh, b_ih, b_hh = (getattr(self, name) for name in self._all_weights[0])  # may be parametrized
        w_hh = drop_connect(w_hh, self.config, masks, self.training)
        if self.narrow and self.training:
            arguments = x.flatten(0, 1), *open_gates(w_ih, w_hh, b_ih + b_hh), state[0][0], state[1][0]
            rows, h, c, *_ = ops.scan(*arguments, None, self.hidden_size, narrow=True)
            output, h, c = rows.unflatten(0, x.shape[:2]), h[None], c[None]
        else:
            output, h, c = torch.lstm(x, state, [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, self.training, False, False)
        own = _own_distances(x, torch.cat((state[0], output[:-1])), w_ih, w_hh, b_ih + b_hh) if distances else None
        return Reading(output, (h, c), own)


def open_gates(w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights with which `ops.scan`, its chunk being the whole state, is an LSTM: its kernel is the faster one.

    That is an ON-LSTM whose two master gates are held open (f_m = i_m = 1), gates in the order of `cell.GATES`.
    """
    masters = *(w.new_zeros(4, w.shape[1]) for w in (w_ih, w_hh)), bias.new_tensor(_OPEN)
    gates = [weight.chunk(4) for weight in (w_ih, w_hh, bias)]
    return tuple(torch.cat([master, o, g, i, f]) for master, (i, f, g, o) in zip(masters, gates, strict=True))  # type: ignore[return-value]


def _own_distances(x: Tensor, h_prev: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> Distances:
    """Return 1 - mean forget gate and mean input gate, (1, T, B): what an LSTM has for distances (Dyer et al. 2019).

    All times at once: torch.lstm keeps its gates to itself, but they follow from the states before them.
    """
    rows = slice(2 * h_prev.shape[-1])  # of the input and the forget gate
    gates = F.linear(x, w_ih[rows], bias[rows]) + F.linear(h_prev, w_hh[rows])
    i, f = gates.sigmoid().unflatten(-1, (2, -1)).mean(-1).unbind(-1)
    return Distances(forget=1 - f[None], input=i[None])
