"""docs/tutorial.md: every block, in order, as its reader would run them; what it promises of the outcome, loosely."""

import re

import pytest

from onlstm.trees.tree import read_brackets
from pages import run_page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return run_page("tutorial.md", tmp_path_factory.mktemp("tutorial"))


def test_what_it_writes_is_there(page):
    text, trees = ((page.folder / name).read_text().splitlines() for name in ("text.txt", "trees.txt"))
    assert [" ".join(tree.words) for tree in read_brackets("\n".join(trees))] == text
    for name in ("tree.svg", "trees.html"):
        assert "<svg" in (page.folder / name).read_text()
    assert page.names["parse"].tree.words == ("the", "king", "sells", "many", "red", "books")


def test_the_model_finds_more_than_right_branching(page):
    table = page.output("evaluate run test.mrg")
    headline = re.search(r"^Headline: ON-LSTM, .*F1 ([\d.]+) by rule on-lstm. Chosen: best on dev.mrg", table, re.M)
    right = next(line.split()[4] for line in table.splitlines() if line.startswith("right-branching "))
    assert float(headline[1]) > float(right) + 3
    assert "Sentences in its training text: 0.0 %" in table
    assert "0.0 % of the words are unknown" in table


def test_the_other_commands_say_what_the_page_says(page):
    assert "12,000" in page.output("doctor text.txt")
    assert "layer 2: (" in page.output("train text.txt")
    assert "distances" in page.output("inspect run text.txt")
