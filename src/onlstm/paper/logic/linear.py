"""Linear layers of encoders, whose training can multiply in bfloat16."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

_ROWS = 16
"""Rounded products have a multiple of so many rows: torch compiles a kernel for each number, in about 1 ms."""


class Linear(nn.Linear):
    """`nn.Linear`, whose training rounds its products if it is `narrow`."""

    narrow = False
    """Whether training rounds the factors of products to bfloat16."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, narrow=self.narrow and self.training)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, narrow: bool) -> Tensor:
    """Return x @ weight.T + bias.

    `narrow` rounds the factors of this product and of the two that its gradients are to bfloat16. They are summed in
    float32; torch rounds each sum once, at its end.
    """
    if not narrow:
        return F.linear(x, weight, bias)
    product: Tensor = _Product.apply(x.flatten(0, -2), weight)  # type: ignore[no-untyped-call]
    product = product.unflatten(0, x.shape[:-1])
    return product if bias is None else product + bias


def known(product: Tensor, x: Tensor, layer: Linear) -> Tensor:
    """Return `product`, which is layer(x) and was computed without gradients, with the gradients of layer(x)."""
    narrow = layer.narrow and layer.training
    with_gradients: Tensor = _Known.apply(product, x, layer.weight, layer.bias, narrow)  # type: ignore[no-untyped-call]
    return with_gradients


class _Known(Function):
    """x @ weight.T + bias, known already."""

    @staticmethod
    def forward(ctx: Any, product: Tensor, x: Tensor, weight: Tensor, bias: Tensor, narrow: bool) -> Tensor:
        ctx.save_for_backward(*((_rounded(x), weight.bfloat16()) if narrow else (x, weight)))
        return product.view_as(product)

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_product = _rounded(d[0]) if x.dtype != d[0].dtype else d[0]
        d_x, d_weight = (d_product @ weight)[: len(d[0])], d_product.T @ x
        return None, d_x.to(d[0].dtype), d_weight.to(d[0].dtype), d[0].sum(0), None


class _Product(Function):
    """x @ weight.T in bfloat16, from and to other types."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        factors = _rounded(x), weight.bfloat16()
        ctx.save_for_backward(*factors)
        return (factors[0] @ factors[1].T)[: len(x)].to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        d_product = _rounded(d[0])
        return (d_product @ weight)[: len(d[0])].to(d[0].dtype), (d_product.T @ x).to(d[0].dtype)


def _rounded(x: Tensor) -> Tensor:
    """Return a factor in bfloat16, with rows of zeros at its end."""
    rounded = x.new_empty(-(-len(x) // _ROWS) * _ROWS, x.shape[1], dtype=torch.bfloat16)
    rounded[: len(x)] = x
    rounded[len(x) :] = 0
    return rounded
