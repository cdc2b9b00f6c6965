"""The LSTM layer that an ON-LSTM is compared with, and the distances that its own gates make."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm._layout import State
from onlstm.cell import Distances
from onlstm.layer import Scanned


class LSTM(nn.LSTM):
    """A one-layer `nn.LSTM` with drop-connect, called as `ONLSTM.scan` is."""

    def __init__(self, input_size: int, hidden_size: int, *, weight_dropout: float, weight_dropout_scale: str) -> None:
        super().__init__(input_size, hidden_size)
        self.weight_dropout, self.weight_dropout_scale = weight_dropout, weight_dropout_scale

    def scan(
        self, x: Tensor, state: State | None, *, weight_mask: list[Tensor] | None = None, distances: bool = False
    ) -> Scanned:
        """Return output, state and, if asked for, the distances that this layer's own gates make."""
        if state is None:
            state = (x.new_zeros(1, x.shape[1], self.hidden_size),) * 2
        p, inverted = self.weight_dropout, self.weight_dropout_scale == "inverted"
        w_ih, w_hh, b_ih, b_hh = (p for p in self._flat_weights if p is not None)
        if weight_mask:
            w_hh = w_hh * (weight_mask[0] / (1 - p) if inverted else weight_mask[0])
        elif p and not inverted and not self.training:
            w_hh = w_hh * (1 - p)
        output, h, c = torch.lstm(x, state, [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, self.training, False, False)
        own = _own_distances(x, torch.cat((state[0], output[:-1])), w_ih, w_hh, b_ih + b_hh) if distances else None
        return Scanned(output, (h, c), own)  # type: ignore[arg-type]


def _own_distances(x: Tensor, h_prev: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> Distances:
    """Return 1 - mean forget gate and mean input gate, (1, T, B): what an LSTM has for distances (Dyer et al. 2019).

    All times at once: torch.lstm keeps its gates to itself, but they follow from the states before them.
    """
    rows = slice(2 * h_prev.shape[-1])  # of the input and the forget gate
    gates = F.linear(x, w_ih[rows], bias[rows]) + F.linear(h_prev, w_hh[rows])
    i, f = gates.sigmoid().unflatten(-1, (2, -1)).mean(-1).unbind(-1)
    return Distances(forget=1 - f[None], input=i[None])
