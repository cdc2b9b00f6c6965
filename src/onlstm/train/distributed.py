"""Many processes that train as one: who computes which columns of the batch, and sums over all of them.

Started by `torchrun`; without it the world is one process and every call here does nothing.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from onlstm.errors import UserError


@dataclass(frozen=True)
class World:
    """This process among its peers."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls) -> "World":
        """Return the world that torchrun's environment describes, joined (gloo: processors, any network)."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        if not dist.is_initialized():
            # others wait while the first prepares a corpus or evaluates
            dist.init_process_group("gloo", timeout=timedelta(hours=24))
        return cls(dist.get_rank(), dist.get_world_size())

    def leave(self) -> None:
        """Close the connections."""
        if self.size > 1:
            dist.destroy_process_group()

    def columns(self, batch: int) -> slice:
        """Return the columns of a batch that are computed here."""
        if batch % self.size:
            raise UserError(f"train.batch_size {batch}: {self.size} processes need a multiple of {self.size}")
        share = batch // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their mean over all processes."""
        if self.size > 1:
            kept = list(tensors)
            flat = _flatten_dense_tensors(kept) / self.size
            dist.all_reduce(flat)
            for tensor, mean in zip(kept, _unflatten_dense_tensors(flat, kept), strict=True):
                tensor.copy_(mean)

    def largest(self, *values: float) -> list[float]:
        """Return each value's maximum over all processes (nan if any is nan)."""
        if self.size == 1:
            return list(values)
        gathered = [torch.empty(len(values), dtype=torch.float64) for _ in range(self.size)]
        dist.all_gather(gathered, torch.tensor(values, dtype=torch.float64))
        return torch.stack(gathered).amax(0).tolist()

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the columns (dimension 1) of all processes side by side."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts, 1)

    def from_first(self, value: Any) -> Any:
        """Return the first process's value."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]
