"""Products by the C++ kernel against torch's in float64, of matrices that stand in memory in every way."""

import pytest
import torch

from onlstm.kernels import build
from onlstm.kernels.factor import Factor, multiply

pytestmark = pytest.mark.skipif(not build.load("factor"), reason="the C++ kernel could not be built")
BFLOAT16 = pytest.mark.skipif(not build.has_bfloat16("factor"), reason="this processor has no bfloat16")
SHAPES = [
    (1, 1, 1),
    (1, 7, 5),
    (5, 1, 1),
    (3, 33, 65),
    (43, 64, 64),
    (100, 130, 67),
    (40, 2600, 70),
    (0, 3, 4),
    (3, 0, 4),
    (3, 4, 0),
]
"""Rows of A, columns of A, columns of B; a product keeps 42 rows and 1,024 columns of A in the cache."""


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Memory that a kernel takes and does not write reads as NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def ways(x):
    """Yield a matrix as it may stand in memory: plain, transposed, a slice of rows or columns, every other number."""
    yield x
    yield x.T.contiguous().T
    wide = torch.full((x.shape[0] + 2, x.shape[1] + 3), torch.nan)
    wide[1:-1, 2:-1] = x
    yield wide[1:-1, 2:-1]
    yield wide.T.contiguous().T[1:-1, 2:-1]
    sparse = torch.full((x.shape[0], 2 * x.shape[1]), torch.nan)
    sparse[:, ::2] = x
    yield sparse[:, ::2]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("narrow", [False, pytest.param(True, marks=BFLOAT16)])
@pytest.mark.parametrize(("M", "K", "N"), SHAPES)
def test_products_are_those_of_float64(M, K, N, narrow, threads):
    torch.manual_seed(0)
    A, B, bias = torch.randn(M, K), torch.randn(K, N), torch.randn(N)
    exact = [(x.bfloat16() if narrow else x).double() for x in (A, B)]
    expected = exact[0] @ exact[1]
    torch.set_num_threads(threads)
    try:
        for b in ways(B):
            factor = Factor(b, narrow=narrow)
            for a in ways(A):
                torch.testing.assert_close(factor.times(a).double(), expected, rtol=1e-5, atol=1e-5 * K**0.5)
                torch.testing.assert_close(
                    factor.times(a, bias).double(), expected + bias, rtol=1e-5, atol=1e-5 * K**0.5
                )
    finally:
        torch.set_num_threads(1)


def test_a_row_may_stand_for_all():
    row, B = torch.randn(1, 5), torch.randn(5, 4)
    torch.testing.assert_close(multiply(row.expand(3, 5), B), (row @ B).expand(3, 4))
    torch.testing.assert_close(multiply(torch.ones(()).expand(3, 5), B), B.sum(0).expand(3, 4))


@pytest.mark.parametrize("narrow", [False, pytest.param(True, marks=BFLOAT16)])
def test_threads_change_no_value(narrow):
    A, B = torch.randn(301, 77), torch.randn(77, 50)
    values = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        values.append(multiply(A, B, narrow=narrow))
    torch.set_num_threads(1)
    assert torch.equal(*values)


def test_other_types_have_torchs_product():
    A, B, bias = torch.randn(4, 3).double(), torch.randn(3, 2).double(), torch.randn(2).double()
    assert torch.equal(Factor(B).times(A, bias), A @ B + bias)
    assert Factor(B.to("meta")).times(A.to("meta")).shape == (4, 2)
    rounded = Factor(B, narrow=True).times(A)
    torch.testing.assert_close(rounded, (A.bfloat16() @ B.bfloat16()).double(), rtol=0, atol=0)


def test_what_does_not_fit_is_refused():
    factor = Factor(torch.randn(3, 2))
    with pytest.raises(RuntimeError, match="A: 3 columns are needed, not 4"):
        factor.times(torch.randn(5, 4))
    with pytest.raises(RuntimeError, match="A: a matrix of float32 numbers is needed, on the CPU"):
        factor.times(torch.randn(5, 3).double())
    with pytest.raises(RuntimeError, match="bias: 2 float32 numbers are needed"):
        factor.times(torch.randn(5, 3), torch.randn(3))
    with pytest.raises(RuntimeError, match="B: a matrix of float32 numbers is needed, on the CPU"):
        Factor(torch.randn(3))
