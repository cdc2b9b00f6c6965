"""`evaluate --words`, `parse --tokenized`, `evaluate --trees`: what one writes, the next reads to the letter."""

import json

import pytest

from helpers import onlstm, random_model
from onlstm.paper.parsing.content import Headline, Row
from onlstm.paper.parsing.table import below_right
from onlstm.text.tokenizer import Tokenizer

TREEBANK = """
( (S (NP (DT The) (NN dog\u2009owl)) (VP (VBZ do) (RB n't) (VP (VB cost) (NP (CD 1,000.50) (NNS U.S.)))) (. .)) )
( (NP (NN cannot) (-LRB- -LRB-) (NN and\\/or) (-RRB- -RRB-) (NN #1)) )
( (INTJ (UH Wow)) )
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "bank.mrg").write_text(TREEBANK)
    random_model(Tokenizer.of_words(["the", "dog", "do", "n't", "wow"], "ptb-en"), spread=2).save(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", ["brackets", "json"])
@pytest.mark.parametrize("rule", ["on-lstm", "punct"])
def test_the_words_of_a_treebank_come_back_as_they_were(here, rule, form):
    made = onlstm("evaluate", "run", "bank.mrg", "--rule", rule, "--words", "words.txt", "--layers", 2, "--json")
    assert made.code == 0, made.err
    parsed = onlstm("parse", "run", "words.txt", "--tokenized", "--layer", 2, "--format", form, "--out", "trees")
    assert parsed.code == 0, parsed.err
    if form == "json":
        words = [" ".join(json.loads(line)["words"]) for line in (here / "trees").read_text().splitlines()]
        assert words == (here / "words.txt").read_text().splitlines()
    scored = onlstm("evaluate", "bank.mrg", "--rule", rule, "--trees", "trees", "--json")
    assert scored.code == 0, scored.err
    own = next(row for row in json.loads(made.out)["rows"] if (row["system"], row["decoder"]) == ("onlstm", "paper"))
    given = next(row for row in json.loads(scored.out)["rows"] if row["system"] == "trees")
    assert given["f1"] == own["f1"]
    again = onlstm("evaluate", "bank.mrg", "--rule", rule, "--words", "again.txt")
    assert again.code == 0
    assert (here / "again.txt").read_bytes() == (here / "words.txt").read_bytes()


def test_trees_over_other_words_are_refused_at_the_first(here):
    (here / "other.txt").write_text("((The cat) (do (n't (cost (1,000.50 U.S.)))))\n(cannot and/or #1)\nWow\n")
    bank = onlstm("evaluate", "bank.mrg", "--trees", "other.txt")
    assert (bank.code, bank.out) == (2, "")
    assert bank.err.startswith(
        "onlstm: other.txt: tree 1, word 2 is 'cat', but 'dog\\u2009owl' in the sentence at bank.mrg:2; "
    )
    assert bank.err.endswith("parse the file of --words with --tokenized, or allow this with --other-words\n")
    assert onlstm("evaluate", "bank.mrg", "--trees", "other.txt", "--other-words").code == 0


def test_a_headline_below_right_branching_says_so():
    common = {"rule": "on-lstm", "n": 9, "tags": {}, "subset": "all"}
    rows = [Row(system="right", f1=65.71, **common), Row(system="right", f1=90.0, **common | {"rule": "evalb"})]
    for f1, added in ((53.64, " Below right-branching (53.6 < 65.7)."), (65.71, ""), (None, "")):
        assert below_right(rows, Headline(system="onlstm", rule="on-lstm", f1=f1, chosen="")) == added
