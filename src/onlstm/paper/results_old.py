"""The file that a command's result is kept in; `onlstm report` makes RESULTS.md out of such files."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from onlstm import __version__, files
from onlstm.lm.model import LanguageModel

_VERSION = 1


def save(
    path: Path, *, kind: str, name: str, command: str, seed: int | None, seconds: float, **found: Any
) -> dict[str, Any]:
    """Write what was found, with the command, versions and machine that it was found by, and return it all."""
    whole = {
        "format_version": _VERSION,
        "kind": kind,
        "name": name,
        "command": command,
        "versions": {"onlstm": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "seed": seed,
        "seconds": seconds,
        "threads": torch.get_num_threads(),
        "machine": _machine(),
        **found,
        "notes": [],
    }
    files.write(path, files.json_text(whole) + "\n")
    return whole


def model_facts(run: Path, model: LanguageModel) -> dict[str, Any]:
    """Return what identifies a run's model; its name and perplexities if RUN/result.json is there."""
    try:
        trained = json.loads((run / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        trained = {"name": run.name, "numbers": {}}
    return {
        "path": str(run),
        "name": trained["name"],
        "rnn": model.config.rnn,
        "sizes": [model.config.embedding_size, *model.config.sizes],
        "parameters": sum(p.numel() for p in model.parameters()),
        **{key: value for key, value in trained["numbers"].items() if key.endswith("_perplexity")},
    }


def _machine() -> str:
    """Return the processor's name and how many cores there are."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores"
