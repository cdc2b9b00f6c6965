"""Building the C++ kernel as it happens to users: no compiler, crowds, crashes, read-only homes. Real processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from onlstm import ONLSTM
from onlstm.kernels import build

USE = """
import warnings, torch
from onlstm import ONLSTM
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.manual_seed(0)
    fused, eager = (ONLSTM(5, 12, chunk_size=3, backend=backend) for backend in ("fused", "eager"))
    eager.load_state_dict(fused.state_dict())
    x = torch.randn(9, 4, 5)
    for _ in range(2):
        fused.zero_grad()
        fused(x)[0].sum().backward()
    eager(x)[0].sum().backward()
    torch.testing.assert_close(fused.weight_hh_l0.grad, eager.weight_hh_l0.grad)
for warning in caught:
    print("warning:", warning.message)
from onlstm.kernels import build
print("kernel:", "c++" if build.load() else "reference")
"""


def environment(cache, **more):
    """A machine with nothing built; the compiler does not optimise, so that the test is quick."""
    return os.environ | {"ONLSTM_CACHE": str(cache), "CXXFLAGS": "-O0", "PYTHONPATH": ""} | more


def start(env):
    return subprocess.Popen([sys.executable, "-c", USE], env=env, stdout=-1, stderr=-1, text=True)


def use(env):
    process = start(env)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out, err


def libraries(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_here_the_cpp_kernel_is_the_one_that_runs():
    assert build.load()
    layer, x = ONLSTM(5, 12, chunk_size=3), torch.randn(4, 2, 5)
    with torch.profiler.profile() as profile:
        layer(x)[0].sum().backward()
    names = {event.name for event in profile.events()}
    assert {"onlstm_cpu::scan", "onlstm_cpu::scan_backward"} <= names


def test_without_a_compiler_there_is_one_warning_and_the_reference_kernel(tmp_path):
    out, _ = use(environment(tmp_path, CXX="no-such-compiler"))
    assert out.splitlines() == [
        "warning: onlstm runs on its slower reference kernel: no C++ compiler (no-such-compiler not found); "
        "install g++ or name one in CXX",
        "kernel: reference",
    ]
    assert libraries(tmp_path) == []


def test_both_kernels_have_one_warning(monkeypatch):
    monkeypatch.setattr(build, "_loaded", {})
    monkeypatch.setattr(build, "_load_library", raises)
    with pytest.warns(RuntimeWarning, match="slower reference kernel: no compiler") as warned:
        assert not any(map(build.load, ("cpu", "chart")))
    assert len(warned) == 1


def raises(kernel):
    raise build.BuildError("no compiler")


def test_on_the_command_line_the_warning_is_a_line(tmp_path):
    env = environment(tmp_path, CXX="/bin/false", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    words = [sys.executable, "-m", "onlstm", "parse", "--quiet", "en-small", "the cat sat on the mat"]
    done = subprocess.run(words, env=env | {"XDG_CACHE_HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "onlstm: compiling the C++ kernel for this machine, once (about 15 s)",
        "onlstm: runs on its slower reference kernel: /bin/false failed: no message",
    ]
    assert done.stdout.startswith("( ")


def test_a_compiler_that_fails_is_named(tmp_path):
    out, _ = use(environment(tmp_path, CXXFLAGS="--no-such-flag"))
    assert "reference kernel: " in out
    assert "failed: " in out
    assert "--no-such-flag" in out
    assert libraries(tmp_path) == []


@pytest.mark.slow
def test_two_processes_may_build_at_once_and_a_third_finds_it_built(tmp_path):
    both = [start(environment(tmp_path)) for _ in range(2)]
    for process in both:
        out, err = process.communicate()
        assert "kernel: c++" in out, err
        assert "compiling the C++ kernel" in err
    assert len(libraries(tmp_path)) == 1
    out, err = use(environment(tmp_path, PATH="/usr/bin:/bin"))  # as when .venv is not activated
    assert out == "kernel: c++\n"
    assert err == ""


@pytest.mark.slow
def test_a_killed_build_and_a_broken_library_do_no_harm(tmp_path):
    process = start(environment(tmp_path))
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*.building")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (left,) = tmp_path.glob("*.building")
    key = left.name.split("-")[1][:16]
    (tmp_path / f"cpu-{key}.so").write_bytes(b"not a library")
    out, err = use(environment(tmp_path))
    assert "kernel: c++" in out
    assert "does not load; building it again" in err


@pytest.mark.slow
def test_a_read_only_home_builds_in_the_temporary_folder(tmp_path):
    nowhere = tmp_path / "file"
    nowhere.write_text("a file where a folder would have to be")
    env = environment(nowhere / "cache", HOME=str(nowhere), TMPDIR=str(tmp_path), XDG_CACHE_HOME="")
    process = start(env)
    out, err = process.communicate()
    assert "kernel: c++" in out, err
    (library,) = tmp_path.glob("onlstm-*/cpu-*.so")
    assert library.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("change", ["source", "header", "torch", "flags", "processor"])
def test_the_key_covers_all_that_matters(change, monkeypatch, tmp_path):
    source = shutil.copy(build.FOLDER / "cpu.cpp", tmp_path / "cpu.cpp")
    header = shutil.copy(build.FOLDER / "product.h", tmp_path / "product.h")
    before = build._key(source, build._compiler_command())
    if change in ("source", "header"):
        changed = source if change == "source" else header
        changed.write_bytes(changed.read_bytes() + b"//")
    elif change == "torch":
        monkeypatch.setattr(torch, "__version__", "9.9")
    elif change == "flags":
        monkeypatch.setenv("CXXFLAGS", "-O1")
    else:
        monkeypatch.setattr(build, "_processor", lambda: "another")
    assert build._key(source, build._compiler_command()) != before
