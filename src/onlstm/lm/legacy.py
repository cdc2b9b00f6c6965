"""Checkpoints of the original ON-LSTM code, read without running anything that is in the pickle.

The original saves whole objects: `torch.save([model, criterion, optimizer], file)`. Here no name in a pickle is ever
imported: each allowed name becomes a class of its own that only remembers what it was given (`_Stub`), any other name
is refused, and what the stubs say is read afterwards. So nothing on the unpickler's stack can do anything, and torch's
own loader has no part in it. Sizes that a file claims are held against the file before memory is taken.
"""

import io
import math
import pickle
import pickletools
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from onlstm.errors import UserError

_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of torch's format before 1.6
_CALLED = re.compile(  # with arguments
    r"torch\._utils\._rebuild_(tensor_v2|parameter)|collections\.(OrderedDict|defaultdict)|(__builtin__|builtins)\.set"
)
_CLASSES = re.compile(
    r"(model|ON_LSTM|locked_dropout|embed_regularize|weight_drop|splitcross"
    r"|torch\.nn\.(modules\.\w+|parameter|backends\.thnn)|torch\.optim(\.\w+)?)\.\w+"
    r"|torch\.[A-Z]\w+Storage|(__builtin__|builtins)\.(dict|list)",
    re.ASCII,
)
_OPCODES = re.compile(
    "PROTO|FRAME|STOP|MARK|(STACK_)?GLOBAL|NEWOBJ|REDUCE|BUILD|BINPERSID|(LONG_)?BIN(GET|PUT)|MEMOIZE|NONE"
    "|NEWTRUE|NEWFALSE|BININT[12]?|LONG[14]|BINFLOAT|(SHORT_)?BIN(UNICODE|BYTES)|BINUNICODE8|(EMPTY_)?TUPLE|TUPLE[123]"
    "|EMPTY_LIST|APPENDS?|EMPTY_DICT|SETITEMS?|EMPTY_SET|ADDITEMS"
)
_MOST_OPCODES = 50_000  # ten times those of the paper's model with its optimizer
_DTYPES = {"Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16}
_DTYPES |= {"Long": torch.int64, "Int": torch.int32, "Byte": torch.uint8, "Bool": torch.bool}
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
            zipped = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            value, read = (_open_zip if zipped else _open_legacy)(file, path.stat().st_size)
            return _interpret(path, value, read)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except _Unfit as error:
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


class _Unfit(Exception):
    """The file will not do; the message lacks only the file's name."""


class _Damaged(_Unfit):
    """The bytes are not those of `torch.save`."""

    def __init__(self, message: str = "is cut short or damaged; copy it again") -> None:
        super().__init__(message)


def _require(condition: bool) -> None:
    if not condition:
        raise _Damaged


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:100])


class _Stub:
    """Stands for an object of the pickle: what it was called with, its items and its state. Runs nothing."""

    name = ""
    args: tuple[Any, ...]
    items: dict[Any, Any]
    state: Any

    def __new__(cls, *args: Any) -> "_Stub":
        if args and not _CALLED.fullmatch(cls.name):
            raise _Unfit(f"refuses to load {cls.name} called with arguments: not part of an ON-LSTM checkpoint")
        self = super().__new__(cls)
        self.args, self.items, self.state = args, {}, None
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Storage(NamedTuple):
    """A storage that the pickle speaks of; where it was (on a GPU, say) does not matter."""

    key: str
    dtype: torch.dtype
    numel: int

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


_Read = Callable[[_Storage], bytes]


