"""The cell that Zoph and Le (2017) found by architecture search with base 8, as it was published in TensorFlow.

A tree of eight pairs: the k-th joins row block k of the input's and the state's products, then neighbours are joined
until one is left, and the old cell comes in at one place. It has no gate that keeps, so no distances.

    code          meaning
    x, m          W x_t + b and U h_{t-1}, eight blocks each
    a             first joints, b second, c the new cell, h the output
"""

import torch
from torch import Tensor

from onlstm.lm.cells.recurrent import Drop, LayerState, Recurrent, Step
from onlstm.lm.config import LMConfig


def step(x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
    """Return one step of the cell."""
    h, c = state
    x0, x1, x2, x3, x4, x5, x6, x7 = x.chunk(8, -1)
    m0, m1, m2, m3, m4, m5, m6, m7 = (drop(h) @ w_hh.T).chunk(8, -1)
    a0, a1 = torch.sigmoid(x0 + m0), torch.relu(x1 + m1)
    a2, a3 = torch.sigmoid(x2 + m2), torch.relu(x3 * m3)
    a4, a5 = torch.tanh(x4 + m4), torch.sigmoid(x5 + m5)
    a6, a7 = torch.tanh(x6 + m6), torch.sigmoid(x7 + m7)

    b0 = torch.tanh(torch.tanh(a0 * a1) + c)  # the old cell comes in
    b1 = torch.tanh(a2 + a3)
    b2, b3 = torch.tanh(a4 * a5), torch.sigmoid(a6 + a7)

    c_new = b0 * b1
    return Step((torch.tanh(c_new * torch.tanh(b2 + b3)), c_new))


class Nas(Recurrent):
    """A layer of NAS cells."""

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int) -> None:
        super().__init__(config, input_size, hidden_size, inputs=8, states=8)

    def step(self, x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
        return step(x, state, w_hh, drop)
