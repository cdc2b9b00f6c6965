"""`onlstm::scan` as an operator of PyTorch: autograd, second derivatives, opcheck, refusals."""

from importlib.util import find_spec
from subprocess import CalledProcessError

import pytest
import torch
from torch.testing import assert_close

from kernel_inputs import inputs, pre_activated
from onlstm.kernels import build, ops, reference


@pytest.fixture(autouse=True, scope="module")
def built():
    """Whatever test is the first in its process."""
    assert build.load(), "the C++ kernel did not build here"


def test_gradients_through_autograd_match_finite_differences():
    leaves = [x.requires_grad_() for x in inputs(3, 2, 6, 2)]
    assert torch.autograd.gradcheck(lambda *args: ops.scan(*args, None, 2), leaves)
    assert torch.autograd.gradcheck(lambda *args: ops.scan(*args, torch.tensor([2, 2, 1, 1]), 2, True), leaves)
    x, _, *rest = pre_activated(inputs(3, 2, 6, 2))
    leaves = [tensor.requires_grad_() for tensor in (x, *rest)]
    assert torch.autograd.gradcheck(lambda x, *rest: ops.scan(x, None, *rest, None, 2), leaves)
    assert torch.autograd.gradgradcheck(lambda x, *rest: ops.scan(x, None, *rest, None, 2), leaves, fast_mode=True)
    places = torch.tensor([0, 5, 1, 1])
    chosen = {"places": places, "reverse": True}
    assert torch.autograd.gradcheck(lambda x, *rest: ops.scan(x, None, *rest, None, 2, **chosen), leaves)


@pytest.mark.parametrize("given", [list, pre_activated, "places"])
@pytest.mark.parametrize("sizes", [None, [4, 2, 1]])
@pytest.mark.parametrize("reverse", [False, True])
def test_operators_are_well_behaved(sizes, reverse, given):
    places = torch.arange(sum(sizes or [4] * 3)) % 5 if given == "places" else None
    args = inputs(3, 4, 12, 3, sizes=sizes)
    args = [x if x is None else x.requires_grad_() for x in (given if places is None else pre_activated)(args)]
    batch_sizes = torch.tensor(sizes) if sizes else None
    torch.library.opcheck(torch.ops.onlstm.scan, (*args, batch_sizes, 3, reverse, True, True, places))
    transposed = [x.detach().mT.contiguous().mT.requires_grad_() if x is not None and x.dim() == 2 else x for x in args]
    torch.library.opcheck(torch.ops.onlstm.scan, (*transposed, batch_sizes, 3, reverse, True, True, places))
    with torch.no_grad():
        x, w_ih, w_hh, _, h0, c0 = args
        saved = x, w_ih, w_hh, h0, c0
        h, *_, gates, c_prev = torch.ops.onlstm.scan(*args, batch_sizes, 3, reverse, True, True, places)
        torch.library.opcheck(
            torch.ops.onlstm.scan_backward,
            (h, h0, h0, None, None, *saved, h, gates, c_prev, batch_sizes, 3, reverse, True, True, places),
        )


@pytest.mark.parametrize("sizes", [None, [2, 2, 1]])
def test_second_derivatives(sizes):
    leaves = [x.requires_grad_() for x in inputs(3, 2, 4, 2, sizes=sizes)]
    batch_sizes = torch.tensor(sizes) if sizes else None
    assert torch.autograd.gradgradcheck(
        lambda *args: ops.scan(*args, batch_sizes, 2, bool(sizes)), leaves, fast_mode=True
    )


def test_a_gradient_stops_at_the_operators_inputs():
    """Where one input was computed from another, nothing is counted twice."""
    _, w_ih, w_hh, bias, h0, c0 = inputs(3, 2, 6, 2)
    w_ih.requires_grad_()
    x = w_ih[:6] * 2
    h = ops.scan(x, w_ih, w_hh, bias, h0, c0, None, 2)[0].square().sum()
    (plain,) = torch.autograd.grad(h, w_ih, retain_graph=True)
    (differentiable,) = torch.autograd.grad(h, w_ih, create_graph=True)
    assert_close(differentiable, plain)


def test_the_operator_for_gradients_is_not_differentiated():
    x, w_ih, w_hh, bias, h0, c0 = inputs(3, 2, 6, 2)
    h, *_, gates, c_prev = torch.ops.onlstm.scan(x, w_ih, w_hh, bias, h0, c0, None, 2, False, True, True)
    d_h = torch.ones_like(h).requires_grad_()
    saved = x, w_ih, w_hh, h0, c0, h, gates, c_prev
    d_x, *_ = torch.ops.onlstm.scan_backward(d_h, None, None, None, None, *saved, None, 2, False, True, True)
    with pytest.raises(RuntimeError, match="backend='eager'"):
        d_x.sum().backward()


def test_what_needs_no_gradient_gets_none():
    x, w_ih, w_hh, bias, h0, c0 = inputs(3, 20, 12, 3)
    w_hh.requires_grad_()
    ops.scan(x, w_ih, w_hh, bias, h0, c0, None, 3)[0].sum().backward()
    assert w_hh.grad is not None
    assert x.grad is None
    assert ops.scan(x, w_ih, w_hh.detach(), None, h0, c0, None, 3)[0].grad_fn is None


