"""The process of one task: `python -m onlstm.induction.worker RUN TASK PARENT DEVICE`, started by `induce`.

Exit codes: 0 the task is done; 2 a mistake, described by the last line on stderr; 3 it was stopped.
"""

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from onlstm.errors import UserError
from onlstm.induction.plan import Plan
from onlstm.induction.tasks import Stopped, Watch, folder_of, perform
from onlstm.train import checkpoint
from onlstm.train.fit import Stop

_PATIENCE = 60.0
"""Seconds to wait until the process of an earlier sitting has let go of the folder."""


def main(run: Path, name: str, parent: int, device: str) -> int:
    """Do a task; return the exit code."""
    plan, folder = Plan.load(run), folder_of(run, name)
    (task,) = (task for task in plan.tasks if task.name == name)
    torch.set_num_threads(task.threads)
    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        try:
            _hold(folder, stack)
            perform(run, plan, task, Watch(folder, parent, stop), device)
        except (Stopped, KeyboardInterrupt):
            return 3
        except UserError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    return 0


def _hold(folder: Path, stack: ExitStack) -> None:
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
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
