"""Checkpoints of the original ON-LSTM code, which saves `[model, criterion, optimizer]` as whole pickled objects.

Nothing in the pickle is imported or executed: each allowed name becomes a class that only remembers what it was given
(`_Stub`), and any other name is refused. Sizes that a file claims are compared with the file before memory is taken.
"""

import io
import math
import pickle
import pickletools
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from mmap import ACCESS_READ, mmap
from os import PathLike
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, BinaryIO

import torch
from torch import Tensor

from onlstm.errors import UserError
from onlstm.files import new_folder
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.text.sources import find_sources, read_lines
from onlstm.text.tokenizer import EOS, UNK, Tokenizer

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
_NEVER = -30.0  # the logit of a word that the model has never seen
_LEGACY = re.compile(rb"\x80.(\x95.{8})?\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.", re.DOTALL)  # a file of torch before 1.6
_NAMES = re.compile(
    r"(model|ON_LSTM|locked_dropout|embed_regularize|weight_drop|splitcross"
    r"|torch\.nn\.(modules\.\w+|parameter|backends\.thnn)|torch\.optim(\.\w+)?)\.\w+|torch\.[A-Z]\w+Storage"
    r"|torch\._utils\._rebuild_(tensor_v2|parameter)|collections\.(OrderedDict|defaultdict)"
    r"|(__builtin__|builtins)\.(dict|list|set)",
    re.ASCII,
)
_OPCODES = re.compile(
    "PROTO|FRAME|STOP|MARK|(STACK_)?GLOBAL|NEWOBJ|REDUCE|BUILD|BINPERSID|(LONG_)?BIN(GET|PUT)|MEMOIZE|NONE"
    "|NEWTRUE|NEWFALSE|BININT[12]?|LONG[14]|BINFLOAT|(SHORT_)?BIN(UNICODE|BYTES)|BINUNICODE8|(EMPTY_)?TUPLE|TUPLE[123]"
    "|EMPTY_LIST|APPENDS?|EMPTY_DICT|SETITEMS?|EMPTY_SET|ADDITEMS"
)
_MOST_OPCODES = 50_000  # ten times those of the paper's model with its optimizer


