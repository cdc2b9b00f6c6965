"""The layer: `ONLSTM`, a drop-in for `torch.nn.LSTM`, and `ONLSTMCell`, one for `torch.nn.LSTMCell`.

Parameters, shapes, states and errors are those of torch; what is new is `chunk_size`, the distances that `scan`
returns beside the output, and the master gates that `gates` returns. The mathematics is in `onlstm.cell`, its fast
form in `onlstm.kernels`; here live parameters, layouts (batched, unbatched, packed), layers, directions and dropout.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from onlstm import cell
from onlstm._layout import Layout, State, autocast_enabled, check_cell, check_same, compute_dtype
from onlstm.cell import Distances, MasterGates
from onlstm.errors import nearest_divisors
from onlstm.kernels import ops

Backend = Literal["auto", "eager", "fused"]


class Scanned(NamedTuple):
    """What `ONLSTM.scan` returns."""

    output: Any
    """As `ONLSTM.forward` returns it: a tensor, or a `PackedSequence` for a packed input."""
    state: State
    """(h_n, c_n), as `ONLSTM.forward` returns it."""
    distances: Distances
    """`.forget` and `.input`: (num_layers * directions, T, B); zero where a packed sequence has ended."""


class _Chunked(nn.Module):
    """What the layer and the cell have in common beside torch's: parameters of more rows, and a chunk size."""

    hidden_size: int

    def _make_parameters(
        self, chunk_size: int, free_last_chunk: bool, backend: Backend, device: Any, dtype: torch.dtype | None
    ) -> None:
        """Replace the parameters that the base class has named; its own, of other sizes, take no memory."""
        if backend not in get_args(Backend):
            raise ValueError(f"backend should be 'auto', 'eager' or 'fused', got {backend!r}")
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

    def extra_repr(self) -> str:
        text = f"{super().extra_repr()}, chunk_size={self.chunk_size}"
        return text + (", free_last_chunk=True" if self.free_last_chunk else "")


