"""The layer: `ONLSTM`, a drop-in for `torch.nn.LSTM`, and `ONLSTMCell`, one for `torch.nn.LSTMCell`.

Parameters, shapes, states and errors are those of torch; what is new is `chunk_size`, the distances that `scan`
returns beside the output, and the master gates that `gates` returns. The mathematics is in `onlstm.cell`, its fast
form in `onlstm.kernels`; here live parameters, layouts (batched, unbatched, packed), layers, directions and dropout.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from onlstm import cell
from onlstm._layout import Layout, State, autocast_enabled, check_cell, check_same, compute_dtype
from onlstm._parameters import Backend, Chunked
from onlstm.cell import Distances, MasterGates
from onlstm.kernels import ops


class Scanned(NamedTuple):
    """What `ONLSTM.scan` returns."""

    output: Any
    """As `ONLSTM.forward` returns it: a tensor, or a `PackedSequence` for a packed input."""
    state: State
    """(h_n, c_n), as `ONLSTM.forward` returns it."""
    distances: Distances
    """`.forget` and `.input`: (num_layers * directions, T, B); zero where a packed sequence has ended."""


class ONLSTM(Chunked, nn.RNNBase):
    """Ordered-neurons LSTM, called like `nn.LSTM`: `output, (h_n, c_n) = layer(x, (h_0, c_0))`.

    Every argument of `nn.LSTM` keeps its place; those of the ON-LSTM are given by keyword. Weights start from
    U(±1/sqrt(fan_in)), like the original's. Row blocks of weights and biases are in the order of `onlstm.cell.GATES`.

    >>> layer = ONLSTM(10, 24, chunk_size=4)
    >>> output, (h_n, c_n) = layer(torch.randn(7, 3, 10))
    >>> output.shape, h_n.shape
    (torch.Size([7, 3, 24]), torch.Size([1, 3, 24]))
    >>> layer.scan(torch.randn(7, 3, 10)).distances.forget.shape
    torch.Size([1, 7, 3])
    """

    narrow = False
    """Whether training rounds the factors of products to bfloat16; sums, gates and states stay in float32."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        chunk_size: int | None = None,
        weight_dropout: float = 0.0,
        weight_dropout_scale: Literal["inverted", "original"] = "inverted",
        free_last_chunk: bool = False,
        backend: Backend = "auto",
    ) -> None:
        """Make the parameters, as `nn.LSTM` does.

        Args:
            input_size: features of a word.
            hidden_size: neurons of each layer and direction (D).
            num_layers: layers, each of which reads the output of the one below.
            bias: whether there are biases.
            batch_first: input and output are (B, T, …) instead of (T, B, …); states are not.
            dropout: on the output of every layer but the last, in training only.
            bidirectional: read each sequence from both ends; the output is both halves side by side.
            proj_size: 0, in the place it has in `nn.LSTM`; the ON-LSTM has no projection.
            device: where the parameters are.
            dtype: their type.
            chunk_size: neurons that share one entry of the master gates (C); divides hidden_size into two chunks or
                more. Default: the largest such divisor up to 10.
            weight_dropout: drop-connect on the recurrent weights, one mask per call, in training only.
            weight_dropout_scale: "inverted" divides the kept weights by 1 - p in training; "original" leaves them and
                multiplies by 1 - p in evaluation, as the paper's code does.
            free_last_chunk: give each master gate one more logit, so that the last chunk can be written. Without it
                (the paper's cell) the last chunk of the state keeps its first value for ever: zero, from a zero state.
            backend: "fused" (C++ on CPUs, Triton on GPUs), "eager" (autograd through the equations) or "auto" (fused).
        """
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
        rows, states, _, layout = self._run(input, hx, weight_mask)
        return layout.output(rows), layout.state_out(states)

    def scan(
        self,
        input: Tensor | PackedSequence,
        state: State | None = None,
        *,
        weight_mask: Sequence[Tensor] | None = None,
    ) -> Scanned:
        """Return what `forward` returns, and the split-point distances of every layer, direction and word."""
        rows, states, words, layout = self._run(input, state, weight_mask)
        words = [cell.distances(word) if isinstance(word, MasterGates) else word for word in words]
        return Scanned(layout.output(rows), layout.state_out(states), Distances(*layout.grids(words)))

    def gates(self, input: Tensor | PackedSequence, state: State | None = None) -> MasterGates:
        """Return the master gates, `.forget` and `.input`: (num_layers * directions, T, B, M). Runs eagerly."""
        _, _, words, layout = self._run(input, state, None, gates=True)
        return MasterGates(*layout.grids(words))

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the size of c_0: that of h_0."""
        return self.get_expected_hidden_size(input, batch_sizes)

    def check_forward_args(self, input: Tensor, hidden: State, batch_sizes: Tensor | None) -> None:  # type: ignore[override]
        """Raise what `nn.LSTM` raises for an input or a state of another size."""
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        for k, state in enumerate(hidden):
            self.check_hidden_size(state, expected, f"Expected hidden[{k}] size {{}}, got {{}}")

    def permute_hidden(self, hx: State, permutation: Tensor | None) -> State:  # type: ignore[override]
        """Return the states with their sequences in another order."""
        return hx if permutation is None else (hx[0].index_select(1, permutation), hx[1].index_select(1, permutation))

    def _run(
        self,
        input: Tensor | PackedSequence,
        state: State | None,
        weight_mask: Sequence[Tensor] | None,
        gates: bool = False,
    ) -> tuple[Tensor, list[State], list[Any], Layout]:
        """Return the last layer's rows and, of each layer and direction, the states and what `_scan` says of rows."""
        layout = Layout.of(input, self.batch_first)
        backend = "eager" if gates else self._kernel(layout.packed is not None)
        self._check(layout, state)
        masks = self._checked_masks(weight_mask)
        dtype, autocast = compute_dtype(layout.data)
        h_0, c_0 = layout.state_in(state, len(self._all_weights), self.hidden_size)
        rows, narrow = layout.data.to(dtype), self.narrow and self.training
        wide = dtype == torch.bfloat16 and backend != "eager"  # the operator rounds what it multiplies
        parameter_dtype = getattr(self, self._all_weights[0][0]).dtype if wide else dtype
        states: list[State] = []
        words: list[Any] = []
        with autocast:
            for layer in range(self.num_layers):
                outputs = []
                for direction in range(2 if self.bidirectional else 1):
                    k = len(states)
                    w_ih, w_hh, *biases = (getattr(self, name).to(parameter_dtype) for name in self._all_weights[k])
                    weights = [w_ih, self._drop_connect(w_hh, masks[k]), *biases]
                    first = h_0[k].to(dtype), c_0[k].to(dtype)
                    options = self.chunk_size, direction == 1, narrow
                    h, h_n, c_n, word = _scan(backend, rows, weights, first, layout, *options)
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


