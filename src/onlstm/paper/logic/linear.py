"""Linear layers of encoders, whose training can multiply in bfloat16; and layers with many inputs in one pass."""

from dataclasses import dataclass, field
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


class Repeated:
    """A linear layer that a pass applies many times: the gradient of its weights is one product over all inputs."""

    def __init__(self, layer: Linear) -> None:
        narrow = layer.narrow and layer.training
        weight = layer.weight.detach()
        self._uses = _Uses(weight.bfloat16() if narrow else weight)
        self._tap: Tensor = _Weights.apply(self._uses, layer.weight, layer.bias)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor, product: Tensor | None = None) -> Tensor:
        """Return layer(x), which is `product` if that was computed already, without gradients."""
        with_gradients: Tensor = _Use.apply(self._uses, self._tap, x, product)  # type: ignore[no-untyped-call]
        return with_gradients


@dataclass
class _Uses:
    """What the uses of a layer share. It knows nothing of the graph, which knows it: a cycle would never be freed."""

    weight: Tensor
    factors: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Of the weights' gradient: the gradient of each product that has had its backward pass, and the input."""

    def factor(self, x: Tensor) -> Tensor:
        """Return numbers as a factor of a product with the weights."""
        return _rounded(x) if self.weight.dtype == torch.bfloat16 else x


class _Weights(Function):
    """The weights. The bias stands in for both: its gradient is complete once all uses have had their backward pass."""

    @staticmethod
    def forward(ctx: Any, uses: _Uses, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.uses = uses
        return bias.detach().clone()

    @staticmethod
    def backward(ctx: Any, *d_bias: Tensor) -> tuple[Tensor | None, ...]:
        d_products, inputs = map(torch.cat, zip(*ctx.uses.factors, strict=True))
        ctx.uses.factors.clear()
        return None, (d_products.T @ inputs).to(d_bias[0].dtype), *d_bias


class _Use(Function):
    """x @ weight.T + bias, maybe known already."""

    @staticmethod
    def forward(ctx: Any, uses: _Uses, bias: Tensor, x: Tensor, product: Tensor | None) -> Tensor:
        ctx.uses, factor = uses, uses.factor(x)
        ctx.save_for_backward(factor)
        if product is not None:
            return product.view_as(product)
        if factor is x:
            return torch.addmm(bias, x, uses.weight.T)
        return (factor @ uses.weight.T)[: len(x)].to(x.dtype) + bias

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        factor = ctx.uses.factor(d[0])
        ctx.uses.factors.append((factor, *ctx.saved_tensors))
        d_x = (factor @ ctx.uses.weight)[: len(d[0])].to(d[0].dtype) if ctx.needs_input_grad[2] else None
        return None, d[0].sum(0), d_x, None


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
