"""Linear layers of encoders, whose training can multiply in bfloat16."""

from torch import Tensor, nn
from torch.nn import functional as F


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
    product = F.linear(x.bfloat16(), weight.bfloat16()).to(x.dtype)
    return product if bias is None else product + bias
