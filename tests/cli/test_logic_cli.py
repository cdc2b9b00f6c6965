"""`onlstm logic` as a user types it: the table, keys of JSON, one line for a mistake."""

import json

import pytest

from helpers import check_bfloat16_is_refused, onlstm
from onlstm.kernels import build

COMMON = {"command", "version", "argv", "seed", "seconds"}
ROW = {"seed", "epochs", "valid", "by_length", "n", "seconds_per_epoch"}
QUICK = ["--pairs", "800", "--epochs", "1", "--threads", "1", "--model.hidden-size", "8", "--model.chunk-size", "2"]
PAIRS = "<\t( p ( and q ) )\tq\n^\tp\t( not p )\n#\tp\tq\n"


def logic(*args):
    return onlstm("logic", *args)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("logic") / "run"
    done = logic("--encoder", "onlstm", "lstm", "--seeds", 2, *QUICK, "--out", out, "--json")
    assert done.code == 0, done.err
    return out, done


def test_keys_of_json(run):
    out, done = run
    found = json.loads(done.out)
    assert set(found) >= COMMON | {"encoders", "published"}
    assert list(found["encoders"]) == ["onlstm", "lstm", "majority"]
    for rows in found["encoders"].values():
        for row in rows:
            assert set(row) >= ROW
            assert ("relation" in row) != ("best_epoch" in row)
            assert list(row["by_length"]) == [str(n) for n in range(1, 13)]
    assert [row["seed"] for row in found["encoders"]["onlstm"]] == [0, 1]
    assert found["published"]["LSTM"]["12"] == 69
    assert [tree["decoder"] for tree in found["trees"]] == ["left", "right", "random"]
    assert {tree["layer"] for row in found["encoders"]["onlstm"] for tree in row["trees"]} == {1}
    assert not any(row["trees"] for row in found["encoders"]["lstm"])
    assert "epoch   1" in done.err
    saved = json.loads((out / "result.json").read_text())
    assert saved["kind"] == "logic"
    assert saved["encoders"] == found["encoders"]
    assert set(found["figure"]) == {str(path) for path in out.glob("logic.*")} >= {str(out / "logic.svg")}


def test_the_tables_have_what_was_trained_and_what_is_published(run):
    out, _ = run
    done = logic("--resume", "--out", out)
    assert done.code == 0
    assert "onlstm, seed 0: already finished" in done.out
    trained, tested, trees = ([line.split() for line in block.splitlines()] for block in done.out.split("\n\n"))
    assert [line[:4] for line in trained if line[0] in ("ON-LSTM", "LSTM")] == [
        ["ON-LSTM", "run", "0,", "1"],
        ["LSTM", "run", "0,", "1"],
    ]
    assert tested[0] == ["model", "result", "seeds", "epochs", *map(str, range(1, 13))]
    assert ["ON-LSTM", "run", "2", "1"] in [line[:4] for line in tested]
    assert ["ON-LSTM", "†", "published", *"––––––", "91", "87", "85", "81", "78", "75"] in tested
    assert [line[0] for line in tested].count("majority") == 1
    assert [line[:4] for line in trees[1:3]] == [["ON-LSTM", "run", "1", decoder] for decoder in ("paper", "unbiased")]
    assert [line[0] for line in trees[3:6]] == ["left", "right", "random"]


def test_evaluation_of_other_files_says_what_was_renamed(run, tmp_path):
    out, _ = run
    path = tmp_path / "other.tsv"
    path.write_text(PAIRS)
    done = logic("--eval", out, path, "--encoder", "onlstm")
    assert done.code == 0, done.err
    assert "Variables renamed: p is a, q is b" in done.out
    assert "lstm-" not in done.out
    found = json.loads(logic("--eval", out / "lstm-1", path, "--json").out)
    assert set(found) >= COMMON | {"encoders", "files", "renamed", "wrong_labels"}
    (row,) = found["encoders"]["lstm"]
    assert (row["seed"], row["n"], row["counts"]["1"], row["by_length"]["12"]) == (1, 3, 2, None)
    path.write_text("=\tp\tq\n")
    text = logic("--eval", out, path).out
    assert "1 relations in the files are not those of the truth tables" in text
    assert "trees" in text
    assert [tree["decoder"] for tree in found["trees"]] == ["left", "right", "random"]


