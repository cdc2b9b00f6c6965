"""Results of `onlstm logic` on the pages: accuracies by length beside the published, and how models were trained."""

import json
import re

import pytest

from onlstm.errors import UserError
from onlstm.paper import report

LENGTHS = [str(n) for n in range(1, 13)]
PUBLISHED = {"LSTM": [88, 84, 80, 78, 71, 69], "ON-LSTM": [91, 87, 85, 81, 78, 75]}


def row(seed, first, last, **more):
    """A row whose accuracy falls evenly from length 1 to 12."""
    accuracies = {n: first + (last - first) * k / 11 for k, n in enumerate(LENGTHS)}
    whole = {"seed": seed, "epochs": 20, "best_epoch": 18, "valid": 96.25, "by_length": accuracies, "n": 5000}
    whole |= {"seconds_per_epoch": 200.4, "parameters": 1_500_000, "command": "onlstm logic --epochs 20"}
    return whole | {"settings": {"epochs": 20, "schedule": "cosine"}} | more


MAJORITY = {"seed": None, "epochs": 0, "valid": 50.0, "by_length": dict.fromkeys(LENGTHS, 50.5), "n": 5000}
MAJORITY |= {"seconds_per_epoch": 0.0, "relation": "#"}


def result(**encoders):
    named = {name.replace("_", "-"): rows for name, rows in encoders.items()}
    return {
        "format_version": 1,
        "kind": "logic",
        "name": "logic",
        "command": "onlstm logic --resume",
        "versions": {"onlstm": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
        "seed": None,
        "seconds": 6000.0,
        "threads": 1,
        "machine": "two cores of a toaster",
        "data": {"path": "logic.zip", "pairs": 500_000, "max_train_ops": 6},
        "encoders": named,
        "published": {name: dict(zip(LENGTHS[6:], values, strict=True)) for name, values in PUBLISHED.items()},
        "notes": [],
    }


def page(folder, **contents):
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    results = report.collect(folder)
    return report.front(results) + report.pages(results)["logic.md"]


def cells(text, column):
    """Return the rows of the first table whose third column is called so, by their name and result."""
    blocks = (block.splitlines() for block in text.split("\n\n") if block.startswith("| model "))
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in block] for block in blocks]
    table = next(table for table in rows if column in table[0])
    return {(name, file): rest for name, file, *rest in table}


def test_accuracies_stand_beside_the_published(tmp_path):
    content = result(onlstm=[row(0, 100, 78)], lstm=[row(0, 100, 67)], tree_lstm=[row(0, 100, 89)], majority=[MAJORITY])
    text = page(tmp_path, logic=content)
    assert "## Figure 3: logical inference\n" in text
    assert "Bowman's pairs of formulas: trained on at most 6 operators, tested on 5,000 pairs:" in text
    rows = cells(text, "12")
    assert rows["model", "result"] == ["seeds", "epochs", *LENGTHS]
    assert rows["ON-LSTM", "logic"] == ["1", "20", *(f"{100 - 2 * k:.1f}" for k in range(12))]
    assert [name for name, _ in rows][2:7] == ["ON-LSTM", "LSTM", "Tree-LSTM", "majority", "LSTM †"]
    assert rows["ON-LSTM †", "published"][2:] == ["–"] * 6 + ["91", "87", "85", "81", "78", "75"]
    assert "- logic: `onlstm logic --epochs 20`\n" in text
    assert "--resume" not in text
    assert "- logic: two cores of a toaster; threads: 1; onlstm 0.1.0, torch 2.13.0, python 3.11.2; 100.0 min" in text
    assert "| RRNet † " in text.split("### Published: logic")[1]


def test_how_it_was_trained_is_said(tmp_path):
    seeds = [
        row(0, 99, 78),
        row(3, 98, 77, best_epoch=20, valid=95.0, settings={"epochs": 20, "free_last_chunk": True}),
    ]
    text = page(tmp_path, logic=result(onlstm=seeds, lstm=[row(0, 99, 66, settings={})], majority=[MAJORITY]))
    rows = cells(text, "validation")
    assert rows["ON-LSTM", "logic"] == [
        *["0, 3", "20", "18–20", "1,500,000", "200", "95.0–96.2"],
        "schedule cosine; free_last_chunk True",
    ]
    assert rows["LSTM", "logic"][-1] == "none"
    assert ("majority", "logic") not in rows


