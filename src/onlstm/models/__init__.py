"""The models in the box: a folder each, named by it wherever a run is asked for. No torch here.

A run folder of that name takes precedence. `onlstm convert` writes such folders.
"""

import os
from pathlib import Path

from onlstm.errors import UserError

DEFAULT, TREES = "en-small", "en"
"""What commands that are given no run use: the language model or, if trees are all they need, the grammar."""
_BOX = Path(__file__).parent
RUN_FILES = ("config.json", "model.safetensors", "trainer.pt")
"""Each tells that a folder is a run, even if damaged."""


def names() -> list[str]:
    """Return the names of the models that are there, the default ones in any case."""
    return sorted({DEFAULT, TREES, *(path.parent.name for path in _BOX.glob(f"*/{RUN_FILES[0]}"))})


def is_run(word: str) -> bool:
    """Return whether a word of the command line names a run: its folder, even if damaged, or a model in the box.

    >>> is_run("en-small"), is_run("the cat sat")
    (True, False)
    """
    return word in names() or (word != "" and any(os.path.isfile(f"{word}/{name}") for name in RUN_FILES))  # noqa: PTH113


def locate(run: str | Path) -> Path:
    """Return the folder of a run; what names neither a folder nor a model in the box comes back as it is."""
    if str(run) not in names() or Path(run).exists():
        return Path(run)
    if not (_BOX / run).is_dir():
        raise UserError(f"{run}: not in this installation; train a model with `onlstm train` and name its folder")
    return _BOX / run
