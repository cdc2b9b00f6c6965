"""Every kernel against autograd through `cell.scan`: h, states, distances and every gradient."""

from importlib import import_module
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from kernel_inputs import INTERPRETED, TRITON, inputs, pre_activated
from onlstm import cell
from onlstm.kernels import build, graphs, reference

SHAPES = {  # T, B, D, chunk
    "small": (5, 3, 12, 3),
    "T=1": (1, 4, 12, 3),
    "B=1": (7, 1, 12, 3),
    "T=B=1": (1, 1, 12, 3),
    "chunk=1": (4, 5, 7, 1),
    "one chunk": (4, 5, 6, 6),
    "two chunks": (40, 6, 26, 13),
    "B=20": (6, 20, 130, 10),
    "many rows": (3, 70, 65, 5),
    "several depths": (2, 33, 300, 10),
}


def eager(args, batch_sizes, chunk, reverse, d_out, places=None):
    """The oracle: five outputs, six gradients."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in args]
    x, w_ih, w_hh, bias, h0, c0 = leaves
    B, rows = len(h0), x if places is None else x[places]
    sizes = [B] * (len(rows) // B) if batch_sizes is None else batch_sizes.tolist()
    x_gates = bias + (rows if w_ih is None else rows @ w_ih.T)
    h, h_n, c_n, gates = cell.scan(x_gates, w_hh, h0, c0, chunk, sizes, reverse)
    out = (h, h_n, c_n, *cell.distances(gates))
    given = [(x, d) for x, d in zip(out, d_out, strict=True) if d is not None]
    wanted = [x for x in leaves if x is not None]
    gradients = iter(torch.autograd.grad([x for x, _ in given], wanted, [d for _, d in given]))
    return [x.detach() for x in out], [h0.new_empty(0) if x is None else next(gradients) for x in leaves]


def functions(name):
    """A kernel's own forward and backward."""
    if name == "cpu":
        assert build.load(), "the C++ kernel did not build here"
        return torch.ops.onlstm_cpu.scan, torch.ops.onlstm_cpu.scan_backward
    module = import_module(f"onlstm.kernels.{name}")
    return module.forward, module.backward


def kernel(name, args, batch_sizes, chunk, reverse, d_out, wants_d_state=True, places=None):
    """The same from a kernel."""
    forward, backward = functions(name)
    if name == "triton" and not INTERPRETED:
        args, d_out = ([None if x is None else x.cuda() for x in tensors] for tensors in (args, d_out))
        places = None if places is None else places.cuda()
    x, w_ih, w_hh, _, h0, c0 = args
    *out, gates, c_prev = forward(*args, batch_sizes, chunk, reverse, True, wants_d_state, places)
    saved = x, w_ih, w_hh, h0, c0, out[0], gates, c_prev, batch_sizes
    gradients = backward(*d_out, *saved, chunk, reverse, True, wants_d_state, places)
    return [x.cpu() for x in out], [x.cpu() for x in gradients]


def check(
    name, args, chunk, *, batch_sizes=None, reverse=False, without=(), wants_d_state=True, places=None, atol=1e-11
):
    draw = torch.Generator().manual_seed(1)
    rows, (B, D) = len(args[0] if places is None else places), args[4].shape
    shapes = (rows, D), (B, D), (B, D), (rows,), (rows,)
    d_out = [torch.randn(*shape, generator=draw, dtype=args[0].dtype) for shape in shapes]
    d_out = [None if k in without else d for k, d in enumerate(d_out)]
    expected, expected_gradients = eager(args, batch_sizes, chunk, reverse, d_out, places)
    out, gradients = kernel(name, args, batch_sizes, chunk, reverse, d_out, wants_d_state, places)
    for label, got, want in zip(("h", "h_n", "c_n", "d_f", "d_i"), out, expected, strict=True):
        assert_close(got, want, atol=atol, rtol=0, msg=lambda text, label=label: f"{label}: {text}")
    names = ("x", "w_ih", "w_hh", "bias", "h0", "c0")[: 6 if wants_d_state else 4]
    for label, got, want in zip(names, gradients, expected_gradients, strict=False):
        assert_close(got, want, atol=atol, rtol=atol, msg=lambda text, label=label: f"gradient of {label}: {text}")


kernels = pytest.mark.parametrize("name", ["reference", "cpu", TRITON])
cpu_kernels = pytest.mark.parametrize("name", ["reference", "cpu"])  # what is left out or cut up for a CPU only


