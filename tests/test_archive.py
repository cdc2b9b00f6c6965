"""The one reader of files, folders and archives: order, limits, damage."""

import bz2
import gzip
import io
import lzma
import os
import random
import sys
import tarfile
import threading
import zipfile
from contextlib import suppress

import pytest

from onlstm import archive
from onlstm.archive import members
from onlstm.errors import UserError

FILES = {"b.txt": b"bee", "a/z.txt": b"zed", "a/c.txt.gz": gzip.compress(b"cee"), "empty": b""}
HIDDEN = {".a": b"", "a/.b/c.txt": b"", "__MACOSX/b.txt": b""}
CONTENT = [("a/c.txt.gz", b"cee"), ("a/z.txt", b"zed"), ("b.txt", b"bee"), ("empty", b"")]


def folder(path, files=FILES):
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def zipped(files, method=zipfile.ZIP_DEFLATED):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as opened:
        for name, data in files.items():
            opened.writestr(name, data)
    return target.getvalue()


def tarred(files, mode="w"):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as opened:
        for name, data in files.items():
            info = tarfile.TarInfo(f"./{name}" if name.startswith("./") else name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
    return target.getvalue()


ALL = FILES | HIDDEN
PACKED = {
    "a.zip": zipped(ALL),
    "no-suffix": zipped(ALL, zipfile.ZIP_STORED),
    "lzma.ZIP": zipped(ALL, zipfile.ZIP_LZMA),
    "a.tar": tarred(ALL),
    "a.tgz": tarred(ALL, "w:gz"),
    "a.tar.xz": tarred(ALL, "w:xz"),
    "packed": tarred(ALL, "w:bz2"),
}


def content(path, *args):
    return [(member.name, member.data) for member in members(path, *args)]


def test_folders_and_archives_hold_the_same_in_the_same_order(tmp_path):
    assert content(folder(tmp_path / "folder", FILES | HIDDEN)) == CONTENT
    for name, data in PACKED.items():
        (tmp_path / name).write_bytes(data)
        assert content(tmp_path / name) == CONTENT, name
        assert next(members(tmp_path / name)).place == f"{tmp_path / name}/a/c.txt.gz"


def test_names_are_chosen_before_anything_is_read(tmp_path):
    (tmp_path / "a.zip").write_bytes(PACKED["a.zip"].replace(b"bee", b"bad"))
    names = []

    def select(all_names):
        names.extend(all_names)
        return ["empty", "a/z.txt"]

    assert content(tmp_path / "a.zip", select) == [("empty", b""), ("a/z.txt", b"zed")]
    assert names == [name for name, _ in CONTENT]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_one_file_packed_or_not_or_from_a_pipe(tmp_path, monkeypatch, pack):
    data = pack(b"some text")
    for name in ("a.txt", "a.gz"):
        (tmp_path / name).write_bytes(data)
        assert list(members(tmp_path / name, lambda names: [])) == [(name, str(tmp_path / name), b"some text")]
    for name in ("-", "/dev/stdin"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert [content(archive.Path(name)) for _ in range(2)] == [[("standard input", b"some text")]] * 2
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    assert content(pipe) == [("pipe", b"some text")]
    writer.join()


def test_archives_in_a_folder_come_last_and_count_once(tmp_path):
    folder(tmp_path, FILES | {"0.zip": zipped(FILES | {"d.txt": b"dee"}), "a/1.tgz": tarred({"d.txt": b"dee"}, "w:gz")})
    folder(tmp_path, {"2.zip": b"none", "copy/b.txt": b"bee", ".3.zip": b"none"})
    defects = []
    inside = content(tmp_path, list, defects.append)
    assert inside == [*CONTENT[:3], ("copy/b.txt", b"bee"), ("empty", b""), ("0.zip/d.txt", b"dee")]
    assert (
        defects
        == [
            f"cannot read {tmp_path}/2.zip: File is not a zip file",
            *(f"{tmp_path}/0.zip/{name}: the same as {tmp_path}/{name}" for name, _ in CONTENT),
            f"{tmp_path}/a/1.tgz/d.txt: the same as {tmp_path}/0.zip/d.txt",
        ]
        or defects
    )
    with pytest.raises(UserError, match=r"^cannot read .*/2.zip: File is not a zip file$"):
        content(tmp_path)


def test_what_cannot_be_read_is_one_line(tmp_path):
    whole = PACKED["a.zip"]
    damaged = {
        "half.zip": (whole[:60], ": File is not a zip file"),
        "none.tar.gz": (b"text", ": truncated header"),
        "half.txz": (PACKED["a.tar.xz"][:90], ": Compressed file ended before"),
        "half.gz": (gzip.compress(b"text" * 99)[:-9], ": Compressed file ended before"),
        "crc.zip": (zipped({"b.txt": b"bee"}, zipfile.ZIP_STORED).replace(b"bee", b"bad"), "/b.txt: Bad CRC-32"),
    }
    for name, (data, why) in damaged.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError) as error:
            content(tmp_path / name)
        assert str(error.value).startswith(f"cannot read {tmp_path / name}{why}")
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"none: No such file or directory"):
        content(tmp_path / "none")
    defects = []
    assert content(tmp_path / "crc.zip", list, defects.append) == []
    assert len(defects) == 1


