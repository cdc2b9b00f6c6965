"""The folder of a model, language model or grammar: `config.json`, `model.safetensors`, `tokenizer.json`.

Written whole, checked on reading. The header of the safetensors file holds the SHA-256 of its tensors, and config.json
that of tokenizer.json, so that each file can be replaced alone and damage is still found. Nothing is ever unpickled.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from onlstm import __version__, files, memory
from onlstm.errors import UserError
from onlstm.models import locate, names
from onlstm.records import from_json
from onlstm.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
Kind = Literal["model", "grammar"]
"""The key of config.json that holds the configuration: that of a language model, or of a grammar."""
NAMES = {"model": "language model", "grammar": "grammar"}


@dataclass(frozen=True)
class Stored:
    """What a folder holds, checked."""

    config: Mapping[str, Any]
    """What the model was made with, as it was saved."""
    tokenizer: Tokenizer
    tensors: dict[str, Tensor]
    """The weights; those in half precision are read into float32."""


def save_description(folder: Path, kind: Kind, config: Any, tokenizer: Tokenizer, **facts: str) -> None:
    """Write everything but the weights; `config` is a dataclass, and facts go into config.json beside it."""
    files.make_folder(folder)
    tokenizer.save(folder / TOKENIZER)
    description = {
        "format_version": FORMAT_VERSION,
        "onlstm_version": __version__,
        kind: asdict(config),
        "tokenizer": {"profile": tokenizer.profile, "punctuation": tokenizer.punctuation},
        "tokenizer_sha256": files.sha256(folder / TOKENIZER),
        **facts,
    }
    files.write(folder / CONFIG, json.dumps(description, indent=1) + "\n")


def save_weights(folder: Path, tensors: Mapping[str, Tensor], *, half: bool = False) -> None:
    """Write the weights alone; with `half`, in half precision."""
    on_cpu = {name: value.detach().to("cpu").contiguous() for name, value in tensors.items()}
    stored = {name: value.half() if half and value.is_floating_point() else value for name, value in on_cpu.items()}
    files.write(folder / WEIGHTS, save(stored, {"sha256": _digest(stored)}))  # one entry: their order is random


def load(folder: Path, kind: Kind) -> Stored:
    """Return what is in the folder of a run, or of a model of that name in the box."""
    folder = locate(folder)
    description = read_config(folder)
    if kind not in description:
        other = next((name for name in get_args(Kind) if name in description), None)
        what = f"the folder of a {NAMES[other]}" if other else "damaged, or not written by onlstm"
        raise UserError(f"{folder / CONFIG}: {what}; a {NAMES[kind]} is needed")
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    rules = {"profile": tokenizer.profile, "punctuation": tokenizer.punctuation}
    same_file = files.sha256(folder / TOKENIZER) == description.get("tokenizer_sha256")
    if not same_file or description.get("tokenizer", rules) != rules:  # the first folders do not name the profile
        raise UserError(f"{folder / TOKENIZER}: not the file this model was saved with; copy the whole folder again")
    return Stored(description[kind], tokenizer, _read_weights(folder / WEIGHTS))


def fill(model: nn.Module, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Give a model, made on the device "meta", its weights; raise a `UserError` if they do not fit."""
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        first = next(iter(str(error).splitlines()[1:]), str(error)).strip()
        raise UserError(f"{folder / WEIGHTS}: does not fit {CONFIG}: {first:.200}") from None


def kind_of(folder: Path) -> Kind:
    """Return what kind of model a run, or a model of that name in the box, is."""
    return "grammar" if "grammar" in read_config(locate(folder)) else "model"


def read_config(folder: Path) -> Mapping[str, Any]:
    """Return the content of config.json; raise a `UserError` that tells what the folder is instead."""
    path = folder / CONFIG
    if not folder.exists():
        raise UserError(f"{folder}: no such model folder; by name there is {', '.join(names())}")
    if not folder.is_dir():
        raise UserError(f"{folder}: a file, not a folder")
    if not path.is_file():
        there = ", ".join(sorted(item.name for item in folder.iterdir())[:5]) or "nothing"
        raise UserError(f"{folder}: not a model folder: no {CONFIG} (there is {there})")
    try:
        description: Mapping[str, Any] = from_json(path.read_text())
        version = description["format_version"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: damaged, or not written by onlstm") from None
    if version != FORMAT_VERSION:
        raise UserError(f"{path}: format {version}; this onlstm reads {FORMAT_VERSION}: install a version that fits")
    return description


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path}: missing; the folder has no weights (was training cut off before its first epoch?)")
    memory.check(path.stat().st_size, str(path), "use a machine with more of it")
    try:
        with safe_open(path, framework="pt") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            digest = (file.metadata() or {}).get("sha256")
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: truncated or not a safetensors file ({error}); copy it again") from None
    if digest != _digest(tensors):
        raise UserError(f"{path}: damaged: its SHA-256 is not the one it was saved with; copy it again")
    least = {name: torch.int32 if value.dtype == torch.int32 else torch.float32 for name, value in tensors.items()}
    kinds = {name: torch.promote_types(value.dtype, least[name]) for name, value in tensors.items()}
    return {name: value.to(kinds[name], copy=True) for name, value in tensors.items()}  # the file's are not aligned


def _digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of names, types, shapes and bytes, in order of names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
