"""Products in bfloat16: the C++ kernel rounds the factors that `reference` rounds, and nothing else.

A number that lies near the middle of two of bfloat16 may go either way, and one step later everything differs. So the
first test gives the oracle the kernel's own states and gradients at every step; the others compare norms.
"""

import pytest
import torch
from torch.testing import assert_close

from kernel_inputs import inputs
from onlstm import ONLSTM
from onlstm.kernels import build, ops, reference

pytestmark = pytest.mark.skipif(not build.has_bfloat16(), reason="this processor does not multiply in bfloat16")
SHAPES = [
    (5, 3, 12, 3),
    (1, 1, 12, 3),
    (3, 5, 7, 1),
    (40, 6, 26, 13),
    (6, 20, 130, 10),
    (3, 70, 65, 5),
    (2, 33, 300, 10),
]


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Memory that a kernel takes and does not write reads as NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def rounded(x):
    return x.bfloat16().double()


def forward(args, batch_sizes, chunk, reverse=False, wants_d_state=True):
    return torch.ops.onlstm_cpu.scan(*args, batch_sizes, chunk, reverse, True, wants_d_state, narrow=True)


def backward(d_h, args, saved, batch_sizes, chunk, reverse=False, wants_d_state=True):
    x, w_ih, w_hh, _, h0, c0 = args
    given = d_h, None, None, None, None, x, w_ih, w_hh, h0, c0, *saved, batch_sizes, chunk, reverse, True, wants_d_state
    return torch.ops.onlstm_cpu.scan_backward(*given, narrow=True)


