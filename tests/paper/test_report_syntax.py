"""Results of `onlstm syneval`, `blimp` and `agreement` on the pages, published numbers beside ours."""

import copy
import json

import pytest

from onlstm.errors import UserError
from onlstm.paper import report
from onlstm.paper.published import published
from onlstm.paper.syntax.templates import load

ROWS, QUOTED = load().rows, published()
PUBLISHED = [
    {name: 100 * float(each.values[name]) for name in ("ON-LSTM", "LSTM")} for each in QUOTED if each.table == "syneval"
]


def counts(n, correct, known, pairs="pairs", scorable="scorable_pairs", ties=0):
    share = {"accuracy": 100 * correct / n, "scorable_accuracy": 50.0 if known else None}
    return {pairs: n, "correct": correct, "ties": ties, scorable: known} | share


def head(kind, *rnns):
    runs = [
        {"path": f"runs/{rnn}-{k}", "name": "small", "rnn": rnn, "sizes": [20, 30, 20], "parameters": 1_234_567}
        | {"valid_perplexity": 99.5 + k}
        for k, rnn in enumerate(rnns)
    ]
    common = {"format_version": 1, "kind": kind, "name": "x", "seed": None, "seconds": 40.4, "threads": 1}
    common |= {"command": f"onlstm {kind} runs/onlstm-0", "machine": "two cores of a toaster", "notes": []}
    return common | {"versions": {"onlstm": "0.1.0", "torch": "2.13.0", "python": "3.11.2"}, "runs": runs}


def syneval(ours, other, p=(0.01,) * 19, rnns=("onlstm", "lstm")):
    """A result of two runs, with so many of 100 pairs right in the paper's rows."""

    def run(rights):
        table = [
            {"row": row.number, "group": row.group, "phenomenon": row.phenomenon, "name": row.name}
            | {"published": PUBLISHED[k]}
            | counts(100, rights[k], 80)
            for k, row in enumerate(ROWS)
        ]
        pooled = [{"row": None, "group": name} | counts(1900, sum(rights), 1520) for name in ("short-term", "all")]
        return {"run": "runs/x", "model": "m", "period": True, "items": 9, "rows": table, "pooled": pooled}

    tests = [{"row": row.number, "group": row.group, "p": p[k]} for k, row in enumerate(ROWS)]
    tests += [{"row": None, "group": name, "p": 1e-9} for name in ("short-term", "all")]
    return head("syneval", *rnns) | run(ours) | {"compare": run(other), "tests": tests}


def page(folder, **contents):
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return report.pages(report.collect(folder))["syntax.md"]


def tables(text):
    """The tables of a page, as lists of rows of cells, without the line below the head."""
    blocks = (block.splitlines() for block in text.split("\n\n") if block.startswith("|"))
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in (top, *rest)] for top, _, *rest in blocks
    ]


PAPER = [round(each["ON-LSTM"]) for each in PUBLISHED], [round(each["LSTM"]) for each in PUBLISHED]


def test_the_papers_table_beside_ours(tmp_path):
    text = page(tmp_path, small=syneval([60] * 19, [50] * 18 + [49], p=[0.25] * 18 + [1e-7]))
    models, numbers = tables(text)
    assert models[1:] == [
        ["small", "ON-LSTM 20→30→20", "1.23M", "99.50", "–"],
        ["small", "LSTM 20→30→20", "1.23M", "100.50", "–"],
    ]
    assert numbers[0] == [
        *["dependency", "phenomenon", "row", "published ON-LSTM", "published LSTM", "accuracy ON-LSTM"],
        *["accuracy LSTM", "p", "pairs", "ties", "known %", "on known ON-LSTM", "on known LSTM"],
    ]
    assert len(numbers) == 1 + 19 + 2
    first = ["short-term", "Subject-verb agreement", "Simple", "99", "100", "60.0", "50.0", "0.25", "100", "0", "80.0"]
    assert numbers[1] == [*first, "50.0", "50.0"]
    assert numbers[19][3:8] == ["11", "4", "60.0", "49.0", "<1e-4"]
    assert numbers[20][:5] == ["short-term", "–", "pooled", "–", "–"]
    assert numbers[21][5:9] == ["60.0", "49.9", "<1e-4", "1,900"]
    assert "whose models were trained on 90 million words of Wikipedia" in text
    assert "- small: `onlstm syneval runs/onlstm-0`\n" in text
    assert "- small: two cores of a toaster; threads: 1; onlstm 0.1.0, torch 2.13.0, python 3.11.2; 0.7 min\n" in text
    assert "for the period" not in text
    (brief,) = tables(report.front(report.collect(tmp_path)))
    assert [line[:9] for line in numbers] == brief


