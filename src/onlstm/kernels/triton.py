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
from torch.nn import functional as F

from onlstm.kernels import graphs, reference
from onlstm.kernels.graphs import Tensors


@triton.jit
def _tile(M: tl.constexpr, C: tl.constexpr, K_TILE: tl.constexpr, C_TILE: tl.constexpr):
    """Master gates' entries, and the neurons (K_TILE, C_TILE) under each with the mask of those that exist."""
    k, neuron = tl.arange(0, K_TILE), tl.arange(0, C_TILE)
    return k, k[:, None] * C + neuron[None, :], (k < M)[:, None] & (neuron < C)[None, :]


@triton.jit
def _softmax(logits):
    e = tl.exp(logits - tl.max(logits, 0))
    return e / tl.sum(e, 0)


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
    total = tl.cumsum(p, 0)
    whole = tl.sum(tl.where(k == K - 1, total, 0.0), 0)
    return tl.where(k < K - 1, total / whole, 1.0)


@triton.jit
def _cumax_backward(p, d_gate):
    d_p = tl.cumsum(d_gate, 0, reverse=True)
    return p * (d_p - tl.sum(p * d_p, 0))


@triton.jit(do_not_specialize=["first"])
def forward_kernel(
    x_gates,  # (N, G): pre-activations
    gates,  # (N, G): activated, may be x_gates; None: not saved
    h,  # (N, D)
    d_f,  # (N)
    d_i,  # (N)
    c_prev,  # (N, D); None: not saved
    h_n,  # (B, D): the state, of which the first rows are replaced
    c_n,  # (B, D)
    first,  # row of the step's first program
    D: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,  # logits of a master gate
    K_TILE: tl.constexpr,
    C_TILE: tl.constexpr,
):
    M: tl.constexpr = D // C
    row = tl.program_id(0).to(tl.int64)
    at = first + row
    k, neuron, real = _tile(M, C, K_TILE, C_TILE)
    logits = x_gates + at * (2 * K + 4 * D)
    wide = logits + 2 * K + neuron
    p_i = _softmax(tl.load(logits + k, mask=k < K, other=-float("inf")))
    p_f = _softmax(tl.load(logits + K + k, mask=k < K, other=-float("inf")))
    o = _sigmoid(tl.load(wide, mask=real, other=0.0))
    g = _tanh(tl.load(wide + D, mask=real, other=0.0))
    i = _sigmoid(tl.load(wide + 2 * D, mask=real, other=0.0))
    f = _sigmoid(tl.load(wide + 3 * D, mask=real, other=0.0))
    c = tl.load(c_n + row * D + neuron, mask=real, other=0.0)
    tl.debug_barrier()  # gates and states replace what every thread has read by now
    if gates is not None:
        saved = gates + at * (2 * K + 4 * D)
        wide = saved + 2 * K + neuron
        tl.store(saved + k, p_i, mask=k < K)
        tl.store(saved + K + k, p_f, mask=k < K)
        tl.store(wide, o, mask=real)
        tl.store(wide + D, g, mask=real)
        tl.store(wide + 2 * D, i, mask=real)
        tl.store(wide + 3 * D, f, mask=real)
        tl.store(c_prev + at * D + neuron, c, mask=real)
    f_m = _cumulative(p_f, k, K)
    i_m = 1 - _cumulative(p_i, k, K)
    tl.store(d_f + at, 1 - tl.sum(tl.where(k < M, f_m, 0.0), 0) / M)
    tl.store(d_i + at, tl.sum(tl.where(k < M, i_m, 0.0), 0) / M)
    omega = (f_m * i_m)[:, None]
    c = (f * omega + (f_m[:, None] - omega)) * c + (i * omega + (i_m[:, None] - omega)) * g
    new = o * _tanh(c)
    tl.store(c_n + row * D + neuron, c, mask=real)
    tl.store(h_n + row * D + neuron, new, mask=real)
    tl.store(h + at * D + neuron, new, mask=real)


