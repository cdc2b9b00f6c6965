"""Checkpoints of the original ON-LSTM code, which saves `[model, criterion, optimizer]` as whole objects.

They are read through `onlstm.lm.inert`, which runs nothing that is in them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onlstm.errors import UserError
from onlstm.lm.inert import Read, Storage, Stub, Unfit, mapping, open_checkpoint, printable, require

_DROPOUTS = {
    "dropout_embedding": "dropoute",
    "dropout_input": "dropouti",
    "dropout_hidden": "rnn.dropout",  # what the stack applies; `dropouth` is only what the model was asked for
    "dropout_output": "dropout",
    "weight_dropout": "rnn.cells.{}.hh.dropout",
}
_ENDS = {"encoder.weight": "embedding.weight", "decoder.weight": "decoder.weight", "decoder.bias": "decoder.bias"}
_LAYER = {
    "rnn.cells.{}.ih.0.weight": "layers.{}.weight_ih_l0",
    "rnn.cells.{}.hh.weight": "layers.{}.weight_hh_l0",
    "rnn.cells.{}.ih.0.bias": "layers.{}.bias_ih_l0",
    "rnn.cells.{}.hh.bias": "layers.{}.bias_hh_l0",
}


@dataclass(frozen=True, kw_only=True)
class LegacyCheckpoint:
    """What a checkpoint of the original code says; its shapes fit each other and its weights are finite."""

    path: Path
    """The file."""
    tensors: dict[str, Tensor]
    """The weights, under the original's state-dict names and in the file's dtype."""
    sizes: tuple[int, ...]
    """Sizes of the embedding and of every layer; the number of layers is one less."""
    chunk_size: int
    """Neurons that share one entry of the master gates, from the shapes: H / n where rows = 2 n + 4 H."""
    tied: bool
    """Whether the decoder has the embedding's weights."""
    dropouts: dict[str, float]
    """Dropout rates under the names of `LMConfig`; empty when the file is a state dict, which has none."""


def read_checkpoint(path: str | PathLike[str]) -> LegacyCheckpoint:
    """Return what the original's checkpoint, or a state dict of its model, holds, in either format of `torch.save`."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            value, read = open_checkpoint(file, path.stat().st_size)
            return _interpret(path, value, read)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except Unfit as error:
        raise UserError(f"{path}: {error}") from None


def to_onlstm(
    checkpoint: LegacyCheckpoint, *, weight_dropout: float | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the fields of an `LMConfig` and a state dict for its `LanguageModel`; the weights go over unchanged.

    `weight_dropout` is for files that do not say it (state dicts): the original multiplies the recurrent weights by
    1 - p in evaluation, so without p the model would be another one.
    """
    rates = dict.fromkeys(_DROPOUTS, 0.0) | checkpoint.dropouts
    if weight_dropout is not None:
        rates["weight_dropout"] = weight_dropout
    elif not checkpoint.dropouts:
        raise UserError(
            f"{checkpoint.path}: is a state dict, which does not say the weight dropout it was trained with; "
            "give it with --weight-dropout (the original's --wdrop, 0.4 unless set)"
        )
    names = _names(len(checkpoint.sizes) - 1)
    if checkpoint.tied:
        del names["decoder.weight"]
    config = {
        "vocab_size": len(checkpoint.tensors["encoder.weight"]),
        "rnn": "onlstm",
        "embedding_size": checkpoint.sizes[0],
        "hidden_size": checkpoint.sizes[1:],
        "chunk_size": checkpoint.chunk_size,
        "tied": checkpoint.tied,
        **rates,
        "weight_dropout_scale": "original",
    }
    return config, {ours: checkpoint.tensors[theirs] for theirs, ours in names.items()}


def _interpret(path: Path, value: Any, read: Read) -> LegacyCheckpoint:
    """Return the checkpoint in what was unpickled: an RNNModel or a state dict, alone or one of several objects."""
    parts = value if isinstance(value, list | tuple) else [value, *mapping(value).values()]
    for part in parts:
        is_model = isinstance(part, Stub) and part.name == "model.RNNModel"
        at = partial(_at, part) if is_model else mapping(part).get
        if at("rnn.cells.0.ih.0.weight") is not None:
            break
    else:
        raise Unfit(f"holds no ON-LSTM: {_description(value)}")
    for splits in (_at(part, "nsplits") for part in parts):
        if type(splits) is int and splits > 1:
            raise Unfit(f"was trained with a softmax split in {splits}; only the plain softmax can be converted")
    layers = next(k for k in count() if at(f"rnn.cells.{k}.ih.0.weight") is None)
    tensors = {name: _tensor(name, at(name), read) for name in _names(layers)}
    sizes, chunk_size = _check_shapes(tensors, layers)
    return LegacyCheckpoint(
        path=path,
        tensors=tensors,
        sizes=sizes,
        chunk_size=chunk_size,
        tied=torch.equal(tensors["encoder.weight"], tensors["decoder.weight"]),
        dropouts={name: _rate(at, theirs, layers) for name, theirs in _DROPOUTS.items()} if is_model else {},
    )


