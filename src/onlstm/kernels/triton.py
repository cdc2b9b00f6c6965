"""`onlstm::scan` for GPUs (CUDA, ROCm): `reference` step by step, each one library product and one Triton kernel.

A program of the kernel has one row of the batch: both softmaxes, both cumulative sums, all gates and the states, in a
tile of master gates × neurons of a chunk. Names are those of `onlstm.cell` and `reference`. The input projection of all
steps and the gradients of the weights are one product each. Ten steps with the same number of rows are recorded as a
CUDA graph once it pays, so that any length of window has few launches. Under `TRITON_INTERPRET=1`, set before the
import, all this runs on a CPU, which is how the tests see it; so tanh is 2σ(2x) - 1, for libdevice does not. Only
`ops` imports this.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
# mypy: disable-error-code="import-not-found, import-untyped"
# Triton may be missing

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from onlstm.kernels import graphs, reference
from onlstm.kernels.graphs import Buffers
from onlstm.kernels.reference import rounded


@triton.jit
def _tile(
    first, rows, M: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, K_TILE: tl.constexpr, C_TILE: tl.constexpr
):
    """Rows of the state, rows of all steps, and which exist; master gates' entries; neurons, and which exist."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < rows
    k, chunk = tl.arange(0, K_TILE), tl.arange(0, C_TILE)
    neuron = (k[:, None] * C + chunk[None, :])[None]
    real = here[:, None, None] & ((k < M)[:, None] & (chunk < C)[None, :])[None]
    return row, first + row, here, k[None], neuron, real


@triton.jit
def _load_gates(gates, at, here, k, neuron, real, D: tl.constexpr, K: tl.constexpr, PADDING: tl.constexpr):
    """The six blocks of `cell.GATES`; master gates' are padded from entry K on, and rows that do not exist are 1."""
    narrow, wide = gates + (at * (2 * K + 4 * D))[:, None], gates + (at * (2 * K + 4 * D) + 2 * K)[:, None, None]
    mask = here[:, None] & (k < K)
    i_m = tl.where(k < K, tl.load(narrow + k, mask=mask, other=1.0), PADDING)
    f_m = tl.where(k < K, tl.load(narrow + K + k, mask=mask, other=1.0), PADDING)
    o = tl.load(wide + neuron, mask=real, other=0.0)
    g = tl.load(wide + D + neuron, mask=real, other=0.0)
    i = tl.load(wide + 2 * D + neuron, mask=real, other=0.0)
    f = tl.load(wide + 3 * D + neuron, mask=real, other=0.0)
    return i_m, f_m, o, g, i, f


@triton.jit
def _store_gates(gates, at, here, k, neuron, real, i_m, f_m, o, g, i, f, D: tl.constexpr, K: tl.constexpr):
    narrow, wide = gates + (at * (2 * K + 4 * D))[:, None], gates + (at * (2 * K + 4 * D) + 2 * K)[:, None, None]
    mask = here[:, None] & (k < K)
    tl.store(narrow + k, i_m, mask=mask)
    tl.store(narrow + K + k, f_m, mask=mask)
    tl.store(wide + neuron, o, mask=real)
    tl.store(wide + D + neuron, g, mask=real)
    tl.store(wide + 2 * D + neuron, i, mask=real)
    tl.store(wide + 3 * D + neuron, f, mask=real)


@triton.jit
def _softmax(logits):
    e = tl.exp(logits - tl.max(logits, 1)[:, None])
    return e / tl.sum(e, 1)[:, None]


