"""Files that a command writes: whole, and nothing else lost for them."""

import os
import threading
from pathlib import Path

import pytest

from onlstm import files
from onlstm.errors import UserError


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path):
    real, link, pipe = (tmp_path / name for name in ("real", "link", "pipe"))
    real.write_text("old")
    link.symlink_to(real)
    files.write(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    files.write(pipe, "through")
    reader.join()
    assert found == ["through"]
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "real"]


@pytest.mark.parametrize(
    "name", ["folder", "pipe", "no/such/folder/x", "x" * 300, "/dev/stdin", "/dev/null", "/proc/x.tsv"]
)
def test_what_cannot_be_a_file_is_refused_before_the_work(name, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"^--out .*name a file in a folder that is there, such as x.json$"):
        files.check_target("--out", tmp_path / name, "x.json")


def test_what_is_read_is_not_written_over(tmp_path):
    mine, other = tmp_path / "mine.tsv", tmp_path / "other.tsv"
    mine.write_text("pairs")
    files.check_target("--out", other, "x.json", [mine])
    files.check_target("--out", mine, "x.json", [other])
    link = tmp_path / "link.tsv"
    link.symlink_to(mine)
    for path in (mine, link, Path(os.path.relpath(mine))):
        with pytest.raises(UserError, match="it is read, and would be lost"):
            files.check_target("--out", path, "x.json", [mine])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["link.tsv", "mine.tsv"]
