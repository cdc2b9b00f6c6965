"""Non-monotonically triggered averaged SGD (Merity et al. 2018), and schedules of the learning rate.

Once validation stops improving, the running mean of all later weights is what gets validated and saved. The original
uses `torch.optim.ASGD`, which applies the learning rate of each step one step late and leaves the first iterate out of
the mean. `Averages` does neither, unless it is given such an optimizer to follow the original's numbers exactly.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from onlstm.train.checkpoint import StateDict


class Averages:
    """The mean of the weights over all steps since it was made; of an `asgd` optimizer, the one that this keeps."""

    def __init__(self, parameters: Sequence[nn.Parameter], asgd: torch.optim.ASGD | None = None) -> None:
        self._parameters, self._asgd, self._count = parameters, asgd, 0
        self._means = [] if asgd else [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights."""
        self._count += 1
        if not self._asgd:
            torch._foreach_lerp_(self._means, [p.detach() for p in self._parameters], 1 / self._count)

    def means(self) -> list[Tensor]:
        if not self._asgd:
            return self._means
        state = self._asgd.state
        return [state[p]["ax"] if p in state else p.detach() for p in self._parameters]

    def state_dict(self) -> StateDict:
        return {} if self._asgd else {"count": self._count, "means": self._means}

    def load_state_dict(self, state: StateDict) -> None:
        if not self._asgd:  # whose means are in the optimizer's state
            self._count = state["count"]
            for mean, value in zip(self._means, state["means"], strict=True):  # which may come from another device
                mean.copy_(value)


@contextmanager
def swapped(parameters: Sequence[nn.Parameter], values: Sequence[Tensor] | None) -> Iterator[None]:
    """Give the parameters other values for a while; None leaves them."""
    weights = [p.data for p in parameters]
    try:
        for p, value in zip(parameters, weights if values is None else values, strict=True):
            p.data = value
        yield
    finally:
        for p, weight in zip(parameters, weights, strict=True):
            p.data = weight


def stalled(history: Sequence[float], loss: float, patience: int) -> bool:
    """Return whether `loss` is worse than the best of all but the last `patience` losses before it.

    >>> stalled([5.0, 4.0, 4.1, 4.2], 4.05, patience=2), stalled([5.0, 4.0, 4.1, 4.2], 3.9, patience=2)
    (True, False)
    """
    return len(history) > patience and loss > min(history[: len(history) - patience])


def schedule(kind: str, done: float, warmup: float) -> float:
    """Return the factor of the learning rate when the share `done` of the training is done.

    `one-cycle` rises from a 25th over the share `warmup` and falls along a cosine to zero; `cosine` does the same from
    zero; `trapezoid` rises and, over the last 30 %, falls along straight lines; `constant` and `plateau` (which has its
    own factor) stay at 1.
    """
    if kind in ("constant", "plateau"):
        return 1.0
    if kind == "trapezoid":
        return min(1.0, done / warmup if warmup else 1.0, (1 - done) / 0.3)
    start = 1 / 25 if kind == "one-cycle" else 0.0
    if done < warmup:
        return start + (1 - start) * (0.5 - 0.5 * math.cos(math.pi * done / warmup))
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (done - warmup) / (1 - warmup)))
