"""Results files in, RESULTS.md out."""

import copy
import json
import re
import subprocess
import sys

import pytest

from onlstm.errors import UserError
from onlstm.paper import report
from onlstm.paper.report import tables

# Results files. These keys are the contract with whatever writes result.json.

RESULT = {
    "format_version": 1,
    "kind": "language-model",
    "name": "tiny-onlstm",
    "command": "onlstm train a.txt --recipe tiny-onlstm --out runs/a",
    "recipe": {
        "name": "tiny-onlstm",
        "seed": 0,
        "model": {"rnn": "onlstm", "embedding_size": 256, "hidden_size": 400, "num_layers": 3, "tied": True},
        "train": {"epochs": 3, "lr": 0.003, "optimizer": "adamw"},
        "text": {"profile": "pretokenized"},
    },
    "versions": {"onlstm": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
    "seed": 0,
    "data": {
        "profile": "pretokenized",
        "train": {"tokens": 929589, "sha256": "aa" * 32},
        "valid": {"tokens": 73760, "sha256": "bb" * 32},
        "test": {"tokens": 82430, "sha256": "cc" * 32},
        "vocabulary": 10000,
    },
    "seconds": 3630.0,
    "parameters": 5_700_123,
    "threads": 1,
    "machine": "two cores of a toaster",
    "numbers": {
        "valid_perplexity": 141.0,
        "test_perplexity": 135.5,
        "best_epoch": 3,
        "epochs": 3,
        "tokens_per_second": 2345.6,
    },
    "curve": [
        {"epoch": epoch, "train_loss": 6 - epoch / 2, "valid_perplexity": perplexity, "seconds": 1210.0}
        for epoch, perplexity in enumerate((339.25, 184.5, 141.0), 1)
    ],
    "notes": ["the last epoch ran beside a backup"],
}


def result(**changes):
    """RESULT with dotted paths set, e.g. numbers__epochs=4; `...` removes a key."""
    content = copy.deepcopy(RESULT)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = content
        for key in way:
            place = place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return content


def lstm(**changes):
    options = {"recipe__name": "tiny-lstm", "recipe__model__rnn": "lstm", "recipe__train__lr": 0.002}
    return result(**options | {"numbers__valid_perplexity": 150.0, "numbers__test_perplexity": 144.0} | changes)


def save(folder, **contents):
    for name, content in contents.items():
        (folder / f"{name.replace('_', '-')}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def page(folder, **contents):
    return report.render(report.collect(save(folder, **contents)), report.published())


def cells(text, first):
    """The cells of the table rows that begin with a word."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row[1:] for row in rows if row[0] == first]


def leaves(tree, path=()):
    for key, value in tree.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


FREE = {"data.test", "numbers.test_perplexity", "recipe.model.tied", "recipe.model.num_layers", "recipe.name"}
FREE |= {"recipe.seed"} | {f"recipe.{part}" for part in ("train", "text")}
NEEDED = [path for path in map(".".join, leaves(RESULT)) if not path.startswith(tuple(FREE))]


@pytest.mark.parametrize("path", NEEDED)
@pytest.mark.parametrize("value", [..., None], ids=["absent", "null"])
def test_every_key_of_the_schema_is_needed_and_named_when_missing(tmp_path, path, value):
    with pytest.raises(UserError) as caught:
        page(tmp_path, odd=result(**{path.replace(".", "__"): value}))
    assert re.match(rf"{re.escape(str(tmp_path))}/odd.json: .*\b{path.rsplit('.')[-1]}\b", str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "poetry"}, r"odd.json: unknown kind 'poetry'; known: language-model"),
        ({"format_version": 2}, "odd.json: format_version 2 is not 1"),
        ({"seconds": "an hour"}, 'odd.json: seconds should be of type float, is "an hour"'),
        ({"numbers__epochs": True}, "odd.json: numbers.epochs should be of type int, is true"),
        ({"data__test": {}}, "odd.json: entry 0 of data.test: missing tokens, sha256"),
        ({"curve": [RESULT["curve"][0], {"epoch": 2}]}, "entry 1 of curve: missing train_loss, valid_perplexity"),
        ({"grid": [{"lr": 0.1, "epochs": 4}]}, "entry 0 of grid: missing valid_perplexity"),
        ({"grid": "none"}, 'odd.json: grid should be of type list, is "none"'),
        ({"grid": [3]}, "entry 0 of grid: missing epochs, lr, valid_perplexity"),
        ({"numbers__test_perplexity": "low"}, 'odd.json: numbers.test_perplexity should be of type float, is "low"'),
    ],
)
def test_a_foreign_file_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        page(tmp_path, good=result(), odd=result(**changes))


@pytest.mark.parametrize("content", [b'{"kind": ', b"\xff\xfe\x00", b"", b"[1, 2]", b"3"])
def test_a_broken_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "half.json").write_bytes(content)
    with pytest.raises(UserError, match=r"half\.json: (not JSON|missing format_version, kind)") as caught:
        report.collect(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_no_results_say_how_to_get_some(tmp_path, folder):
    (tmp_path / ".half.json").write_text("{")  # another program's temporary file
    with pytest.raises(
        UserError, match=r"no results \(\*\.json\) there; get some with `onlstm train .* copy RUN/result"
    ):
        report.collect(tmp_path / folder)


# The page


def test_runs_stand_with_their_sizes_times_and_perplexities(tmp_path):
    text = page(tmp_path, tiny_onlstm=result(), tiny_lstm=lstm(recipe__model__hidden_size=[300, 200]))
    assert "| run         | model                   | parameters |" in text
    row = ["ON-LSTM 256→400→400→256", "5.70M", "3 (3)", "60.5", "2,346", "0", "141.00", "135.50"]
    assert cells(text, "tiny-onlstm")[0] == row
    assert cells(text, "tiny-lstm")[0][0] == "LSTM 256→300→200"
    assert "train 929,589 tokens (sha256 aaaaaaaaaaaa), valid 73,760" in text
    assert "onlstm train a.txt --recipe tiny-onlstm --out runs/a  # tiny-onlstm\n" in text
    assert "two cores of a toaster, threads: 1, onlstm 0.1.0, torch 2.13.0, python 3.11.2; the last epoch ran" in text
    assert "Rule *per token with `<eos>`*" in text


def test_a_run_may_lack_a_test_text_and_list_its_layers(tmp_path):
    sizes = {"rnn": "onlstm", "embedding_size": 20, "hidden_size": [30, 40]}
    bare = {"data__test": ..., "numbers__test_perplexity": ..., "recipe__model": sizes}
    text = page(tmp_path, ours=result(**bare), stock=lstm(**bare | {"recipe__model": sizes | {"rnn": "lstm"}}))
    assert cells(text, "ours")[0] == ["ON-LSTM 20→30→40", "5.70M", "3 (3)", "60.5", "2,346", "0", "141.00", "--"]
    assert cells(text, "ours")[1][1:3] == ["-9.00 (-6.0 %)", "--"]
    assert "valid 73,760 tokens (sha256 bbbbbbbbbbbb)." in text


def test_a_diverged_run_keeps_the_table_narrow(tmp_path):
    point = {"epoch": 1, "train_loss": 700.0, "valid_perplexity": 1e304}
    text = page(tmp_path, lost=result(curve=[point], numbers__valid_perplexity=float("inf")))
    assert cells(text, "1") == [["1.0e+304 (700.000)"]]
    assert cells(text, "lost")[0][-2:] == ["inf", "135.50"]


def test_an_onlstm_stands_against_the_lstm_most_like_it(tmp_path):
    text = page(
        tmp_path,
        a_onlstm=result(),
        b_lstm=lstm(recipe__train__epochs=4, recipe__model__hidden_size=200, numbers__test_perplexity=200.0),
        c_lstm=lstm(recipe__train__epochs=4, recipe__about="of another recipe", recipe__source="ours"),
        d_lstm=lstm(seed=1, recipe__seed=1, recipe__train__lr=0.003),
    )
    assert ["c-lstm", "-9.00 (-6.0 %)", "-8.50 (-5.9 %)", "train.epochs 3 / 4; train.lr 0.003 / 0.002"] in cells(
        text, "a-onlstm"
    )
    assert "One seed: how much seeds differ is not known." in text


def test_seeds_are_paired(tmp_path):
    seeds = {
        f"{kind.__name__}{seed}": kind(seed=seed, recipe__seed=seed, recipe__train__lr=1)
        for kind in (result, lstm)
        for seed in (1, 2)
    }
    text = page(tmp_path, **seeds)
    assert [cells(text, f"result{seed}")[1][0] for seed in (1, 2)] == ["lstm1", "lstm2"]
    assert cells(text, "result1")[1][-1] == "nothing"
    assert "One seed" not in text


def test_runs_on_other_text_are_not_compared(tmp_path):
    other = lstm(data__train__sha256="dd" * 32)
    text = page(tmp_path, one=result(), two=other)
    assert "### Text 1" in text
    assert "### Text 2" in text
    assert "ON-LSTM minus LSTM" not in text


def test_curves_and_learning_rates(tmp_path):
    grid = [{"lr": rate, "epochs": 4, "valid_perplexity": value} for rate, value in ((0.002, 171.5), (0.004, 168.25))]
    text = page(tmp_path, long=result(grid=grid), short=lstm(curve=RESULT["curve"][:2]))
    assert cells(text, "1") == [["339.25 (5.500)", "339.25 (5.500)"]]
    assert cells(text, "3") == [["141.00 (4.500)", "--"]]
    assert cells(text, "long")[-2:] == [["0.002", "4", "171.50"], ["0.004", "4", "168.25"]]
    (tmp_path / "long.json").unlink()
    assert "Learning rates" not in page(tmp_path)


def test_long_curves_show_some_epochs_the_last_and_the_best(tmp_path):
    curve = [{"epoch": epoch, "train_loss": 1.0, "valid_perplexity": 500.0 - epoch} for epoch in range(1, 501)]
    text = page(tmp_path, long=result(curve=curve, numbers__best_epoch=333))
    shown = [epoch for epoch in range(1, 501) if cells(text, str(epoch))]
    assert 12 <= len(shown) <= 15
    assert {1, 333, 500} <= set(shown)


def test_published_numbers_come_last_and_are_marked(tmp_path):
    text = page(tmp_path, one=result())
    ours, theirs = text.split("### Published, not run here\n")
    assert "56.17" not in ours
    row = ["25M", "58.29 ± 0.10", "56.17 ± 0.12", "Shen et al. 2019, Table 1"]
    assert cells(theirs, "ON-LSTM, 3-layer (tied)") == [row]
    assert "- README of salesforce/awd-lstm-lm: PTB as above; approximate" in theirs
    assert "†" not in theirs
    doubted = report._quoted(report.published("logic"))[0]
    assert cells(doubted, "ON-LSTM †") == [["91", "87", "85", "81", "78", "75", "Shen et al. 2019 (Ordered Memory)"]]
    assert len(cells(doubted, "Majority class")) == 1


def test_tables_are_aligned_as_plain_text_and_survive_pipes():
    lines = tables.table(["a", "number"], [["x|y", "1.25"], ["z", "--"]]).splitlines()
    assert lines == [
        r"| a    | number |",
        r"| ---- | -----: |",
        r"| x\|y |   1.25 |",
        r"| z    |     -- |",
    ]
    for table in {row.table for row in report.published()}:
        rows = report._quoted(report.published(table))[0].splitlines()
        assert len({len(row) for row in rows}) == 1


def test_the_page_is_the_same_twice_and_replaces_the_old_one(tmp_path):
    results, out = tmp_path / "results", tmp_path / "RESULTS.md"
    results.mkdir()
    out.write_text("old")
    save(results, b=result(), a=lstm())
    report.write(results, out)
    first = out.read_text(encoding="utf-8")
    assert first == page(results)
    assert first.startswith("# Results\n\nMade by `onlstm report`; do not edit.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["RESULTS.md", "results"]
    with pytest.raises(UserError, match="cannot write"):
        report.write(results, tmp_path / "nowhere" / "RESULTS.md")
    save(results, c=result(kind="poetry"))
    with pytest.raises(UserError, match="unknown kind"):
        report.write(results, out)
    assert out.read_text(encoding="utf-8") == first


def test_torch_is_not_imported():
    code = "import sys, onlstm.paper.report as r; r.published(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
