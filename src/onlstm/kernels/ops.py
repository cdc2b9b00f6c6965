"""The operators `onlstm::scan` and `onlstm::linear`: schemas, fake tensors, gradients, dispatch.

`scan` runs the C++ kernel on a CPU and `reference` on any other device. `linear` is `F.linear`, on a CPU through the
kernel's own matrix product, which here beats the stock one. Both are opaque to torch.compile and torch.export.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onlstm.kernels import build, reference

_LIBRARY = torch.library.Library("onlstm", "DEF")
_LIBRARY.define(
    "scan(Tensor x_gates, Tensor w_hh, Tensor h0, Tensor c0, Tensor? batch_sizes, int chunk_size, bool reverse,"
    " bool save)"
    " -> (Tensor h, Tensor h_n, Tensor c_n, Tensor d_f, Tensor d_i, Tensor gates, Tensor c_prev)",
)
_LIBRARY.define(
    "scan_backward(Tensor? d_h, Tensor? d_hn, Tensor? d_cn, Tensor? d_df, Tensor? d_di, Tensor gates,"
    " Tensor c_prev, Tensor h, Tensor h0, Tensor w_hh, Tensor? batch_sizes, int chunk_size, bool reverse)"
    " -> (Tensor d_x_gates, Tensor d_w_hh, Tensor d_h0, Tensor d_c0)",
)
_LIBRARY.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")


def scan(
    x_gates: Tensor,
    w_hh: Tensor,
    h0: Tensor,
    c0: Tensor,
    batch_sizes: Tensor | None,
    chunk_size: int,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return h (N, D), h_n, c_n (B, D) and the distances d_f, d_i (N) of `cell.scan`, all differentiable.

    Half precision is computed, and its distances returned, in float32.
    """
    dtype = x_gates.dtype
    exact = torch.promote_types(dtype, torch.float32)
    tensors = [x.to(exact) for x in (x_gates, w_hh, h0, c0)]
    save = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    h, h_n, c_n, d_f, d_i, *_ = torch.ops.onlstm.scan(*tensors, batch_sizes, chunk_size, reverse, save)
    return h.to(dtype), h_n.to(dtype), c_n.to(dtype), d_f, d_i


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x @ weight.T + bias for x (N, I), weight (O, I)."""
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
        return torch.ops.onlstm.linear(x, weight, bias)  # type: ignore[no-any-return]
    return F.linear(x, weight, bias)


# Any device: plain PyTorch. CPU: the C++ kernel, where it can be built.


def _scan(*args: Any) -> tuple[Tensor, ...]:
    return reference.forward(*args)


def _scan_backward(*args: Any) -> tuple[Tensor, ...]:
    return reference.backward(args[:5], *args[5:])


for _name, _plain in (("scan", _scan), ("scan_backward", _scan_backward), ("linear", F.linear)):

    def _cpu(*args: Any, name: str = _name, plain: Any = _plain) -> Any:
        return getattr(torch.ops.onlstm_cpu, name)(*args) if build.load() else plain(*args)

    _LIBRARY.impl(_name, _plain, "CompositeExplicitAutograd")
    _LIBRARY.impl(_name, _cpu, "CPU")


# Shapes, for torch.compile and torch.export


def _scan_fake(
    x_gates: Tensor,
    w_hh: Tensor,
    h0: Tensor,
    c0: Tensor,
    batch_sizes: Any,
    chunk_size: int,
    reverse: bool,
    save: bool,
) -> tuple[Tensor, ...]:
    (N, G), D = x_gates.shape, w_hh.shape[1]
    saved = N if save else 0
    one, rows = x_gates.new_empty, (N,)
    return (
        *(one(N, D), torch.empty_like(h0), torch.empty_like(c0), one(rows), one(rows)),
        *(one(saved, G), one(saved, D)),
    )


def _scan_backward_fake(*args: Any) -> tuple[Tensor, ...]:
    gates, h0, w_hh = args[5], args[8], args[9]
    return tuple(torch.empty_like(x) for x in (gates, w_hh, h0, h0))


def _linear_fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


torch.library.register_fake("onlstm::scan", _scan_fake, lib=_LIBRARY)
torch.library.register_fake("onlstm::scan_backward", _scan_backward_fake, lib=_LIBRARY)
torch.library.register_fake("onlstm::linear", _linear_fake, lib=_LIBRARY)


# Gradients


def _scan_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, w_hh, h0, _, batch_sizes, ctx.chunk_size, ctx.reverse, save = inputs
    if not save:
        raise RuntimeError("onlstm::scan was called with save=False and cannot be differentiated")
    h, *_, gates, c_prev = output
    ctx.save_for_backward(gates, c_prev, h, h0, w_hh, batch_sizes)
    ctx.set_materialize_grads(False)


def _scan_gradient(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    d = torch.ops.onlstm.scan_backward(*grads[:5], *saved, ctx.chunk_size, ctx.reverse)
    return *d, None, None, None, None


torch.library.register_autograd("onlstm::scan", _scan_gradient, setup_context=_scan_setup, lib=_LIBRARY)


def _no_second_gradient(ctx: Any, *grads: Any) -> None:
    raise RuntimeError("the fused ON-LSTM has no second derivative; use ONLSTM(..., backend='eager')")


torch.library.register_autograd("onlstm::scan_backward", _no_second_gradient, lib=_LIBRARY)


def _linear_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias = inputs
    ctx.save_for_backward(x, weight)
    ctx.has_bias = bias is not None


def _linear_gradient(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    d_x = torch.ops.onlstm.linear(d_y, weight.T, None) if ctx.needs_input_grad[0] else None
    d_weight = torch.ops.onlstm.linear(d_y.T, x.T, None) if ctx.needs_input_grad[1] else None
    return d_x, d_weight, d_y.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None


torch.library.register_autograd("onlstm::linear", _linear_gradient, setup_context=_linear_setup, lib=_LIBRARY)