def both(kernel, args, batch_sizes, chunk, reverse, wants_d_state):
    """Five outputs and the gradients of the first."""
    d_h = torch.randn(len(args[0]), len(args[2][0]), generator=torch.Generator().manual_seed(1)).to(args[0].dtype)
    scan, scan_backward = kernel
    *out, gates, c_prev = scan(*args, batch_sizes, chunk, reverse, True, wants_d_state, narrow=True)
    saved = args[0], args[1], args[2], args[4], args[5], out[0], gates, c_prev, batch_sizes
    d = scan_backward(d_h, None, None, None, None, *saved, chunk, reverse, True, wants_d_state, narrow=True)
    return *out, *d[: 6 if wants_d_state else 4]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("free", [False, True], ids=["paper", "free last chunk"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged, reverse"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_step_rounds_its_factors_and_nothing_else(shape, ragged, free, threads):
    """With the unit matrix for w_ih, d_x is what the kernel has made of the gradients of the logits."""
    T, B, D, chunk = shape
    sizes = [B] * (T - 1) + [1] if ragged else [B] * T
    batch_sizes = torch.tensor(sizes) if ragged else None
    _, _, w_hh, bias, h0, c0 = inputs(*shape, free=free, dtype=torch.float32)
    draw = torch.Generator().manual_seed(2)
    x, d_h = (torch.randn(sum(sizes), size, generator=draw) for size in (len(bias), D))
    args = x, torch.eye(len(bias)), w_hh, bias, h0, c0
    torch.set_num_threads(threads)
    try:
        h, h_n, c_n, d_f, d_i, gates, c_prev = forward(args, batch_sizes, chunk, ragged)
        d_x, d_w_ih, d_w_hh, d_bias, d_h0, d_c0 = backward(d_h, args, (h, gates, c_prev), batch_sizes, chunk, ragged)
    finally:
        torch.set_num_threads(1)
    order = list(reference.steps(len(x), B, batch_sizes, ragged))
    h_prev = reference._h_prev(h, h0, order)
    exact = [tensor.double() for tensor in (x, args[1], w_hh, bias, h_prev, c_prev)]
    options = None, chunk, False, True, True
    step_h, _, step_c, step_f, step_i, step_gates, _ = reference.forward(*exact, *options, narrow=True)
    after, state = torch.empty_like(c_prev), c_n.clone()  # c after each step: before the next, or the last one
    for t in reversed(order):
        after[t] = state[: t.stop - t.start]
        state[: t.stop - t.start] = c_prev[t]
    assert_close(state, c0, rtol=0, atol=0)
    for got, want in zip((h, after, d_f, d_i, gates), (step_h, step_c, step_f, step_i, step_gates), strict=True):
        assert_close(got.double(), want, rtol=0, atol=2e-6)
    assert torch.equal(h_n[: len(h[order[-1]])], h[order[-1]])

    carried_h, carried_c = torch.zeros(B, D).double(), torch.zeros(B, D).double()
    sums = torch.zeros(len(bias)).double()
    for t in reversed(order):
        b = t.stop - t.start
        given = d_h[t].double() + carried_h[:b], None, carried_c[:b].clone(), None, None
        step = [tensor.double() for tensor in (x[t], args[1], w_hh, h_prev[t], c_prev[t], h[t], gates[t], c_prev[t])]
        d_logits, *_, d_c = reference.backward(*given, *step, None, chunk, False, True, True)
        assert_close(d_x[t].double(), d_logits, rtol=2**-8 * 1.001, atol=1e-6)
        sums += d_logits.sum(0)
        carried_h[:b], carried_c[:b] = d_x[t].double() @ rounded(w_hh), d_c
    assert_close(d_x, d_x.bfloat16().float(), rtol=0, atol=0)
    d = d_x.double()
    for got, want in (
        (d_w_ih, d.T @ rounded(x)),
        (d_w_hh, d.T @ rounded(h_prev)),
        (d_bias, sums),
        (d_h0, carried_h),
        (d_c0, carried_c),
    ):
        assert ((got.double() - want).norm() / want.norm().clamp(min=1e-9)).item() < 2e-6


@pytest.mark.parametrize("wants_d_state", [False, True])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged, reverse"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_every_gradient(shape, ragged, wants_d_state):
    """Against the whole reference; of many numbers some go the other way. Without rounding, 4e-3 would be off."""
    sizes = [shape[1]] * (shape[0] - 1) + [1] if ragged else None
    args = inputs(*shape, dtype=torch.float32, sizes=sizes)
    if not wants_d_state:
        args[4].zero_(), args[5].zero_()
    options = torch.tensor(sizes) if ragged else None, shape[-1], ragged, wants_d_state
    got = both((torch.ops.onlstm_cpu.scan, torch.ops.onlstm_cpu.scan_backward), args, *options)
    want = both((reference.forward, reference.backward), [x.double() for x in args], *options)
    limit = 1e-6 if shape[0] * shape[1] * shape[2] < 200 else 5e-4
    for result, expected in zip(got, want, strict=True):
        assert ((result.double() - expected).norm() / expected.norm().clamp(min=1e-9)).item() < limit


@pytest.mark.parametrize("shape", [(6, 20, 130, 10), (20, 20, 200, 10), (2, 33, 300, 10)], ids=str)
def test_gradients_are_within_one_percent_of_float64(shape):
    leaves = [x.requires_grad_() for x in inputs(*shape)]
    narrow = [x.detach().float().requires_grad_() for x in leaves]
    gradients = []
    for args, rounds in ((leaves, False), (narrow, True)):
        h, h_n, c_n, d_f, d_i = ops.scan(*args, None, shape[-1], narrow=rounds)
        gradients.append(torch.autograd.grad(h.square().sum() + h_n.sum() + c_n.sum() + d_f.sum() + d_i.sum(), args))
    for exact, got in zip(*gradients, strict=True):
        assert 1e-5 < ((got - exact).norm() / exact.norm()).item() < 0.01


def test_autocast_and_weights_in_bfloat16_multiply_in_it():
    torch.manual_seed(0)
    layer, x = ONLSTM(40, 60, chunk_size=10), torch.randn(9, 20, 40)
    rows = x.bfloat16().float().flatten(0, 1)
    zero, bias = torch.zeros(20, 60), layer.bias_ih_l0 + layer.bias_hh_l0
    arguments = rows, layer.weight_ih_l0, layer.weight_hh_l0, bias, zero, zero, None, 10
    narrow, exact = (ops.scan(*arguments, narrow=rounds)[3].view(1, 9, 20) for rounds in (True, False))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        distances = layer.scan(x).distances.forget
    assert torch.equal(distances, narrow)
    assert not torch.equal(distances, exact)
    layer.bfloat16()
    bias = (layer.bias_ih_l0 + layer.bias_hh_l0).float()
    expected = ops.scan(rows, layer.weight_ih_l0.float(), layer.weight_hh_l0.float(), bias, *arguments[4:], narrow=True)
    assert torch.equal(layer.scan(x.bfloat16()).distances.forget, expected[3].view(1, 9, 20))


def test_in_training_only_if_so_asked():
    torch.manual_seed(0)
    layer, x = ONLSTM(40, 60, chunk_size=10), torch.randn(9, 20, 40)
    exact = layer(x)[0]
    layer.narrow = True
    assert 1e-5 < (layer(x)[0] - exact).abs().max() < 1e-2
    assert torch.equal(layer.eval()(x)[0], exact)


def test_float64_is_never_rounded():
    args = inputs(6, 20, 26, 13)
    assert torch.equal(ops.scan(*args, None, 13, narrow=True)[0], ops.scan(*args, None, 13)[0])
    with pytest.raises(RuntimeError, match="only float32"):
        forward(args, None, 13)