def cpu_kernels_and_threads(*numbers):
    """The C++ kernel shares its work out among threads; the reference knows nothing of them."""
    return pytest.mark.parametrize(("name", "threads"), [("reference", 1), *(("cpu", number) for number in numbers)])


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Memory that a kernel takes and does not write reads as NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@kernels
@pytest.mark.parametrize("free", [False, True], ids=["paper", "free last chunk"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_every_gradient(name, shape, reverse, free):
    check(name, inputs(*shape, free=free), shape[-1], reverse=reverse)


@kernels
@pytest.mark.parametrize("free", [False, True], ids=["paper", "free last chunk"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("shape", [SHAPES[key] for key in ("small", "T=B=1", "B=20", "many rows")], ids=str)
def test_pre_activations_instead_of_weights(name, shape, reverse, free):
    args = pre_activated(inputs(*shape, free=free))
    check(name, args, shape[-1], reverse=reverse)
    draw = torch.Generator().manual_seed(0)
    places = torch.randint(5, (len(args[0]),), generator=draw)
    few = torch.randn(6, args[0].shape[1], generator=draw, dtype=torch.float64)  # of which the last is nowhere
    check(name, [few, *args[1:]], shape[-1], reverse=reverse, places=places)


@kernels
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_shape(name, data):
    chunk, chunks = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 9))
    B = data.draw(st.integers(1, 24))
    sizes = sorted(data.draw(st.lists(st.integers(1, B), max_size=6)), reverse=True)
    sizes = [B, *sizes]
    free, reverse, ragged = data.draw(st.tuples(*[st.booleans()] * 3))
    sizes = sizes if ragged else [B] * len(sizes)
    seed, size = data.draw(st.integers(0, 9)), data.draw(st.sampled_from([1, 2, 7, 16, 17, 33]))
    args = inputs(len(sizes), B, chunk * chunks, chunk, free=free, sizes=sizes, seed=seed, size=size)
    wants_d_state = data.draw(st.booleans())
    if not wants_d_state:
        args[4].zero_(), args[5].zero_()
    places = None
    if data.draw(st.booleans()):
        args = pre_activated(args)
        places = data.draw(st.sampled_from([None, torch.arange(len(args[0])).flip(0), torch.arange(len(args[0])) // 3]))
    batch_sizes = torch.tensor(sizes) if ragged else None
    options = {"reverse": reverse, "wants_d_state": wants_d_state, "places": places}
    check(name, args, chunk, batch_sizes=batch_sizes, **options)


@kernels
@pytest.mark.parametrize("shape", [(6, 20, 130, 10), (3, 70, 65, 5), (2, 33, 300, 10), (2, 30, 1100, 10)], ids=str)
@pytest.mark.parametrize("wants_d_state", [False, True])
def test_float32_is_float64_rounded(name, shape, wants_d_state):
    exact = inputs(*shape)
    for state in exact[4:]:
        state[:, -shape[-1] :] = 0
    d_h = torch.randn(shape[0] * shape[1], shape[2], dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = kernel("reference", exact, None, shape[-1], False, [d_h, None, None, None, None])
    single = [x.float() for x in exact]
    got = kernel(name, single, None, shape[-1], False, [d_h.float(), None, None, None, None], wants_d_state)
    for results, wanted in zip(got, expected, strict=True):
        for x, want in zip(results[: 5 if wants_d_state else 4], wanted, strict=False):
            assert ((x.double() - want).abs().max() / want.abs().max()).item() < 2e-5


@cpu_kernels
def test_bias_gradients_of_many_rows_keep_their_digits(name):
    exact = inputs(400, 100, 6, 2)
    d_h = torch.ones(40_000, 6, dtype=torch.float64)
    want = kernel("reference", exact, None, 2, False, [d_h, None, None, None, None])[1][3]
    got = kernel(name, [x.float() for x in exact], None, 2, False, [d_h.float(), None, None, None, None])[1][3]
    assert ((got - want).abs().max() / want.abs().max()).item() < 2e-6


@cpu_kernels_and_threads(1, 2, 3)
@pytest.mark.parametrize("B", [1, 20, 64])
def test_any_number_of_threads(name, threads, B):
    torch.set_num_threads(threads)
    try:
        check(name, inputs(4, B, 260, 10), 10)
        sizes = [B, max(1, B // 2), 1]
        check(name, inputs(3, B, 260, 10, sizes=sizes), 10, batch_sizes=torch.tensor(sizes))
        args = inputs(30, B, 260, 10)
        forward, _ = functions(name)
        saved, lean = (forward(*args, None, 10, False, save, save) for save in (True, False))
        assert_close(lean[:5], saved[:5], atol=1e-12, rtol=0)
    finally:
        torch.set_num_threads(1)


@kernels
@pytest.mark.parametrize("without", [(1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4), (0, 1, 2, 4), (0, 1, 2, 3)])
def test_each_output_alone_has_the_right_gradient(name, without):
    check(name, inputs(5, 3, 12, 3), 3, without=without)


@kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_gates_stay_finite(name, dtype):
    """Pre-activations of ±1000: gates of exactly 0 and 1, gradients of exactly 0, never NaN."""
    x, w_ih, *rest = inputs(6, 4, 24, 4, dtype=dtype)
    gates = (x @ w_ih.T).sign() * 1000
    args = gates, torch.eye(gates.shape[1], dtype=dtype), *rest
    if dtype is torch.float64:  # near 1000 float32 resolves 6e-5: nothing to compare
        # A GEMM that adds to its output rounds to 1e-13 near 1000, which x multiplies by 1000 in the gradient of w_ih.
        check(name, args, 4, atol=1e-9 if name == "triton" else 1e-11)
    out, gradients = kernel(name, args, None, 4, False, [torch.ones(24, 24, dtype=dtype), None, None, None, None])
    assert all(x.isfinite().all() for x in (*out, *gradients))


@kernels
def test_float32_does_not_drift_over_200_steps(name):
    args = inputs(200, 3, 120, 10)
    exact = reference.forward(*args, None, 10, False, True, True)[:5]
    single = [x.float() for x in args]
    out, _ = kernel(name, single, None, 10, False, [torch.ones(600, 120), None, None, None, None])
    for got, want in zip(out, exact, strict=True):
        assert_close(got.double(), want, atol=1e-5, rtol=0)


@kernels
def test_a_batch_of_none(name):
    x, w_ih, w_hh, bias, h0, c0 = inputs(3, 2, 12, 3)
    args = x[:0], w_ih, w_hh, bias, h0[:0], c0[:0]
    out, gradients = kernel(name, args, None, 3, False, [None] * 5)
    assert [tuple(x.shape) for x in out] == [(0, 12), (0, 12), (0, 12), (0,), (0,)]
    for gradient, weight in zip(gradients[1:4], args[1:4], strict=True):
        assert_close(gradient, torch.zeros_like(weight))


@cpu_kernels_and_threads(1, 2)
@pytest.mark.parametrize("zero", ["last chunk", "state"])
@pytest.mark.parametrize("shape", [(6, 20, 60, 10), (3, 70, 65, 5), (9, 7, 24, 12), (3, 33, 300, 10)], ids=str)
def test_training_may_leave_out_a_dead_last_chunk(name, shape, threads, zero):
    *_, D, chunk = shape
    *weights, h0, c0 = inputs(*shape)
    h0[:, 0 if zero == "state" else D - chunk :] = c0[:, 0 if zero == "state" else D - chunk :] = 0
    torch.set_num_threads(threads)
    try:
        check(name, (*weights, h0, c0), chunk, wants_d_state=False)
        args = pre_activated((*weights, h0, c0))
        check(name, args, chunk, wants_d_state=False)
        check(name, args, chunk, wants_d_state=False, places=torch.arange(len(args[0])) % 7)
        sizes = torch.tensor([shape[1]] * (shape[0] - 1) + [1])
        weights[0] = weights[0][: sizes.sum()]
        check(name, (*weights, h0, c0), chunk, batch_sizes=sizes, reverse=True, wants_d_state=False)
    finally:
        torch.set_num_threads(1)


@cpu_kernels
@pytest.mark.parametrize("zero", ["nothing", "last chunk", "state"])
@pytest.mark.parametrize("free", [False, True], ids=["paper", "free last chunk"])
@pytest.mark.parametrize(
    "shape", [(6, 20, 60, 10), (3, 70, 65, 5), (9, 7, 24, 12), (60, 2, 24, 6), (9, 5, 24, 6), (4, 20, 6, 6)], ids=str
)
def test_inference_is_what_training_computes(name, shape, free, zero):
    """Nothing is saved, and work is left out that zero states make needless."""
    *_, D, chunk = shape
    x, w_ih, w_hh, bias, h0, c0 = inputs(*shape, free=free)
    from_ = {"nothing": D, "last chunk": D - chunk, "state": 0}[zero]
    h0[:, from_:] = c0[:, from_:] = 0
    forward, _ = functions(name)
    for sizes in (None, torch.tensor([shape[1]] * (shape[0] - 1) + [1])):
        rows = x if sizes is None else x[: sizes.sum()]
        for first, b in product(((rows, w_ih), (rows @ w_ih.T, None)), (bias, None)):
            args = *first, w_hh, b, h0, c0, sizes, chunk, sizes is not None
            saved, lean = forward(*args, True, True), forward(*args, False, False)
            for label, kept, got in zip(("h", "h_n", "c_n", "d_f", "d_i"), saved, lean, strict=False):
                assert_close(got, kept, atol=1e-13, rtol=0, msg=lambda text, label=label: f"{label}: {text}")
            assert lean[5].numel() == lean[6].numel() == 0


@pytest.mark.parametrize("name", [TRITON])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("sizes", [None, [3] * 5 + [2] * 4 + [1]], ids=["dense", "packed"])
def test_blocks_of_steps_recorded_and_replayed(name, sizes, reverse, monkeypatch):
    """On a GPU these are CUDA graphs; other weights and other lengths come to the same recording."""
    monkeypatch.setattr(graphs, "BLOCK", 3)
    monkeypatch.setattr(graphs, "REPLAY_AFTER", 0)
    for seed, steps in enumerate((10, 7, 2)):
        sizes = sizes and sizes[:steps]
        args = inputs(steps, 3, 12, 3, sizes=sizes, seed=seed)
        check(name, args, 3, batch_sizes=sizes and torch.tensor(sizes), reverse=reverse, without=(3,) if seed else ())
