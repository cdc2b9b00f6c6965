"""Dropout without masks in memory: the C++ kernel dropout.cpp draws them again for the gradient."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from onlstm.kernels import build


def dropout(x: Tensor, p: float) -> Tensor:
    """Return x without a share p of its numbers, the others scaled."""
    if not p:
        return x
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and build.load("dropout"):
        dropped: Tensor = _Dropped.apply(x, p, int(torch.randint(2**63 - 1, ())))  # type: ignore[no-untyped-call]
        return dropped
    return F.dropout(x, p)


class _Dropped(Function):
    """What is left of x, and of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p, ctx.seed = p, seed
        left: Tensor = torch.ops.onlstm_dropout.drop(x, p, seed)
        return left

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        return torch.ops.onlstm_dropout.drop(d[0], ctx.p, ctx.seed), None, None
