"""docs/tutorial.md: every block, in order, as its reader would run them; what it promises of the outcome, loosely."""

import re
import shlex
from pathlib import Path

import pytest

from helpers import onlstm
from onlstm.trees.tree import read_brackets

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each command printed, by its first words; the blocks are run in the folder `said["folder"]`."""
    folder, printed, names = tmp_path_factory.mktemp("tutorial"), {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S):
            if kind == "python":
                exec(compile(block, PAGE.name, "exec"), names)
                continue
            assert kind == "sh"
            for line in block.replace("\\\n", "").splitlines():
                name, *words = shlex.split(line, comments=True)
                assert name == "onlstm"
                done = onlstm(*words)
                assert done.code == 0, (line, done.err)
                printed[" ".join(words[:3])] = done.out
    return printed | {"folder": folder, "names": names}


def test_what_it_writes_is_there(said):
    folder = said["folder"]
    text, trees = ((folder / name).read_text().splitlines() for name in ("text.txt", "trees.txt"))
    assert [" ".join(tree.words) for tree in read_brackets("\n".join(trees))] == text
    for name in ("tree.svg", "trees.html"):
        assert "<svg" in (folder / name).read_text()
    assert said["names"]["found"].tree.words == ("the", "king", "sells", "many", "red", "books")


def test_the_model_finds_more_than_right_branching(said):
    table = said["evaluate run test.mrg"]
    headline = re.search(r"^Headline: onlstm .*F1 ([\d.]+) \(best on dev.mrg", table, re.M)
    right = next(line.split()[2] for line in table.splitlines() if line.startswith("right "))
    assert float(headline[1]) > float(right) + 3
    assert "0.0 % of the sentences are lines of the model's training text" in table
    assert "0.0 % are unknown" in table


def test_the_other_commands_say_what_the_page_says(said):
    assert "12,000" in said["doctor text.txt"]
    assert "layer 2: (" in said["train text.txt --recipe"]
    assert "distances" in said["inspect run text.txt"]
