"""`onlstm::scan` in plain PyTorch: forward and hand-written backward, on any device.

The default kernel where nothing faster exists, and the oracle of the others, which follow it line by line. Names
are those of `onlstm.cell`; `d_x` is the gradient of the loss by x. The forward pass saves, per row, the activated
gates in the order of `cell.GATES`, with the softmax p in place of each master gate (its cumulative sum is cheap, and
differences of a cumulative sum would lose the digits of a small p), and the cell state before the step.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F


def steps(rows: int, batch: int, batch_sizes: Tensor | None, reverse: bool) -> Iterator[slice]:
    """Yield the rows of each time step, in the order they are worked on. No `batch_sizes`: every step has all."""
    sizes = [batch] * (rows // max(batch, 1)) if batch_sizes is None else batch_sizes.tolist()
    ends = torch.tensor(sizes, dtype=torch.long).cumsum(0).tolist()
    for k in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        yield slice(ends[k] - sizes[k], ends[k])


def forward(
    x: Tensor,
    w_ih: Tensor | None,
    w_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    batch_sizes: Tensor | None,
    chunk_size: int,
    reverse: bool,
    save: bool,
    wants_d_state: bool,
    places: Tensor | None = None,
    *,
    narrow: bool = False,
) -> tuple[Tensor, ...]:
    """Return h (N, D), h_n, c_n (B, D), the distances d_f, d_i (N), and saved gates (N, G) and c_prev (N, D).

    Without `save` the last two are empty. `wants_d_state` (h0 or c0 will get a gradient) is for the C++ kernel: if
    nobody asks for that, it may leave out a dead last chunk. `narrow` rounds the factors of products to bfloat16.
    """
    w_hh, x_gates = rounded(w_hh, narrow), pre_activations(x, w_ih, bias, places, narrow)
    (N, G), (B, D) = x_gates.shape, c0.shape
    K, M = (G - 4 * D) // 2, D // chunk_size
    h_n, c_n = (state.clone(memory_format=torch.contiguous_format) for state in (h0, c0))
    h, d_f, d_i = x_gates.new_empty(N, D), x_gates.new_empty(N), x_gates.new_empty(N)
    gates, c_prev = x_gates.new_empty(N if save else 0, G), x_gates.new_empty(N if save else 0, D)
    for t in steps(N, B, batch_sizes, reverse):
        b = t.stop - t.start
        logits = (x_gates[t] + rounded(h_n[:b], narrow) @ w_hh.T).split((K, K, D, D, D, D), -1)
        p_i, p_f = logits[0].softmax(-1), logits[1].softmax(-1)
        o, g, i, f = logits[2].sigmoid(), logits[3].tanh(), logits[4].sigmoid(), logits[5].sigmoid()
        if save:
            gates[t] = torch.cat((p_i, p_f, o, g, i, f), -1)
            c_prev[t] = c_n[:b]
        f_m, i_m = _cumulative(p_f, M), 1 - _cumulative(p_i, M)
        d_f[t], d_i[t] = 1 - f_m.mean(-1), i_m.mean(-1)
        f_m, i_m = (gate.repeat_interleave(chunk_size, -1) for gate in (f_m, i_m))
        omega = f_m * i_m
        c_n[:b] = (f * omega + (f_m - omega)) * c_n[:b] + (i * omega + (i_m - omega)) * g
        h_n[:b] = h[t] = o * c_n[:b].tanh()
    return h, h_n, c_n, d_f, d_i, gates, c_prev


def backward(
    d_h: Tensor | None,
    d_hn: Tensor | None,
    d_cn: Tensor | None,
    d_df: Tensor | None,
    d_di: Tensor | None,
    x: Tensor,
    w_ih: Tensor | None,
    w_hh: Tensor,
    h0: Tensor,
    c0: Tensor,
    h: Tensor,
    gates: Tensor,
    c_prev: Tensor,
    batch_sizes: Tensor | None,
    chunk_size: int,
    reverse: bool,
    wants_d_x: bool,
    wants_d_state: bool,
    places: Tensor | None = None,
    *,
    narrow: bool = False,
) -> tuple[Tensor, ...]:
    """Return the gradients of x, w_ih, w_hh, bias, h0, c0 from the outputs' (None: zero).

    That of x is empty if it is not wanted, that of w_ih if there is none.
    """
    (N, G), (B, D) = gates.shape, h0.shape
    K, M = (G - 4 * D) // 2, D // chunk_size
    d_h0, d_c0 = first_gradients(d_hn, d_cn, h0)
    d_gates, w_hh = gates.new_empty(gates.shape), rounded(w_hh, narrow)
    order = list(steps(N, B, batch_sizes, reverse))
    for t in reversed(order):
        b = t.stop - t.start
        p_i, p_f, o, g, i, f = gates[t].split((K, K, D, D, D, D), -1)
        f_m, i_m = _cumulative(p_f, M), 1 - _cumulative(p_i, M)
        f_wide, i_wide = (gate.repeat_interleave(chunk_size, -1) for gate in (f_m, i_m))
        omega = f_wide * i_wide
        f_hat, i_hat = f * omega + (f_wide - omega), i * omega + (i_wide - omega)
        tanh_c = (f_hat * c_prev[t] + i_hat * g).tanh()

        d_ht = d_h0[:b] if d_h is None else d_h0[:b] + d_h[t]
        d_c = d_c0[:b] + d_ht * o * (1 - tanh_c**2)
        d_f_hat, d_i_hat = d_c * c_prev[t], d_c * g
        d_c0[:b] = d_c * f_hat

        d_omega = d_f_hat * (f - 1) + d_i_hat * (i - 1)
        s_f, s_i, s_omega = (x.unflatten(-1, (M, chunk_size)).sum(-1) for x in (d_f_hat, d_i_hat, d_omega))
        d_f_m, d_i_m = s_f + s_omega * i_m, s_i + s_omega * f_m
        if d_df is not None:
            d_f_m = d_f_m - d_df[t, None] / M
        if d_di is not None:
            d_i_m = d_i_m + d_di[t, None] / M
        d_gates[t] = torch.cat(
            (
                _cumax_backward(p_i, -d_i_m),
                _cumax_backward(p_f, d_f_m),
                d_ht * tanh_c * o * (1 - o),
                d_c * i_hat * (1 - g**2),
                d_i_hat * omega * i * (1 - i),
                d_f_hat * omega * f * (1 - f),
            ),
            -1,
        )
        d_h0[:b] = rounded(d_gates[t], narrow) @ w_hh
    return *weight_gradients(d_gates, x, w_ih, h, h0, order, wants_d_x, places, narrow), d_h0, d_c0


def pre_activations(
    x: Tensor, w_ih: Tensor | None, bias: Tensor | None, places: Tensor | None, narrow: bool = False
) -> Tensor:
    """Return W x + b of all rows or, without W, x + b of those in their places; in memory of its own."""
    if w_ih is not None:
        return F.linear(rounded(x, narrow), rounded(w_ih, narrow), bias)
    rows = x.clone(memory_format=torch.contiguous_format) if places is None else x.index_select(0, places)
    return rows if bias is None else rows + bias


def first_gradients(d_hn: Tensor | None, d_cn: Tensor | None, h0: Tensor) -> list[Tensor]:
    """Return the gradients of the last state, to be carried back step by step to those of the first."""
    return [
        h0.new_zeros(h0.shape) if d is None else d.clone(memory_format=torch.contiguous_format) for d in (d_hn, d_cn)
    ]


def weight_gradients(
    d_gates: Tensor,
    x: Tensor,
    w_ih: Tensor | None,
    h: Tensor,
    h0: Tensor,
    order: list[slice],
    wants_d_x: bool,
    places: Tensor | None,
    narrow: bool,
) -> tuple[Tensor, ...]:
    """Return the gradients of x, w_ih, w_hh and bias from those of all pre-activations: one product each."""
    d_bias, h_prev, d_x, d_w_ih = d_gates.sum(0), _h_prev(h, h0, order), d_gates, x.new_empty(0)
    d_gates, x, h_prev = (rounded(factor, narrow) for factor in (d_gates, x, h_prev))
    if w_ih is not None:
        d_x, d_w_ih = d_gates @ rounded(w_ih, narrow) if wants_d_x else d_x, d_gates.T @ x
    elif places is not None:
        d_x = x.new_zeros(x.shape).index_add_(0, places, d_x)
    return d_x if wants_d_x else x.new_empty(0, x.shape[1]), d_w_ih, d_gates.T @ h_prev, d_bias


def rounded(factor: Tensor, narrow: bool) -> Tensor:
    """Return a factor of a product, rounded to bfloat16 if it is to be."""
    return factor.bfloat16().to(factor.dtype) if narrow else factor


def _cumulative(p: Tensor, M: int) -> Tensor:
    """Return the cumulative sum, whose last entry is exactly 1: no drift in a chunk only ever multiplied by it."""
    total = p.cumsum(-1)
    return total[:, :M] / total[:, -1:]


def _cumax_backward(p: Tensor, d_gate: Tensor) -> Tensor:
    """Return the gradient of the logits: p_k moves every gate entry from k on; then softmax's own Jacobian."""
    d_p = torch.zeros_like(p)
    d_p[:, : d_gate.shape[-1]] = d_gate.flip(-1).cumsum(-1).flip(-1)
    return p * (d_p - (p * d_p).sum(-1, keepdim=True))


def _h_prev(h: Tensor, h0: Tensor, order: list[slice]) -> Tensor:
    """Return, for every row, the hidden state its step started from."""
    if order and len(order) * len(h0) == len(h):  # every step has all rows
        return torch.cat((h0, h[: -len(h0)]) if order[0].start == 0 else (h[len(h0) :], h0))
    state, before = h0.clone(), torch.empty_like(h)
    for t in order:
        before[t] = state[: t.stop - t.start]
        state[: t.stop - t.start] = h[t]
    return before
