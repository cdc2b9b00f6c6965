"""What the command line names: files to write are checked before the work."""

import os
from pathlib import Path

import pytest

from onlstm.cli.inputs import check_output
from onlstm.errors import UserError


@pytest.mark.parametrize(
    "name", ["folder", "pipe", "no/such/folder/x", "x" * 300, "/dev/stdin", "/dev/null", "/proc/x.tsv"]
)
def test_a_target_that_cannot_be_written_is_refused_before_the_work(name, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"^--out .*name a file in an existing folder, such as x.json$"):
        check_output("--out", tmp_path / name, "x.json")


def test_an_input_is_never_replaced(tmp_path):
    mine, other = tmp_path / "mine.tsv", tmp_path / "other.tsv"
    mine.write_text("pairs")
    check_output("--out", other, "x.json", [mine])
    check_output("--out", mine, "x.json", [other])
    link = tmp_path / "link.tsv"
    link.symlink_to(mine)
    for path in (mine, link, Path(os.path.relpath(mine))):
        with pytest.raises(UserError, match="an input of this command, which it would replace"):
            check_output("--out", path, "x.json", [mine])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["link.tsv", "mine.tsv"]


def test_neither_a_file_of_an_input_folder_nor_of_a_run_is_replaced(tmp_path):
    for name in ("pairs/a.tsv", "run/config.json", "run/tokenizer.json", "run/scores.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    inputs = [tmp_path / "pairs", tmp_path / "run"]
    for name in ("pairs/a.tsv", "run/config.json", "run/tokenizer.json"):
        with pytest.raises(UserError, match="an input of this command, which it would replace"):
            check_output("--out", tmp_path / name, "x.json", inputs)
    for name in ("pairs/new.tsv", "run/scores.tsv"):
        check_output("--out", tmp_path / name, "x.json", inputs)