def test_several_seeds_have_mean_and_deviation(tmp_path):
    content = result(onlstm=[row(0, 100, 78), row(1, 98, 76), row(2, 99, 80)], lstm=[row(0, 100, 67)])
    rows = cells(page(tmp_path, logic=content), "12")
    assert (rows["ON-LSTM", "logic"][2], rows["ON-LSTM", "logic"][-1]) == ("99.0", "78.0")
    assert (rows["deviation", ""][2], rows["deviation", ""][-1]) == ("1.0", "2.0")


def test_variants_in_other_files_are_further_rows(tmp_path):
    whole = result(onlstm=[row(0, 100, 78)], lstm=[row(0, 100, 67)], majority=[MAJORITY])
    text = page(tmp_path, logic=whole, free=result(onlstm=[row(0, 100, 89)], majority=[MAJORITY]))
    assert list(cells(text, "12"))[2:6] == [
        *(("ON-LSTM", "logic"), ("LSTM", "logic"), ("ON-LSTM", "free"), ("majority", "logic"))
    ]


def test_other_pairs_have_their_own_table(tmp_path):
    other = result(onlstm=[row(0, 100, 78)], lstm=[row(0, 100, 67)])
    other["data"] = {"path": None, "pairs": 90_000, "max_train_ops": 4}
    text = page(tmp_path, logic=result(lstm=[row(0, 100, 78)]), other=other)
    assert "90,000 generated pairs: trained on at most 4 operators" in text
    assert ("ON-LSTM †", "published") not in cells(text, "12")


def test_a_figure_is_shown_if_the_result_names_one(tmp_path):
    content = result(onlstm=[row(0, 100, 78)])
    assert "![" not in page(tmp_path, logic=content)
    assert "![Accuracy by length: logic](docs/logic.svg)" in page(
        tmp_path, logic=content | {"figure": "docs/logic.svg"}
    )


def test_a_length_without_pairs_is_a_dash(tmp_path):
    few = row(0, 100, 78)
    few["by_length"] |= {"11": None, "12": None}
    rows = cells(page(tmp_path, logic=result(onlstm=[few, few])), "12")
    assert rows["ON-LSTM", "logic"][-3:] == ["82.0", "–", "–"]
    assert rows["deviation", ""][-3:] == ["0.0", "–", "–"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoders": None}, "odd.json: encoders: a mapping is needed, not null"),
        ({"data": {"max_train_ops": "six"}}, 'odd.json: data: max_train_ops: a whole number is needed, not "six"'),
        ({"encoders": {"onlstm": [{"seed": 1}]}}, "encoders.onlstm[0]: by_length is missing"),
        ({"encoders": {"lstm": [row(0, 9, 9, valid="good")]}}, 'valid: a number is needed, not "good"'),
    ],
)
def test_a_foreign_file_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(UserError, match=re.escape(message)):
        page(tmp_path, odd=result() | changes)


def test_a_real_run_can_be_reported(tmp_path):
    pytest.importorskip("torch")
    from onlstm.paper.logic import experiment
    from onlstm.paper.logic.config import ModelConfig, Request

    quick = {"pairs": 400, "model": ModelConfig(hidden_size=8, chunk_size=2), "epochs": 1}
    request = {"encoder": ("onlstm", "majority"), "seeds": 1, **quick}
    experiment.run(Request(out=tmp_path / "run", command="onlstm logic …", **request))
    text = page(tmp_path, logic=json.loads((tmp_path / "run" / "result.json").read_text()))
    assert cells(text, "validation")["ON-LSTM", "logic"][-1] == "hidden_size 8, chunk_size 2"
    assert "- logic: `onlstm logic …`\n" in text