class ONLSTM(_Chunked, nn.RNNBase):
    """Ordered-neurons LSTM, called like `nn.LSTM`: `output, (h_n, c_n) = layer(x, (h_0, c_0))`.

    Args (all of `nn.LSTM` but `proj_size`, in its order, then by keyword):
        chunk_size: neurons that share one entry of the master gates (C); divides hidden_size into two chunks or more.
        weight_dropout: drop-connect on the recurrent weights, one mask per call, in training only.
        weight_dropout_scale: "inverted" divides the kept weights by 1 - p in training; "original" leaves them and
            multiplies by 1 - p in evaluation, as the paper's code does.
        free_last_chunk: give each master gate one more logit, so that the last chunk can be written. Without it
            (the paper's cell) the last chunk of the state keeps its first value for ever: zero, from a zero state.
        backend: "fused" (C++ on a CPU), "eager" (plain autograd; has second derivatives) or "auto" (fused).

    Weights start from U(±1/sqrt(fan_in)), like the original's. Row blocks of weights and biases are in the order of
    `onlstm.cell.GATES`.

    >>> layer = ONLSTM(10, 24, chunk_size=4)
    >>> output, (h_n, c_n) = layer(torch.randn(7, 3, 10))
    >>> output.shape, h_n.shape
    (torch.Size([7, 3, 24]), torch.Size([1, 3, 24]))
    >>> layer.scan(torch.randn(7, 3, 10)).distances.forget.shape
    torch.Size([1, 7, 3])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        chunk_size: int,
        weight_dropout: float = 0.0,
        weight_dropout_scale: Literal["inverted", "original"] = "inverted",
        free_last_chunk: bool = False,
        backend: Backend = "auto",
        proj_size: int = 0,
    ) -> None:
        if proj_size:
            raise ValueError(
                "ONLSTM has no proj_size: the master gates order the neurons of one hidden state that is both "
                "cell and output; put an nn.Linear behind the layer instead"
            )
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device="meta"
        )
        self.mode = "ONLSTM"
        self.weight_dropout, self.weight_dropout_scale = weight_dropout, weight_dropout_scale
        if not 0 <= weight_dropout < 1:
            raise ValueError(f"weight_dropout should be a number in range [0, 1), got {weight_dropout}")
        if weight_dropout_scale not in ("inverted", "original"):
            raise ValueError(f"weight_dropout_scale should be 'inverted' or 'original', got {weight_dropout_scale!r}")
        self._make_parameters(chunk_size, free_last_chunk, backend, device, dtype)

    def flatten_parameters(self) -> None:
        """Do nothing: for code that calls it on every recurrent layer (only cuDNN needs it)."""

    def extra_repr(self) -> str:
        drop = f", weight_dropout={self.weight_dropout}, weight_dropout_scale={self.weight_dropout_scale!r}"
        return super().extra_repr() + (drop if self.weight_dropout else "")

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        weight_mask: Sequence[Tensor] | None = None,
    ) -> tuple[Any, State]:
        """Return `(output, (h_n, c_n))`, exactly as `nn.LSTM` does.

        `weight_mask` replaces the random drop-connect masks: one tensor like `weight_hh_l*` for each layer and
        direction, nonzero where a weight is kept.
        """
        output, state, _ = self.scan(input, hx, weight_mask=weight_mask)
        return output, state

    def scan(
        self,
        input: Tensor | PackedSequence,
        state: State | None = None,
        *,
        weight_mask: Sequence[Tensor] | None = None,
    ) -> Scanned:
        """Return what `forward` returns, and the split-point distances of every layer, direction and word."""
        rows, states, words, layout = self._run(input, state, weight_mask, self.backend)
        if self.backend == "eager":
            words = [cell.distances(gates) for gates in words]
        return Scanned(layout.output(rows), layout.state_out(states), Distances(*layout.grids(words)))

    def gates(self, input: Tensor | PackedSequence, state: State | None = None) -> MasterGates:
        """Return the master gates, `.forget` and `.input`: (num_layers * directions, T, B, M). Runs eagerly."""
        _, _, words, layout = self._run(input, state, None, "eager")
        return MasterGates(*layout.grids(words))

    def _run(
        self,
        input: Tensor | PackedSequence,
        state: State | None,
        weight_mask: Sequence[Tensor] | None,
        backend: Backend,
    ) -> tuple[Tensor, list[State], list[Any], Layout]:
        """Return the last layer's rows and, of each layer and direction, the states and what `_scan` says of rows."""
        layout = Layout.of(input, self.batch_first)
        self._check(layout, state)
        masks = self._checked_masks(weight_mask)
        dtype, autocast = compute_dtype(layout.data)
        h_0, c_0 = layout.state_in(state, len(self._all_weights), self.hidden_size)
        rows = layout.data.to(dtype)
        states: list[State] = []
        words: list[Any] = []
        with autocast:
            for layer in range(self.num_layers):
                outputs = []
                for direction in range(2 if self.bidirectional else 1):
                    k = len(states)
                    w_ih, w_hh, *biases = (getattr(self, name).to(dtype) for name in self._all_weights[k])
                    weights = [w_ih, self._drop_connect(w_hh, masks[k]), *biases]
                    first = h_0[k].to(dtype), c_0[k].to(dtype)
                    h, h_n, c_n, word = _scan(backend, rows, weights, first, layout, self.chunk_size, direction == 1)
                    outputs.append(h)
                    states.append((h_n, c_n))
                    words.append(word)
                rows = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
                if self.dropout and layer < self.num_layers - 1:
                    rows = F.dropout(rows, self.dropout, self.training)
        return rows, states, words, layout

    def _check(self, layout: Layout, state: State | None) -> None:
        """Raise what `nn.LSTM` raises, in its words, for an input or a state that does not fit."""
        x = layout.data
        if not x.is_floating_point():  # which the base class lets pass under autocast
            weight = getattr(self, self._all_weights[0][0]).dtype
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight}). "
                f"Convert input: input.to({weight}), or convert model: model.to({x.dtype})"
            )
        self.check_input(x, torch.empty(0))  # rows of words, like a packed input
        if layout.steps == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        check_same(x, "parameter", getattr(self, self._all_weights[0][0]), dtype=False)
        if state is not None:
            layout.check_state(state, len(self._all_weights), self.hidden_size)
            for tensor in state:
                check_same(x, "hidden", tensor, dtype=not autocast_enabled(x))

    def _checked_masks(self, weight_mask: Sequence[Tensor] | None) -> Sequence[Tensor | None]:
        if weight_mask is None:
            return [None] * len(self._all_weights)
        if not (self.training and self.weight_dropout):
            raise ValueError("weight_mask is for training with weight_dropout > 0")
        shape = getattr(self, self._all_weights[0][1]).shape
        if [mask.shape for mask in weight_mask] != [shape] * len(self._all_weights):
            raise ValueError(f"weight_mask should be {len(self._all_weights)} tensors of size {tuple(shape)}")
        return weight_mask

    def _drop_connect(self, w_hh: Tensor, mask: Tensor | None) -> Tensor:
        """Return the recurrent weights of this call."""
        p, inverted = self.weight_dropout, self.weight_dropout_scale == "inverted"
        if not self.training or not p:
            return w_hh if inverted or not p else w_hh * (1 - p)
        if mask is None:
            dropped = F.dropout(w_hh, p)
            return dropped if inverted else dropped * (1 - p)
        return w_hh * mask.to(w_hh.dtype) / (1 - p if inverted else 1)


