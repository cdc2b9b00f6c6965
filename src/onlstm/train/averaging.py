"""Non-monotonically triggered averaged SGD (Merity et al. 2018), and schedules of the learning rate.

Once validation stops improving, the running mean of all later weights is what gets validated and saved. The original
uses `torch.optim.ASGD`, which applies each step's learning rate one step late and leaves the first iterate out of the
mean. `Averages` does neither; `averaging: asgd-compat` keeps both, to follow the original's numbers exactly.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Averages:
    """The mean of the weights over all steps since it was made."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._means = [torch.zeros_like(p) for p in parameters]
        self._count = 0

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights."""
        self._count += 1
        torch._foreach_lerp_(self._means, [p.detach() for p in self._parameters], 1 / self._count)

    def means(self) -> list[Tensor]:
        return self._means

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._count, "means": self._means}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count = state["count"]
        for mean, saved in zip(self._means, state["means"], strict=True):
            mean.copy_(saved)


class CompatAverages:
    """The same, as `torch.optim.ASGD` keeps it: the mean of its second and later iterates."""

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        self._parameters, self._optimizer = parameters, optimizer

    def update(self) -> None:
        """Do nothing: the optimizer did it."""

    def means(self) -> list[Tensor]:
        return [self._optimizer.state[p]["ax"] if p in self._optimizer.state else p.detach() for p in self._parameters]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: it is in the optimizer's state."""


@contextmanager
def swapped(parameters: Sequence[nn.Parameter], values: Sequence[Tensor] | None) -> Iterator[None]:
    """Put values in the parameters' place for a while; None leaves them."""
    kept = [p.data for p in parameters]
    try:
        for p, value in zip(parameters, values if values is not None else kept, strict=True):
            p.data = value
        yield
    finally:
        for p, value in zip(parameters, kept, strict=True):
            p.data = value


def stalled(history: Sequence[float], loss: float, patience: int) -> bool:
    """Return whether `loss` is worse than the best of all but the last `patience` losses before it.

    >>> stalled([5.0, 4.0, 4.1, 4.2], 4.05, patience=2), stalled([5.0, 4.0, 4.1, 4.2], 3.9, patience=2)
    (True, False)
    """
    return len(history) > patience and loss > min(history[: len(history) - patience])


def schedule(kind: str, done: float, warmup: float) -> float:
    """Return the factor of the learning rate when the share `done` of the training lies behind.

    `one-cycle` rises from a 25th over the share `warmup` and falls along a cosine to nothing; `cosine` does the same
    from zero; `constant` and `plateau` (which the trainer lowers itself) stay at 1.
    """
    if kind in ("constant", "plateau"):
        return 1.0
    start = 1 / 25 if kind == "one-cycle" else 0.0
    if done < warmup:
        return start + (1 - start) * (0.5 - 0.5 * math.cos(math.pi * done / warmup))
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (done - warmup) / (1 - warmup)))
