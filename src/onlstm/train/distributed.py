"""Many processes that train as one: which columns of the batch each computes, and means over all of them.

Started by `torchrun`; without it the world is one process.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from onlstm.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among its peers."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, device: torch.device | None = None) -> "World":
        """Return the world that torchrun's environment describes, joined: by gloo and, on CUDA devices, by nccl."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        if not dist.is_initialized():
            # others wait while the first prepares a corpus or evaluates
            if device and device.type == "cuda":
                torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl" if device and device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(hours=24))
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

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over all processes."""
        if self.size > 1:
            flat = _flatten_dense_tensors(tensors) / self.size
            dist.all_reduce(flat)
            for tensor, mean in zip(tensors, _unflatten_dense_tensors(flat, tensors), strict=True):
                tensor.copy_(mean)

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a scalar over all processes."""
        mean = value.detach().clone()
        self.average([mean])
        return mean

    def any(self, *flags: bool) -> list[bool]:
        """Return of each flag whether it is set in any process."""
        if self.size == 1:
            return list(flags)
        counts = torch.tensor(flags, dtype=torch.int64)  # on the CPU, so no GPU waits for it
        dist.all_reduce(counts)
        return [count > 0 for count in counts.tolist()]

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the columns (dimension 1) of all processes side by side."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts, 1)

    def from_first(self, value: T) -> T:
        """Return the first process's value."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values)
        return values[0]
