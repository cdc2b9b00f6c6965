"""The compositions of Ordered Memory, slot by slot, in the C++ kernel composition.cpp.

Their definition is `OrderedMemory.compose` under autograd. Here the cell's weights are rearranged once for a pass over
formulas, and their gradients summed over its calls.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from onlstm.kernels import build


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
        narrow: round the factors of products to bfloat16, where the processor multiplies in it.
    """

    def __init__(self, weights: Weights, eps: float, p: float, *, narrow: bool = False) -> None:
        exact = (weight.detach().contiguous() for weight in weights)
        narrow = narrow and build.has_bfloat16("composition")
        self._cell = _Cell(torch.classes.onlstm_composition.Cell(*exact, eps, p, narrow), p > 0)
        self._taps = _Weights.apply(self._cell, *weights)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor, M: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
        """Return M_hat (R, n, D) of tokens x (R, D), memory M (R, n, D) and shares up (R, n); and its highest slot."""
        parts = (part.contiguous() for part in (x, M, up))
        slots: tuple[Tensor, Tensor] = _Slots.apply(self._cell, *self._taps, *parts)  # type: ignore[no-untyped-call]
        return slots


@dataclass
class _Cell:
    """What calls share. It knows nothing of the graph, which knows it: a cycle would never be freed."""

    kernel: Any
    drops: bool
    sums: list[Tensor] = field(default_factory=list)
    """The gradients of w_1, b_1, w_2, b_2 over the calls that have had their backward pass."""

    def add(self, *gradients: Tensor) -> None:
        """Add those of a call."""
        if not self.sums:
            self.sums = [gradient.to(gradients[1].dtype) for gradient in gradients]
        else:
            for total, gradient in zip(self.sums, gradients, strict=True):
                total += gradient


class _Weights(Function):
    """The weights, of which two are a stand-in whose gradients are taken over all calls, once these have theirs."""

    @staticmethod
    def forward(ctx: Any, cell: _Cell, *weights: Tensor) -> tuple[Tensor, Tensor]:
        ctx.cell = cell
        return weights[4].detach().clone(), weights[5].detach().clone()

    @staticmethod
    def backward(ctx: Any, *d_norm: Tensor) -> tuple[Tensor | None, ...]:
        sums, ctx.cell.sums = ctx.cell.sums, []
        return None, *sums, *d_norm


class _Slots(Function):
    """The composition of a token with all slots; the highest once more, so that its gradient is no larger than it."""

    @staticmethod
    def forward(
        ctx: Any, cell: _Cell, gain: Tensor, shift: Tensor, x: Tensor, M: Tensor, up: Tensor
    ) -> tuple[Tensor, Tensor]:
        save = any(ctx.needs_input_grad)
        ctx.cell, ctx.seed = cell, int(torch.randint(2**63 - 1, ())) if cell.drops else None
        M_hat: Tensor
        M_hat, *saved = cell.kernel.forward(x, M, up, ctx.seed, save)
        if save:
            ctx.save_for_backward(x, M, up, M_hat, *saved)
        return M_hat, M_hat[:, -1].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, M, up, M_hat, *saved = ctx.saved_tensors
        d = ctx.cell.kernel.backward(*(d.contiguous() for d in gradients), x, M, up, M_hat, ctx.seed, saved)
        d_x, d_M, d_up, totals, d_hidden, d_output = d
        input, hidden, *_ = saved
        *d_norm, d_b_1, d_b_2 = totals.split([len(x[0])] * 2 + [4 * len(x[0])] * 2)
        ctx.cell.add(d_hidden.T @ input, d_b_1, d_output.T @ hidden, d_b_2)
        return None, *d_norm, d_x, d_M, d_up
