"""The model folder: `config.json`, `model.safetensors`, `tokenizer.json`; written whole, checked on reading.

The header of the safetensors file holds the SHA-256 of its tensors, and config.json that of tokenizer.json, so that
each file can be replaced alone and damage is still found. Nothing is ever unpickled.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from onlstm import __version__, files
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.models import locate, names
from onlstm.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


def save_model(model: LanguageModel, folder: Path, *, half: bool = False, **facts: str) -> None:
    """Write the model's folder; with `half`, its weights in half precision. Facts go into config.json."""
    save_description(model, folder, **facts)
    save_weights(model, folder, half=half)


def save_description(model: LanguageModel, folder: Path, **facts: str) -> None:
    """Write everything but the weights."""
    files.make_folder(folder)
    model.tokenizer.save(folder / TOKENIZER)
    description = {
        "format_version": FORMAT_VERSION,
        "onlstm_version": __version__,
        "model": asdict(model.config),
        "tokenizer": {"profile": model.tokenizer.profile, "punctuation": model.tokenizer.punctuation},
        "tokenizer_sha256": _sha256(folder / TOKENIZER),
        **facts,
    }
    files.write(folder / CONFIG, json.dumps(description, indent=1) + "\n")


def save_weights(model: LanguageModel, folder: Path, *, half: bool = False) -> None:
    """Write the weights alone."""
    kind = torch.float16 if half else None
    tensors = {name: value.detach().to("cpu", kind).contiguous() for name, value in model.state_dict().items()}
    if model.config.tied:
        del tensors["decoder.weight"]
    files.write(folder / WEIGHTS, save(tensors, {"sha256": _digest(tensors)}))  # one entry: their order is random


def load_model(folder: Path) -> LanguageModel:
    """Return the model of a folder, or of that name in the box, in evaluation mode, with its tokenizer.

    Weights in half precision are read into float32.
    """
    folder = locate(folder)
    description = read_config(folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    rules = {"profile": tokenizer.profile, "punctuation": tokenizer.punctuation}
    same_file = _sha256(folder / TOKENIZER) == description.get("tokenizer_sha256")
    if not same_file or description.get("tokenizer", rules) != rules:  # the first folders do not name the profile
        raise UserError(f"{folder / TOKENIZER}: not the file this model was saved with; copy the whole folder again")
    try:
        config = LMConfig.of(description.get("model", {}))
    except UserError as error:
        raise UserError(f"{folder / CONFIG}: {error}") from None
    if len(tokenizer) != config.vocab_size:
        raise UserError(f"{folder / TOKENIZER}: {len(tokenizer)} words, but the model has {config.vocab_size}")
    tensors = _read_weights(folder / WEIGHTS)
    if config.tied and "embedding.weight" in tensors:
        tensors["decoder.weight"] = tensors["embedding.weight"]
    try:
        with torch.device("meta"):  # takes no memory before the sizes are known to be those of the weights
            model = LanguageModel(config, tokenizer)
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        first = next(iter(str(error).splitlines()[1:]), str(error)).strip()
        raise UserError(f"{folder / WEIGHTS}: does not fit {CONFIG}: {first}") from None
    if config.tied:
        model.decoder.weight = model.embedding.weight
    return model.eval()


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
        description: Mapping[str, Any] = json.loads(path.read_text())
        version = description["format_version"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: damaged, or not written by onlstm") from None
    if version != FORMAT_VERSION:
        raise UserError(f"{path}: format {version}; this onlstm reads {FORMAT_VERSION}: install a version that fits")
    return description


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path}: missing; the folder has no weights (was training cut off before its first epoch?)")
    try:
        with safe_open(path, framework="pt") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            digest = (file.metadata() or {}).get("sha256")
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: truncated or not a safetensors file ({error}); copy it again") from None
    if digest != _digest(tensors):
        raise UserError(f"{path}: damaged: its SHA-256 is not the one it was saved with; copy it again")
    kinds = {name: torch.promote_types(value.dtype, torch.float32) for name, value in tensors.items()}
    return {name: value.to(kinds[name], copy=True) for name, value in tensors.items()}  # the file's are not aligned


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of names, types, shapes and bytes, in order of names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
