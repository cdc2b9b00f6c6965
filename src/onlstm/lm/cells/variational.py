"""The variational LSTM (Gal and Ghahramani 2016, "A Theoretically Grounded Application of Dropout in RNNs").

An LSTM whose state is masked, by one mask for all times, on its way into the recurrent product: their h_{t-1} ∘ z_h, in
the form that they call tied, one mask for the four gates. Their z_x is `dropout_input` and `dropout_hidden`; words
dropped from a step are `dropout_embedding`. `step` is the LSTM that other cells here build on.

    code          meaning
    x             W x_t + b, (B, 4 H), rows in the order i, f, g, o, as in `nn.LSTM`
    h, c          output and cell, (B, H)
    w_hh          U, (4 H, H)
    drop          h -> h ∘ z_h
"""

import torch
from torch import Tensor

from onlstm.lm.cells.recurrent import Drop, LayerState, Recurrent, Step
from onlstm.lm.config import LMConfig


def step(x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
    """Return one step of an LSTM."""
    h, c = state
    i, f, g, o = (x + drop(h) @ w_hh.T).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c_new = f * c + i * g
    return Step((o * torch.tanh(c_new), c_new), kept=f, written=i)


class Variational(Recurrent):
    """An LSTM layer with dropout of its state."""

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int) -> None:
        super().__init__(config, input_size, hidden_size, inputs=4, states=4)

    def step(self, x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
        return step(x, state, w_hh, drop)
