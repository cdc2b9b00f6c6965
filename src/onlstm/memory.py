"""How much memory there is, asked before it is taken. No torch here."""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from onlstm.errors import UserError

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the limit of a container, a number or `max`."""
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Settings of glibc's malloc, see mallopt(3)."""


def available() -> int:
    """Return how many bytes can be taken: of the machine's memory, within the limits of container and process."""
    page = os.sysconf("SC_PAGE_SIZE")
    limits = [page * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError, ValueError, IndexError):
        limits.append(1024 * int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]))
    for path in _LIMITS:
        with suppress(OSError, ValueError):
            limits.append(int(Path(path).read_text()))
    with suppress(OSError, ValueError, ImportError):
        import resource

        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            limits.append(limit - page * int(Path("/proc/self/statm").read_text().split()[0]))
    return max(0, min(limits))


def check(size: int, what: str, remedy: str) -> None:
    """Raise a `UserError` unless `size` bytes can be taken."""
    if size > (there := available()):
        raise UserError(f"{what}: {size / 1e9:,.1f} GB of memory are needed, {there / 1e9:,.1f} GB are left; {remedy}")


def keep() -> None:
    """Let the process keep what it frees, where its malloc is glibc's: it asks for as much again in the next step."""
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_MMAP_MAX, 0)
