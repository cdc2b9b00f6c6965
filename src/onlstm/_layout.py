"""What a caller hands in: its layout of time and batch, (T, B, I), (B, T, I), (T, I) or packed; its type and place.

Inside a layer there is one form only: a row per word, step after step, longest sequence first, as when packed.
Imported by `onlstm.layer` alone.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

State = tuple[Tensor, Tensor]


class Layout(NamedTuple):
    """How the caller laid out time and batch. Inside, `data` has one row a word, step after step, as when packed."""

    data: Tensor
    steps: int
    batch: int
    batched: bool
    batch_first: bool = False
    packed: PackedSequence | None = None

    @classmethod
    def of(cls, input: Tensor | PackedSequence, batch_first: bool) -> "Layout":
        if isinstance(input, PackedSequence):
            order = input.unsorted_indices
            batch = int(input.batch_sizes[0]) if order is None else len(order)
            return cls(input.data, len(input.batch_sizes), batch, batched=True, packed=input)
        if input.dim() not in (2, 3):
            raise ValueError(f"ONLSTM: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if input.dim() == 2:
            return cls(input, input.shape[0], 1, batched=False)
        if batch_first:
            input = input.transpose(0, 1)
        steps, batch, _ = input.shape
        return cls(input.reshape(steps * batch, input.shape[2]), steps, batch, batched=True, batch_first=batch_first)

    @property
    def batch_sizes(self) -> Tensor | None:
        """Rows of each step; None when every step has all."""
        return None if self.packed is None else self.packed.batch_sizes

    def sizes(self) -> list[int]:
        """Rows of each step, as numbers."""
        return [self.batch] * self.steps if self.packed is None else _numbers(self.packed.batch_sizes)

    def check_state(self, state: State, runs: int, hidden_size: int) -> None:
        """Raise what `nn.LSTM` raises for a state of another shape."""
        h, c = state[0], state[1]
        kind, rank = ("batched 3-D", 3) if self.batched else ("unbatched 2-D", 2)
        if (h.dim(), c.dim()) != (rank, rank):
            got = f"({h.dim()}-D, {c.dim()}-D)"
            raise RuntimeError(f"For {kind} input, hx and cx should also be {rank}-D but got {got} tensors")
        expected = (runs, self.batch, hidden_size)
        for k, each in enumerate((h, c)):
            shape = each.shape if self.batched else each.unsqueeze(1).shape
            if shape != expected:
                raise RuntimeError(f"Expected hidden[{k}] size {expected}, got {list(shape)}")

    def state_in(self, state: State | None, runs: int, hidden_size: int) -> State:
        """Return h_0, c_0 (runs, B, D), longest sequence first."""
        if state is None:
            zeros = self.data.new_zeros(runs, self.batch, hidden_size)
            return zeros, zeros
        if not self.batched:
            return state[0].unsqueeze(1), state[1].unsqueeze(1)
        order = None if self.packed is None else self.packed.sorted_indices
        return state if order is None else (state[0].index_select(1, order), state[1].index_select(1, order))

    def state_out(self, states: list[State]) -> State:
        """Return h_n, c_n in the caller's order."""
        h, c = (torch.stack(runs) for runs in zip(*states, strict=True))
        if not self.batched:
            return h.squeeze(1), c.squeeze(1)
        order = None if self.packed is None else self.packed.unsorted_indices
        return (h, c) if order is None else (h.index_select(1, order), c.index_select(1, order))

    def output(self, rows: Tensor) -> Tensor | PackedSequence:
        if self.packed is not None:
            _, batch_sizes, sorted_indices, unsorted_indices = self.packed
            return PackedSequence(rows, batch_sizes, sorted_indices, unsorted_indices)
        if not self.batched:
            return rows
        output: Tensor = rows.unflatten(0, (self.steps, self.batch))
        return output.transpose(0, 1) if self.batch_first else output

    def grids(self, words: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        """Return each of the two values per row as one tensor (runs, T, B, …), or (runs, T, …) if unbatched."""
        return tuple(torch.stack([self._grid(rows) for rows in runs]) for runs in zip(*words, strict=True))

    def _grid(self, rows: Tensor) -> Tensor:
        if self.packed is not None:
            return self._padded(rows, self.packed)
        return rows.unflatten(0, (self.steps, self.batch)) if self.batched else rows

    def _padded(self, rows: Tensor, packed: PackedSequence) -> Tensor:
        """Return `pad_packed_sequence` of these rows, in operations that torch.compile can trace."""
        sizes = packed.batch_sizes.to(rows.device)
        column = torch.arange(self.batch, device=rows.device)
        if packed.unsorted_indices is not None:
            column = packed.unsorted_indices
        ended = column >= sizes[:, None]
        row = (sizes.cumsum(0) - sizes)[:, None] + column
        grid = rows[row.masked_fill(ended, 0)]
        return grid.masked_fill(ended.reshape(ended.shape + (1,) * (grid.dim() - 2)), 0)


def _numbers(tensor: Tensor) -> list[int]:
    """Return its values, outside any compiled graph."""
    if torch.compiler.is_compiling():  # a decorator would import the compiler, which takes seconds
        torch._dynamo.graph_break()
    numbers: list[int] = tensor.tolist()
    return numbers


def check_same(x: Tensor, name: str, other: Tensor, dtype: bool) -> None:
    """Raise what torch's recurrent layers raise for tensors of two devices or (where that counts) types."""
    if x.device != other.device:
        raise RuntimeError(
            f"Input and {name} tensors are not at the same device, found input tensor at {x.device} "
            f"and {name} tensor at {other.device}"
        )
    if dtype and x.dtype != other.dtype:
        raise RuntimeError(
            f"Input and {name} tensors are not the same dtype, found input tensor with {x.dtype} "
            f"and {name} tensor with {other.dtype}"
        )


def check_cell(input: Tensor, hx: State | None, weight_ih: Tensor, hidden_size: int) -> None:
    """Raise what `nn.LSTMCell` raises for an input or a state that does not fit."""
    if input.dim() not in (1, 2):
        raise ValueError(f"ONLSTMCell: Expected input to be 1D or 2D, got {input.dim()}D instead")
    if (size := input.shape[-1]) != weight_ih.shape[1]:
        raise RuntimeError(f"input has inconsistent input_size: got {size} expected {weight_ih.shape[1]}")
    for k, state in enumerate(hx or ()):
        if state.dim() not in (1, 2):
            raise ValueError(f"ONLSTMCell: Expected hx[{k}] to be 1D or 2D, got {state.dim()}D instead")
        if input.dim() == 2 and (batch := state.shape[0]) != input.shape[0]:
            raise RuntimeError(f"Input batch size {input.shape[0]} doesn't match hidden{k} batch size {batch}")
        if state.dim() != input.dim():
            raise ValueError(f"ONLSTMCell: Expected hx[{k}] to be {input.dim()}D, got {state.dim()}D instead")
        if (size := state.shape[-1]) != hidden_size:
            raise RuntimeError(f"hidden{k} has inconsistent hidden_size: got {size}, expected {hidden_size}")
    for name, tensor in (("parameter", weight_ih), *(("hidden", state) for state in hx or ())):
        check_same(input, name, tensor, dtype=not autocast_enabled(input))


def autocast_enabled(x: Tensor) -> bool:
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def compute_dtype(x: Tensor) -> tuple[torch.dtype, AbstractContextManager[Any]]:
    """Return the type to compute in, and a context in which autocast, having been honoured, is off."""
    if not autocast_enabled(x):
        return x.dtype, nullcontext()
    kind = x.device.type
    dtype = x.dtype if x.dtype == torch.float64 else torch.get_autocast_dtype(kind)  # torch leaves float64 alone
    return dtype, torch.autocast(kind, enabled=False)
