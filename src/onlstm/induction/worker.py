"""The process of one task: `python -m onlstm.induction.worker RUN TASK PARENT`, started by `induce`.

It ends with a checkpoint when it is told to, or when its parent is gone. Exit codes: 0 the task is done, 2 a mistake,
whose line is the last on stderr, 3 it was stopped.
"""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from onlstm import files
from onlstm.errors import UserError
from onlstm.induction.plan import Plan
from onlstm.induction.tasks import PROGRESS, Stopped, Watch, folder_of, perform
from onlstm.train import checkpoint
from onlstm.train.fit import Stop

_PATIENCE = 60.0
"""Seconds to wait for the process of an earlier sitting to let go of the folder."""


def main(run: Path, name: str, parent: int) -> int:
    """Do a task; return the exit code."""
    plan = Plan.load(run)
    (task,) = (task for task in plan.tasks if task.name == name)
    torch.set_num_threads(task.threads)
    folder, written = folder_of(run, name), 0.0
    files.make_folder(folder)

    def share(done: float) -> bool:
        nonlocal written
        if time.monotonic() > written + 1:
            written = time.monotonic()
            (folder / PROGRESS).write_text(f"{done:.4f}")
        return os.getppid() == parent

    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        _hold(stack, folder)
        try:
            perform(run, plan, task, Watch(share, stop))
        except (Stopped, KeyboardInterrupt):
            return 3
        except UserError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    return 0


def _hold(stack: ExitStack, folder: Path) -> None:
    """Lock the folder."""
    started = time.monotonic()
    while True:
        try:
            stack.enter_context(checkpoint.lock(folder))
            return
        except UserError:
            if time.monotonic() > started + _PATIENCE:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