class ONLSTMCell(Chunked, nn.RNNCellBase):
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
        chunk_size: int | None = None,
        free_last_chunk: bool = False,
        backend: Backend = "auto",
    ) -> None:
        """Make the parameters, as `nn.LSTMCell` does; `chunk_size`, `free_last_chunk`, `backend` as in `ONLSTM`."""
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
            _, h, c, _ = _scan(self._kernel(), x.to(dtype), weights, first, layout, self.chunk_size)
        return (h, c) if input.dim() == 2 else (h[0], c[0])


def _scan(
    backend: Backend,
    rows: Tensor,
    weights: list[Tensor],
    state: State,
    layout: Layout,
    chunk_size: int,
    reverse: bool = False,
    narrow: bool = False,
) -> tuple[Tensor, Tensor, Tensor, MasterGates | Distances]:
    """Return h (N, D), h_n, c_n (B, D) and, of every row, the master gates (eager) or the distances (fused)."""
    w_ih, w_hh, *biases = weights
    bias = biases[0] + biases[1] if biases else None
    if backend == "eager":
        return cell.scan(F.linear(rows, w_ih, bias), w_hh, *state, chunk_size, layout.sizes(), reverse)
    arguments = rows, w_ih, w_hh, bias, *state, layout.batch_sizes, chunk_size, reverse
    h, h_n, c_n, d_f, d_i = ops.scan(*arguments, narrow=narrow)
    return h, h_n, c_n, Distances(d_f, d_i)


torch.serialization.add_safe_globals([ONLSTM, ONLSTMCell])  # torch.load(weights_only=True): their pickles run no code
