"""Compile `cpu.cpp` once for this machine's own instruction set, cache it, load it.

The compiler is called directly: torch's extension loader needs ninja on PATH and leaves a lock behind when killed.
Each process builds under a name of its own and renames, so nothing half-written is ever loaded and any number of
processes may build at once. Without a compiler there is one warning, and the reference kernel runs instead.
"""

import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import torch

SOURCES = [Path(__file__).with_name(name) for name in ("cpu.cpp", "product.h")]  # compiled: the first
_log = logging.getLogger("onlstm")
_lock = threading.Lock()
_loaded: bool | None = None


class BuildError(RuntimeError):
    """The C++ kernel cannot be had here; the message says why."""


def load() -> bool:
    """Return whether the C++ operators `torch.ops.onlstm_cpu.*` are there, building them if need be."""
    global _loaded
    with _lock:
        if _loaded is None:
            try:
                _load_library()
                _loaded = True
            except BuildError as error:
                warnings.warn(f"onlstm runs on its slower reference kernel: {error}", RuntimeWarning, stacklevel=2)
                _loaded = False
        return _loaded


def _load_library() -> None:
    command = _compiler_command()
    library = _cache_folder() / f"cpu-{_key(command)}.so"
    if library.exists():
        try:
            torch.ops.load_library(library)
            return
        except OSError:
            _log.warning("onlstm: %s does not load; building it again", library)
    _compile(command, library)
    try:
        torch.ops.load_library(library)
    except OSError as error:
        raise BuildError(f"the compiled kernel does not load ({error})") from None


def _compiler_command() -> list[str]:
    """Return the command up to, not including, source and output. `command[0]` may not exist."""
    torch_root = Path(torch.__file__).parent
    capability = torch.backends.cpu.get_cpu_capability().replace(" ", "_")
    openmp = [] if sys.platform == "darwin" else ["-fopenmp"]
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    found = next((path for name in compilers if (path := shutil.which(name))), compilers[0])
    return [
        found,
        *("-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"),
        *openmp,
        f"-DCPU_CAPABILITY={capability}",
        f"-DCPU_CAPABILITY_{capability}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-isystem{torch_root / 'include'}",
        f"-L{torch_root / 'lib'}",
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]


def _key(command: list[str]) -> str:
    """Return a short hash of all that the binary depends on: source, torch, flags, processor."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES))
    for part in (torch.__version__, *command[1:], _processor()):
        digest.update(b"\0" + part.encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    return f"{platform.system()} {platform.machine()} {flags}"


def _cache_folder() -> Path:
    """Return a writable folder: $ONLSTM_CACHE, the user's cache, or (read-only home) one of ours in /tmp."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for folder in (os.environ.get("ONLSTM_CACHE"), Path(home) / "onlstm", _temporary_folder()):
        if folder and _writable(Path(folder)):
            return Path(folder)
    raise BuildError("no folder to build in; name a writable one in the environment variable ONLSTM_CACHE")


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"onlstm-{getattr(os, 'getuid', lambda: 'user')()}"


def _writable(folder: Path) -> bool:
    """Return whether files can be made in the folder (made if missing), and nobody else can put a library there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_uid not in (os.getuid(), 0):
            return False
        with tempfile.NamedTemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _compile(command: list[str], library: Path) -> None:
    if shutil.which(command[0]) is None:
        raise BuildError(f"no C++ compiler ({command[0]} not found); install g++ or name one in CXX")
    for left in library.parent.glob("*.building"):  # by a process that was killed
        if time.time() - left.stat().st_mtime > 3600:
            left.unlink(missing_ok=True)
    _log.warning("onlstm: compiling the C++ kernel for this machine, once (about half a minute)")
    handle, name = tempfile.mkstemp(prefix=library.stem, suffix=".building", dir=library.parent)
    os.close(handle)
    try:
        built = subprocess.run(
            [*command, str(SOURCES[0]), "-o", name, "-ltorch_cpu", "-lc10"],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            lines = [line for line in built.stderr.splitlines() if "error" in line] or built.stderr.splitlines()
            raise BuildError(f"{command[0]} failed: {lines[0] if lines else 'no message'}")
        Path(name).replace(library)
    finally:
        Path(name).unlink(missing_ok=True)
