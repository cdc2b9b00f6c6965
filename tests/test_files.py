"""Files that are written whole, through links and pipes."""

import os
import threading

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


def test_a_folder_that_cannot_be_made_is_the_users_mistake(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot make the folder .*file/new: Not a directory"):
        files.make_folder(tmp_path / "file" / "new")
