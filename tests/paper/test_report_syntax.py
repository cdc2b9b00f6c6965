"""Results of `onlstm syneval`, `blimp` and `agreement` on the page: published numbers beside ours, what is claimed."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.paper import report
from onlstm.paper.syntax.generator import rows

ROWS, QUOTED = rows(), report.published()
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
    return report.render(report.collect(folder), QUOTED)


def tables(text):
    """The tables of a page, as lists of rows of cells, without the line below the head."""
    blocks = (block.splitlines() for block in text.split("\n\n") if block.startswith("|"))
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in (top, *rest)] for top, _, *rest in blocks
    ]


PAPER = [round(each["ON-LSTM"]) for each in PUBLISHED], [round(each["LSTM"]) for each in PUBLISHED]


def test_the_papers_table_beside_ours(tmp_path):
    text = page(tmp_path, small=syneval([60] * 19, [50] * 18 + [49], p=[0.25] * 18 + [1e-7]))
    models, numbers, _ = tables(text)
    assert models[1:] == [
        ["onlstm-0", "ON-LSTM 20→30→20", "1.23M", "99.50", "--"],
        ["lstm-1", "LSTM 20→30→20", "1.23M", "100.50", "--"],
    ]
    assert numbers[0] == [
        *["dependency", "phenomenon", "row", "published ON-LSTM", "published LSTM", "accuracy ON-LSTM"],
        *["accuracy LSTM", "p", "pairs", "ties", "known %", "on known ON-LSTM", "on known LSTM"],
    ]
    assert len(numbers) == 1 + 19 + 2
    first = ["short-term", "Subject-verb agreement", "Simple", "99", "100", "60.0", "50.0", "0.25", "100", "0", "80.0"]
    assert numbers[1] == [*first, "50.0", "50.0"]
    assert numbers[19][3:8] == ["11", "4", "60.0", "49.0", "<1e-4"]
    assert numbers[20][:5] == ["short-term", "--", "pooled", "--", "--"]
    assert numbers[21][5:9] == ["60.0", "49.9", "<1e-4", "1,900"]
    assert "not run here; both its models were trained on 90 million words of Wikipedia" in text
    assert "```sh\nonlstm syneval runs/onlstm-0  # small\n```" in text
    assert "- small: two cores of a toaster, threads: 1, onlstm 0.1.0, torch 2.13.0, python 3.11.2; 40 s\n" in text
    assert "### Published, not run here" not in text
    assert "for the period" not in text


def claims(tmp_path, *args, **options):
    text = page(tmp_path, small=syneval(*args, **options))
    (line,) = (line for line in text.splitlines() if line.startswith("The known difference"))
    return line, [row[1:] for row in tables(text)[2][1:]]


def test_the_papers_own_numbers_show_the_papers_difference(tmp_path):
    line, counted = claims(tmp_path, *PAPER)
    assert line == (
        "The known difference: ON-LSTM better on long-term rows **shows**, LSTM better on short-term rows **shows**."
    )
    without = "without negative polarity items"
    assert counted == [
        ["all (9)", "5 to 3", "5 to 3", "5 to 3"],
        [f"{without} (6)", "3 to 2", "3 to 2", "3 to 2"],
        ["all (10)", "7 to 3", "7 to 3", "7 to 3"],
        [f"{without} (7)", "5 to 2", "5 to 2", "5 to 2"],
    ]


def test_the_second_run_may_be_the_on_lstm(tmp_path):
    swapped = claims(tmp_path, *reversed(PAPER), rnns=("lstm", "onlstm"))
    assert swapped == claims(tmp_path, *PAPER)


def test_the_difference_does_not_show(tmp_path):
    line, counted = claims(tmp_path, *reversed(PAPER))
    assert line.count("**does not show**") == 2
    assert counted[0] == ["all (9)", "3 to 5", "3 to 5", "5 to 3"]
    line, counted = claims(tmp_path, *PAPER, p=[0.5] * 19)  # it may be chance
    assert line.count("**does not show**") == 2
    assert counted[0] == ["all (9)", "5 to 3", "0 to 0", "5 to 3"]
    equal = claims(tmp_path, [50] * 19, [50] * 19)
    assert equal[0].count("**does not show**") == 2


def test_the_difference_may_hang_on_some_rows(tmp_path):
    npi = [row.phenomenon.startswith("Neg") for row in ROWS]
    long = [row.group == "long-term" for row in ROWS]
    ours = [50 + (5 if each else -1 if far else 0) for each, far in zip(npi, long, strict=True)]
    line, _ = claims(tmp_path, ours, [50] * 19)
    assert "long-term rows **does not show**" in line  # 3 to 6
    ours = [50 + (-5 if each else 1 if far else -1) for each, far in zip(npi, long, strict=True)]
    assert claims(tmp_path, ours, [50] * 19)[0].count("**shows**") == 2  # 6 to 3, and 10 to 0
    ours = [50 - 5 * each for each in npi]
    line, _ = claims(tmp_path, ours, [50] * 19)
    assert "LSTM better on short-term rows **shows only with negative polarity items**" in line
    few = [k for k, each in enumerate(npi) if long[k] and not each][:4]
    ours = [50 + (1 if k in few[:2] else -1 if k == few[2] or (npi[k] and long[k]) else 0) for k in range(19)]
    assert "long-term rows **shows only without negative polarity items**" in claims(tmp_path, ours, [50] * 19)[0]


RIGHTS = st.lists(st.integers(0, 100), min_size=19, max_size=19)


@settings(max_examples=50, deadline=None)
@given(RIGHTS, RIGHTS)
def test_rows_ahead_are_counted(tmp_path_factory, ours, other):
    line, counted = claims(tmp_path_factory.mktemp("results"), ours, other)
    for where, (_, found, sure, _) in ((slice(10, 19), counted[0]), (slice(10, 16), counted[1])):
        ahead = sum(a > b for a, b in zip(ours[where], other[where], strict=True))
        behind = sum(a < b for a, b in zip(ours[where], other[where], strict=True))
        assert found == sure == f"{ahead} to {behind}"
    assert ("long-term rows **shows**" in line) == all(
        sum(a > b for a, b in zip(ours[10:end], other[10:end], strict=True))
        > sum(a < b for a, b in zip(ours[10:end], other[10:end], strict=True))
        for end in (16, 19)
    )


def test_nothing_is_claimed_without_both_models_or_both_groups(tmp_path):
    alone = syneval(*PAPER) | head("syneval", "onlstm")
    del alone["compare"], alone["tests"]
    text = page(tmp_path, a=alone)
    assert "The known difference" not in text
    assert tables(text)[1][0][5:] == ["accuracy", "pairs", "ties", "known %", "on known"]
    same = syneval(*PAPER, rnns=("onlstm", "onlstm"))
    text = page(tmp_path, a=same)
    assert "The known difference" not in text
    assert "accuracy onlstm-0" in text
    short = syneval(*PAPER)
    for run in (short, short["compare"]):
        run["rows"] = run["rows"][:10]
    assert "The known difference" not in page(tmp_path, a=short)
    mine = syneval(*PAPER)
    for row in mine["rows"] + mine["compare"]["rows"]:
        row |= {"published": None, "group": "", "phenomenon": ""}
    text = page(tmp_path, a=mine)
    assert "The known difference" not in text
    assert tables(text)[1][0][:4] == ["dependency", "phenomenon", "row", "accuracy ON-LSTM"]
    assert tables(text)[1][1][:3] == ["--", "--", "Simple"]


def test_ties_and_known_words_of_both_runs_where_they_differ(tmp_path):
    content = syneval(*PAPER)
    content["compare"]["rows"][0] |= {"ties": 7, "scorable_pairs": 0, "scorable_accuracy": None}
    content["compare"]["period"] = False
    text = page(tmp_path, a=content)
    top, first, *_ = tables(text)[1]
    assert top[9:13] == ["ties ON-LSTM", "ties LSTM", "known % ON-LSTM", "known % LSTM"]
    assert first[9:] == ["0", "7", "80.0", "0.0", "50.0", "--"]
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
    assert [row[0] for row in phenomena] == ["phenomenon", "binding", "all"]
    assert (
        "Mean over 2 of 67 paradigms: ON-LSTM 55.0 %, LSTM 65.0 %. Of all words 12.5 % (ON-LSTM) and 12.5 % (LSTM) are"
        in text
    )
    assert sets[1:] == [
        ["generated", "all", "25.0", "25.2", "0.5", "400", "0", "75.0", "50.0", "50.0"],
        ["generated", "nonsense", "25.0", "25.2", "0.5", "400", "0", "75.0", "50.0", "50.0"],
    ]
    assert "Of the words before the verbs 25.0 % (ON-LSTM) and 25.0 % (LSTM) are unknown." in text


@pytest.mark.parametrize(
    ("made", "way", "named"),
    [
        (lambda: syneval(*PAPER), ("rows",), "missing rows"),
        (lambda: syneval(*PAPER), ("rows", 3, "ties"), "entry 3 of rows: missing ties"),
        (lambda: syneval(*PAPER), ("compare", "pooled"), "entry 0 of compare: missing pooled"),
        (lambda: syneval(*PAPER), ("compare", "rows", 18, "accuracy"), "entry 18 of compare.rows: missing accuracy"),
        (lambda: syneval(*PAPER), ("tests", 0, "p"), "entry 0 of tests: missing p"),
        (lambda: syneval(*PAPER), ("runs", 1, "rnn"), "entry 1 of runs: missing rnn"),
        (blimp, ("unk_rate",), "missing unk_rate"),
        (blimp, ("paradigms", 1, "n"), "entry 1 of paradigms: missing n"),
        (blimp, ("all", "paradigms"), "missing all.paradigms"),
        (agreement, ("sets",), "missing sets"),
        (agreement, ("compare", "sets", 0, "scorable"), "entry 0 of compare.sets: missing scorable"),
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