@triton.jit
def _sigmoid(x):
    """Both branches of σ by an exponential that cannot overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1 + e)


@triton.jit
def _tanh(x):
    return 2 * _sigmoid(2 * x) - 1


@triton.jit
def _cumulative(p, k, K: tl.constexpr):
    """The cumulative sum of K entries, the last exactly 1."""
    total = tl.cumsum(p, 1)
    whole = tl.sum(tl.where(k == K - 1, total, 0.0), 1)[:, None]
    return tl.where(k < K - 1, total / whole, 1.0)


@triton.jit
def _effective_gates(p_i, p_f, i, f, k, K: tl.constexpr):
    """f_m, i_m; omega, f_hat, i_hat."""
    f_m, i_m = _cumulative(p_f, k, K), 1 - _cumulative(p_i, k, K)
    omega = (f_m * i_m)[:, :, None]
    return f_m, i_m, omega, f * omega + (f_m[:, :, None] - omega), i * omega + (i_m[:, :, None] - omega)


@triton.jit
def _cumax_backward(p, d_gate):
    d_p = tl.cumsum(d_gate, 1, reverse=True)
    return p * (d_p - tl.sum(p * d_p, 1)[:, None])


@triton.jit(do_not_specialize=["first", "rows"])
def forward_kernel(
    x_gates,  # (N, G): pre-activations
    gates,  # (N, G): activated, may be x_gates; None: not saved
    h,  # (N, D)
    d_f,  # (N)
    d_i,  # (N)
    c_prev,  # (N, D); None: not saved
    h_n,  # (B, D): the state, of which the first rows are replaced
    c_n,  # (B, D)
    first,  # first row of the step
    rows,  # how many it has
    D: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,  # logits of a master gate
    ROWS: tl.constexpr,  # of a program
    K_TILE: tl.constexpr,
    C_TILE: tl.constexpr,
):
    M: tl.constexpr = D // C
    row, at, here, k, neuron, real = _tile(first, rows, M, C, ROWS, K_TILE, C_TILE)
    a_i, a_f, a_o, a_g, a_ig, a_fg = _load_gates(x_gates, at, here, k, neuron, real, D, K, -float("inf"))
    p_i, p_f, o, g, i, f = _softmax(a_i), _softmax(a_f), _sigmoid(a_o), _tanh(a_g), _sigmoid(a_ig), _sigmoid(a_fg)
    hidden, cell = h_n + (row * D)[:, None, None], c_n + (row * D)[:, None, None]
    c = tl.load(cell + neuron, mask=real, other=0.0)
    tl.debug_barrier()  # gates and states replace what every thread has read by now
    if gates is not None:
        _store_gates(gates, at, here, k, neuron, real, p_i, p_f, o, g, i, f, D, K)
        tl.store(c_prev + (at * D)[:, None, None] + neuron, c, mask=real)
    f_m, i_m, _, f_hat, i_hat = _effective_gates(p_i, p_f, i, f, k, K)
    tl.store(d_f + at, 1 - tl.sum(tl.where(k < M, f_m, 0.0), 1) / M, mask=here)
    tl.store(d_i + at, tl.sum(tl.where(k < M, i_m, 0.0), 1) / M, mask=here)
    c = f_hat * c + i_hat * g
    new = o * _tanh(c)
    tl.store(cell + neuron, c, mask=real)
    tl.store(hidden + neuron, new, mask=real)
    tl.store(h + (at * D)[:, None, None] + neuron, new, mask=real)


@triton.jit(do_not_specialize=["first", "rows"])
def backward_kernel(
    gates,  # (N, G): as forward_kernel saved them
    c_prev,  # (N, D)
    d_h,  # (N, D); None: zero
    d_df,  # (N); None: zero
    d_di,  # (N); None: zero
    d_gates,  # (N, G): gradients of the pre-activations
    d_hn,  # (B, D): gradients of the state after the step
    d_cn,  # (B, D): becomes that of the state before it
    first,
    rows,
    D: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    K_TILE: tl.constexpr,
    C_TILE: tl.constexpr,
):
    M: tl.constexpr = D // C
    row, at, here, k, neuron, real = _tile(first, rows, M, C, ROWS, K_TILE, C_TILE)
    p_i, p_f, o, g, i, f = _load_gates(gates, at, here, k, neuron, real, D, K, 0.0)
    f_m, i_m, omega, f_hat, i_hat = _effective_gates(p_i, p_f, i, f, k, K)
    hidden, cell = d_hn + (row * D)[:, None, None], d_cn + (row * D)[:, None, None]
    c = tl.load(c_prev + (at * D)[:, None, None] + neuron, mask=real, other=0.0)
    tanh_c = _tanh(f_hat * c + i_hat * g)

    d_ht = tl.load(hidden + neuron, mask=real, other=0.0)
    if d_h is not None:
        d_ht += tl.load(d_h + (at * D)[:, None, None] + neuron, mask=real, other=0.0)
    d_c = tl.load(cell + neuron, mask=real, other=0.0) + d_ht * o * (1 - tanh_c * tanh_c)
    tl.debug_barrier()
    tl.store(cell + neuron, d_c * f_hat, mask=real)

    d_f_hat, d_i_hat = d_c * c, d_c * g
    s_omega = tl.sum(d_f_hat * (f - 1) + d_i_hat * (i - 1), 2)
    d_f_m, d_i_m = tl.sum(d_f_hat, 2) + s_omega * i_m, tl.sum(d_i_hat, 2) + s_omega * f_m
    if d_df is not None:
        d_f_m -= tl.where(k < M, tl.load(d_df + at, mask=here, other=0.0)[:, None] / M, 0.0)
    if d_di is not None:
        d_i_m += tl.where(k < M, tl.load(d_di + at, mask=here, other=0.0)[:, None] / M, 0.0)
    d_p_i, d_p_f = _cumax_backward(p_i, -d_i_m), _cumax_backward(p_f, d_f_m)
    d_o, d_g = d_ht * tanh_c * o * (1 - o), d_c * i_hat * (1 - g * g)
    d_i, d_f = d_i_hat * omega * i * (1 - i), d_f_hat * omega * f * (1 - f)
    _store_gates(d_gates, at, here, k, neuron, real, d_p_i, d_p_f, d_o, d_g, d_i, d_f, D, K)


def launch_options(G: int, D: int, chunk_size: int, ROWS: int = 1) -> dict[str, int]:
    """Return the sizes that a kernel is compiled for: none depends on the batch."""
    K = (G - 4 * D) // 2
    K_TILE, C_TILE = triton.next_power_of_2(K), triton.next_power_of_2(chunk_size)
    warps = min(max(K_TILE * C_TILE // 256, 1), 16)  # eight neurons a thread
    return {"D": D, "C": chunk_size, "K": K, "ROWS": ROWS, "K_TILE": K_TILE, "C_TILE": C_TILE, "num_warps": warps}


def _launch(kernel: Any, t: slice, buffers: Buffers, chunk_size: int) -> None:
    inputs, outputs, state, w_hh, _ = buffers
    rows, ROWS = t.stop - t.start, 1 if w_hh.is_cuda else 16  # to the interpreter a program is what costs time
    options = launch_options(w_hh.shape[0], w_hh.shape[1], chunk_size, ROWS)
    kernel[(triton.cdiv(rows, ROWS),)](*inputs, *outputs, *state, t.start, rows, **options)


def _forward_step(t: slice, buffers: Any, chunk_size: int) -> None:
    (x_gates,), _, (h_n, _), w_hh, narrow = buffers
    x_gates[t].addmm_(rounded(h_n[: t.stop - t.start], narrow), w_hh.T)
    _launch(forward_kernel, t, buffers, chunk_size)


def _backward_step(t: slice, buffers: Any, chunk_size: int) -> None:
    _, (d_gates,), (d_hn, _), w_hh, narrow = buffers
    _launch(backward_kernel, t, buffers, chunk_size)
    torch.mm(rounded(d_gates[t], narrow), w_hh, out=d_hn[: t.stop - t.start])


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
    """Return what `reference.forward` returns."""
    w_hh = rounded(w_hh, narrow)
    gates = reference.pre_activations(x, w_ih, bias, places, narrow)  # each row is replaced by its activated gates
    (N, G), (B, D) = gates.shape, c0.shape
    h, d_f, d_i, c_prev = (gates.new_empty(shape) for shape in ((N, D), (N,), (N,), (N if save else 0, D)))
    state = [x.clone(memory_format=torch.contiguous_format) for x in (h0, c0)]
    outputs = (gates, h, d_f, d_i, c_prev) if save else (None, h, d_f, d_i, None)
    order = list(reference.steps(N, B, batch_sizes, reverse))
    graphs.run(_forward_step, order, Buffers((gates,), outputs, state, w_hh, narrow), chunk_size)
    return h, *state, d_f, d_i, gates if save else gates.new_empty(0, G), c_prev


def backward(*args: Any, narrow: bool = False) -> tuple[Tensor, ...]:
    """Return what `reference.backward` returns, of the same arguments."""
    d_h, d_hn, d_cn, d_df, d_di = (None if d is None else d.contiguous() for d in args[:5])
    x, w_ih, w_hh, h0, _, h, gates, c_prev, batch_sizes, chunk_size, reverse, wants_d_x, _, *rest = args[5:]
    places = rest[0] if rest else None
    state, d_gates = reference.first_gradients(d_hn, d_cn, h0), torch.empty_like(gates)
    order = list(reference.steps(len(gates), len(h0), batch_sizes, reverse))
    buffers = Buffers((gates, c_prev, d_h, d_df, d_di), (d_gates,), state, rounded(w_hh, narrow), narrow)
    graphs.run(_backward_step, order[::-1], buffers, chunk_size)
    return *reference.weight_gradients(d_gates, x, w_ih, h, h0, order, wants_d_x, places, narrow), *state
