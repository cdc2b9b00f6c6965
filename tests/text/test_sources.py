"""Text files: what belongs to which part, and their lines, of every kind and with every defect."""

import bz2
import gzip
import io
import lzma
import os
import pty
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.text.sources import (
    find_sources,
    parts_of_lines,
    read_blocks,
    read_inputs,
    read_lines,
    suitable_profile,
    text_files,
)

PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


@pytest.mark.parametrize("suffix", PACK)
def test_packed_files_and_line_ends(tmp_path, suffix):
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(PACK[suffix]("\ufeffone é\r\n\r\ntwo\rthree\x85 x\n\u2028four".encode()))
    assert list(read_lines(path)) == ["one é", "", "two", "three\x85 x", "\u2028four"]
    path.write_bytes(PACK[suffix](b""))
    assert list(read_lines(path)) == []
    path.write_bytes(PACK[suffix](b"\n"))
    assert list(read_lines(path)) == [""]


@given(text=st.text(st.sampled_from("ab\u00e9\n\r"), max_size=40), block=st.integers(1, 9))
def test_lines_do_not_depend_on_the_block_size(tmp_path_factory, text, block):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onlstm.text.sources._BLOCK", block)
        assert list(read_lines(path)) == io.StringIO(text).read().splitlines()


def test_a_far_line_is_named(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"some words here\n" * 200_000 + b"\xe9\n")
    with pytest.raises(UserError, match=r"long\.txt:200001: not UTF-8 \(byte 0xe9 at column 1\)"):
        list(read_lines(path))


NAMES = {
    "ptb": (["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"], "train valid test"),
    "udish": (["en-ud-train.txt.gz", "en-ud-dev.txt.gz", "en-ud-test.txt.gz"], "train valid test"),
    "shards": (["train_02", "train_01", "val"], "train train valid"),
    "glued": (["mytrain.txt", "myvalid.txt"], "train valid"),
    "upper": (["TRAIN.TXT", "Test.txt"], "train test"),
    "none": (["latest.txt", "values.txt", "b.txt"], "train train train"),
    "one": (["train.txt"], "train"),
    "more": (["train.txt", "valid.txt", "README", "notes.md", "x.json", ".hidden", "other.txt"], "train valid"),
}


@pytest.mark.parametrize(("names", "parts"), NAMES.values(), ids=NAMES)
def test_names_tell_the_parts(tmp_path, names, parts):
    for name in names:
        (tmp_path / name).write_text("x\n")
    found = find_sources([tmp_path])
    assert " ".join(split for split, paths in found.files.items() for _ in paths) == parts
    for paths in found.files.values():
        assert paths == sorted(paths)
    assert found.held_out == (() if "valid" in parts else ("valid",) if "test" in parts else ("valid", "test"))
    assert any("other.txt" in note for note in found.notes) == ("other.txt" in names)
    if len(names) < 5:
        assert find_sources([tmp_path / name for name in sorted(names)]).files == found.files


@pytest.mark.parametrize("lines", [3, 4, 19, 20, 21, 399, 400, 5_000, 45_678])
@pytest.mark.parametrize("parts", [("valid", "test"), ("valid",)])
def test_held_out_lines(lines, parts):
    dealt = list(map(parts_of_lines(lines, parts), range(lines)))
    assert set(dealt) == {"train", *parts}
    if lines < 20:
        assert dealt[-len(parts) :] == list(parts)
        return
    size = max(1, min(100, lines // 200))
    for line, part in enumerate(dealt):
        expected = {9: "valid", 19: "test"}.get(line // size % 20, "train")
        assert part == (expected if expected in parts else "train")


def test_standard_input_can_be_read_as_lines(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\nb")))
    assert list(read_lines("-")) == ["a", "b"]


def test_a_terminal_is_read_line_by_line():
    master, terminal = pty.openpty()
    with os.fdopen(terminal) as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", file)
        blocks = read_blocks("-")
        for line in ("one", "two"):
            os.write(master, f"{line}\n".encode())
            assert next(blocks) == [line]
        os.write(master, b"\x04")
        assert list(blocks) == []
    os.close(master)


def test_lines_that_are_not_utf8_can_be_noted(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"\xef\xbb\xbffine\r\nb\xe9d\rsound \xef\xbf\xbd\n\xff")
    lines = list(read_inputs([path, "typed \udce9\nwell", Path(path)]))
    assert [line for line, _ in lines[:4]] == ["fine", "b\ufffdd", "sound \ufffd", "\ufffd"]
    assert [bool(message) for _, message in lines] == [False, True, False, True, True, False, False, True, False, True]
    assert lines[1][1].startswith(f"{path}:2: not UTF-8 (byte 0xe9 at column 2); ")
    assert lines[4][1].startswith("sentence:1: not UTF-8")
    path.write_bytes("h\u00e9".encode("utf-16"))
    with pytest.raises(UserError, match="utf-16"):
        list(read_inputs([path]))


def test_missing_and_unreadable(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        list(read_lines(tmp_path / "none.txt"))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_archives_and_broken_links_are_no_text(tmp_path):
    (tmp_path / "link.txt").symlink_to("gone.txt")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.zip", "no-suffix"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("a.txt", "text")
    for path, line in (
        (tmp_path / "link.txt", "a link to gone.txt, which is not there; mend the link, or name the file itself"),
        (folder / "a.zip", "an archive, not text; unpack it, and name the folder"),
        (folder / "no-suffix", "an archive, not text; unpack it, and name the folder"),
    ):
        with pytest.raises(UserError) as error:
            text_files([path])
        assert str(error.value) == f"{path}: {line}"
    (folder / "no-suffix").unlink()
    with pytest.raises(UserError, match=r"no text file in this folder, but archives such as a.zip; unpack them$"):
        text_files([folder])


TEXTS = {"en": "the cat sat .\nthe dog slept .\n", "zh": "我有一只猫。\n一天猫在睡觉，\n", "ru": "кошка спала\n"}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("kind", ["utf-16le", "utf-16be"])
def test_utf16_without_a_mark_is_refused(tmp_path, text, kind):
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(kind))
    for read in (read_lines, lambda path: read_inputs([path])):
        with pytest.raises(UserError, match=f"a.txt: UTF-16 without a byte-order mark; convert it: iconv -f {kind} "):
            list(read(path))


def test_nul_bytes_are_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"the cat sat\nthe d\0og slept\n")
    for read in (read_lines, lambda path: read_inputs([path])):
        with pytest.raises(UserError, match=r"a.txt:2: not text \(a NUL byte at column 6\); delete it: tr -d '\\000'"):
            list(read(path))


SEGMENTED = {
    "chinese": (["我 喜欢 猫 。", "猫 在 睡觉"], True),
    "japanese": (["猫 が 好き です"], True),
    "with English": (["我 用 Python 写 程序"], True),
    "raw": (["我喜欢猫。 猫在睡觉，狗在跑", "猫在睡觉"], False),
    "raw with full-width spaces": (["\u3000\u3000我喜欢猫，也喜欢狗。"], False),
    "words in English": (["the characters 猫 and 狗 mean cat and dog"], False),
}


@pytest.mark.parametrize(("lines", "segmented"), SEGMENTED.values(), ids=SEGMENTED)
def test_spaces_between_han_words_are_seen(lines, segmented):
    profile, reason = suitable_profile(lines)
    assert profile == ("pretokenized" if segmented else "generic")
    assert (reason == "spaces stand between Chinese or Japanese words") == segmented
