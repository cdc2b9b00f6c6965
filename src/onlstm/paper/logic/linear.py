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


class Pass:
    """A network of dropout, linear layer, ReLU, dropout, linear layer, for many calls in one pass.

    The gradients of its weights are one product over all calls, at the end of the backward pass. If the layers are
    `narrow`, what is between them is rounded to bfloat16 too.
    """

    def __init__(self, network: nn.Sequential) -> None:
        _, first, _, dropout, second = network
        self.p: float = dropout.p if network.training else 0.0  # type: ignore[assignment]
        self.factors: list[tuple[Tensor, ...]] = []
        """Of the weights' gradients, in each call: both layers' inputs and the gradients of both layers' outputs."""
        dtype = torch.bfloat16 if first.narrow and network.training else first.weight.dtype
        weights = first.weight, first.bias, second.weight, second.bias
        self._weights = _Weights.apply(self, dtype, *weights)  # type: ignore[no-untyped-call]

    def __call__(self, *parts: Tensor) -> Tensor:
        """Return the output of the network for the parts (B, D), side by side."""
        output: Tensor = _Call.apply(self, *self._weights, *parts)  # type: ignore[no-untyped-call]
        return output


class _Weights(Function):
    """The weights of a pass, rounded."""

    @staticmethod
    def forward(ctx: Any, calls: Pass, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.calls, ctx.dtype = calls, weights[0].dtype
        ctx.set_materialize_grads(False)
        return tuple(weight.to(dtype, copy=True) for weight in weights)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        factors, ctx.calls.factors = ctx.calls.factors, []
        x, hidden, d_hidden, d_output = (torch.cat(parts) for parts in zip(*factors, strict=True))
        gradients = d_hidden.T @ x, d_hidden.sum(0), d_output.T @ hidden, d_output.sum(0)
        return None, None, *(gradient.to(ctx.dtype) for gradient in gradients)


class _Call(Function):
    """A call in a pass; the rest of the gradients is left to `_Weights`."""

    @staticmethod
    def forward(ctx: Any, calls: Pass, *tensors: Tensor) -> Tensor:
        (w_1, b_1, w_2, b_2), parts = tensors[:4], tensors[4:]
        x, ctx.dropped_x = _dropped(torch.cat([_rounded(part, w_1.dtype) for part in parts], -1), calls.p)
        hidden, ctx.dropped = _dropped(F.linear(x, w_1, b_1).relu_(), calls.p)
        ctx.save_for_backward(x, hidden, w_1, w_2)
        ctx.calls, ctx.parts = calls, len(parts)
        return F.linear(hidden, w_2, b_2)[: len(parts[0])].to(parts[0].dtype)

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, w_1, w_2 = ctx.saved_tensors
        d_output = _rounded(d[0], w_1.dtype)
        d_hidden = torch.ops.aten.threshold_backward(_masked(d_output @ w_2, ctx.dropped), hidden, 0)
        d_x = _masked(d_hidden @ w_1, ctx.dropped_x)
        ctx.calls.factors.append((x, hidden, d_hidden, d_output))
        return *[None] * 5, *d_x[: len(d[0])].to(d[0].dtype).chunk(ctx.parts, -1)


def _dropped(x: Tensor, p: float) -> tuple[Tensor, Tensor | None]:
    """Return x with dropout, in its place, and the mask, if there is one."""
    mask = (torch.rand_like(x, dtype=torch.float32) >= p).to(x.dtype) / (1 - p) if p else None
    return _masked(x, mask), mask


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x.mul_(mask)


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


def _rounded(x: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return a factor in bfloat16, with rows of zeros at its end; as it is, if it has another `dtype` already."""
    if x.dtype == dtype:
        return x
    rounded = x.new_empty(-(-len(x) // _ROWS) * _ROWS, x.shape[1], dtype=torch.bfloat16)
    rounded[: len(x)] = x
    rounded[len(x) :] = 0
    return rounded
