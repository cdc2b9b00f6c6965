"""A process with everything imported that forks once for each command, so that a case costs a fork and not a start.

Requests and answers are lines of JSON on its standard input and output. A fork is a process like any other: limits of
memory, time and file size are the kernel's, its streams are real. With `cold`, it becomes the installed
command instead.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

COMMAND = Path(sys.executable).with_name("onlstm")
STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))
STILL = {"onlstm.__main__", "onlstm.induction.worker", "onlstm.kernels.triton"}
"""Modules that act when they are imported, or need what may not be installed."""


def warm() -> None:
    """Import the package and torch; run no operation of torch, which would start threads."""
    import onlstm
    from onlstm.cli.main import load_commands

    for module in pkgutil.walk_packages(onlstm.__path__, "onlstm."):
        if module.name not in STILL and not module.name.startswith("onlstm.adapters"):
            importlib.import_module(module.name)
    load_commands()
    gc.freeze()  # or the first collection of each fork would copy every page


def serve() -> list[str] | None:
    """Answer requests until there are no more; in a fork, return the words of its command."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    for line in requests:
        request = json.loads(line)
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(reader)
            for file in (requests, answers):
                os.close(file.fileno())
            prepare(request, writer)
            return request["argv"]
        os.close(writer)
        answers.write(json.dumps(watch(pid, reader, request)) + "\n")
    return None


def prepare(request: dict, pipe: int) -> None:
    """Give a fork its folder, streams and limits."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL if request["cold"] else signal.default_int_handler)
    os.chdir(request["cwd"])
    targets = {"full": "/dev/full", "file": request["out"]}
    sources = [
        None if request["stdin"] is None else os.open(request["stdin"], os.O_RDONLY),
        {"closed": None, "head": pipe}.get(request["stdout"], -1),
        os.open(request["err"], os.O_WRONLY | os.O_CREAT),
    ]
    if sources[1] == -1:
        sources[1] = os.open(targets[request["stdout"]], os.O_WRONLY | os.O_CREAT)
    for (number, _, _), source in zip(STREAMS, sources, strict=True):
        os.close(number) if source is None else os.dup2(source, number)
    os.closerange(3, 64)
    os.environ.update(request["env"])
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = {resource.RLIMIT_AS: size + request["memory"], resource.RLIMIT_CPU: request["seconds"]}
    if request["disk"] is not None:
        limits[resource.RLIMIT_FSIZE] = request["disk"]
    if request["cold"]:
        limits[resource.RLIMIT_AS] = request["memory"] + (1 << 30)
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))
    if request["cold"]:
        os.execv(COMMAND, ["onlstm", *request["argv"]])
    for number, name, mode in STREAMS:  # as the interpreter makes them when it starts
        is_open = sources[number] is not None
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = open(number, mode, encoding="utf-8", errors=errors, closefd=False) if is_open else None  # noqa: SIM115
        if stream and name == "stderr":
            stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["onlstm", *request["argv"]]


def end() -> NoReturn:
    """Run the command and end as the interpreter does, but without taking apart all modules: that takes longest."""
    from onlstm.cli.main import main

    code = 0
    try:
        main()
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 0 if leave.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    try:
        if sys.stdout:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"Exception ignored while flushing sys.stdout: {error}\n")
        code = 120
    if sys.stderr:
        sys.stderr.flush()
    os._exit(code)


def watch(pid: int, reader: int, request: dict) -> dict:
    """Return how a fork ended; it is killed with its children when its time is up."""
    started = time.monotonic()
    deadline, interrupt = started + 5 * request["seconds"], request["interrupt"]
    head = b""
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        now = time.monotonic()
        if ended or now > deadline:
            break
        if interrupt is not None and now > started + interrupt:
            os.kill(pid, signal.SIGINT)
            interrupt = None
        if reader >= 0 and select.select([reader], [], [], 0.005)[0]:
            head += os.read(reader, 4096)
            if b"\n" in head or request["stdout"] != "head":  # `| head -1`
                os.close(reader)
                reader = -1
        else:
            time.sleep(0.005)
    if reader >= 0:
        os.close(reader)
    kill(pid)
    if not ended:
        os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status) if ended else None
    seconds = usage.ru_utime + usage.ru_stime
    return {"code": code, "seconds": seconds, "head": head.decode("utf-8", "replace")}


def kill(group: int) -> None:
    """End what is left of a command: itself and the processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    warm()
    if (words := serve()) is not None:
        end()
