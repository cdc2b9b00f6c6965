"""Results of `onlstm evaluate` on the page: the paper's Table 2, what to report and what not."""

import copy
import json
import re

import pytest

from onlstm.errors import UserError
from onlstm.paper import report


def row(system, f1, **more):
    """A row of the file, as lean as a baseline's."""
    tags = {"ADJP": [1, 4], "NP": [30, 40], "PP": [0, 3]}
    whole = {"system": system, "rule": "on-lstm", "f1": f1, "n": 1200, "runs": 1, "depth": 5.25, "f1_to_right": 30.0}
    return whole | {"tags": tags, "short": {"n": 300, "f1": f1 + 10}} | more


def model(layer, f1, decoder="paper", system="onlstm", **more):
    return row(system, f1, run="runs/a", layer=layer, decoder=decoder, ties=0.25, ci95=[f1 - 1, f1 + 1.5], **more)


RANDOM = row("random", 18.0, runs=5, deviation=0.25, max=18.5, ci95=[17, 19])
RANDOM["short"] |= {"deviation": 1.25, "max": 30.5}
HEADLINE = {"system": "onlstm", "run": "runs/a", "layer": 2, "decoder": "paper", "rule": "on-lstm", "f1": 44.0}
RESULT = {
    "format_version": 1,
    "kind": "parsing",
    "name": "bank",
    "command": "onlstm evaluate runs/a banks/bank.zip --out results/bank.json",
    "versions": {"onlstm": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
    "seed": None,
    "seconds": 40.4,
    "threads": 1,
    "machine": "two cores of a toaster",
    "runs": [
        {
            "path": "runs/a",
            "name": "a",
            "rnn": "onlstm",
            "sizes": [20, 30, 20],
            "parameters": 1_234_567,
            "valid_perplexity": 99.5,
        }
    ],
    "rules": {"on-lstm": "the mean of some sort", "evalb": "all together"},
    "treebank": {
        **{"path": "banks/bank.zip", "profile": "ptb", "split": "all", "sentences": 1200, "words": 20000},
        **{"skipped": {"markup only": 1484}, "seen_share": 12.5, "unk_share": 4.75},
    },
    "mapping": "aligned",
    "headline": HEADLINE | {"chosen": "the middle layer, as in the paper"},
    "best": HEADLINE | {"chosen": "selected on test labels"},
    "rows": [
        model(1, 20.0),
        model(2, 44.0),
        model([1, 2], 40.0, "vote"),
        row("right", 39.5),
        RANDOM,
        row("oracle", 84),
    ],
    "notes": [],
}


def result(**changes):
    content = copy.deepcopy(RESULT)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = content
        for key in way:
            place = place[key]
        place[last] = value
    return content


def page(folder, **contents):
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return report.pages(report.collect(folder))["parsing.md"].replace("\u00a0", " ")


def tables(text):
    """The tables of a page, as lists of rows of cells."""
    blocks = (block.splitlines() for block in text.split("\n\n") if block.startswith("|"))
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in block] for block in blocks]


def scores(text, which=0):
    """The tables of scores: (head, rows without the line)."""
    head, _, *rows = [table for table in tables(text) if table[0][0] == "system"][which]
    return head, rows


def test_the_columns_are_those_of_the_papers_table(tmp_path):
    head, rows = scores(page(tmp_path, bank=result()))
    assert head[:7] == ["system", "layer", "decoder", "≤10 words (300)", "all (1,200)", "95 %", "depth"]
    assert head[7:] == ["ADJP (4)", "NP (40)", "PP (3)", "tied %", "to right", "mark"]
    assert rows[1] == [
        *["ON-LSTM", "2", "paper", "54.0", "44.0", "43.0–45.5", "5.2"],
        *["25.0", "75.0", "0.0", "0.2", "30.0", "headline"],
    ]
    assert rows[2][:3] == ["ON-LSTM", "1,2", "vote"]
    assert rows[3][:3] == ["right-branching", "–", "–"]
    assert rows[4][0:6] == ["random, 5 seeds", "–", "–", "28.0 (1.2) 30.5", "18.0 (0.2) 18.5", "–"]