def test_sizes_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST", 1 << 20)
    big = {"a.txt": b"ok", "big.txt": b"x" * (2 << 20)}
    for name, data in {
        "a.zip": zipped(big),
        "a.tgz": tarred(big, "w:gz"),
        "bz.zip": zipped(big, zipfile.ZIP_BZIP2),
    }.items():
        (tmp_path / name).write_bytes(data)
        defects = []
        assert content(tmp_path / name, list, defects.append) == [("a.txt", b"ok")]
        assert defects == [f"cannot read {tmp_path}/{name}/big.txt: more than 1 MB, unpacked"]
    lying = zipped(big).replace((2 << 20).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    (tmp_path / "lying.zip").write_bytes(lying)
    with pytest.raises(UserError, match=r"big\.txt: "):
        content(tmp_path / "lying.zip")
    for name, data in {
        "one.gz": gzip.compress(big["big.txt"]),
        "bomb.tgz": gzip.compress(tarred({"a": bytes(9 << 20)})),
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match=f"{name}: more than"):
            content(tmp_path / name)


def test_bombs_are_told_by_their_ratio(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "FREE", 1 << 16)
    blanks, text = bytes(1 << 20), random.Random(0).randbytes(1 << 17)
    for name, data in {
        "member.zip": zipped({"a.txt": b"ok", "big.txt": blanks, "text.txt": text}),
        "gz.zip": zipped({"a.txt": b"ok", "big.txt": gzip.compress(blanks), "text.txt": text}),
    }.items():
        (tmp_path / name).write_bytes(data)
        defects = []
        assert content(tmp_path / name, list, defects.append) == [("a.txt", b"ok"), ("text.txt", text)]
        assert [line.rpartition(": ")[2] for line in defects] == ["more than 0 MB, unpacked"]
    whole = {
        "many.zip": zipped({f"{k}.txt": bytes(1 << 16) for k in range(20)}),
        "one.gz": gzip.compress(blanks),
        "a.tgz": tarred({"big.txt": blanks}, "w:gz"),
    }
    for name, data in whole.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match=rf"^cannot read .*{name}: more than 0 MB, unpacked$"):
            content(tmp_path / name)


def encrypted(data):
    """The zip of one member with the flag of encryption set, in its own header and in the directory."""
    bent = bytearray(data)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        bent[data.index(mark) + place] |= 1
    return bytes(bent)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            encrypted(zipped({"b.txt": b"bee"})),
            "a.zip/b.txt: encrypted; unpack it with its password, and name the folder",
        ),
        (
            zipped({"b.zip": zipped(FILES)}),
            "a.zip/b.zip: an archive inside an archive; unpack the outer one, and name the inner one",
        ),
    ],
)
def test_archives_that_need_a_hand(tmp_path, data, line):
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(UserError) as error:
        content(tmp_path / "a.zip")
    assert str(error.value) == f"cannot read {tmp_path}/{line}"


def test_a_link_that_leads_nowhere(tmp_path):
    (tmp_path / "link").symlink_to("gone.mrg")
    with pytest.raises(UserError, match=r"^cannot read .*link: a link to gone.mrg, which is not there$"):
        content(tmp_path / "link")


def test_flipped_bytes_never_raise_anything_else(tmp_path):
    rng = random.Random(1)
    for name, data in PACKED.items():
        for _ in range(60):
            bent = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                bent[rng.randrange(len(bent))] = rng.randrange(256)
            (tmp_path / name).write_bytes(bent[: rng.choice((len(bent), rng.randrange(len(bent))))])
            with suppress(UserError):
                content(tmp_path / name, list, lambda line: None)
