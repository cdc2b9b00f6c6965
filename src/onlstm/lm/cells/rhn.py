"""The recurrent highway network (Zilly et al. 2017): many highway layers between one word and the next.

Numbers in parentheses are the paper's equations. The carry gate is coupled to the transform gate, c = 1 - t, as in its
best models.

    code          paper             meaning
    depth         L                 highway layers of a step; only the first reads the word
    s             s_l^[t]           the state, (B, H)
    x             W_H x, W_T x      of the first layer, (B, 2 H)
    w_hh          R_Hl, R_Tl        of all layers, (2 L H, H); `bias` likewise
    t             t_l               transform gate: how much is new
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from onlstm.lm.cells.recurrent import Drop, LayerState, Recurrent, Step
from onlstm.lm.config import LMConfig

_TRANSFORM_BIAS = -2.0
"""Where transform gates start, so that the state at first is carried."""


def step(x: Tensor, state: LayerState, w_hh: Tensor, bias: Tensor, drop: Drop) -> Step:
    """Return one step: `depth` highway layers."""
    (s,) = state
    width = 2 * s.shape[-1]
    kept = torch.ones_like(s)
    for layer, (R, b) in enumerate(zip(w_hh.split(width), bias.split(width), strict=True)):
        logits = F.linear(drop(s), R, b) + (x if layer == 0 else 0)
        h, t = logits.chunk(2, -1)
        h, t = torch.tanh(h), torch.sigmoid(t)  # (7), (8)
        s = h * t + s * (1 - t)  # (6)
        kept = kept * (1 - t)
    return Step((s,), kept=kept, written=1 - kept)


class RecurrentHighway(Recurrent):
    """A recurrent highway layer."""

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int) -> None:
        super().__init__(config, input_size, hidden_size, inputs=2, states=2 * config.depth)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            self.bias.view(-1, 2, self.hidden_size)[:, 1] += _TRANSFORM_BIAS

    def start(self, batch: int, like: Tensor) -> LayerState:
        return (like.new_zeros(1, batch, self.hidden_size),)

    def project(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_ih)

    def step(self, x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
        return step(x, state, w_hh, self.bias, drop)
