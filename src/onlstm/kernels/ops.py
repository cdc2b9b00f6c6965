"""The operator `onlstm::scan`, one direction of one layer: schema, fake tensors, gradients, dispatch.

PyTorch's dispatcher takes the C++ kernel on a CPU, Triton's on a GPU and `reference` on any other device; to
torch.compile and torch.export the operator is opaque, for ONNX it is decomposed. Input projection and bias are inside
it, so that on a CPU the pre-activations of a whole sequence never lie in memory; regularisers, weight drop among them,
stay outside.
Where the kernels have no derivative (second ones, forward mode, torch.func), autograd goes through `cell`.
"""

import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, _decomp
from torch.autograd import forward_ad

from onlstm.device import failure
from onlstm.kernels import build, equations, reference

_LIBRARY = torch.library.Library("onlstm", "DEF")
_LIBRARY.define(
    "scan(Tensor x, Tensor? w_ih, Tensor w_hh, Tensor? bias, Tensor h0, Tensor c0, Tensor? batch_sizes,"
    " int chunk_size, bool reverse, bool save, bool wants_d_state, Tensor? places=None, *, bool narrow=False)"
    " -> (Tensor h, Tensor h_n, Tensor c_n, Tensor d_f, Tensor d_i, Tensor gates, Tensor c_prev)"
)
_LIBRARY.define(
    "scan_backward(Tensor? d_h, Tensor? d_hn, Tensor? d_cn, Tensor? d_df, Tensor? d_di, Tensor x, Tensor? w_ih,"
    " Tensor w_hh, Tensor h0, Tensor c0, Tensor h, Tensor gates, Tensor c_prev, Tensor? batch_sizes,"
    " int chunk_size, bool reverse, bool wants_d_x, bool wants_d_state, Tensor? places=None,"
    " *, bool narrow=False)"
    " -> (Tensor d_x, Tensor d_w_ih, Tensor d_w_hh, Tensor d_bias, Tensor d_h0, Tensor d_c0)"
)