class ONLSTMCell(_Chunked, nn.RNNCellBase):
    """One step of the ON-LSTM, called like `nn.LSTMCell`: `h, c = cell(x, (h, c))`.

    >>> cell = ONLSTMCell(10, 24, chunk_size=4)
    >>> h, c = cell(torch.randn(3, 10))
    >>> h.shape, c.shape
    (torch.Size([3, 24]), torch.Size([3, 24]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        chunk_size: int,
        free_last_chunk: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device="meta")
        self._make_parameters(chunk_size, free_last_chunk, backend, device, dtype)

    def forward(self, input: Tensor, hx: State | None = None) -> State:
        """Return `(h_1, c_1)` for an input (B, input_size) or (input_size), exactly as `nn.LSTMCell` does."""
        check_cell(input, hx, self.weight_ih, self.hidden_size)
        x = input if input.dim() == 2 else input[None]
        h, c = (x.new_zeros(2, x.shape[0], self.hidden_size)) if hx is None else hx
        if input.dim() == 1 and hx is not None:
            h, c = h[None], c[None]
        dtype, (_, autocast) = self.weight_ih.dtype, compute_dtype(x)  # autocast leaves nn.LSTMCell's states alone
        weights = [w for w in (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh) if w is not None]
        layout = Layout(x, 1, x.shape[0], batched=True)
        with autocast:
            first = h.to(dtype), c.to(dtype)
            _, h, c, _ = _scan(self.backend, x.to(dtype), weights, first, layout, self.chunk_size)
        return (h, c) if input.dim() == 2 else (h[0], c[0])


def _scan(
    backend: Backend,
    rows: Tensor,
    weights: list[Tensor],
    state: State,
    layout: Layout,
    chunk_size: int,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor, MasterGates | Distances]:
    """Return h (N, D), h_n, c_n (B, D) and, of every row, the master gates (eager) or the distances (fused)."""
    w_ih, w_hh, *biases = weights
    bias = biases[0] + biases[1] if biases else None
    if backend == "eager":
        return cell.scan(F.linear(rows, w_ih, bias), w_hh, *state, chunk_size, layout.sizes(), reverse)
    h, h_n, c_n, d_f, d_i = ops.scan(rows, w_ih, w_hh, bias, *state, layout.batch_sizes, chunk_size, reverse)
    return h, h_n, c_n, Distances(d_f, d_i)
