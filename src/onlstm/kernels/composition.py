"""The compositions of Ordered Memory, slot by slot, in the C++ kernel composition.cpp.

Their definition is `OrderedMemory.compose` under autograd. Here the cell's weights are rearranged once for a pass over
formulas, and their gradients are products over all of its calls.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from onlstm.kernels import build
from onlstm.kernels.factor import multiply

_ROWS = 1024
"""Matrices of a pass have a multiple of so many rows: torch compiles a product in bfloat16 for each number."""


class Weights(NamedTuple):
    """Of a cell: two layers, 2 D to 4 D to 4 D neurons, and the layer norm of what is composed."""

    w_1: Tensor
    b_1: Tensor
    w_2: Tensor
    b_2: Tensor
    gain: Tensor
    shift: Tensor


def fused(x: Tensor) -> bool:
    """Return whether the kernel can compose numbers like these."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and build.load("composition")


class Pass:
    """The compositions of some formulas, from their first token to their last.

    Args:
        weights: those of the cell.
        eps: of the layer norm.
        p: dropout before each of the two layers.
        rows: at most so many slots are composed, over all calls.
        narrow: round the factors of products to bfloat16, where the processor multiplies in it.
    """

    def __init__(self, weights: Weights, eps: float, p: float, rows: int, *, narrow: bool = False) -> None:
        exact = (weight.detach().contiguous() for weight in weights)
        narrow = narrow and build.has_bfloat16("composition")
        kernel = torch.classes.onlstm_composition.Cell(*exact, eps, p, narrow)
        gain = weights.gain.detach()
        self._cell = _Cell(kernel, p > 0, rows, gain.bfloat16() if narrow else gain)
        self._taps = _Weights.apply(self._cell, *weights)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor, M: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
        """Return M_hat (R, n, D) of tokens x (R, D), memory M (R, n, D) and shares up (R, n); and its highest slot."""
        parts = (part.contiguous() for part in (x, M, up))
        slots: tuple[Tensor, Tensor] = _Slots.apply(self._cell, *self._taps, *parts)  # type: ignore[no-untyped-call]
        return slots


class _Cell:
    """What calls share. It knows nothing of the graph, which knows it: a cycle would never be freed.

    The rows of all calls stand in matrices, one call after the other: what goes into each of the two layers, and the
    gradient of what it returns.
    """

    def __init__(self, kernel: Any, drops: bool, rows: int, like: Tensor) -> None:
        self.kernel, self.drops = kernel, drops
        self._room, self._like = -(-rows // _ROWS) * _ROWS, like
        self._inputs: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._calls: list[slice] = []
        self._waiting = set[int]()

    @property
    def calls(self) -> int:
        return len(self._calls)

    def inputs(self, rows: int) -> list[Tensor]:
        """Return room for what goes into the layers in one more call, with so many rows."""
        self._inputs = self._inputs or self._matrices(2, 4)
        first = self._calls[-1].stop if self._calls else 0
        self._calls.append(slice(first, first + rows))
        return [whole[self._calls[-1]] for whole in self._inputs]

    def hidden(self, call: int) -> Tensor:
        """Return what went into the second layer."""
        return self._inputs[1][self._calls[call]]

    def gradients(self, call: int) -> list[Tensor]:
        """Return room for the gradients of what the layers return, in a call's backward pass."""
        if not self._gradients:
            self._gradients, self._waiting = self._matrices(4, 4), set(range(self.calls))
        self._waiting.discard(call)
        return [whole[self._calls[call]] for whole in self._gradients]

    def of_weights(self) -> list[Tensor]:
        """Return the gradients of the weights of both layers, over the calls that have had their backward pass."""
        behind = slice(self._calls[-1].stop, None)
        for whole in self._gradients:
            for rows in (*(self._calls[call] for call in self._waiting), behind):
                whole[rows] = 0
        for whole in self._inputs:
            whole[behind] = 0
        gradients, self._gradients = self._gradients, []
        return [_product(d.T, x) for d, x in zip(gradients, self._inputs, strict=True)]

    def _matrices(self, *widths: int) -> list[Tensor]:
        return [self._like.new_empty(self._room, width * len(self._like)) for width in widths]


def _product(A: Tensor, B: Tensor) -> Tensor:
    return (A @ B).float() if A.dtype == torch.bfloat16 else multiply(A, B)


class _Weights(Function):
    """All parameters but the weights, whose gradients are taken once all calls have had their backward pass."""

    @staticmethod
    def forward(ctx: Any, cell: _Cell, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.cell = cell
        _, b_1, _, b_2, *norm = (weight.detach().clone() for weight in weights)
        return b_1, b_2, *norm

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        d_w_1, d_w_2 = ctx.cell.of_weights()
        d_b_1, d_b_2, *d_norm = d
        return None, d_w_1, d_b_1, d_w_2, d_b_2, *d_norm


class _Slots(Function):
    """The composition of a token with all slots; the highest once more, so that its gradient is no larger than it."""

    @staticmethod
    def forward(ctx: Any, cell: _Cell, *parts: Tensor) -> tuple[Tensor, Tensor]:
        x, M, up = parts[-3:]
        ctx.cell, ctx.seed = cell, int(torch.randint(2**63 - 1, ())) if cell.drops else None
        inputs = []
        if any(ctx.needs_input_grad):
            ctx.call, inputs = cell.calls, cell.inputs(up.numel())
        M_hat: Tensor
        M_hat, *saved = cell.kernel.forward(x, M, up, ctx.seed, inputs)
        if inputs:
            ctx.save_for_backward(x, M, up, M_hat, *saved)
        return M_hat, M_hat[:, -1].clone()

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        x, M, up, M_hat, *saved = ctx.saved_tensors
        cell, gradients = ctx.cell, ctx.cell.gradients(ctx.call)
        d_slots = (part.contiguous() for part in d)
        *d_parts, sums = cell.kernel.backward(
            *d_slots, x, M, up, M_hat, ctx.seed, cell.hidden(ctx.call), saved, gradients
        )
        d_gain, d_shift, d_b_1, d_b_2 = sums.split([len(x[0])] * 2 + [4 * len(x[0])] * 2)
        return None, d_b_1, d_b_2, d_gain, d_shift, *d_parts
