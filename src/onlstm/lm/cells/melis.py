"""The LSTM of Melis et al. (2018), "On the State of the Art of Evaluation in Neural Language Models".

Three changes to a stack of LSTMs: the input gate is capped by what the forget gate leaves free, i = min(1 - f, i); the
softmax reads the sum of all layers' outputs (skip connections); and where the embeddings, which are tied, have another
size, a linear down-projection takes that sum to it.

    code          meaning
    x, w_hh       as in `variational`
    down          the down-projection, (E, H)
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from onlstm.cell import Distances
from onlstm.lm.cells.recurrent import Called, Drop, LayerState, Reading, Recurrent, Step
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks


def step(x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
    """Return one step of an LSTM with capped input gates."""
    h, c = state
    i, f, g, o = (x + drop(h) @ w_hh.T).chunk(4, -1)
    f, g, o = f.sigmoid(), g.tanh(), o.sigmoid()
    i = torch.minimum(1 - f, i.sigmoid())
    c_new = f * c + i * g
    return Step((o * torch.tanh(c_new), c_new), kept=f, written=i)


class Capped(Recurrent):
    """A layer of it."""

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int) -> None:
        super().__init__(config, input_size, hidden_size, inputs=4, states=4)

    def step(self, x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
        return step(x, state, w_hh, drop)


class SkipLSTM(Called, nn.Module):
    """The whole network: layers, skip connections, down-projection."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        sizes = pairwise((config.embedding_size, *config.sizes[:-1]))
        self.layers = nn.ModuleList(Capped(config, a, b) for a, b in sizes)
        E, H = config.embedding_size, config.sizes[0]
        self.down = nn.Linear(H, E, bias=False) if H != E else nn.Identity()
        self.dropout, self.each_step = config.dropout_hidden, config.dropout_each_step

    def start(self, batch: int, like: Tensor) -> LayerState:
        return tuple(part for layer in self.layers for part in layer.start(batch, like))  # type: ignore[operator]

    def read(
        self, x: Tensor, state: LayerState, masks: Masks, *, distances: bool = False, gates: bool = False
    ) -> Reading:
        readings: list[Reading] = []
        for k, layer in enumerate(self.layers):
            if k:
                x = masks.locked(x, self.dropout if self.training else 0.0, self.each_step)
            readings.append(layer(x, state[2 * k : 2 * k + 2], masks, distances=distances))
            x = readings[-1].output
        joined = (torch.cat(kind) for kind in zip(*(r.distances for r in readings if r.distances), strict=True))
        total = torch.stack([reading.output for reading in readings]).sum(0)
        parts = tuple(part for reading in readings for part in reading.state)
        return Reading(self.down(total), parts, Distances(*joined) if distances else None)
