"""Random arguments of `onlstm::scan`, for the tests of the kernels, and Triton's as one of them.

With TRITON_INTERPRET=1 that kernel runs in Triton's interpreter, on tensors of the CPU; else it needs a GPU.
"""

import os
import warnings
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(not find_spec("triton"), reason="needs Triton: make test-gpu-kernels")
TRITON = pytest.param("triton", marks=[needs_triton] if INTERPRETED else [needs_triton, pytest.mark.gpu])
interpreted = pytest.mark.skipif(not INTERPRETED or not find_spec("triton"), reason="needs Triton's interpreter")


def inputs(T, B, D, chunk, *, free=False, dtype=torch.float64, seed=0, sizes=None, size=None):
    """Random x, w_ih, w_hh, bias, h0, c0 for a batch; `sizes` makes it a ragged one."""
    draw = torch.Generator().manual_seed(seed)
    G, size = 2 * (D // chunk + free) + 4 * D, size or D // 2 + 1
    shapes = (sum(sizes) if sizes else T * B, size), (G, size), (G, D), (G,), (B, D), (B, D)
    x, w_ih, w_hh, bias, h0, c0 = (torch.randn(*shape, generator=draw, dtype=dtype) for shape in shapes)
    return x, w_ih * size**-0.5, w_hh * D**-0.5, bias, h0, c0


def pre_activated(args):
    """The same inputs, their product with the weights computed outside."""
    x, w_ih, *rest = args
    return [x @ w_ih.T, None, *rest]


@contextmanager
def triton_on_cpu():
    """PyTorch's dispatcher takes Triton's kernel, interpreted, for tensors of the CPU."""
    triton = import_module("onlstm.kernels.triton")
    library = torch.library.Library("onlstm", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
        library.impl("scan", triton.forward, "CPU")
        library.impl("scan_backward", triton.backward, "CPU")
    yield
    library._destroy()