def test_prediction(run):
    out, _ = run
    found = json.loads(logic("--predict", out, "( a ( and b ) )", "( not c )", "--json").out)
    assert set(found) >= COMMON | {"relation", "name", "probability", "truth"}
    assert found["truth"] == "#"
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    done = logic("--predict", out, "( x ( and y ) )", "y")
    assert "Variables renamed: x is a, y is b" in done.out
    assert "truth tables: <  forward entailment" in done.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--predict", "RUN", "( a ( and b )", "c"], "left formula, token 6: ( F ( and F ) is no formula"),
        (["--predict", "RUN", "a", "( a b )"], "right formula, token 4: ( F F ) is no formula"),
        (["--predict", "RUN", "a"], "two formulas"),
        (["--predict", "absent", "a", "b"], "absent: no such run folder"),
        (["--predict", ".", "a", "b"], "not a run of `onlstm logic`"),
        (["--eval", "RUN"], "name files"),
        (["--eval", "RUN", "absent.tsv"], "absent.tsv"),
        (["--eval", "RUN", "BAD"], "bad.tsv:1: "),
        (["--eval", "RUN", "BAD", "--encoder", "tree-lstm"], "--encoder tree-lstm: RUN has only lstm, onlstm"),
        (["--eval", "RUN", "--predict", "RUN"], "not both"),
        (["( not a )"], "write `--eval RUN FILES`"),
        (["--data", "absent", "--out", "NEW"], "absent"),
        (["--encoder", "tree", "--out", "NEW"], "did you mean tree-lstm?"),
        (["--model.size", "3", "--out", "NEW"], "Unknown option: --model.size"),
        (["--train.epochs", "x", "--out", "NEW"], "--train.epochs"),
        (["--train.precision", "half", "--out", "NEW"], "--train.precision"),
        (["--resume", "--out", "RUN", "--train.precision", "bfloat16"], "train.precision was float32, not bfloat16"),
        (["--modle.size", "3", "--out", "NEW"], "Unknown option: --modle"),
        (["--seeds", "0", "--out", "NEW"], "--seeds 0: at least 1"),
        (["--epochs", "0", "--out", "NEW"], "train.epochs 0: at least 1"),
        (["--seed", "-1", "--out", "NEW"], "--seed -1: a number from 0"),
        (["--pairs", "12", "--out", "NEW"], "pairs to train on"),
        (["--pairs", "0", "--out", "NEW"], "onlstm: --pairs 0: at least 1"),
        (["--max-train-ops", "-1", "--out", "NEW"], "--max-train-ops -1: at least 1"),
        (["--resume", "--out", "NEW"], "no such run folder"),
        (["--encoder", "onlstm", "--out", "RUN", "--pairs", "800"], "there is a run already"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, args, message):
    out, _ = run
    (tmp_path / "bad.tsv").write_text("( not a )\n" if "--encoder" not in args else PAIRS)
    names = {"RUN": out, "NEW": tmp_path / "new", "BAD": tmp_path / "bad.tsv", ".": tmp_path}
    done = logic(*(names.get(word, word) for word in args))
    assert done.code == 2
    assert done.err.startswith("onlstm: ")
    assert done.err.count("\n") == 1
    assert message.replace("RUN has", f"{out} has") in done.err
    assert not (tmp_path / "new").exists()


def test_precision_bfloat16_is_refused_where_it_is_not_there(tmp_path):
    asked = "logic", *QUICK, "--train.precision", "bfloat16", "--out", str(tmp_path / "run")
    check_bfloat16_is_refused(*asked)


@pytest.mark.skipif(not build.has_bfloat16(), reason="this processor does not multiply in bfloat16")
def test_the_precision_is_in_the_files_of_the_run(tmp_path):
    done = logic("--encoder", "lstm", "--seeds", 1, *QUICK, "--train.precision", "bfloat16", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    config, result = (
        json.loads((tmp_path / "run" / "lstm-0" / name).read_text()) for name in ("config.json", "result.json")
    )
    assert config["train"]["precision"] == result["encoders"]["lstm"][0]["settings"]["precision"] == "bfloat16"
    assert "already finished" in logic("--resume", "--out", tmp_path / "run").out
