"""Linear layers of encoders, whose training can multiply in bfloat16; and layers that a pass applies many times."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from onlstm.kernels.factor import Factor, multiply


class Linear(nn.Linear):
    """`nn.Linear`, whose training rounds its products if it is `narrow`."""

    narrow = False
    """Whether training rounds the factors of products to bfloat16."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, narrow=self.narrow and self.training)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, narrow: bool) -> Tensor:
    """Return x @ weight.T + bias.

    `narrow` rounds the factors of this product and of the two that its gradients are to bfloat16; they are summed in
    float32.
    """
    rows = x.reshape(-1, x.shape[-1])
    product: Tensor = _Product.apply(rows, weight, bias, narrow)  # type: ignore[no-untyped-call]
    return product.view(*x.shape[:-1], len(weight))


class Repeated:
    """A linear layer that a pass applies many times: the gradient of its weights is one product over all inputs."""

    def __init__(self, layer: Linear) -> None:
        self._uses = _Uses(layer.weight.detach(), layer.narrow and layer.training)
        self._tap: Tensor = _Weights.apply(self._uses, layer.weight, layer.bias)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor, product: Tensor | None = None) -> Tensor:
        """Return layer(x), which is `product` if that was computed already, without gradients."""
        with_gradients: Tensor = _Use.apply(self._uses, self._tap, x, product)  # type: ignore[no-untyped-call]
        return with_gradients


@dataclass
class _Uses:
    """What the uses of a layer share. It knows nothing of the graph, which knows it: a cycle would never be freed."""

    weight: Tensor
    narrow: bool
    pairs: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """The gradient of each product that has had its backward pass, and its input."""

    @cached_property
    def forward(self) -> Factor:
        """What inputs are multiplied by."""
        return Factor(self.weight.T, narrow=self.narrow)

    @cached_property
    def backward(self) -> Factor:
        """What gradients are multiplied by."""
        return Factor(self.weight, narrow=self.narrow)


class _Weights(Function):
    """The weights. The bias stands in for both: its gradient is complete once all uses have had their backward pass."""

    @staticmethod
    def forward(ctx: Any, uses: _Uses, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.uses = uses
        return bias.detach().clone()

    @staticmethod
    def backward(ctx: Any, *d_bias: Tensor) -> tuple[Tensor | None, ...]:
        d_products, inputs = map(torch.cat, zip(*ctx.uses.pairs, strict=True))
        ctx.uses.pairs.clear()
        return None, multiply(d_products.T, inputs, narrow=ctx.uses.narrow), *d_bias


class _Use(Function):
    """x @ weight.T + bias, maybe known already."""

    @staticmethod
    def forward(ctx: Any, uses: _Uses, bias: Tensor, x: Tensor, product: Tensor | None) -> Tensor:
        ctx.uses = uses
        ctx.save_for_backward(x)
        return uses.forward.times(x, bias) if product is None else product.view_as(product)

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        ctx.uses.pairs.append((d[0], *ctx.saved_tensors))
        d_x = ctx.uses.backward.times(d[0]) if ctx.needs_input_grad[2] else None
        return None, d[0].sum(0), d_x, None


class _Product(Function):
    """x @ weight.T + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, narrow: bool) -> Tensor:
        ctx.narrow = narrow
        ctx.save_for_backward(x, weight)
        return Factor(weight.T, narrow=narrow).times(x, bias)

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            multiply(d[0], weight, narrow=ctx.narrow) if of_x else None,
            multiply(d[0].T, x, narrow=ctx.narrow) if of_weight else None,
            d[0].sum(0) if of_bias else None,
            None,
        )