def test_bad_arguments_are_named():
    x, w_ih, w_hh, bias, h0, c0 = inputs(3, 2, 12, 3)
    for args, message in (
        ((x[:5], w_ih, w_hh, bias, h0, c0, None, 3), "5 rows, not a multiple of the batch 2"),
        ((x, w_ih, w_hh, bias, h0, c0, None, 5), "hidden size 12 is not a multiple of chunk_size 5"),
        ((x, w_ih, w_hh, bias, h0, c0[:1], None, 3), "c0 must have size"),
        ((x, w_ih, w_hh.float(), bias, h0, c0, None, 3), "w_hh must be Double, got Float"),
        ((x, w_ih, w_hh, bias, h0, c0, torch.tensor([2, 2]), 3), "batch_sizes add up to 4, x has 6 rows"),
        ((x, w_ih, w_hh, bias, h0, c0, torch.tensor([1, 2, 2, 1]), 3), "batch_sizes must fall"),
        ((x[:, 1:], w_ih, w_hh, bias, h0, c0, None, 3), "w_ih must have size"),
        ((x, None, w_hh, bias, h0, c0, None, 3), "x must have 56 columns, those of the gates, got 7"),
        ((x, w_ih, w_hh[:-2], bias, h0, c0, None, 3), "w_hh has 54 rows, expected 56"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.onlstm_cpu.scan(*args, False, False, False)
    for first, places, message in (
        ((x, w_ih), torch.arange(6), "with w_ih there are none"),
        ((x @ w_ih.T, None), torch.arange(1, 7), "places must be from 0 to 5, the rows of x"),
        ((x @ w_ih.T, None), torch.arange(6.0), "places must be a 1-D int64 tensor"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.onlstm_cpu.scan(*first, w_hh, bias, h0, c0, None, 3, False, False, False, places)


@pytest.mark.skipif(bool(find_spec("triton")), reason="Triton is installed")
def test_a_gpu_without_triton_gets_the_reference_kernel_and_one_warning():
    ops.gpu_kernel.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"Triton is not installed; pip install 'onlstm\[gpu\]'"):
        assert ops.gpu_kernel() is reference
    assert ops.gpu_kernel() is reference


class Broken:
    """A GPU's kernel that raises an error."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def forward(self, *args, narrow=False):
        self.calls += 1
        raise self.error

    backward = forward


@pytest.fixture
def broken(monkeypatch):
    def kernel(error):
        made = Broken(error)
        monkeypatch.setattr(ops, "gpu_kernel", lambda: made)
        monkeypatch.setattr(ops, "_broken", [])
        return made

    return kernel


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Failed to find C compiler. Please specify via CC environment variable\nor set …"),
        CalledProcessError(1, ["gcc", "main.c"]),
        OSError("ptxas: no such file"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_where_triton_cannot_compile_there_is_one_warning_and_the_reference_kernel(broken, error):
    kernel, args = broken(error), (*inputs(3, 2, 12, 3), None, 3, False, True, True)
    expected = reference.forward(*args, narrow=True)
    with pytest.warns(RuntimeWarning, match=f"slower reference kernel: .*{type(error).__name__}") as warned:
        assert_close(ops.on_gpu("forward", *args, narrow=True), expected, atol=0, rtol=0)
    assert len(warned) == 1
    assert str(warned[0].message).count("\n") == 0
    assert_close(ops.on_gpu("forward", *args), reference.forward(*args), atol=0, rtol=0)
    assert kernel.calls == 1


def test_a_device_that_fails_is_no_reason_to_try_another_kernel(broken):
    args = *inputs(3, 2, 12, 3), None, 3, False, True, True
    for text in ("CUDA error: unspecified launch failure", "Triton Error [CUDA]: out of memory"):
        broken(RuntimeError(text))
        with pytest.raises(RuntimeError, match=text.split(":")[0].replace("[", r"\[")):
            ops.on_gpu("forward", *args)


def test_a_mistake_of_the_callers_does_not_replace_the_kernel(broken):
    kernel, (x, *rest) = broken(RuntimeError("shapes")), (*inputs(3, 2, 12, 3), None, 3, False, True, True)
    for calls in (1, 2):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            ops.on_gpu("forward", x[:, 1:], *rest)
        assert kernel.calls == calls


def test_a_triton_that_does_not_load_is_named(monkeypatch):
    monkeypatch.setattr(ops, "find_spec", lambda name: True)
    monkeypatch.setattr(ops, "import_module", Broken(ImportError("libtriton.so: undefined symbol")).forward)
    ops.gpu_kernel.cache_clear()
    try:
        with pytest.warns(
            RuntimeWarning, match=r"Triton does not load \(ImportError: libtriton.so: undefined symbol\)"
        ):
            assert ops.gpu_kernel() is reference
    finally:
        ops.gpu_kernel.cache_clear()
