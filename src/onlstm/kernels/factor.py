"""Products of matrices in the C++ kernel factor.cpp, in float32 or with factors rounded to bfloat16.

torch's product in float32 has half the speed on AMD's processors, and that in bfloat16 compiles anew for each number of
rows. Other types, devices and machines take it all the same.
"""

from typing import Any

import torch
from torch import Tensor

from onlstm.kernels import build

_DEPTH = 2048
"""Columns of A, and rows of B, that are multiplied at a time: of more, B leaves the cache before it is used."""


class Factor:
    """A matrix B (K, N), rearranged once for products with any number of others.

    Args:
        B: the matrix, which may be a transposed one.
        narrow: round the factors of products to bfloat16; sums stay in float32.
    """

    def __init__(self, B: Tensor, *, narrow: bool = False) -> None:
        B = B.detach()
        self._narrow = narrow
        self._kernel: Any = None
        self._B = B
        if B.device.type == "cpu" and B.dtype == torch.float32 and build.load("factor"):
            self._narrow = narrow and build.has_bfloat16("factor")
            self._kernel = torch.classes.onlstm_factor.Factor(_contiguous(B), self._narrow)
        elif narrow:
            self._B = B.bfloat16()

    def times(self, A: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return A B (M, N), with the bias (N,) added to each row."""
        A = A.detach()
        if self._kernel is not None:
            product: Tensor = self._kernel.times(_contiguous(A), None if bias is None else bias.detach().contiguous())
            return product
        product = (A.bfloat16() @ self._B).to(A.dtype) if self._narrow else A @ self._B
        return product if bias is None else product + bias.detach()


def multiply(A: Tensor, B: Tensor, *, narrow: bool = False) -> Tensor:
    """Return A B, without gradients."""
    first, *others = (
        Factor(rows, narrow=narrow).times(columns)
        for columns, rows in zip(A.split(_DEPTH, 1), B.split(_DEPTH), strict=True)
    )
    for other in others:
        first += other
    return first


def _contiguous(x: Tensor) -> Tensor:
    """Return a matrix whose rows or columns are contiguous."""
    return x if 1 in x.stride() else x.contiguous()