def convert(
    old: Path,
    out: Path,
    sources: Sequence[str] = (),
    weight_dropout: float | None = None,
    on_note: Callable[[str], object] = lambda line: None,
) -> LanguageModel:
    """Return a checkpoint's model, written to the folder `out`; `on_note` is called with a line about what it lacks.

    `sources` is the text it was trained on, which gives the words; for `weight_dropout` see `read_checkpoint`.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: already there; name a new folder")
    config, weights = read_checkpoint(old, weight_dropout)
    words = _vocabulary(sources) if sources else [*(f"word{k}" for k in range(config.vocab_size - 1)), EOS]
    if len(words) != config.vocab_size:
        counts = f"the text has {len(words):,} different words, but {old} has {config.vocab_size:,}"
        raise UserError(f"{counts}; name the folder (train, valid and test) that it was trained on")
    if not sources:
        on_note("The checkpoint holds no words: they are called word0, word1, …; name the text it was trained on.")
    if UNK not in words:
        on_note(f"{UNK} is not among its words: it gets a row of zeros and a probability of nearly 0.")
        config = replace(config, vocab_size=config.vocab_size + 1)
        for name in _ENDS.values():
            row = torch.full_like(weights[name][:1], _NEVER if name == "decoder.bias" else 0.0)
            weights[name] = torch.cat((weights[name], row))
    model = LanguageModel(config, Tokenizer.of_words(words)).eval()
    model.to(weights["embedding.weight"].dtype).load_state_dict(weights)
    with new_folder(out):
        model.save(out)
    return model


def _vocabulary(sources: Sequence[str]) -> list[str]:
    """Return the words of train, valid and test in order of first occurrence, as the original numbers them."""
    files = find_sources(sources).files
    lines = (line for part in ("train", "valid", "test") for path in files[part] for line in read_lines(path))
    return list(dict.fromkeys(word for line in lines for word in (*line.split(), EOS)))


def read_checkpoint(
    path: str | PathLike[str], weight_dropout: float | None = None
) -> tuple[LMConfig, dict[str, Tensor]]:
    """Return the shape and the state dict of the `LanguageModel` in a checkpoint, in either format of `torch.save`.

    The weights are unchanged, and finite. `weight_dropout` is for files that do not say it (state dicts): the original
    multiplies the recurrent weights by 1 - p in evaluation, so without p the model would be another one.
    """
    try:
        return _interpret(_load(Path(path)), weight_dropout)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception:  # a corrupt file can raise any exception
        raise UserError(f"{path}: is cut short or damaged; copy it again") from None


def _interpret(value: Any, weight_dropout: float | None) -> tuple[LMConfig, dict[str, Tensor]]:
    """Return the model in what was unpickled: an RNNModel or a state dict, alone or one of several objects."""
    parts = value if isinstance(value, list | tuple) else [value, *_mapping(value).values()]
    for part in parts:
        is_model = isinstance(part, _Stub) and part.name == "model.RNNModel"
        at = partial(_at, part) if is_model else _mapping(part).get
        if at("rnn.cells.0.ih.0.weight") is not None:
            break
    else:
        raise UserError("holds no model or state dict of the original ON-LSTM code")
    for splits in (_at(part, "nsplits") for part in parts):
        if type(splits) is int and splits > 1:
            raise UserError(f"was trained with a softmax split in {splits}; only the plain softmax can be converted")
    layers = next(k for k in count() if at(f"rnn.cells.{k}.ih.0.weight") is None)
    names = {theirs.format(k): ours.format(k) for k in range(layers) for theirs, ours in _LAYER.items()} | _ENDS
    weights = {ours: _tensor(theirs, at(theirs)) for theirs, ours in names.items()}
    rates = {name: _rate(at, theirs, layers) if is_model else 0.0 for name, theirs in _DROPOUTS.items()}
    if weight_dropout is not None:
        rates["weight_dropout"] = weight_dropout
    config = _config(weights, layers, rates)
    with torch.device("meta"):
        expected = {name: tuple(weight.shape) for name, weight in LanguageModel(config).state_dict().items()}
    for theirs, ours in names.items():
        if (shape := tuple(weights[ours].shape)) != expected[ours]:
            raise UserError(f"{theirs} should be of size {expected[ours]}, not {shape}")
    if weight_dropout is None and not is_model:
        raise UserError("is a state dict, which does not say the weight dropout (wdrop, 0.4 unless set): name it")
    return config, weights


def _config(weights: dict[str, Tensor], layers: int, rates: dict[str, float]) -> LMConfig:
    """Return the shape that the embedding and the recurrent weights, of 4 H + 2 H / C rows, are of."""
    words, embedding_size = weights["embedding.weight"].shape
    sizes = tuple(weights[f"layers.{k}.weight_hh_l0"].shape[-1] for k in range(layers))
    chunks, odd = divmod(len(weights["layers.0.weight_hh_l0"]) - 4 * sizes[0], 2)
    if odd or chunks < 2 or sizes[0] % chunks:
        raise UserError("the rows of rnn.cells.0.hh.weight are not 4 H + 2 H / C for any chunk size C")
    return LMConfig(
        vocab_size=words,
        embedding_size=embedding_size,
        hidden_size=sizes,
        chunk_size=sizes[0] // chunks,
        tied=torch.equal(weights["embedding.weight"], weights["decoder.weight"]),
        **rates,  # type: ignore[arg-type]
    )


def _at(module: Any, name: str) -> Any:
    """Return the submodule, parameter or plain attribute with a dotted name, or None."""
    for part in name.split("."):
        attributes = _mapping(module.state) if isinstance(module, _Stub) else {}
        places = [_mapping(attributes.get("_modules")), _mapping(attributes.get("_parameters")), attributes]
        module = next((place[part] for place in places if part in place), None)
    return module


def _tensor(name: str, value: Any) -> Tensor:
    """Return a copy of the weight that a stub speaks of: floating-point, finite and within its storage."""
    if isinstance(value, _Stub) and value.name == "torch._utils._rebuild_parameter" and value.args:
        value = value.args[0]
    if not isinstance(value, _Stub) or value.name != "torch._utils._rebuild_tensor_v2":
        raise UserError(f"lacks the weight {name}")
    (storage, numel), offset, size, stride = value.args[:4]
    _require(all(type(n) is int and 0 <= n <= numel for n in (offset, *size, *stride)))
    _require(len(size) == len(stride) in (1, 2) and 0 < math.prod(size) <= numel)
    _require(offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) < numel)  # torch would grow it
    tensor: Tensor = torch._utils._rebuild_tensor(storage, offset, size, stride).clone()
    if not tensor.is_floating_point() or not tensor.isfinite().all():
        raise UserError(f"{name} holds values that are not finite numbers; take an earlier checkpoint")
    return tensor


def _rate(at: Callable[[str], Any], name: str, layers: int) -> float:
    """Return a dropout rate of the pickled model, the same in all layers."""
    rates = [at(name.format(k)) for k in range(layers)]
    if not all(type(p) in (int, float) and 0 <= p < 1 and p == rates[0] for p in rates):
        raise UserError(f"{name.format('*')} should be one rate from 0 to below 1 in all layers")
    return float(rates[0])


def _mapping(value: Any) -> dict[Any, Any]:
    """Return the items of a dictionary, whichever class it had, and none of anything else."""
    return value.items if isinstance(value, _Stub) else value if type(value) is dict else {}


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError


class _Stub:
    """Stands for an object of the pickle: what it was called with, its items and its state. Runs nothing."""

    name = ""
    args: tuple[Any, ...]
    items: dict[Any, Any]
    state: Any

    def __new__(cls, *args: Any) -> "_Stub":
        self = super().__new__(cls)
        self.args, self.items, self.state = args, {}, None
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Builds stubs and nothing else: what `torch.load` unpickles with."""

    room: int
    """Bytes of the file: all storages together claim no more."""
    records: Mapping[str, int] | None = None
    """Bytes of each storage, by key, where the file has a directory."""

    def __init__(self, file: BinaryIO, **options: Any) -> None:
        start = file.tell()
        for position, (opcode, arg, _) in enumerate(pickletools.genops(file)):
            if not _OPCODES.fullmatch(opcode.name):
                raise UserError(f"refuses the pickle opcode {opcode.name}: not part of an ON-LSTM checkpoint")
            # The unpickler takes memory up to the highest memo index, however few are in use.
            _require(position < _MOST_OPCODES and (not opcode.name.endswith("BINPUT") or int(arg or 0) <= position))
        file.seek(start)
        super().__init__(file)
        self.claims: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> type[_Stub]:
        full = f"{module}.{name}"
        if "." in name or not _NAMES.fullmatch(full):
            printable = re.sub(r"[^\w.]", "?", full[:100])
            raise UserError(f"refuses to load {printable}: not part of an ON-LSTM checkpoint")
        return type(name, (_Stub,), {"name": full})

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, partial(self._persistent, value) if name == "persistent_load" else value)

    def _persistent(self, load: Callable[[Any], Any], pid: Any) -> Any:
        """Return a storage, as torch loads it, and its elements, in a tuple: nothing can be done to that."""
        kind, cls, *claim = pid
        if kind == "module":
            return cls
        key, _, numel, *view = claim
        _require(type(numel) is int and numel >= 0 and not any(view))
        nbytes = self.claims[key] = numel * cls.dtype.itemsize
        _require(sum(self.claims.values()) <= self.room and (self.records is None or self.records[key] == nbytes))
        return load(pid), numel