def test_text_models_headline_command_and_machine_are_said(tmp_path):
    text = page(tmp_path, bank=result())
    assert "## Table 2: unsupervised parsing\n" in text
    assert "### bank.zip\n\n#### bank\n" in text
    assert "profile `ptb`, split `all`: 1,200 sentences, 20,000 words; skipped: 1,484 markup only." in text
    assert "Mapping `aligned`: 4.8 % of the words are unknown to the model. Sentences in its training text: 12." in text
    assert ["a", "ON-LSTM 20→30→20", "1.23M", "99.50", "–"] in tables(text)[0]
    assert "Headline: ON-LSTM, layer 2, `paper`, F1 44.0 by rule *on-lstm*. Chosen: the middle layer, as in" in text
    assert "Rule *on-lstm*: the mean of some sort.\n" in text
    assert "\n- bank: `onlstm evaluate runs/a banks/bank.zip --out results/bank.json`\n" in text
    assert "- bank: two cores of a toaster; threads: 1; onlstm 0.1.0, torch 2.13.0, python 3.11.2; 0.7 min\n" in text


def test_the_highest_row_is_marked_unless_it_is_the_headline(tmp_path):
    rows = [*RESULT["rows"], model(1, 45.0, system="lstm-gates"), row("trees", 60.0, run="other/their.txt")]
    _, lines = scores(page(tmp_path, bank=result(rows=rows)))
    marks = {(line[0], line[1]): line[-1] for line in lines if line[-1]}
    assert marks == {("ON-LSTM", "2"): "headline", ("LSTM gates", "1"): "selected on test labels"}
    assert lines[-1][0] == "trees their.txt"
    _, lines = scores(page(tmp_path, bank=result()))
    assert [line[-1] for line in lines if line[-1]] == ["headline"]  # not the oracle, which is no model


def test_every_rule_has_its_table_and_its_highest_row(tmp_path):
    other = [each | {"rule": "evalb", "n": 1100} for each in (model(1, 50.0), model(2, 44.0))]
    text = page(tmp_path, bank=result(rows=[*other, *RESULT["rows"]]))
    assert text.index("Rule *on-lstm*") < text.index("Rule *evalb*: all together.")  # as asked for, not as scored
    head, lines = scores(text, 1)
    assert head[4] == "all (1,100)"
    assert [line[-1] for line in lines] == ["selected on test labels", "headline"]


def test_dead_layers_are_called_so(tmp_path):
    rows = [model(1, 39.0) | {"ties": 100.0, "f1_to_right": 100.0}, *RESULT["rows"][1:]]
    _, lines = scores(page(tmp_path, bank=result(rows=rows)))
    assert lines[0][-3:] == ["100.0", "100.0", "ties: no parser"]


def test_several_runs_have_mean_deviation_and_max(tmp_path):
    mean = model(2, 44.0, runs=3, deviation=1.5, max=46.0)
    del mean["run"]
    vote = model(2, 47.0, system="vote") | {"run": "3 onlstm"}
    headline = RESULT["headline"] | {"run": None}
    text = page(tmp_path, bank=result(rows=[mean, vote, *RESULT["rows"][3:]], headline=headline))
    _, lines = scores(text)
    assert lines[0][0] == "ON-LSTM, 3 runs"
    assert lines[0][4:6] == ["44.0 (1.5) 46.0", "–"]
    assert [line[-1] for line in lines[:2]] == ["headline", "selected on test labels"]
    assert lines[1][0] == "vote of 3 ON-LSTM"


def test_anybodys_trees_have_no_headline(tmp_path):
    rows = [row("trees", 60.0, run="other/their.txt"), *RESULT["rows"][3:]]
    bank = RESULT["treebank"] | {"seen_share": None, "unk_share": None}
    text = page(tmp_path, bank=result(runs=[], headline=None, best=None, rows=rows, treebank=bank))
    assert "Headline: " not in text
    assert "skipped: 1,484 markup only.\n" in text
    assert not any(line[-1] for line in scores(text)[1])
    text = page(tmp_path, bank=result(treebank__seen_share=None))
    assert "Sentences in its training text: unknown." in text


def test_what_is_undefined_is_a_dash(tmp_path):
    few = model(2, 44.0) | {"short": {"n": 0}, "tags": {}}
    _, lines = scores(page(tmp_path, bank=result(rows=[few, *RESULT["rows"][3:]])))
    assert lines[0][3] == "–"
    assert lines[0][7:10] == ["–"] * 3


def test_two_results_on_one_treebank_stand_together(tmp_path):
    text = page(tmp_path, first=result(), other=result(treebank__path="a.zip"), second=result(mapping="original"))
    assert re.findall(r"^###+ \w.*", text, re.M)[:5] == [
        *("### a.zip", "#### other", "### bank.zip", "#### first", "#### second")
    ]


