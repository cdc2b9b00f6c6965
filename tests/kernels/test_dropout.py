"""Dropout by the C++ kernel: shares, independence, gradients of the same mask, nothing that depends on threads."""

import pytest
import torch
from torch.autograd import gradcheck

from onlstm.kernels import build
from onlstm.kernels.dropout import dropout

pytestmark = pytest.mark.skipif(not build.load("dropout"), reason="the C++ kernel could not be built")


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_share_is_dropped_and_the_rest_scaled(p, dtype):
    torch.manual_seed(0)
    x = torch.randn(300, 1000, dtype=dtype)
    left = dropout(x, p)
    assert torch.equal(left, torch.where(left == 0, left, x * (1 / (1 - p))))
    assert left.dtype == dtype
    assert float((left == 0).double().mean()) == pytest.approx(p, abs=4 * (p * (1 - p) / x.numel()) ** 0.5)


def test_nearly_all_may_be_dropped():
    assert not dropout(torch.ones(1000), 1 - 1e-12).any()


def test_masks_are_independent_along_and_across_blocks():
    torch.manual_seed(1)
    draws = torch.stack([dropout(torch.ones(3 * 4096 + 77), 0.5) > 0 for _ in range(2)]).double()
    first = draws[0]
    for other in (draws[1], *(first.roll(by) for by in (1, 2, 3, 4, 8, 16, 64, 4095, 4096, 4097))):
        assert abs(float(torch.corrcoef(torch.stack([first, other]))[0, 1])) < 4 / len(first) ** 0.5
    torch.manual_seed(1)
    assert torch.equal(dropout(torch.ones(len(first)), 0.5) > 0, first > 0)


def test_its_gradient_has_the_same_mask():
    x = torch.randn(7, 5, dtype=torch.double, requires_grad=True)

    def again(x):
        torch.manual_seed(2)
        return dropout(x, 0.4)

    assert gradcheck(again, x)
    assert gradcheck(lambda x: again(x.T), x), "rows that are not contiguous"


def test_threads_change_nothing():
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        results.append(dropout(torch.ones(200_001), 0.3))
    torch.set_num_threads(1)
    assert torch.equal(*results)


def test_without_a_share_nothing_happens():
    x = torch.randn(3)
    assert dropout(x, 0.0) is x


def test_other_types_have_torchs():
    assert set(dropout(torch.ones(9, 99, dtype=torch.bfloat16), 0.5).unique().tolist()) == {0, 2}