class _File(io.BufferedReader):
    def fileno(self) -> int:  # with a number, torch would try its format of 2016, a tar
        raise io.UnsupportedOperation


def _load(path: Path) -> Any:
    """Return the object in a file of `torch.save`, all but its storages as stubs."""
    size = path.stat().st_size
    with _File(io.FileIO(path)) as file:
        head, records = file.read(32), None
        file.seek(0)
        if head.startswith(b"PK\x03\x04"):
            records = _records(path, size)
        elif not _LEGACY.match(head):
            raise UserError("is not a file that torch.save wrote")
        unpickler = type("Unpickler", (_Unpickler,), {"room": size, "records": records})
        module = SimpleNamespace(__name__="stubs", Unpickler=unpickler, load=lambda file, **_: unpickler(file).load())
        return torch.load(file, map_location="cpu", pickle_module=module, weights_only=False)


def _records(path: Path, size: int) -> dict[str, int]:
    """Return the bytes of each storage in a zip that torch.save wrote; nothing is compressed, nor is it TorchScript."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        infos = archive.infolist()
        if sum(bool(re.fullmatch(r"[^/]+/data\.pkl", info.filename)) for info in infos) != 1:
            raise UserError("is a zip archive, but not one that torch.save wrote")
        _require(sum(info.file_size for info in infos) <= size and data.find(b"constants.pkl") < 0)
        return {PurePosixPath(info.filename).name: info.file_size for info in infos if "/data/" in info.filename}