def test_both_published_tables_stand_below(tmp_path):
    _, theirs = page(tmp_path, bank=result()).split("### Published: parsing\n")
    wsj, sample = tables(theirs)
    assert ["ON-LSTM 2nd-layer", "65.1 (1.7)", "47.7 (1.5)"] in [[line[0], line[4], line[6]] for line in wsj]
    assert ["Right Branching", "39.9", "58.6"] in [line[:3] for line in sample]
    assert len(wsj) == 2 + 32
    assert len(sample) == 2 + 9


def front(folder, **contents):
    page(folder, **contents)
    return tables(report.front(report.collect(folder)).replace("\u00a0", " "))


def test_the_papers_table_has_ours_in_it(tmp_path):
    gates = [model(k, 30.0 + k, system="lstm-gates") | {"run": "runs/b"} for k in (1, 2)]
    runs = [*RESULT["runs"], RESULT["runs"][0] | {"name": "b", "rnn": "lstm"}]
    tags = [row(system, 55.0) | {"f1": None, "depth": None, "tags": {}} for system in ("ccm", "dmv+ccm")]
    table, _ = front(tmp_path, bank=result(rows=[*gates, *RESULT["rows"], *tags], runs=runs))
    cells = {line[1]: line[3:5] for line in table if line[0] == "published"}
    assert cells["ON-LSTM 2nd-layer"] == ["65.1 (1.7) 66.8", "47.7 (1.5) 49.4"]
    assert cells["CCM"] == ["71.9", "–"]
    assert "StructFormer" not in cells
    ours = [line for line in table[2:] if line[0] != "published"]
    assert [line[:3] for line in ours] == [
        ["bank", "LSTM gates: b", "2"],
        ["bank", "ON-LSTM: a", "1"],
        ["bank", "ON-LSTM: a", "2"],
        ["bank", "CCM", "–"],
        ["bank", "DMV+CCM", "–"],
        ["–", "right-branching", "–"],
        ["–", "random, 5 seeds", "–"],
        ["–", "oracle", "–"],
    ]
    assert ours[2][3:] == ["54.0", "44.0", "12.5", "5.2", "25.0", "75.0", "0.0", "–"]
    assert ours[3][3:] == ["65.0", *["–"] * 7]


def test_a_result_without_the_papers_rule_is_among_the_headlines(tmp_path):
    rows = [each | {"rule": "evalb"} for each in RESULT["rows"]]
    rules = {"evalb": "all together"}
    table, others = front(
        tmp_path, bank=result(rows=rows, rules=rules, headline=HEADLINE | {"rule": "evalb", "chosen": "so"})
    )
    assert {line[0] for line in table[2:]} == {"published"}
    assert others[2][2:5] == ["bank", "1", "evalb"]


def test_other_treebanks_and_rules_have_their_headlines(tmp_path):
    other = [each | {"rule": "evalb", "f1": 50.0} for each in RESULT["rows"][1:4]]
    content = result(treebank__profile="masc", rows=[*RESULT["rows"], *other])
    _, others, rules = front(tmp_path, bank=content, none=content | {"headline": None})
    line = ["bank.zip", "1,200", "bank", "1", "on-lstm", "2", "paper", "44.0", "39.5", "18.0", "84.0", "12.5"]
    assert others[2:] == [line]
    assert rules[0] == ["rule", "bank", "right-branching", "oracle", "what it counts"]
    assert rules[2:] == [
        ["on-lstm", "44.0", "39.5", "84.0", "the mean of some sort"],
        ["evalb", "50.0", "50.0", "–", "all together"],
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": None}, "odd.json: rows: a list is needed, not null"),
        ({"treebank": {}}, "odd.json: treebank: path is missing"),
        ({"rows": [{"system": "left"}]}, "odd.json: rows[0]: rule is missing"),
        ({"rows": [row("left", 9.0) | {"f1": "good"}]}, 'rows[0]: f1: a number is needed, not "good"'),
        ({"headline": {"system": "onlstm", "rule": "x"}}, "headline: chosen is missing"),
        ({"runs": [{"name": "a"}]}, "runs[0]: path is missing"),
    ],
)
def test_a_foreign_file_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(UserError, match=re.escape(message)):
        page(tmp_path, odd=result(**changes))