class _Unpickler(pickle.Unpickler):
    """Builds stubs and nothing else. `storages` are those it met, by key."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> type[_Stub]:
        full = f"{module}.{name}"
        if "." in name or not (_CALLED.fullmatch(full) or _CLASSES.fullmatch(full)):
            raise _Unfit(f"refuses to load {_printable(full)}: not part of an ON-LSTM checkpoint")
        return type(name, (_Stub,), {"name": full})

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("module", type() as cls, *_) if issubclass(cls, _Stub):
                return cls
            case ("storage", type() as cls, str() as key, _, int() as numel, *view) if numel >= 0 and not any(view):
                kind = cls.__name__.removesuffix("Storage")
                _require(kind in _DTYPES)
                storage = _Storage(key, _DTYPES[kind], numel)
                _require(self.storages.setdefault(key, storage) == storage)
                return storage
        raise _Damaged


def _unpickle(file: BinaryIO) -> tuple[Any, dict[str, _Storage]]:
    """Return the value of the pickle that starts here, and its storages; leave `file` at the pickle's end."""
    start = file.tell()
    try:
        for done, (opcode, arg, _) in enumerate(pickletools.genops(file)):
            if not _OPCODES.fullmatch(opcode.name):
                raise _Damaged(f"refuses the pickle opcode {opcode.name}: not part of an ON-LSTM checkpoint")
            # The unpickler takes memory up to the highest memo index, however few are in use.
            _require(done < _MOST_OPCODES and (not opcode.name.endswith("BINPUT") or int(arg or 0) <= done))
        end = file.tell()
        file.seek(start)
        unpickler = _Unpickler(file.read(end - start))
        return unpickler.load(), unpickler.storages
    except (_Unfit, OSError):
        raise
    except Exception:  # bent pickles raise nearly anything
        raise _Damaged from None


def _open_legacy(file: BinaryIO, size: int) -> tuple[Any, _Read]:
    """Return the object in a file of torch's format before 1.6, and what reads its storages."""
    try:
        magic, _ = _unpickle(file)
    except _Damaged:
        magic = None
    if type(magic) is not int or magic != _MAGIC:
        raise _Unfit("is not a file that torch.save wrote")
    _, (system, _), (value, storages), (keys, _) = (_unpickle(file) for _ in range(4))
    _check_order("little" if _mapping(system).get("little_endian", True) else "big")
    _require(type(keys) is list and all(type(key) is str and key in storages for key in keys))
    places = {}
    for key in keys:
        head = file.read(8)
        _require(len(head) == 8 and struct.unpack("=q", head)[0] == storages[key].numel)
        places[key] = file.tell()
        _require(places[key] + storages[key].nbytes <= size)
        file.seek(storages[key].nbytes, io.SEEK_CUR)

    def read(storage: _Storage) -> bytes:
        _require(storage.key in places)
        file.seek(places[storage.key])
        return file.read(storage.nbytes)

    return value, read


def _open_zip(file: BinaryIO, size: int) -> tuple[Any, _Read]:
    """Return the object in a file of torch's format since 1.6, and what reads its storages."""
    try:
        archive = zipfile.ZipFile(file)
    except Exception:  # bent archives raise nearly anything
        raise _Damaged from None
    names = archive.namelist()
    roots = [name.removesuffix("data.pkl") for name in names if re.fullmatch(r"[^/]+/data\.pkl", name)]
    if len(roots) != 1:
        raise _Unfit("is a zip archive, but not one that torch.save wrote")

    def record(name: str) -> bytes:
        _require(roots[0] + name in names)
        info = archive.getinfo(roots[0] + name)
        # torch never compresses: what claims more bytes than the file has is no checkpoint.
        _require(info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size <= size)
        try:
            return archive.read(info)
        except Exception:
            raise _Damaged from None

    if f"{roots[0]}byteorder" in names:
        _check_order(record("byteorder").decode("ascii", "replace"))
    value, _ = _unpickle(io.BytesIO(record("data.pkl")))
    return value, lambda storage: record(f"data/{storage.key}")


def _check_order(order: str) -> None:
    if order != sys.byteorder:
        raise _Unfit(f"was written on a {_printable(order)}-endian machine; load and save it again on one like this")


