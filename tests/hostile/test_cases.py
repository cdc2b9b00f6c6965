"""Hostile input, as data: what is typed, what it finds, how it must end. Runs the command in a process with limits.

`cases/*.yaml` lists the cases. `make test` runs those with `sample: true`; `make hostile` runs all.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostile.world import fill, make_common, make_trained
from onlstm.cli.main import app, load_commands

HERE = Path(__file__).parent
CRASH = re.compile(
    r"Traceback|Exception ignored|Error in sys\.|Fatal Python|terminate called|Segmentation|Aborted|\bWarning: "
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command line and how it ends."""

    run: str
    """What is typed after `onlstm`."""
    about: str = ""
    """Tells apart cases that are typed alike."""
    files: dict[str, Any] = field(default_factory=dict)
    """What its folder holds besides `common.yaml`; see `hostile.world`."""
    stdin: Any = ""
    """Its standard input, written as a file is; null: closed."""
    stdout: str = "file"
    """Its standard output: file, full, closed, or head (closed after the first line)."""
    code: int = 2
    """Exit code."""
    line: str = ""
    """The whole error line after `onlstm: ` (code 2), or a part of what is printed to stderr; a regular expression."""
    out: str | None = None
    """A part of the standard output; a regular expression. Code 2 prints nothing unless this is given."""
    writes: list[str] = field(default_factory=list)
    """Patterns of the new files; nothing else may be new."""
    also: str = ""
    """A part of all that is printed to stderr; a regular expression."""
    noisy: bool = False
    """Other lines may come before the error line, and something may be printed."""
    disk: int | None = None
    """Bytes that one file may have, as on a full disk."""
    memory: int = 1 << 30
    """Bytes that may be taken beyond those of an idle process."""
    seconds: int = 60
    """Limit of processor time, to catch what never ends; five times as long by the clock."""
    interrupt: float | None = None
    """Press Ctrl-C after so many seconds."""
    cold: bool = False
    """Start the installed command itself."""
    sample: bool = False
    """Run with `make test`, too."""


def _cases() -> list[Any]:
    params = []
    for path in sorted(HERE.glob("cases/*.yaml")):
        for entry in yaml.safe_load(path.read_text()):
            case = Case(**entry)
            name = f"{path.stem}: {case.run[:80]}" + (f" ({case.about})" if case.about else "")
            params.append(pytest.param(case, id=name, marks=() if case.sample else pytest.mark.slow))
    return params


@pytest.fixture(scope="session")
def common(tmp_path_factory):
    folder = tmp_path_factory.mktemp("common")
    make_common(folder)
    return folder


@pytest.fixture(scope="session")
def trained(common, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    make_trained(folder, common)
    return folder / "trained"


@pytest.fixture(scope="session")
def server():
    process = subprocess.Popen([sys.executable, HERE / "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        yield process
        process.stdin.close()


def content(folder: Path) -> dict[str, bytes | str]:
    """Return every file, link and folder, with its content."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {
        name: f"-> {path.readlink()}" if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
        for name, path in paths.items()
    }


@pytest.mark.parametrize("case", _cases())
def test_case(case, common, server, tmp_path, request):
    here, streams = tmp_path / "here", tmp_path / "streams"
    shutil.copytree(common, here)
    streams.mkdir()
    (tmp_path / "tmp").mkdir()
    if "trained" in case.run:
        shutil.copytree(request.getfixturevalue("trained"), here / "trained")
    fill(here, case.files)
    if case.stdin is not None:
        fill(streams, {"in": case.stdin})
    before = content(here)
    order = {
        "argv": shlex.split(case.run),
        "cwd": str(here),
        "env": {"TMPDIR": str(tmp_path / "tmp"), "OMP_NUM_THREADS": "1", "ONLSTM_THREADS": "1", "PWD": str(here)},
        "stdin": None if case.stdin is None else str(streams / "in"),
        "out": str(streams / "out"),
        "err": str(streams / "err"),
        **{name: getattr(case, name) for name in ("stdout", "disk", "memory", "seconds", "interrupt", "cold")},
    }
    server.stdin.write(json.dumps(order).encode() + b"\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    out = streams / "out"
    out = out.read_text(errors="replace") if out.exists() else answer["head"]
    check(case, answer["code"], out, (streams / "err").read_text(errors="replace"), before, content(here))
    left = [path.name for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("torchinductor_")]
    assert not left, f"temporary files left: {left}"


def check(case, code, out, err, before, after) -> None:
    """Hold what a command did against the case."""
    shown = f"\n  onlstm {case.run[:300]}\n  code {code}\n  stdout {out[:500]!r}\n  stderr {err[-1500:]!r}"
    assert not CRASH.search(err), f"traceback{shown}"
    lost = [name for name in before if after.get(name) != before[name] and not _written(name, case)]
    assert not lost, f"data lost: {lost}{shown}"
    assert code is not None, f"no end within {case.seconds} s{shown}"
    assert code == case.code, f"{'silent wrong result' if code == 0 else 'exit code'}: not {case.code}{shown}"
    new = sorted(name for name in set(after) - set(before) if not _written(name, case))
    assert not new, f"files left: {new}{shown}"
    lines = err.splitlines()
    if case.code == 2:
        assert lines, f"no line{shown}"
        assert lines[-1].startswith("onlstm: "), f"last line{shown}"
        assert re.fullmatch(case.line, lines[-1].removeprefix("onlstm: "), re.DOTALL), f"another line{shown}"
        assert case.noisy or case.also or len(lines) == 1, f"more than one line{shown}"
        assert case.out is not None or case.noisy or not out, f"stdout is not empty{shown}"
    else:
        assert re.search(case.line, err, re.DOTALL), f"silent wrong result: no such line{shown}"
    assert re.search(case.also, err, re.DOTALL), f"silent wrong result: no such line{shown}"
    assert case.out is None or re.search(case.out, out, re.DOTALL), f"silent wrong result: other output{shown}"


def _written(name: str, case: Case) -> bool:
    """Return whether a case may write a file; the lock of a run folder, which is empty, may stay."""
    return name.endswith("/.lock") or any(re.fullmatch(pattern, name) for pattern in case.writes)


def test_every_command_has_cases_and_the_sample_is_small():
    load_commands()
    cases = [param.values[0] for param in _cases()]
    typed = {shlex.split(case.run)[0] for case in cases}
    assert {command for command in app if not command.startswith("-")} <= typed
    assert sum(case.sample for case in cases) <= 30
