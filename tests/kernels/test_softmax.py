"""The softmax's kernel against its definition in float64, and against autograd."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from onlstm.kernels import build, softmax

SHAPES = [(1, 1), (3, 16), (7, 33), (40, 1000), (5, 10_001)]
KERNELS = {"reference": softmax.reference, "kernel": softmax.cross_entropy_}


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Memory that a kernel takes and does not write reads as NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def some(rows, words, dtype, spread=5.0):
    draw = torch.Generator().manual_seed(rows * words)
    logits = spread * torch.randn(rows, words, generator=draw, dtype=torch.float64)
    return logits.to(dtype), torch.randint(words, (rows,), generator=draw)


def by_autograd(logits, words, scale):
    logits = logits.double().requires_grad_()
    nll = F.cross_entropy(logits, words, reduction="none")
    (nll.sum() * scale).backward()
    return nll.detach(), logits.grad


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spread", [5.0, 60.0], ids=["usual", "saturated"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("rows", "words"), SHAPES)
def test_float32_is_that_of_autograd(rows, words, name, spread, threads):
    torch.set_num_threads(threads)
    logits, right = some(rows, words, torch.float32, spread)
    expected, d_expected = by_autograd(logits, right, 0.25)
    nll, d_bias = KERNELS[name](logits, right, 0.25)
    torch.set_num_threads(1)
    assert_close(nll.double(), expected, rtol=1e-6, atol=5e-6 if spread == 5 else 1e-4)
    assert_close(logits.double(), d_expected, rtol=2e-5 if spread == 5 else 2e-4, atol=3e-8)  # p - 1
    assert_close(d_bias.double(), d_expected.sum(0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("rows", "words"), SHAPES)
def test_bfloat16_rounds_the_gradient_once(rows, words, name):
    logits, right = some(rows, words, torch.bfloat16)
    expected, d_expected = by_autograd(logits, right, 0.25)
    nll, d_bias = KERNELS[name](logits, right, 0.25)
    assert logits.dtype == torch.bfloat16
    assert_close(nll.double(), expected, rtol=1e-6, atol=5e-6)
    assert_close(logits.double(), d_expected, rtol=2**-8, atol=1e-30)  # a number near the middle may go either way
    assert_close(d_bias.double(), logits.double().sum(0), rtol=0, atol=1e-6)


def test_the_number_of_threads_changes_no_digit():
    answers = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        logits, right = some(300, 3000, torch.float32)
        answers.append((*softmax.cross_entropy_(logits, right, 0.1), logits))
    torch.set_num_threads(1)
    for one, two in zip(*answers, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", KERNELS)
def test_what_is_no_number_is_not_hidden(name, wrong):
    logits, right = some(2, 40, torch.float32)
    logits[0, 7] = wrong
    nll, _ = KERNELS[name](logits, right, 1.0)
    assert not nll[0].isfinite()
    assert nll[1].isfinite()


@pytest.mark.skipif(not build.load("softmax"), reason="the C++ kernel could not be built")
def test_assumptions_are_checked():
    kernel = torch.ops.onlstm_softmax.cross_entropy_
    logits, right = some(3, 16, torch.float32)
    with pytest.raises(IndexError, match="word 16 is out of bounds for 16 logits"):
        kernel(logits, torch.full_like(right, 16), 1.0)
    with pytest.raises(RuntimeError, match="one word per row"):
        kernel(logits, right[:2], 1.0)
    with pytest.raises(RuntimeError, match="a contiguous matrix"):
        kernel(logits.t(), right, 1.0)
    with pytest.raises(RuntimeError, match="float32 or bfloat16"):
        kernel(logits.half(), right, 1.0)