def _interpret(path: Path, value: Any, read: _Read) -> LegacyCheckpoint:
    """Return the checkpoint in what was unpickled: an RNNModel or a state dict, alone or one of several objects."""
    parts = value if isinstance(value, list | tuple) else [value, *_mapping(value).values()]
    for part in parts:
        is_model = isinstance(part, _Stub) and part.name == "model.RNNModel"
        at = partial(_at, part) if is_model else _mapping(part).get
        if at("rnn.cells.0.ih.0.weight") is not None:
            break
    else:
        raise _Unfit(f"holds no ON-LSTM: {_description(value)}")
    for splits in (_at(part, "nsplits") for part in parts):
        if type(splits) is int and splits > 1:
            raise _Unfit(f"was trained with a softmax split in {splits}; only the plain softmax can be converted")
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


def _mapping(value: Any) -> dict[Any, Any]:
    """Return the items of a dictionary, whichever class it had, and none of anything else."""
    if isinstance(value, _Stub):
        return value.items
    return value if type(value) is dict else {}


def _at(module: Any, name: str) -> Any:
    """Return the submodule, parameter or plain attribute with a dotted name, or None."""
    for part in name.split("."):
        attributes = _mapping(module.state) if isinstance(module, _Stub) else {}
        places = [_mapping(attributes.get("_modules")), _mapping(attributes.get("_parameters")), attributes]
        module = next((place[part] for place in places if part in place), None)
    return module


def _tensor(name: str, value: Any, read: _Read) -> Tensor:
    """Return a copy of the weight that a stub speaks of: floating-point, finite and within its storage."""
    if isinstance(value, _Stub) and value.name == "torch._utils._rebuild_parameter" and value.args:
        value = value.args[0]
    if not isinstance(value, _Stub) or value.name != "torch._utils._rebuild_tensor_v2":
        raise _Unfit(f"lacks the weight {name}")
    storage, offset, size, stride, *_ = value.args + (None,) * 4
    _require(isinstance(storage, _Storage) and type(offset) is int and type(size) is type(stride) is tuple)
    _require(all(type(n) is int and 0 <= n <= storage.numel for n in (offset, *size, *stride)))
    _require(len(size) == len(stride) in (1, 2) and 0 < math.prod(size) <= storage.numel)
    _require(offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) < storage.numel)
    data = bytearray(read(storage))
    _require(len(data) == storage.nbytes)
    tensor = torch.frombuffer(data, dtype=storage.dtype).as_strided(size, stride, offset).clone()
    if not tensor.is_floating_point() or not tensor.isfinite().all():
        raise _Unfit(f"{name} holds values that are not finite numbers; take an earlier checkpoint")
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
            raise _Unfit(f"{name} should be of size {shape}, not {tuple(tensors[name].shape)}")
    if len(chunk_sizes) > 1 or 0 in chunk_sizes:
        raise _Unfit("the rows of rnn.cells.*.hh.weight are not 4 H + 2 H / C for one chunk size C in all layers")
    return sizes, chunk_sizes.pop()


def _rate(at: Callable[[str], Any], name: str, layers: int) -> float:
    """Return a dropout rate of the pickled model, the same in all layers."""
    rates = [at(name.format(k)) for k in range(layers)]
    if not all(type(p) in (int, float) and 0 <= p < 1 and p == rates[0] for p in rates):
        raise _Unfit(f"{name.format('*')} should be one rate from 0 to below 1 in all layers")
    return float(rates[0])


def _description(value: Any) -> str:
    """Return in a few words what the file holds instead."""
    parts = (
        value if isinstance(value, list | tuple) else [key for key in _mapping(value) if type(key) is str] or [value]
    )
    kinds = [p if type(p) is str else p.name if isinstance(p, _Stub) else type(p).__name__ for p in parts]
    return f"only {', '.join(map(_printable, kinds[:4]))}{', ...' if len(kinds) > 4 else ''}"
