"""Nested dropout (Rippel et al. 2014) on the state of an LSTM: neurons ordered by how rarely they are dropped.

In training every column draws a number b from a geometric distribution and loses all neurons after the first b, at all
times; the first ones learn to do without the others. Nothing is rescaled, and evaluation uses all neurons. Distances
are the LSTM's own. The paper's sweep, which freezes neurons that have converged, is left out.

    code          paper       meaning
    b             b           neurons that stay, b ~ Geom with mean `nested_mean` H, truncated at H
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from onlstm.lm.cells.recurrent import Drop, LayerState, Step
from onlstm.lm.cells.variational import Variational, step
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks


def nested_mask(chances: Tensor, mean: float, size: int) -> Tensor:
    """Return ones for the first b of `size` neurons and zeros after them, (B, H), for chances (B,) from U(0, 1).

    >>> nested_mask(torch.tensor([0.9, 0.5]), 2.0, 4)
    tensor([[1., 0., 0., 0.],
            [1., 1., 0., 0.]])
    """
    stay = 1 - 1 / max(mean, 1.0 + 1e-6)  # P(b > k) = stay^k
    b = 1 + (chances.log() / math.log(stay)).floor()
    return (torch.arange(size, device=chances.device) < b[:, None]).to(chances.dtype)


@dataclass(frozen=True)
class NestedDrop:
    """Dropout of a state on its way into the recurrent product, of those neurons that stay."""

    variational: Drop
    stay: Tensor | float

    def __call__(self, h: Tensor) -> Tensor:
        return self.variational(h * self.stay)


class Nested(Variational):
    """An LSTM layer with nested dropout of its state."""

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int) -> None:
        super().__init__(config, input_size, hidden_size)
        self.mean = config.nested_mean * hidden_size

    def state_dropout(self, x: Tensor, masks: Masks) -> NestedDrop:
        variational = super().state_dropout(x, masks)
        stay = nested_mask(masks.chances(x), self.mean, self.hidden_size) if self.training else 1.0
        return NestedDrop(variational, stay)

    def step(self, x: Tensor, state: LayerState, w_hh: Tensor, drop: NestedDrop) -> Step:  # type: ignore[override]
        (h, c), *gates = step(x, state, w_hh, drop)
        return Step((h * drop.stay, c * drop.stay), *gates)
