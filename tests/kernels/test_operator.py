"""`onlstm::scan` as an operator of PyTorch: autograd, second derivatives, opcheck, refusals."""

from importlib.util import find_spec

import pytest
import torch
from torch.testing import assert_close

from kernel_inputs import inputs
from onlstm.kernels import build, ops, reference


@pytest.fixture(autouse=True, scope="module")
def built():
    """Whatever test is the first in its process."""
    assert build.load(), "the C++ kernel did not build here"


def test_gradients_through_autograd_match_finite_differences():
    leaves = [x.requires_grad_() for x in inputs(3, 2, 6, 2)]
    assert torch.autograd.gradcheck(lambda *args: ops.scan(*args, None, 2), leaves)
    assert torch.autograd.gradcheck(lambda *args: ops.scan(*args, torch.tensor([2, 2, 1, 1]), 2, True), leaves)


@pytest.mark.parametrize("sizes", [None, [4, 2, 1]])
@pytest.mark.parametrize("reverse", [False, True])
def test_operators_are_well_behaved(sizes, reverse):
    args = [x.requires_grad_() for x in inputs(3, 4, 12, 3, sizes=sizes)]
    batch_sizes = torch.tensor(sizes) if sizes else None
    torch.library.opcheck(torch.ops.onlstm.scan, (*args, batch_sizes, 3, reverse, True, True))
    transposed = [x.detach().mT.contiguous().mT.requires_grad_() if x.dim() == 2 else x for x in args]
    torch.library.opcheck(torch.ops.onlstm.scan, (*transposed, batch_sizes, 3, reverse, True, True))
    with torch.no_grad():
        x, w_ih, w_hh, _, h0, c0 = args
        h, *_, gates, c_prev = torch.ops.onlstm.scan(*args, batch_sizes, 3, reverse, True, True)
        torch.library.opcheck(
            torch.ops.onlstm.scan_backward,
            (h, h0, h0, None, None, x, w_ih, w_hh, h0, c0, h, gates, c_prev, batch_sizes, 3, reverse, True, True),
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
        ((x, w_ih, w_hh[:-2], bias, h0, c0, None, 3), "w_hh has 54 rows, expected 56"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.onlstm_cpu.scan(*args, False, False, False)


@pytest.mark.skipif(bool(find_spec("triton")), reason="Triton is installed")
def test_a_gpu_without_triton_gets_the_reference_kernel_and_one_warning():
    ops.gpu_kernel.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"Triton is not installed; pip install 'onlstm\[gpu\]'"):
        assert ops.gpu_kernel() is reference
    assert ops.gpu_kernel() is reference
