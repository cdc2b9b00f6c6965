"""What `ONLSTM` and `ONLSTMCell` have in common beside torch's base classes: parameters of more rows, a chunk size.

Imported by `onlstm.layer` alone.
"""

import math
from typing import Any, Literal, get_args

import torch
from torch import nn

from onlstm.errors import nearest_divisors
from onlstm.kernels import ops

Backend = Literal["auto", "eager", "fused"]


def default_chunk_size(hidden_size: int) -> int:
    """Return the largest divisor up to 10 that leaves two chunks or more (1 if there is none).

    >>> [default_chunk_size(size) for size in (1150, 400, 12, 7)]
    [10, 10, 6, 1]
    """
    return max((size for size in range(1, 11) if hidden_size % size == 0 and hidden_size >= 2 * size), default=1)


class Chunked(nn.Module):
    """Parameters of a master gate's rows and an LSTM's, each chunk of neurons sharing an entry of the master gates."""

    hidden_size: int

    def _make_parameters(
        self, chunk_size: int | None, free_last_chunk: bool, backend: Backend, device: Any, dtype: torch.dtype | None
    ) -> None:
        """Replace the parameters that the base class has named; its own, of other sizes, take no memory."""
        if backend not in get_args(Backend):
            raise ValueError(f"backend should be 'auto', 'eager' or 'fused', got {backend!r}")
        if chunk_size is None:
            chunk_size = default_chunk_size(self.hidden_size)
        if not isinstance(chunk_size, int) or isinstance(chunk_size, bool):
            raise TypeError(f"chunk_size should be of type int, got: {type(chunk_size).__name__}")
        if (near := nearest_divisors(chunk_size, self.hidden_size)) is not None:
            single = f"chunk_size {chunk_size} leaves a single chunk, which can never be written"
            uneven = f"hidden_size {self.hidden_size} is not a multiple of chunk_size {chunk_size}"
            raise ValueError(
                f"{single if chunk_size == self.hidden_size else uneven}; nearest that work: "
                f"{', '.join(map(str, near)) or 'none, take a larger hidden_size'}"
            )
        self.chunk_size, self.free_last_chunk, self.backend = chunk_size, free_last_chunk, backend
        rows = 2 * (self.hidden_size // chunk_size + free_last_chunk) + 4 * self.hidden_size
        for name, like in list(self.named_parameters()):
            setattr(self, name, nn.Parameter(torch.empty(rows, *like.shape[1:], device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and their biases from U(±1/sqrt(fan_in))."""
        parameters = dict(self.named_parameters(recurse=False))
        for name, parameter in parameters.items():
            fan_in = parameters[name.replace("bias", "weight")].shape[1]
            nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def _kernel(self, packed: bool = False) -> Backend:
        """Return the backend of this call: a recorded graph holds the operator, which takes any length."""
        return "fused" if self.backend == "eager" and ops.is_recording(packed) else self.backend

    def extra_repr(self) -> str:
        text = f"{super().extra_repr()}, chunk_size={self.chunk_size}"
        return text + (", free_last_chunk=True" if self.free_last_chunk else "")
