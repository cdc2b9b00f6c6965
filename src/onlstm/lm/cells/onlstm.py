"""The paper's own layer (Shen et al. 2019) for a language model; its equations are in `onlstm.cell`."""

from typing import Any

from torch import Tensor

from onlstm.cell import MasterGates
from onlstm.layer import ONLSTM
from onlstm.lm.cells.recurrent import Called, LayerState, Reading
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks


class OrderedNeurons(Called, ONLSTM):  # type: ignore[misc]
    """An `ONLSTM` layer, read as a language model reads."""

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int) -> None:
        drop: Any = {"weight_dropout": config.weight_dropout, "weight_dropout_scale": config.weight_dropout_scale}
        chunks: Any = {"chunk_size": config.chunk_size, "free_last_chunk": config.free_last_chunk}
        super().__init__(input_size, hidden_size, **chunks, **drop)

    def start(self, batch: int, like: Tensor) -> LayerState:
        return (like.new_zeros(1, batch, self.hidden_size),) * 2

    def read(
        self, x: Tensor, state: LayerState, masks: Masks, *, distances: bool = False, gates: bool = False
    ) -> Reading:
        """Return output, state, distances (they come for free) and, if asked for, master gates."""
        (h, c), p = state, self.weight_dropout
        w_hh: Tensor = self.weight_hh_l0  # type: ignore[assignment]
        mask = [masks.kept(tuple(w_hh.shape), p, w_hh)] if p and self.training else None
        master = MasterGates(*(gate[0] for gate in self.gates(x, (h, c)))) if gates else None
        return Reading(*self.scan(x, (h, c), weight_mask=mask), master)
