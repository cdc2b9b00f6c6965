"""The clockwork RNN (Koutník et al. 2014): groups of neurons that tick at different rates, the first at every word.

Numbers in parentheses are the paper's equations. A group is read by itself and by faster ones only. The layer's
distance is the share of neurons that tick: it depends on the place of a word, not on the word.

    code          paper       meaning
    clocks        g           groups; group k = 0, 1, … ticks every T_k = 2^k words
    h             y_H         the state, (B, H), group after group, the fastest first
    t             t           words read so far, modulo the longest period, (B, 1)
    w_hh          W_H         block-upper triangular, (H, H)
"""

import torch
from torch import Tensor

from onlstm.lm.cells.recurrent import Drop, LayerState, Recurrent, Step
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks


def periods(clocks: int, size: int, like: Tensor) -> Tensor:
    """Return the period of every neuron, (H,), of the device and type of `like`."""
    return (2 ** torch.arange(clocks, device=like.device)).repeat_interleave(size // clocks).to(like.dtype)


def step(x: Tensor, state: LayerState, w_hh: Tensor, period: Tensor, drop: Drop) -> Step:
    """Return one step: neurons whose period divides t are computed, the others stay."""
    h, t = state
    new = torch.tanh(x + drop(h) @ w_hh.T)  # (1)
    ticks = (t % period == 0).to(h.dtype)  # (4)
    after = (t + 1) % period.max()
    return Step((ticks * new + (1 - ticks) * h, after), kept=1 - ticks, written=ticks)


class Clockwork(Recurrent):
    """A layer of clocked neurons."""

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int) -> None:
        super().__init__(config, input_size, hidden_size, inputs=1, states=1)
        self.clocks = config.clocks

    def start(self, batch: int, like: Tensor) -> LayerState:
        return like.new_zeros(1, batch, self.hidden_size), like.new_zeros(1, batch, 1)

    def dropped(self, masks: Masks) -> Tensor:
        period = periods(self.clocks, self.hidden_size, self.weight_hh)
        return super().dropped(masks) * (period >= period[:, None])  # (3)

    def step(self, x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
        return step(x, state, w_hh, periods(self.clocks, self.hidden_size, x), drop)