def scan(
    x: Tensor,
    w_ih: Tensor | None,
    w_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    batch_sizes: Tensor | None,
    chunk_size: int,
    reverse: bool = False,
    places: Tensor | None = None,
    *,
    narrow: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return h (N, D), h_n, c_n (B, D) and the distances d_f, d_i (N), all differentiable.

    That is `cell.scan` of x @ w_ih.T + bias, with rows x (N, I) as there; without `batch_sizes` every step has B rows.
    If w_ih is None, x is such a product, or, with `places` (N), the distinct rows of one: scanned is x[places] + bias.
    Half precision is computed, and its distances returned, in float32. `narrow` rounds the factors of products to
    bfloat16, where that is faster; with an x in bfloat16 a CPU does so anyway. Sums, gates and states stay in float32.
    """
    dtype, exact = x.dtype, torch.promote_types(x.dtype, torch.float32)
    x, w_hh, h0, c0 = (tensor.to(exact) for tensor in (x, w_hh, h0, c0))
    w_ih, bias = (None if tensor is None else tensor.to(exact) for tensor in (w_ih, bias))
    if is_transformed():
        h, h_n, c_n, d_f, d_i = equations.scan(x, w_ih, w_hh, bias, h0, c0, batch_sizes, chunk_size, reverse, places)
        return h.to(dtype), h_n.to(dtype), c_n.to(dtype), d_f, d_i
    training, tracing = torch.is_grad_enabled(), is_tracing()  # a trace runs with and without gradients
    wants_d_state = tracing or (training and (h0.requires_grad or c0.requires_grad))
    wanted = wants_d_state or any(tensor is not None and tensor.requires_grad for tensor in (x, w_ih, w_hh, bias))
    save = tracing or (training and wanted)
    narrow = exact == torch.float32 and (narrow or (dtype == torch.bfloat16 and x.device.type == "cpu"))
    arguments = x, w_ih, w_hh, bias, h0, c0, batch_sizes, chunk_size, reverse, save, wants_d_state, places
    out = torch.ops.onlstm.scan(*arguments, narrow=narrow)
    h, h_n, c_n, d_f, d_i, *_ = out
    return h.to(dtype), h_n.to(dtype), c_n.to(dtype), d_f, d_i


def is_transformed() -> bool:
    """Tell whether torch.func or forward-mode differentiation is at work, which the kernels cannot serve."""
    return bool(torch._C._are_functorch_transforms_active()) or forward_ad._current_level >= 0


def is_recording(packed: bool) -> bool:
    """Tell whether a graph for other lengths is made: by torch.jit.trace, for ONNX, or of packed sequences at all."""
    if torch.compiler.is_compiling() and (packed or (torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export())):
        return True
    return is_tracing()


def is_tracing() -> bool:
    """Tell whether torch.jit.trace is at work."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


@cache
def gpu_kernel() -> Any:
    """Return the module whose `forward` and `backward` run on GPUs: `triton`, or `reference` where it is missing."""
    reason = "Triton is not installed; pip install 'onlstm[gpu]'"
    if find_spec("triton"):
        try:
            return import_module("onlstm.kernels.triton")
        except Exception as error:  # whatever a library that does not fit raises
            reason = f"Triton does not load ({_brief(error)})"
    _warn(reason)
    return reference


_broken: list[str] = []
"""Why Triton's kernel is not used in this process, if it cannot be compiled."""


def on_gpu(function: str, *args: Any, narrow: bool = False) -> Any:
    """Return what `forward` or `backward` of the GPU's kernel returns; if Triton cannot compile it, `reference`'s.

    A C compiler or an assembler that is missing or fails, a processor that Triton does not know: each has exceptions
    of its own. What was given is as it was, so `reference` may begin anew; a caller's mistake it raises itself.
    """
    kernel = reference if _broken else gpu_kernel()
    try:
        return getattr(kernel, function)(*args, narrow=narrow)
    except Exception as error:
        if kernel is reference or failure(error):
            raise
        outputs = getattr(reference, function)(*args, narrow=narrow)
        _broken.append(_brief(error))
    _warn(f"Triton cannot compile its own ({_broken[0]})")
    return outputs


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"


def _warn(reason: str) -> None:
    warnings.warn(f"onlstm runs on its slower reference kernel: {reason}", RuntimeWarning, stacklevel=3)


for _name, _plain in (("scan", reference.forward), ("scan_backward", reference.backward)):

    def _cpu(*args: Any, narrow: bool = False, name: str = _name, plain: Any = _plain) -> Any:
        operator = getattr(torch.ops.onlstm_cpu, name) if build.load() else plain
        return operator(*args, narrow=narrow and build.has_bfloat16())

    def _gpu(*args: Any, narrow: bool = False, function: str = _plain.__name__) -> Any:
        return on_gpu(function, *args, narrow=narrow)

    _LIBRARY.impl(_name, _plain, "CompositeExplicitAutograd")
    _LIBRARY.impl(_name, _cpu, "CPU")
    _LIBRARY.impl(_name, _gpu, "CUDA")  # ROCm's too


def _scan_fake(x: Tensor, w_ih: Any, w_hh: Tensor, bias: Any, h0: Tensor, c0: Tensor, *rest: Any, **narrow: Any) -> Any:
    _, _, _, save, _, *places = rest
    (N, *_), (G, D) = (places[0] if any(each is not None for each in places) else x).shape, w_hh.shape
    saved = N if save else 0
    outputs = (x.new_empty(shape) for shape in ((N, D), h0.shape, c0.shape, (N,), (N,)))
    return *outputs, x.new_empty(saved, G), x.new_empty(saved, D)


def _scan_backward_fake(*args: Any, **_: Any) -> tuple[Tensor, ...]:
    x, w_ih, w_hh, h0 = args[5:9]
    d_x = x.new_empty(x.shape[0] if args[16] else 0, x.shape[1])
    d_w_ih = x.new_empty(0) if w_ih is None else x.new_empty(w_ih.shape)
    return d_x, d_w_ih, *(x.new_empty(shape) for shape in (w_hh.shape, w_hh.shape[:1], h0.shape, h0.shape))


torch.library.register_fake("onlstm::scan", _scan_fake, lib=_LIBRARY)
torch.library.register_fake("onlstm::scan_backward", _scan_backward_fake, lib=_LIBRARY)


def _setup(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: Any, output: tuple[Tensor, ...]) -> None:
    ctx.narrow = keyword_only_inputs["narrow"]
    *arguments, ctx.chunk_size, ctx.reverse, save, ctx.wants_d_state, places = inputs
    if not save:
        raise RuntimeError("onlstm::scan was called with save=False and cannot be differentiated")
    if any(ctx.needs_input_grad[4:6]) and not ctx.wants_d_state:
        raise RuntimeError("onlstm::scan was called with wants_d_state=False, but its first state wants a gradient")
    h, *_, gates, c_prev = output
    ctx.save_for_backward(*arguments, places, h, gates, c_prev)
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    x, w_ih, w_hh, bias, h0, c0, batch_sizes, places, *saved = ctx.saved_tensors
    needs = ctx.needs_input_grad[:6]
    if torch.is_grad_enabled():  # create_graph=True: the gradient will be differentiated
        tensors = x, w_ih, w_hh, bias, h0, c0
        d = equations.gradients(grads[:5], tensors, needs, batch_sizes, ctx.chunk_size, ctx.reverse, places)
    else:
        options = ctx.chunk_size, ctx.reverse, needs[0], ctx.wants_d_state, places
        arguments = *grads[:5], x, w_ih, w_hh, h0, c0, *saved, batch_sizes, *options
        d = torch.ops.onlstm.scan_backward(*arguments, narrow=ctx.narrow)
    return *(gradient if need else None for gradient, need in zip(d, needs, strict=True)), *[None] * 6


def _no_second_gradient(ctx: Any, *grads: Any) -> None:
    raise RuntimeError("onlstm::scan_backward cannot be differentiated; use ONLSTM(..., backend='eager')")


torch.library.register_autograd("onlstm::scan", _gradient, setup_context=_setup, lib=_LIBRARY)
torch.library.register_autograd("onlstm::scan_backward", _no_second_gradient, lib=_LIBRARY)

# torch.onnx.export replaces the operator by its decomposition; the entry in `meta_table` keeps `_scan_fake` in use.
_decomp.register_decomposition(torch.ops.onlstm.scan.default)(equations.decomposition)
_decomp.meta_table[torch.ops.onlstm.scan.default] = _scan_fake
