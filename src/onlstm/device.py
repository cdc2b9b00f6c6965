"""Where a network runs. `find` decides for everybody who loads or trains a model; all other code follows its tensors.

Spellings are checked without torch, so that a mistake in a command shows at once.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onlstm.errors import UserError

if TYPE_CHECKING:
    import torch

_SPELLING = re.compile(r"auto|cpu|cuda(:\d{1,3})?|mps")
_FAILURES = (
    *("CUDA error", "CUDA driver", "CUDA unknown error", "No CUDA GPUs", "HIP error", "No HIP GPUs"),
    *("cuDNN error", "NCCL error", "Triton Error", "MPS backend"),
)
"""How torch's or Triton's message begins when a device fails; torch has `AcceleratorError` for it, too."""
_NO_MEMORY = ("DefaultCPUAllocator", "std::bad_alloc")
"""What torch's message contains when the CPU's memory is full."""


def check(name: str) -> None:
    """Raise a `UserError` unless a device can be called so."""
    if not _SPELLING.fullmatch(name):
        raise UserError(f"device {name}: there are auto, cpu, cuda, cuda:1 (the second one) and mps")


def check_grammar(name: "str | torch.device", run: object) -> None:
    """Raise a `UserError` if the run of a grammar, whose charts are computed on the CPU, is to be on another device."""
    check(str(name))
    if str(name) not in ("auto", "cpu"):
        raise UserError(f"device {name}: {run} is a grammar, which runs on the CPU alone; leave the device out")


def find(name: "str | torch.device" = "auto") -> "torch.device":
    """Return the device of this name; raise a `UserError` if it is not there.

    Args:
        name: "auto" (a CUDA device if torch has one, else the CPU), "cpu", "cuda" (the first or, of the processes of
            `torchrun`, a device each), "cuda:1" or "mps". ROCm's devices are called cuda, too.

    >>> find("cpu")
    device(type='cpu')
    """
    import torch

    name = str(name)
    check(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda"):
        return torch.device("cuda", _index(name, torch.cuda.device_count(), torch.__version__))
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device mps: torch {torch.__version__} finds none here; choose cpu")
    return torch.device(name)


def _index(name: str, count: int, version: str) -> int:
    """Return which of `count` CUDA devices is meant."""
    processes, own = (
        int(os.environ.get(key, default)) for key, default in (("LOCAL_WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    )
    if not count:
        raise UserError(f"device {name}: torch {version} finds no CUDA device here; choose cpu")
    if processes > 1 and ":" in name:
        raise UserError(f"device {name}: {processes} processes need a device each; write cuda")
    if processes > count:
        raise UserError(f"device {name}: {processes} processes, but {count} CUDA devices; start one for each device")
    index = int(name[5:]) if ":" in name else own
    if index >= count:
        raise UserError(f"device {name}: torch finds {count} here, the last is cuda:{count - 1}")
    return index


def failure(error: BaseException, use: str = "") -> str:
    """Return a line on a device (the CPU, too) that is out of memory or has failed, "" if the error is another one.

    Args:
        use: what takes the memory, and can be made smaller.
    """
    kind, text = type(error).__name__, str(error).partition("\n")[0]
    failed = kind == "AcceleratorError" or text.startswith(_FAILURES)
    if isinstance(error, MemoryError) or any(words in text for words in _NO_MEMORY):
        return f"the machine is out of memory{f' with {use}' if use else ''}; choose smaller sizes"
    if kind == "OutOfMemoryError" or (failed and "out of memory" in text):
        return f"the device is out of memory{f' with {use}' if use else ''}; choose smaller sizes, or cpu"
    return f"the device has failed ({text:.100}); try again, or on another one" if failed else ""


@contextmanager
def failures(use: str) -> Iterator[None]:
    """Turn what torch raises if a device is out of memory, with this use of it, or has failed into a `UserError`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if line := failure(error, use):
            raise UserError(line) from None
        raise


def moved(tensor: "torch.Tensor", device: "torch.device") -> "torch.Tensor":
    """Return a tensor of the CPU on a device; a CUDA device goes on computing while it is copied."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def exact(tensor: "torch.Tensor") -> "torch.dtype":
    """Return the type to sum in where a tensor is: float64, which MPS does not have."""
    import torch

    return torch.float32 if tensor.device.type == "mps" else torch.float64
