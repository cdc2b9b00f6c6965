"""Random arguments of `onlstm::scan`, for the tests of the kernels."""

import torch


def inputs(T, B, D, chunk, *, free=False, dtype=torch.float64, seed=0, sizes=None, size=None):
    """Random x, w_ih, w_hh, bias, h0, c0 for a batch; `sizes` makes it a ragged one."""
    draw = torch.Generator().manual_seed(seed)
    G, size = 2 * (D // chunk + free) + 4 * D, size or D // 2 + 1
    shapes = (sum(sizes) if sizes else T * B, size), (G, size), (G, D), (G,), (B, D), (B, D)
    x, w_ih, w_hh, bias, h0, c0 = (torch.randn(*shape, generator=draw, dtype=dtype) for shape in shapes)
    return x, w_ih * size**-0.5, w_hh * D**-0.5, bias, h0, c0
