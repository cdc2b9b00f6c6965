"""`onlstm::scan` in the equations of `onlstm.cell`, for what no kernel does.

That is: gradients of gradients, forward-mode differentiation and torch.func; and ONNX, whose operator `Scan` takes one
step as a graph. Only `ops` imports this.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onlstm import cell
from onlstm.kernels.reference import pre_activations


def scan(
    x: Tensor,
    w_ih: Tensor | None,
    w_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    batch_sizes: Tensor | None,
    chunk_size: int,
    reverse: bool,
    places: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return h, h_n, c_n, d_f, d_i, as the operator does, under autograd."""
    B, x_gates = h0.shape[0], pre_activations(x, w_ih, bias, places)
    sizes = [B] * (x_gates.shape[0] // B if B else 1) if batch_sizes is None else batch_sizes.tolist()
    h, h_n, c_n, gates = cell.scan(x_gates, w_hh, h0, c0, chunk_size, sizes, reverse)
    return h, h_n, c_n, *cell.distances(gates)


def gradients(
    d_outputs: Sequence[Tensor | None],
    tensors: Sequence[Tensor | None],
    needs: Sequence[bool],
    batch_sizes: Tensor | None,
    chunk_size: int,
    reverse: bool,
    places: Tensor | None,
) -> list[Tensor | None]:
    """Return the gradients of x, w_ih, w_hh, bias, h0, c0 where needed: differentiable themselves."""
    # Views, so that a gradient ends here even if, say, x was computed from w_ih.
    x, w_ih, w_hh, bias, h0, c0 = views = [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]
    outputs = scan(x, w_ih, w_hh, bias, h0, c0, batch_sizes, chunk_size, reverse, places)  # type: ignore[arg-type]
    pairs = [(y, d) for y, d in zip(outputs, d_outputs, strict=True) if d is not None and y.requires_grad]
    wanted = [view for view, need in zip(views, needs, strict=True) if need]
    if not pairs or not wanted:
        return [None] * len(views)
    ys, ds = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(ys, wanted, ds, create_graph=True, allow_unused=True))  # type: ignore[arg-type]
    return [next(found) if need else None for need in needs]


def decomposition(
    x: Tensor,
    w_ih: Tensor | None,
    w_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    batch_sizes: Tensor | None,
    chunk_size: int,
    reverse: bool,
    save: bool,
    wants_d_state: bool,
    places: Tensor | None = None,
    *,
    narrow: bool = False,
) -> tuple[Tensor, ...]:
    """Return what the operator returns, for inference: one loop over time, of any length, which ONNX has as `Scan`.

    `narrow` rounds nothing here.
    """
    if batch_sizes is not None:
        raise RuntimeError("ONNX has no packed sequences: export the layer with a padded input, (T, B, input_size)")

    def step(h: Tensor, c: Tensor, x_gates: Tensor, w_hh: Tensor) -> list[Tensor]:
        now = cell.step(x_gates + h @ w_hh.T, c, chunk_size)
        return [now.h, now.c, now.h.clone(), *cell.distances(now.gates)]

    x_gates = pre_activations(x, w_ih, bias, places).unflatten(0, (-1, h0.shape[0]))
    x_gates = x_gates.flip(0) if reverse else x_gates
    states = [h0.detach(), c0.detach()]  # a loop that has gradients is not exported
    loop: Any = torch.ops.higher_order.scan
    h_n, c_n, *words = loop(step, states, [x_gates.detach()], (w_hh.detach(),))
    h, d_f, d_i = (word.flip(0).flatten(0, 1) if reverse else word.flatten(0, 1) for word in words)
    saved = h.shape[0] if save else 0
    return h, h_n, c_n, d_f, d_i, x.new_zeros(saved, w_hh.shape[0]), x.new_zeros(saved, w_hh.shape[1])
