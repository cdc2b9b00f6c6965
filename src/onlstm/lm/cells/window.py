"""Attention of every word to the states of a window that moves with it, for pointers and for PRPN.

Windows overlap: the L queries of a block are multiplied with all 2 L states that any of them sees, and each picks its
own, so that nothing is copied and cost grows with T L.

    q             queries, (T, B, H)
    states        all that is seen, the oldest first, (T + L - 1, B, H): the window of word t is states[t : t + L]
"""

from collections.abc import Iterator

import torch
from torch import Tensor


def products(q: Tensor, states: Tensor) -> Tensor:
    """Return the products of queries with their windows, (T, B, L).

    >>> products(torch.tensor([[[1.0]], [[10.0]]]), torch.tensor([[[1.0]], [[2.0]], [[3.0]]]))
    tensor([[[ 1.,  2.]],
    <BLANKLINE>
            [[20., 30.]]])
    """
    window = len(states) - len(q) + 1
    parts = []
    for words, seen, own in _blocks(len(q), window, q.shape[1], q.device):
        pairs = q[words].transpose(0, 1) @ states[seen].permute(1, 2, 0)  # (B, t, t + L - 1)
        parts.append(pairs.gather(2, own))
    return torch.cat(parts, 1).transpose(0, 1)


def sums(weights: Tensor, states: Tensor) -> Tensor:
    """Return the sums of windows, weighted by (T, B, L), as (T, B, H)."""
    count, batch, window = weights.shape
    parts = []
    for words, seen, own in _blocks(count, window, batch, weights.device):
        some = weights[words].transpose(0, 1)
        pairs = some.new_zeros(batch, some.shape[1], seen.stop - seen.start).scatter(2, own, some)
        parts.append(pairs @ states[seen].transpose(0, 1))
    return torch.cat(parts, 1).transpose(0, 1)


def _blocks(count: int, window: int, batch: int, device: torch.device) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield the words of each block, the states they see, and which of these each sees, (B, t, L)."""
    for first in range(0, count, window):
        size = min(window, count - first)
        own = torch.arange(size, device=device)[:, None] + torch.arange(window, device=device)
        yield slice(first, first + size), slice(first, first + size + window - 1), own.expand(batch, -1, -1)
