"""The files of the cases: what every case finds in its folder, and what a case adds, written down as data.

A file of a case is text, or a mapping from one of `MAKERS` to its argument, such as `{utf16: the cat}`.
"""

import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
COMMON = yaml.safe_load((HERE / "common.yaml").read_text())


def make_common(folder: Path) -> None:
    """Write what every case finds: texts, a treebank, pairs, formulas, two language models and a grammar."""
    from helpers import random_grammar, random_model
    from onlstm.text.tokenizer import Tokenizer

    fill(folder, COMMON)
    tokenizer = Tokenizer.of_words("the owl cat dog old sleeps sleep sees laughs laugh a , .".split())  # noqa: SIM905
    random_model(tokenizer).save(folder / "run")
    random_model(tokenizer, rnn="lstm").save(folder / "lstm")
    random_grammar(tokenizer).save(folder / "grammar")


def make_trained(folder: Path, common: Path) -> None:
    """Write the run folder of a short training, `trained`."""
    from helpers import onlstm

    text = folder / "text.txt"
    text.write_text((common / "text.txt").read_text() * 200)
    sizes = "--model.embedding-size 8 --model.hidden-size 16 --model.chunk-size 4"
    small = f"--recipe tiny --train.epochs 1 {sizes} --out trained".split()
    done = onlstm("train", "text.txt", *small, cwd=folder)
    assert done.code == 0, done.err


def fill(folder: Path, files: dict[str, Any]) -> None:
    """Write the files of a case, in order: a later one may be made of an earlier one."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content == {"folder": None}:
            path.mkdir()
        elif isinstance(content, dict) and "link" in content:
            path.symlink_to(content["link"])
        elif content is None:
            path.unlink()
        else:
            path.write_bytes(made(content, folder))


def made(content: Any, folder: Path) -> bytes:
    """Return the bytes of a file."""
    if isinstance(content, str):
        return content.encode()
    [(maker, argument)] = content.items()
    return MAKERS[maker](argument, folder)


def _times(argument: list[Any], folder: Path) -> bytes:
    """[text, n]: the text n times."""
    text, count = argument
    return text.encode() * count


def _nested(argument: list[Any], folder: Path) -> bytes:
    """[opening, middle, closing, n]: n levels of brackets around the middle."""
    opening, middle, closing, depth = argument
    return (opening * depth + middle + closing * depth).encode()


def _edited(argument: list[Any], folder: Path) -> bytes:
    """[file, changes]: a JSON file with other values; keys with dots reach inside, and `null` deletes."""
    path, changes = argument
    content = json.loads((folder / path).read_text())
    for key, value in changes.items():
        *parents, last = key.split(".")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = value
        if value is None:
            del place[last]
    return json.dumps(content).encode()


def _cut(argument: list[Any], folder: Path) -> bytes:
    """[file, n]: the first n bytes; without the last -n if n is negative."""
    path, size = argument
    return (folder / path).read_bytes()[:size]


def _flipped(argument: list[Any], folder: Path) -> bytes:
    """[file, n]: the file with one byte changed, n bytes from its end."""
    path, place = argument
    data = bytearray((folder / path).read_bytes())
    data[-place] ^= 0xFF
    return bytes(data)


def _zip(argument: dict[str, Any], folder: Path) -> bytes:
    """{name: content}: a zip."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in argument.items():
            archive.writestr(zipfile.ZipInfo(name), made(content, folder), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _encrypted(argument: dict[str, Any], folder: Path) -> bytes:
    """{name: content}: a zip whose members say that they need a password."""
    data = bytearray(_zip(argument, folder))
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = -1
        while (place := data.find(magic, place + 1)) >= 0:
            data[place + flags] |= 1
    return bytes(data)


def _tar(argument: dict[str, Any], folder: Path) -> bytes:
    """{name: content}: a tar."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in argument.items():
            info = tarfile.TarInfo(name)
            data = made(content, folder)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def _blanks(megabytes: int, folder: Path) -> bytes:
    """n: a gzip of n MB of blanks."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(b" " * (1 << 20)) for _ in range(megabytes)) + packer.flush()


def _zip_blanks(megabytes: int, folder: Path) -> bytes:
    """n: a zip whose one member is a tree with n MB of blanks in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("bank.mrg", "w") as member:
        member.write(b"(S (NN owl)")
        for _ in range(megabytes):
            member.write(b" " * (1 << 20))
        member.write(b")")
    return file.getvalue()


def _liar(argument: int, folder: Path) -> bytes:
    """n: a zip whose one member claims n bytes."""
    data = _zip({"bank.mrg": "(S (NN owl))"}, folder)
    size = struct.pack("<I", argument)
    for magic, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = data.index(magic) + place
        data = data[:start] + size + data[start + 4 :]
    return data


def _safetensors(argument: Any, folder: Path) -> bytes:
    """value: a safetensors file with this header and no data."""
    header = json.dumps(argument).encode()
    return struct.pack("<Q", len(header)) + header


def _torch(argument: Any, folder: Path) -> bytes:
    """value: a file of torch.save."""
    import torch

    file = io.BytesIO()
    torch.save(argument, file)
    return file.getvalue()


def _pickle(argument: str, folder: Path) -> bytes:
    """command: a pickle that runs a command of the shell."""
    return b"\x80\x02cos\nsystem\nX" + struct.pack("<I", len(argument)) + argument.encode() + b"\x85R."


MAKERS: dict[str, Callable[[Any, Path], bytes]] = {
    "latin1": lambda text, folder: text.encode("latin-1"),
    "utf16": lambda text, folder: text.encode("utf-16-le"),
    "utf16-bom": lambda text, folder: text.encode("utf-16"),
    "utf32": lambda text, folder: text.encode("utf-32"),
    "copy": lambda path, folder: (folder / path).read_bytes(),
    "times": _times,
    "nested": _nested,
    "edited": _edited,
    "cut": _cut,
    "flipped": _flipped,
    "gzip": lambda content, folder: gzip.compress(made(content, folder)),
    "xz": lambda content, folder: lzma.compress(made(content, folder)),
    "zip": _zip,
    "encrypted": _encrypted,
    "tar": _tar,
    "blanks": _blanks,
    "zip-blanks": _zip_blanks,
    "liar": _liar,
    "safetensors": _safetensors,
    "torch": _torch,
    "pickle": _pickle,
}
