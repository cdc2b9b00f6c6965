"""Compile a kernel, `cpu.cpp`, `chart.cpp` and so on, once for this machine's own instruction set, cache it, load it.

The compiler is called directly: torch's extension loader needs ninja on PATH and leaves a lock behind when killed.
Each process builds under a name of its own and renames, so nothing half-written is ever loaded and any number of
processes may build at once. Without a compiler there is one warning, and the reference kernel runs instead.
"""

import hashlib
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import torch

FOLDER = Path(__file__).parent
_NO_OPENMP = re.compile(r"fopenmp|\bomp\.h|-lg?omp\b")
_log = logging.getLogger("onlstm")
_lock = threading.Lock()
_loaded: dict[str, bool] = {}


class BuildError(RuntimeError):
    """The C++ kernel cannot be had here; the message says why."""


def load(kernel: str = "cpu") -> bool:
    """Return whether the C++ operators `torch.ops.onlstm_KERNEL.*` are there, building them if need be."""
    with _lock:
        if kernel not in _loaded:
            try:
                _load_library(kernel)
                _loaded[kernel] = True
            except BuildError as error:
                first, _loaded[kernel] = all(_loaded.values()), False
                if first:  # both have the same compiler
                    warnings.warn(f"onlstm runs on its slower reference kernel: {error}", RuntimeWarning, stacklevel=2)
        return _loaded[kernel]


def has_bfloat16(kernel: str = "cpu") -> bool:
    """Return whether the C++ kernel can multiply in bfloat16 here, twice as fast."""
    return load(kernel) and getattr(torch.ops, f"onlstm_{kernel}").has_bfloat16()


def _load_library(kernel: str) -> None:
    source, command, folders = FOLDER / f"{kernel}.cpp", _compiler_command(), _cache_folders()
    name = f"{kernel}-{_key(source, command)}.so"
    for library in filter(_trusted, [folder / name for folder in folders]):
        try:
            torch.ops.load_library(library)
            return
        except OSError:
            _log.warning("onlstm: %s does not load; building it again", library)
    library = _writable_one(folders) / name
    try:
        _compile(source, command, library)
        torch.ops.load_library(library)
    except OSError as error:
        raise BuildError(f"building in {library.parent} failed ({error})") from None


def _compiler_command() -> list[str]:
    """Return the command up to, not including, source and output. `command[0]` may not exist."""
    torch_root = Path(torch.__file__).parent
    capability = torch.backends.cpu.get_cpu_capability().replace(" ", "_")
    openmp = [] if sys.platform == "darwin" else ["-fopenmp"]
    compilers = [shlex.split(os.environ["CXX"])] if os.environ.get("CXX") else [["g++"], ["c++"], ["clang++"]]
    return [
        *next((words for words in compilers if shutil.which(words[0])), compilers[0]),
        *("-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"),
        *openmp,
        *(["-msve-vector-bits=256"] if capability == "SVE256" else []),
        f"-DCPU_CAPABILITY={capability}",
        f"-DCPU_CAPABILITY_{capability}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-isystem{torch_root / 'include'}",
        f"-L{torch_root / 'lib'}",
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]


def _key(source: Path, command: list[str]) -> str:
    """Return a short hash of all that the binary depends on: source, torch, flags, processor."""
    headers = sorted(source.parent.glob("*.h"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (source, *headers)))
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


def _cache_folders() -> list[Path]:
    """Return where the library may be: $ONLSTM_CACHE, the user's cache, or (read-only home) a temporary folder."""
    folders = [Path(os.environ["ONLSTM_CACHE"])] if "ONLSTM_CACHE" in os.environ else []
    with suppress(RuntimeError):  # no home
        folders.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onlstm")
    with suppress(OSError):  # nowhere to write
        folders.append(Path(tempfile.gettempdir()) / f"onlstm-{getattr(os, 'getuid', lambda: 'user')()}")
    return folders


def _trusted(path: Path) -> bool:
    """Return whether the path exists, and nobody but us and root may change it."""
    try:
        status = path.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o002)


def _writable_one(folders: list[Path]) -> Path:
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _trusted(folder):
                with tempfile.NamedTemporaryFile(dir=folder):
                    return folder
    raise BuildError("no folder to build in; name a writable one in the environment variable ONLSTM_CACHE")


def _compile(source: Path, command: list[str], library: Path) -> None:
    if shutil.which(command[0]) is None:
        raise BuildError(f"no C++ compiler ({command[0]} not found); install g++ or name one in CXX")
    for left in library.parent.glob("*.building"):  # by a process that was killed
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 3600:
                left.unlink()
    _log.warning("onlstm: compiling the C++ kernel for this machine, once (about 15 s)")
    handle, name = tempfile.mkstemp(prefix=library.stem, suffix=".building", dir=library.parent)
    os.close(handle)
    command = [*command, str(source), "-o", name, "-ltorch_cpu", "-lc10"]
    try:
        compiler = subprocess.run(command, capture_output=True, text=True, check=False)
        if compiler.returncode and _NO_OPENMP.search(compiler.stderr) and "-fopenmp" in command:
            _log.warning("onlstm: %s has no OpenMP here; the kernel will use one thread", command[0])
            command.remove("-fopenmp")
            compiler = subprocess.run(command, capture_output=True, text=True, check=False)
        if compiler.returncode:
            lines = compiler.stderr.splitlines() or ["no message"]
            raise BuildError(f"{command[0]} failed: {next((line for line in lines if 'error' in line), lines[0])}")
        Path(name).replace(library)
    finally:
        Path(name).unlink(missing_ok=True)