def test_one_run_and_two_of_one_kind(tmp_path):
    alone = syneval(*PAPER) | head("syneval", "onlstm")
    del alone["compare"], alone["tests"]
    assert tables(page(tmp_path, a=alone))[1][0][5:] == ["accuracy", "pairs", "ties", "known %", "on known"]
    assert "accuracy onlstm-0" in page(tmp_path, a=syneval(*PAPER, rnns=("onlstm", "onlstm")))
    mine = syneval(*PAPER)
    for row in mine["rows"] + mine["compare"]["rows"]:
        row |= {"published": None, "group": "", "phenomenon": ""}
    assert tables(page(tmp_path, a=mine))[1][1][:2] == ["", "Simple"]


def test_ties_and_known_words_of_both_runs_where_they_differ(tmp_path):
    content = syneval(*PAPER)
    content["compare"]["rows"][0] |= {"ties": 7, "scorable_pairs": 0, "scorable_accuracy": None}
    content["compare"]["period"] = False
    text = page(tmp_path, a=content)
    top, first, *_ = tables(text)[1]
    assert top[9:13] == ["ties ON-LSTM", "ties LSTM", "known % ON-LSTM", "known % LSTM"]
    assert first[9:] == ["0", "7", "80.0", "0.0", "50.0", "–"]
    assert "scored without it: LSTM." in text


def blimp():
    def run(correct):
        each = [counts(1000, correct + 100 * k, 700, "n") for k in range(2)]
        paradigms = [{"uid": f"p{k}", "phenomenon": "binding", "field": "f"} | each[k] for k in range(2)]
        mean = {"paradigms": 2} | counts(2000, 2 * correct + 100, 1400, "n", ties=3)
        whole = {"paradigms": paradigms, "phenomena": {"binding": mean}, "all": mean, "mean": mean["accuracy"]}
        return {"run": "runs/x", "model": "m", "reading": "own", "unk_rate": 0.125} | whole

    tests = [{"uid": uid, "phenomenon": name, "p": 0.5} for uid, name in ((None, "binding"), (None, None))]
    return head("blimp", "onlstm", "lstm") | run(500) | {"compare": run(600), "tests": tests}


def agreement():
    def run(correct):
        part = {"name": "generated", "part": "nonsense"} | counts(400, correct, 300, "n", "scorable")
        return {"run": "r", "model": "m", "unk_rate": 0.25, "sets": [part | {"part": None, "parts": [part]}]}

    tests = [{"name": "generated", "part": part, "p": 0.5} for part in (None, "nonsense")]
    return head("agreement", "onlstm", "lstm") | run(100) | {"compare": run(101), "tests": tests}


def test_blimp_and_agreement(tmp_path):
    text = page(tmp_path, a=blimp(), b=agreement())
    _, phenomena, _, sets = tables(text)
    assert phenomena[1] == ["binding", "2", "55.0", "65.0", "0.5", "2,000", "3", "70.0", "50.0", "50.0"]
    assert [row[0] for row in phenomena] == ["BLiMP phenomenon", "binding", "all"]
    assert "Unknown words: 12.5 % (ON-LSTM), 12.5 % (LSTM)." in text
    assert sets[1:] == [
        ["Gulordava et al. 2018", "all", "25.0", "25.2", "0.5", "400", "0", "75.0", "50.0", "50.0"],
        ["Gulordava et al. 2018", "nonsense", "25.0", "25.2", "0.5", "400", "0", "75.0", "50.0", "50.0"],
    ]
    assert "Unknown words: 25.0 % (ON-LSTM), 25.0 % (LSTM)." in text
    assert [len(table) for table in tables(report.front(report.collect(tmp_path)))] == [2, 2]


@pytest.mark.parametrize(
    ("made", "way", "named"),
    [
        (lambda: syneval(*PAPER), ("rows",), "rows is missing"),
        (lambda: syneval(*PAPER), ("rows", 3, "ties"), "rows[3]: ties is missing"),
        (lambda: syneval(*PAPER), ("compare", "pooled"), "compare: pooled is missing"),
        (lambda: syneval(*PAPER), ("compare", "rows", 18, "accuracy"), "compare: rows[18]: accuracy is missing"),
        (lambda: syneval(*PAPER), ("tests", 0, "p"), "tests[0]: p is missing"),
        (lambda: syneval(*PAPER), ("runs", 1, "rnn"), "runs[1]: rnn is missing"),
        (blimp, ("unk_rate",), "unk_rate is missing"),
        (blimp, ("paradigms", 1, "n"), "paradigms[1]: n is missing"),
        (agreement, ("sets",), "sets is missing"),
        (agreement, ("compare", "sets", 0, "scorable"), "compare: sets[0]: scorable is missing"),
    ],
)
def test_a_file_that_lacks_something_is_told_so(tmp_path, made, way, named):
    content = copy.deepcopy(made())
    place = content
    for key in way[:-1]:
        place = place[key]
    del place[way[-1]]
    with pytest.raises(UserError) as error:
        page(tmp_path, bad=content)
    assert f"bad.json: {named}" in str(error.value)
    assert "\n" not in str(error.value)