@triton.jit(do_not_specialize=["first"])
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
    D: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    K_TILE: tl.constexpr,
    C_TILE: tl.constexpr,
):
    M: tl.constexpr = D // C
    row = tl.program_id(0).to(tl.int64)
    at = first + row
    k, neuron, real = _tile(M, C, K_TILE, C_TILE)
    saved = gates + at * (2 * K + 4 * D)
    wide = saved + 2 * K + neuron
    p_i = tl.load(saved + k, mask=k < K, other=0.0)
    p_f = tl.load(saved + K + k, mask=k < K, other=0.0)
    f_m = _cumulative(p_f, k, K)
    i_m = 1 - _cumulative(p_i, k, K)
    omega = (f_m * i_m)[:, None]
    g = tl.load(wide + D, mask=real, other=0.0)
    i = tl.load(wide + 2 * D, mask=real, other=0.0)
    f = tl.load(wide + 3 * D, mask=real, other=0.0)
    c = tl.load(c_prev + at * D + neuron, mask=real, other=0.0)
    f_hat = f * omega + (f_m[:, None] - omega)
    i_hat = i * omega + (i_m[:, None] - omega)
    tanh_c = _tanh(f_hat * c + i_hat * g)

    o = tl.load(wide, mask=real, other=0.0)
    d_ht = tl.load(d_hn + row * D + neuron, mask=real, other=0.0)
    if d_h is not None:
        d_ht += tl.load(d_h + at * D + neuron, mask=real, other=0.0)
    d_c = tl.load(d_cn + row * D + neuron, mask=real, other=0.0) + d_ht * o * (1 - tanh_c * tanh_c)
    d_logits = d_gates + at * (2 * K + 4 * D)
    wide = d_logits + 2 * K + neuron
    tl.store(wide, d_ht * tanh_c * o * (1 - o), mask=real)
    tl.store(wide + D, d_c * i_hat * (1 - g * g), mask=real)
    d_f_hat = d_c * c
    d_i_hat = d_c * g
    tl.store(wide + 2 * D, d_i_hat * omega * i * (1 - i), mask=real)
    tl.store(wide + 3 * D, d_f_hat * omega * f * (1 - f), mask=real)
    tl.debug_barrier()
    tl.store(d_cn + row * D + neuron, d_c * f_hat, mask=real)

    s_omega = tl.sum(d_f_hat * (f - 1) + d_i_hat * (i - 1), 1)
    d_f_m = tl.sum(d_f_hat, 1) + s_omega * i_m
    d_i_m = tl.sum(d_i_hat, 1) + s_omega * f_m
    if d_df is not None:
        d_f_m -= tl.where(k < M, tl.load(d_df + at) / M, 0.0)
    if d_di is not None:
        d_i_m += tl.where(k < M, tl.load(d_di + at) / M, 0.0)
    tl.store(d_logits + k, _cumax_backward(p_i, -d_i_m), mask=k < K)
    tl.store(d_logits + K + k, _cumax_backward(p_f, d_f_m), mask=k < K)


def _forward_step(t: slice, inputs: Any, outputs: Any, state: Any, w_hh: Tensor, chunk_size: int) -> None:
    rows = t.stop - t.start
    inputs[0][t].addmm_(state[0][:rows], w_hh.T)
    _launch(forward_kernel, t, (*inputs, *outputs, *state), w_hh, chunk_size)


def _backward_step(t: slice, inputs: Any, outputs: Any, state: Any, w_hh: Tensor, chunk_size: int) -> None:
    _launch(backward_kernel, t, (*inputs, *outputs, *state), w_hh, chunk_size)
    torch.mm(outputs[0][t], w_hh, out=state[0][: t.stop - t.start])


def launch_options(G: int, D: int, chunk_size: int) -> dict[str, int]:
    """Return the sizes that a kernel is compiled for: none depends on the batch."""
    K = (G - 4 * D) // 2
    K_TILE, C_TILE = triton.next_power_of_2(K), triton.next_power_of_2(chunk_size)
    warps = min(max(K_TILE * C_TILE // 256, 1), 16)  # eight neurons a thread
    return {"D": D, "C": chunk_size, "K": K, "K_TILE": K_TILE, "C_TILE": C_TILE, "num_warps": warps}


def _launch(kernel: Any, t: slice, tensors: Tensors, w_hh: Tensor, chunk_size: int) -> None:
    kernel[(t.stop - t.start,)](*tensors, t.start, **launch_options(*w_hh.shape, chunk_size))


def forward(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    batch_sizes: Tensor | None,
    chunk_size: int,
    reverse: bool,
    save: bool,
    wants_d_state: bool,
) -> tuple[Tensor, ...]:
    """Return what `reference.forward` returns."""
    gates = F.linear(x, w_ih, bias)  # each row is replaced by its activated gates
    (N, G), (B, D) = gates.shape, c0.shape
    h, d_f, d_i, c_prev = (gates.new_empty(shape) for shape in ((N, D), (N,), (N,), (N if save else 0, D)))
    state = [x.clone(memory_format=torch.contiguous_format) for x in (h0, c0)]
    outputs = (gates, h, d_f, d_i, c_prev) if save else (None, h, d_f, d_i, None)
    order = list(reference.steps(N, B, batch_sizes, reverse))
    graphs.run(_forward_step, order, (gates,), outputs, state, w_hh, chunk_size)
    return h, *state, d_f, d_i, gates if save else gates.new_empty(0, G), c_prev


def backward(*args: Any) -> tuple[Tensor, ...]:
    """Return what `reference.backward` returns, of the same arguments."""
    d_h, d_hn, d_cn, d_df, d_di, x, w_ih, w_hh, h0, c0, h, gates, c_prev, batch_sizes, chunk_size, reverse, *wants = args
    state = reference.first_gradients(d_hn, d_cn, h0)
    inputs = [gates, c_prev, *(None if d is None else d.contiguous() for d in (d_h, d_df, d_di))]
    d_gates = torch.empty_like(gates)
    order = list(reference.steps(len(x), len(h0), batch_sizes, reverse))
    graphs.run(_backward_step, order[::-1], inputs, (d_gates,), state, w_hh, chunk_size)
    return *reference.weight_gradients(d_gates, x, w_ih, h, h0, order, wants[0]), *state
