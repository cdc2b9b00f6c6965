"""Files of `torch.save`, read without running anything that is in the pickle.

No name in a pickle is ever imported: each allowed name becomes a class of its own that only remembers what it was
given (`Stub`), any other name is refused, and what the stubs say is read afterwards. So nothing on the unpickler's
stack can do anything, and torch's own loader has no part in it. Sizes that a file claims are held against the file
before memory is taken.
"""

import io
import pickle
import pickletools
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import torch

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


def open_checkpoint(file: BinaryIO, size: int) -> "tuple[Any, Read]":
    """Return the object in a file of so many bytes, in either format of `torch.save`, and what reads its storages."""
    zipped = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    return (_open_zip if zipped else _open_legacy)(file, size)


def mapping(value: Any) -> dict[Any, Any]:
    """Return the items of a dictionary, whichever class it had, and none of anything else."""
    if isinstance(value, Stub):
        return value.items
    return value if type(value) is dict else {}


class Unfit(Exception):
    """The file will not do; the message lacks only the file's name."""


class Damaged(Unfit):
    """The bytes are not those of `torch.save`."""

    def __init__(self, message: str = "is cut short or damaged; copy it again") -> None:
        super().__init__(message)


def require(condition: bool) -> None:
    if not condition:
        raise Damaged


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:100])


class Stub:
    """Stands for an object of the pickle: what it was called with, its items and its state. Runs nothing."""

    name = ""
    args: tuple[Any, ...]
    items: dict[Any, Any]
    state: Any

    def __new__(cls, *args: Any) -> "Stub":
        if args and not _CALLED.fullmatch(cls.name):
            raise Unfit(f"refuses to load {cls.name} called with arguments: not part of an ON-LSTM checkpoint")
        self = super().__new__(cls)
        self.args, self.items, self.state = args, {}, None
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Storage(NamedTuple):
    """A storage that the pickle speaks of; where it was (on a GPU, say) does not matter."""

    key: str
    dtype: torch.dtype
    numel: int

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


Read = Callable[[Storage], bytes]


class _Unpickler(pickle.Unpickler):
    """Builds stubs and nothing else. `storages` are those it met, by key."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> type[Stub]:
        full = f"{module}.{name}"
        if "." in name or not (_CALLED.fullmatch(full) or _CLASSES.fullmatch(full)):
            raise Unfit(f"refuses to load {printable(full)}: not part of an ON-LSTM checkpoint")
        return type(name, (Stub,), {"name": full})

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("module", type() as cls, *_) if issubclass(cls, Stub):
                return cls
            case ("storage", type() as cls, str() as key, _, int() as numel, *view) if numel >= 0 and not any(view):
                kind = cls.__name__.removesuffix("Storage")
                require(kind in _DTYPES)
                storage = Storage(key, _DTYPES[kind], numel)
                require(self.storages.setdefault(key, storage) == storage)
                return storage
        raise Damaged


def _unpickle(file: BinaryIO) -> tuple[Any, dict[str, Storage]]:
    """Return the value of the pickle that starts here, and its storages; leave `file` at the pickle's end."""
    start = file.tell()
    try:
        for done, (opcode, arg, _) in enumerate(pickletools.genops(file)):
            if not _OPCODES.fullmatch(opcode.name):
                raise Damaged(f"refuses the pickle opcode {opcode.name}: not part of an ON-LSTM checkpoint")
            # The unpickler takes memory up to the highest memo index, however few are in use.
            require(done < _MOST_OPCODES and (not opcode.name.endswith("BINPUT") or int(arg or 0) <= done))
        end = file.tell()
        file.seek(start)
        unpickler = _Unpickler(file.read(end - start))
        return unpickler.load(), unpickler.storages
    except (Unfit, OSError):
        raise
    except Exception:  # bent pickles raise nearly anything
        raise Damaged from None


def _open_legacy(file: BinaryIO, size: int) -> tuple[Any, Read]:
    """Return the object in a file of torch's format before 1.6, and what reads its storages."""
    try:
        magic, _ = _unpickle(file)
    except Damaged:
        magic = None
    if type(magic) is not int or magic != _MAGIC:
        raise Unfit("is not a file that torch.save wrote")
    _, (system, _), (value, storages), (keys, _) = (_unpickle(file) for _ in range(4))
    _check_order("little" if mapping(system).get("little_endian", True) else "big")
    require(type(keys) is list and all(type(key) is str and key in storages for key in keys))
    places = {}
    for key in keys:
        head = file.read(8)
        require(len(head) == 8 and struct.unpack("=q", head)[0] == storages[key].numel)
        places[key] = file.tell()
        require(places[key] + storages[key].nbytes <= size)
        file.seek(storages[key].nbytes, io.SEEK_CUR)

    def read(storage: Storage) -> bytes:
        require(storage.key in places)
        file.seek(places[storage.key])
        return file.read(storage.nbytes)

    return value, read


def _open_zip(file: BinaryIO, size: int) -> tuple[Any, Read]:
    """Return the object in a file of torch's format since 1.6, and what reads its storages."""
    try:
        archive = zipfile.ZipFile(file)
    except Exception:  # bent archives raise nearly anything
        raise Damaged from None
    names = archive.namelist()
    roots = [name.removesuffix("data.pkl") for name in names if re.fullmatch(r"[^/]+/data\.pkl", name)]
    if len(roots) != 1:
        raise Unfit("is a zip archive, but not one that torch.save wrote")

    def record(name: str) -> bytes:
        require(roots[0] + name in names)
        info = archive.getinfo(roots[0] + name)
        # torch never compresses: what claims more bytes than the file has is no checkpoint.
        require(info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size <= size)
        try:
            return archive.read(info)
        except Exception:
            raise Damaged from None

    if f"{roots[0]}byteorder" in names:
        _check_order(record("byteorder").decode("ascii", "replace"))
    value, _ = _unpickle(io.BytesIO(record("data.pkl")))
    return value, lambda storage: record(f"data/{storage.key}")


def _check_order(order: str) -> None:
    if order != sys.byteorder:
        raise Unfit(f"was written on a {printable(order)}-endian machine; load and save it again on one like this")
