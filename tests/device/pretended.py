"""A device that this machine does not have: `gpu:0`, whose tensors are kept on the CPU and say that they are not.

What a GPU refuses raises `Mixed` here: an operation on tensors of two devices, or a generator of another one. What a
GPU waits for is counted in `waits`. Torch has one such device for a whole process, so whoever calls
`register` has a process of its own. The kernel is `reference`, each of whose operations is watched.
"""

from collections import Counter
from contextlib import contextmanager

import torch
from torch._decomp.decompositions import lstm_impl
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from onlstm.kernels import reference

GPU = "gpu:0"
aten = torch.ops.aten
waits: Counter[str] = Counter()
_COPIES = {aten._to_copy.default, aten.copy_.default}
_INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
_WAITING = {aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten._unique2.default}
_KERNELS = {"onlstm::scan": reference.forward, "onlstm::scan_backward": reference.backward}


class Mixed(RuntimeError):
    """An operation that a GPU would refuse."""


class OnGpu(torch.Tensor):
    """A tensor that says it is on the GPU."""

    @staticmethod
    def __new__(cls, inner):
        form = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        self = torch.Tensor._make_wrapper_subclass(cls, inner.shape, device=torch.device(GPU), **form)
        self.inner = inner
        return self

    def __repr__(self):
        return f"OnGpu({self.inner})"

    @property
    def data(self):
        return OnGpu(self.inner.detach())

    @data.setter
    def data(self, value):
        self.inner = value.inner

    def __reduce_ex__(self, protocol):
        return self.inner.__reduce_ex__(protocol)  # a checkpoint is read onto the CPU

    def tolist(self):
        waits["tolist"] += 1
        return self.inner.tolist()

    def numpy(self):
        raise Mixed("numpy: the tensor is not on the CPU")

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})


class Generator(torch.Generator):
    """A generator that says it is on the GPU."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls if torch.device(device).type == "gpu" else cls.__base__, "cpu")

    def __init__(self, device="cpu"):
        pass

    @property
    def device(self):
        return torch.device(GPU)


class Mode(TorchDispatchMode):
    """Makes tensors on the GPU."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing is compiled here, and to say so for each operation takes longer than most of them

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device")
        there = any(issubclass(kind, OnGpu) for kind in types) or (device and torch.device(device).type == "gpu")
        return run(operation, args, kwargs) if there else operation(*args, **kwargs)


class Calls(TorchFunctionMode):
    """Refuses generators of another device; does what torch does inside, where `Mode` does not see it."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if (generator := kwargs.get("generator")) is not None:
            device = torch.device(kwargs.get("device") or getattr(args[0], "device", "cpu"))
            if device.type != generator.device.type:
                raise Mixed(f"{function.__name__}: a generator of {generator.device} for {device}")
        if function in (torch.tensor, torch.Tensor.new_tensor):
            device = kwargs.pop("device", "cpu" if function is torch.tensor else args[0].device)
            dtype = {"dtype": args[0].dtype} if function is not torch.tensor else {}
            return torch._C._VariableFunctions.tensor(args[-1], **dtype, **kwargs).to(device)
        if function is torch.lstm and isinstance(args[0], OnGpu):  # in elementary operations
            return lstm_impl(*args)
        return function(*args, **kwargs)


@contextmanager
def device():
    """Give this process the device for a while."""
    with Mode(), Calls():
        yield


def register() -> None:
    """Make the device known; within `device()` it works."""
    backend_registration._setup_privateuseone_for_python_backend("gpu")
    torch.Generator = Generator


def on_gpu(module: torch.nn.Module) -> torch.nn.Module:
    """Move a module there; what is tied stays tied."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    module.to(GPU)
    torch.__future__.set_swap_module_params_on_conversion(False)
    return module


def run(operation, args, kwargs):
    """Return what an operation returns, on the GPU, if all it takes is there."""
    if operation._schema.name in _KERNELS:
        return _KERNELS[operation._schema.name](*args)
    given: list[torch.Tensor] = []
    inside = [_unwrapped(each, given) for each in args]
    named = {name: _unwrapped(each, given) for name, each in kwargs.items()}
    _check(operation, args, given)
    known = {id(each.inner): each for each in given if isinstance(each, OnGpu)}
    place = kwargs.get("device")
    if place is not None:
        named["device"] = torch.device("cpu")
    result = operation(*inside, **named)
    fetched = place is not None and torch.device(place).type == "cpu"
    if fetched or (operation is aten.copy_.default and not isinstance(args[0], OnGpu)):
        waits[str(operation)] += 1
        return result
    return _wrapped(result, known)


def _unwrapped(value, given):
    """Return what an operation takes as it is on the CPU; its tensors are added to `given`."""
    if isinstance(value, torch.Tensor):
        given.append(value)
        return value.inner if isinstance(value, OnGpu) else value
    return [_unwrapped(each, given) for each in value] if isinstance(value, list | tuple) else value


def _wrapped(value, known):
    """Return what an operation returns as it is on the GPU: what it was given, if that is what it returns."""
    if isinstance(value, torch.Tensor):
        return known[id(value)] if id(value) in known else OnGpu(value)
    return type(value)(_wrapped(each, known) for each in value) if isinstance(value, list | tuple) else value


def _check(operation, args, given) -> None:
    if operation in _WAITING or (operation in _INDEXED and any(_is_mask(each) for each in args[1])):
        waits[str(operation)] += 1
    if operation in _COPIES:
        return
    own = [args[0], *args[2:]] if operation in _INDEXED else given  # places may be on the CPU
    strangers = [each for each in own if isinstance(each, torch.Tensor) and not isinstance(each, OnGpu)]
    if any(each.dim() for each in strangers):
        raise Mixed(f"{operation}: a tensor of size {tuple(strangers[0].shape)} is on the CPU")


def _is_mask(places) -> bool:
    return isinstance(places, torch.Tensor) and places.dtype == torch.bool