def _at(module: Any, name: str) -> Any:
    """Return the submodule, parameter or plain attribute with a dotted name, or None."""
    for part in name.split("."):
        attributes = mapping(module.state) if isinstance(module, Stub) else {}
        places = [mapping(attributes.get("_modules")), mapping(attributes.get("_parameters")), attributes]
        module = next((place[part] for place in places if part in place), None)
    return module


def _tensor(name: str, value: Any, read: Read) -> Tensor:
    """Return a copy of the weight that a stub speaks of: floating-point, finite and within its storage."""
    if isinstance(value, Stub) and value.name == "torch._utils._rebuild_parameter" and value.args:
        value = value.args[0]
    if not isinstance(value, Stub) or value.name != "torch._utils._rebuild_tensor_v2":
        raise Unfit(f"lacks the weight {name}")
    storage, offset, size, stride, *_ = value.args + (None,) * 4
    require(isinstance(storage, Storage) and type(offset) is int and type(size) is type(stride) is tuple)
    require(all(type(n) is int and 0 <= n <= storage.numel for n in (offset, *size, *stride)))
    require(len(size) == len(stride) in (1, 2) and 0 < math.prod(size) <= storage.numel)
    require(offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) < storage.numel)
    data = bytearray(read(storage))
    require(len(data) == storage.nbytes)
    tensor = torch.frombuffer(data, dtype=storage.dtype).as_strided(size, stride, offset).clone()
    if not tensor.is_floating_point() or not tensor.isfinite().all():
        raise Unfit(f"{name} holds values that are not finite numbers; take an earlier checkpoint")
    return tensor


def _names(layers: int) -> dict[str, str]:
    """Return our name of each weight, by the original's."""
    return {k.format(n): v.format(n) for n in range(layers) for k, v in _LAYER.items()} | _ENDS


def _check_shapes(tensors: dict[str, Tensor], layers: int) -> tuple[tuple[int, ...], int]:
    """Return the sizes and the chunk size, if all shapes follow from them."""
    weights = [tensors["encoder.weight"], *(tensors[f"rnn.cells.{k}.hh.weight"] for k in range(layers))]
    sizes, chunk_sizes = tuple(weight.shape[-1] for weight in weights), set()
    words = len(weights[0])
    expected = {"encoder.weight": (words, sizes[0]), "decoder.weight": (words, sizes[-1]), "decoder.bias": (words,)}
    for k, (before, hidden) in enumerate(pairwise(sizes)):
        rows = len(weights[k + 1])
        shapes = (rows, before), (rows, hidden), (rows,), (rows,)
        expected |= {name.format(k): shape for name, shape in zip(_LAYER, shapes, strict=True)}
        chunks, odd = divmod(rows - 4 * hidden, 2)
        chunk_sizes.add(hidden // chunks if not odd and chunks > 1 and hidden % chunks == 0 else 0)
    for name, shape in expected.items():
        if tensors[name].shape != shape:
            raise Unfit(f"{name} should be of size {shape}, not {tuple(tensors[name].shape)}")
    if len(chunk_sizes) > 1 or 0 in chunk_sizes:
        raise Unfit("the rows of rnn.cells.*.hh.weight are not 4 H + 2 H / C for one chunk size C in all layers")
    return sizes, chunk_sizes.pop()


def _rate(at: Callable[[str], Any], name: str, layers: int) -> float:
    """Return a dropout rate of the pickled model, the same in all layers."""
    rates = [at(name.format(k)) for k in range(layers)]
    if not all(type(p) in (int, float) and 0 <= p < 1 and p == rates[0] for p in rates):
        raise Unfit(f"{name.format('*')} should be one rate from 0 to below 1 in all layers")
    return float(rates[0])


def _description(value: Any) -> str:
    """Return in a few words what the file holds instead."""
    parts = value if isinstance(value, list | tuple) else [key for key in mapping(value) if type(key) is str] or [value]
    kinds = [p if type(p) is str else p.name if isinstance(p, Stub) else type(p).__name__ for p in parts]
    return f"only {', '.join(map(printable, kinds[:4]))}{', ...' if len(kinds) > 4 else ''}"
