"""`onlstm evaluate` on a small treebank: what is read, what stood in the training text, what is printed."""

import json
import lzma
import math
import re
from pathlib import Path

import pytest

from helpers import onlstm, random_model
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.paper import report
from onlstm.paper.parsing.alignment import aligned, original, overlap, readings
from onlstm.paper.parsing.evaluate import run
from onlstm.paper.parsing.request import Request
from onlstm.parser import Parser
from onlstm.text import corpus
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees.f1 import RULES, score
from onlstm.trees.treebank import read_treebank

TREEBANK = """
( (S (NP-SBJ (DT The) (JJ old) (NN cat)) (VP (VBD paid) (NP ($ $) (CD 75.3) (NN %))) (. .)) )
( (S (NP-SBJ (NNS Dogs)) (VP (VBD saw) (NP (NP (DT the) (NN cat)) (PP (IN on) (NP (DT the) (NN mat))))) (. .)) )
( (INTJ (UH Oh) (, ,) (NP (JJ dear) (NN cat)) (. !)) )
( (S (NP-SBJ (DT The) (NN dog)) (VP (VBD saw) (NP (DT the) (NN mat) (PP (IN on) (NP (DT the) (NN old) (NN mat)
  (PP (IN on) (NP (DT the) (JJ old) (NN mat))))))) (. .)) )
( (CODE (CODE <TURN>)) )
"""
TRAINING = """the old cat paid $ N N
the dog slept
dogs saw the cat
"""


@pytest.fixture
def bank(tmp_path):
    path = tmp_path / "bank.mrg"
    path.write_text(TREEBANK)
    return path


def write_corpus(folder: Path, text: str, tokenizer: Tokenizer) -> None:
    """The corpus of a run on this text, in the words of a tokenizer with gaps."""
    for name, content in (("train", text), ("valid", "the cat slept\n")):
        (folder.parent.parent / f"{name}.txt").write_text(content)
    corpus.prepare([folder.parent.parent / f"{name}.txt" for name in ("train", "valid")], folder)
    described = json.loads((folder / "corpus.json").read_text()) | {"vocabulary": len(tokenizer)}
    for name, part in described["splits"].items():
        ids = corpus.encode_text(tokenizer, folder.parent.parent / f"{name}.txt")
        ids.astype(described["dtype"]).tofile(folder / f"{name}.ids")
        part["tokens"] = len(ids)
    tokenizer.save(folder / "tokenizer.json")
    (folder / "corpus.json").write_text(json.dumps(described))


def make_run(folder: Path, seed=0, rnn="onlstm", spread=2.25, **options):
    """A run folder with random weights; with spread 0 its distances are all the same."""
    words = Tokenizer.of_words(["N", "$", "the", "old", "cat", "paid", "dog", "dogs", "saw", "slept", "on", "mat"])
    write_corpus(folder / "corpus", TRAINING, words)
    random_model(words, seed=seed, spread=spread, rnn=rnn, num_layers=3, chunk_size=2, **options).save(folder)
    return folder


def test_mappings():
    words = ["The", "75.3", "1,000", r"1\/2", "%", "mid-1980s", "10:30", "-", "$", "U.S."]
    assert " ".join(map(original, words)) == r"the N.N N,N N\/N % mid-Ns N:N - $ u.s."
    assert " ".join(map(aligned, words)) == "the N N N N mid-1980s N - $ u.s."


def test_aligned_reads_numbers_and_signs_but_scores_words(tmp_path, bank):
    model = LanguageModel.load(make_run(tmp_path / "run"))
    gold = read_treebank(bank, profile="ptb")
    first = readings(gold, model)[0]
    assert first.words == ["the", "old", "cat", "paid", "$", "N", "N"]
    assert [first.words[i] for i in first.positions] == ["the", "old", "cat", "paid", "N", "N"]
    assert first.gold.words == ("The", "old", "cat", "paid", "75.3", "%")
    assert readings(gold, model, "original")[0].words == ["the", "old", "cat", "paid", "N.N", "%"]


def test_other_models_read_words_as_their_own_text_has_them(bank):
    words = Tokenizer.of_words(["The", "cat", "75.3", "dogs"])
    model = LanguageModel(LMConfig(vocab_size=len(words), embedding_size=8, hidden_size=12, chunk_size=2), words)
    found = readings(read_treebank(bank, profile="ptb"), model, "aligned")
    assert found[0].words == ["The", "old", "cat", "paid", "75.3", "%"]
    assert found[1].words[0] == "dogs"


def test_overlap_counts_exact_lines(tmp_path, bank):
    folder = make_run(tmp_path / "run")
    model = LanguageModel.load(folder)
    gold = read_treebank(bank, profile="ptb")
    seen, unknown = overlap(folder, model, readings(gold, model))
    assert seen == 25.0  # the first of four; "dogs saw the cat" is only the beginning of a line
    assert unknown == pytest.approx(100 * 2 / 30)  # oh, dear
    assert overlap(folder, model, readings(gold, model, "original"))[0] == 0
    assert overlap(tmp_path, model, readings(gold, model))[0] is None


def test_json_keys_and_values(tmp_path, bank):
    folder = make_run(tmp_path / "run", parse_layer=3)
    done = onlstm("evaluate", folder, bank, "--json", "--rule", "all")
    found = json.loads(done.out)
    assert done.code == 0
    assert {"command", "version", "argv", "seed", "seconds", "treebank", "mapping", "rows"} <= found.keys()
    assert found["treebank"].items() >= {"profile": "ptb", "split": "all", "sentences": 4, "seen_share": 25.0}.items()
    assert found["treebank"]["skipped"] == {"markup only": 1}
    keys = {"system", "run", "layer", "decoder", "rule", "subset", "f1", "precision", "recall", "ci95", "n", "depth"}
    assert all(row.keys() >= keys | {"ties", "f1_to_right", "tags"} for row in found["rows"])
    assert {row["rule"] for row in found["rows"]} == set(RULES)
    assert {row["subset"] for row in found["rows"]} == {"all", "len<=10"}
    systems = {"onlstm", "untrained", "left", "right", "balanced", "random", "oracle"}
    assert {row["system"] for row in found["rows"]} == systems
    assert found["headline"]["layer"] == 3
    assert "model folder" in found["headline"]["chosen"]
    assert found["best"]["chosen"] == "selected on test labels"
    gold, model = read_treebank(bank, profile="ptb"), LanguageModel.load(folder)
    reads = readings(gold, model)
    row = next(r for r in found["rows"] if (r["layer"], r["decoder"], r["rule"]) == (1, "paper", "kim2019"))
    assert row["n"] == 4
    plain = [r for r in reads if len(r.words) == len(r.positions)]
    trees = [Parser(model, layer=1).parse(list(r.words)).tree for r in plain]
    assert len(plain) == 3
    assert [tree.words for tree in trees] == [tuple(r.words) for r in plain]
    assert score([r.gold for r in plain], trees, "kim2019").n == 3


def test_sentences_of_unknown_words_are_not_seen(tmp_path):
    """Read as `<unk> <unk>` they may be any line of the training text."""
    folder = make_run(tmp_path / "run")
    write_corpus(folder / "corpus", "xx yy\nthe zz slept\n" + TRAINING, LanguageModel.load(folder).tokenizer)
    path = tmp_path / "spanish.mrg"
    path.write_text("( (S (NN soy) (NN marino)) )\n( (S (DT the) (NN owl) (VBD slept)) )\n")
    found = run(Request(runs=[folder], treebank=path))
    assert found.treebank.seen_share == 50


def test_layers_and_the_headline(tmp_path, bank):
    folder = make_run(tmp_path / "run")
    once = run(Request(runs=[folder], treebank=bank, layers=["2", "middle", "2"], decoder=("paper", "paper")))
    assert [row.runs for row in once.rows if row.system == "onlstm"] == [1, 1]
    one = run(Request(runs=[folder], treebank=bank, layers=["1"], gates="input"))
    assert (one.headline.layer, one.headline.chosen) == (1, "the layer that was asked for")
    assert one.gates == "input"
    assert run(Request(runs=[folder], treebank=bank, layers=["1", "3"])).headline is None
    agreed = run(Request(runs=[folder], treebank=bank, decoder=("vote",)))
    assert [row.decoder for row in agreed.rows if row.system == "onlstm"] == ["vote", "vote"]
    assert agreed.headline.layer == (1, 2, 3)


def test_punctuation_is_read_and_scored_by_the_rule_that_keeps_it(tmp_path, bank):
    found = run(Request(runs=[make_run(tmp_path / "run")], treebank=bank, rule=["punct", "on-lstm"]))
    depth = {row.rule: row.depth for row in found.rows if (row.system, row.subset) == ("left", "all")}
    assert depth["punct"] > depth["on-lstm"]
    assert found.treebank.words == 29


def test_several_runs_get_mean_and_vote(tmp_path, bank):
    runs = [make_run(tmp_path / f"run{seed}", seed) for seed in range(3)]
    found = run(Request(runs=runs, treebank=bank, decoder=("paper",)))
    rows = [row for row in found.rows if row.layer == 2 and row.subset == "all"]
    assert [(row.system, row.runs) for row in rows if row.system != "untrained"] == [
        *[("onlstm", 1)] * 3,
        ("onlstm", 3),
        ("vote", 1),
    ]
    assert rows[3].f1 == pytest.approx(sum(row.f1 for row in rows[:3]) / 3)
    assert found.headline.run is None
    assert found.headline.f1 == rows[3].f1


def test_the_headline_can_be_chosen_on_other_files(tmp_path, bank):
    other = tmp_path / "dev.mrg"
    other.write_text(TREEBANK.replace("(NN dog)", "(NN owl)").replace("Dogs", "Owls"))
    found = run(Request(runs=[make_run(tmp_path / "run")], treebank=bank, dev=other))
    assert found.headline.chosen.startswith(f"best on {other}, 2 sentences left out")
    lines = other.read_text().splitlines()
    (tmp_path / "kept.mrg").write_text("\n".join([lines[2], *lines[4:6]]))
    dev = run(Request(runs=[tmp_path / "run"], treebank=tmp_path / "kept.mrg"))
    best = max((row for row in dev.rows if row.system == "onlstm" and row.subset == "all"), key=lambda r: r.f1)
    assert (found.headline.layer, found.headline.decoder) == (best.layer, best.decoder)


def test_a_dead_model_is_not_taken_for_a_parser(tmp_path, bank):
    done = onlstm("evaluate", make_run(tmp_path / "run", spread=0), bank)
    lines = [line for line in done.out.splitlines() if line.startswith("ON-LSTM  ") and " vote " not in line]
    assert len(lines) == 6
    assert all("100.0     100.0" in line and line.endswith("ties: no parser") for line in lines)


def test_lstm_runs_parse_with_their_own_gates(tmp_path, bank):
    lstm = make_run(tmp_path / "lstm", rnn="lstm")
    found = run(Request(runs=[lstm], treebank=bank, gates="lstm"))
    assert {"lstm-gates", "untrained"} <= {row.system for row in found.rows}
    assert found.rows == run(Request(runs=[lstm], treebank=bank)).rows
    with pytest.raises(UserError, match="only for models with LSTM layers"):
        run(Request(runs=[make_run(tmp_path / "run")], treebank=bank, gates="lstm"))


def test_anybodys_trees(tmp_path, bank):
    words, trees = tmp_path / "words.txt", tmp_path / "trees.txt"
    assert onlstm("evaluate", bank, "--words", words).code == 0
    lines = words.read_text().splitlines()
    assert lines[0] == "The old cat paid 75.3 %"
    trees.write_text("".join(f"({line})\n" for line in lines))  # flat
    found = run(Request(runs=[], treebank=bank, trees=trees))
    row = next(row for row in found.rows if row.system == "trees")
    assert (row.f1, row.recall) == (0, 0)
    assert found.headline is None
    spans = [{"words": line.split(), "spans": [[0, 2]]} for line in lines]
    trees.write_text("".join(json.dumps(each) + "\n" for each in spans))
    found = run(Request(runs=[], treebank=bank, trees=trees))
    row = next(row for row in found.rows if row.system == "trees")
    assert 0 < row.recall < 100
    assert math.isfinite(row.f1)
    printed = onlstm("evaluate", bank, "--trees", trees, "--rule", "all")
    assert printed.code == 0
    assert "Rule punct is left out" in printed.err
    assert [name for name in RULES if f"Rule {name}:" in printed.out] == [name for name in RULES if name != "punct"]


def test_mistakes_get_one_line(tmp_path, bank):
    folder = make_run(tmp_path / "run")
    short = tmp_path / "short.txt"
    short.write_text("(a b)\n")
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("(a b)\n" * 4)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"words": ["a"], "spans": []}\n{"words": 3}\n')
    for arguments, message in (
        ([], "name a run folder and a treebank"),
        ([folder], "is a run folder: name the treebank after it"),
        ([folder, tmp_path / "none.zip"], "none.zip"),
        ([tmp_path / "none", bank], "none"),
        ([folder, bank, "--rule", "f1"], "--rule f1: there are on-lstm"),
        ([folder, bank, "--layers", "4"], "layer '4': there are 1, 2, 3"),
        ([folder, bank, "--split", "test"], "split test"),
        ([folder, bank, "--strict"], "bank.mrg:7: markup only"),
        ([folder, bank, "--max-len", "0"], "--max-len 0"),
        ([folder, bank, "--dev", bank], "all of its sentences are in the treebank to be scored"),
        ([folder, folder, bank], "named twice"),
        ([folder, bank, "--dev", tmp_path / "none"], "--dev"),
        ([bank, "--layers", "1"], "name a run folder before the treebank"),
        ([folder, bank, "--words", tmp_path / "none" / "x"], "--words"),
        ([bank, "--trees", short], "1 trees for 4 sentences"),
        ([bank, "--trees", wrong], "tree 1 has 2 words, but the sentence at bank.mrg:2 has 6"),
        ([bank, "--trees", broken], "broken.jsonl:2: no key 'spans' in the JSON of a tree"),
    ):
        printed = onlstm("evaluate", *arguments)
        assert message in printed.err.splitlines()[-1]
        assert (printed.code, printed.out) == (2, "")


def test_the_result_is_kept_for_the_page(tmp_path, bank):
    folder, out = make_run(tmp_path / "run"), tmp_path / "results" / "bank.json"
    (folder / "result.json").write_text(
        json.dumps({"name": "small", "numbers": {"test_perplexity": 12.5, "epochs": 3}})
    )
    out.parent.mkdir()
    done = onlstm("evaluate", folder, bank, "--rule", "all", "--out", out, "--json")
    found, kept = json.loads(done.out), json.loads(out.read_text())
    assert list(out.parent.iterdir()) == [out]
    assert (kept["kind"], kept["name"], kept["threads"], kept["seed"]) == ("parsing", "bank", 1, None)
    assert kept["command"].startswith(f"onlstm evaluate {folder} {bank} --rule all")
    assert {key: kept[key] for key in ("treebank", "mapping", "headline", "best")}.items() <= found.items()
    assert kept["runs"][0].items() >= {"path": str(folder), "name": "small", "rnn": "onlstm"}.items()
    assert kept["runs"][0]["parameters"] == sum(p.numel() for p in LanguageModel.load(folder).parameters())
    assert (kept["runs"][0]["test_perplexity"], "epochs" in kept["runs"][0]) == (12.5, False)
    keys = ("system", "run", "layer", "decoder", "rule", "n", "runs")
    every, few = (
        {str([row.get(key) for key in keys[:5]]): row for row in found["rows"] if row["subset"] == subset}
        for subset in ("all", "len<=10")
    )
    assert len(kept["rows"]) == len(every) == len(few)
    for row in kept["rows"]:
        name = str([row.get(key) for key in keys[:5]])
        assert {key: row.get(key) for key in keys} == {key: every[name][key] for key in keys}
        assert row["f1"] == pytest.approx(every[name]["f1"], abs=1e-4)
        assert row["short"]["f1"] == pytest.approx(few[name]["f1"], abs=1e-4)
        assert row["tags"].items() <= every[name]["tags"].items()
    text = report.pages(report.collect(out.parent))["parsing.md"]
    assert "Headline: ON-LSTM, layer 2, `paper`, F1" in text
    assert text.index("Rule *on-lstm*") < text.index("Rule *punct*")
    assert "Sentences in its training text: 25.0 %." in text
    for word in ("Dogs", "dogs", "mat", "dear"):
        assert not re.search(rf"\b{word}\b", out.read_text() + text)


def test_of_several_runs_the_mean_is_kept(tmp_path, bank):
    runs = [make_run(tmp_path / f"run{seed}", seed) for seed in range(3)]
    found = run(Request(runs=runs, treebank=bank, decoder=("paper",), out=tmp_path / "kept.json"))
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert [each["name"] for each in kept["runs"]] == ["run0", "run1", "run2"]
    ours = [row for row in kept["rows"] if row["system"] in ("onlstm", "vote")]
    assert {(row["system"], row["layer"], row["runs"]) for row in ours} == {
        (system, layer, count) for system, count in (("onlstm", 3), ("vote", 1)) for layer in (1, 2, 3)
    }
    assert len(ours) == 6
    mean = next(row for row in found.rows if row.runs == 3 and row.layer == 2 and row.subset == "all")
    row = next(row for row in ours if (row["system"], row["layer"]) == ("onlstm", 2))
    assert (row["f1"], row["deviation"], row["max"]) == pytest.approx((mean.f1, mean.deviation, mean.max), abs=1e-4)


def test_a_bad_out_is_refused_before_the_work(tmp_path, bank):
    for out in (tmp_path, tmp_path / "nowhere" / "bank.json", bank):
        done = onlstm("evaluate", tmp_path / "none", bank, "--out", out)
        assert (done.code, done.err.startswith(f"onlstm: --out {out}: ")) == (2, True)


@pytest.mark.data
def test_aligned_words_are_lines_of_the_language_modelling_text(shared):
    data = shared / "data"
    with lzma.open(data / "ptb-lm" / "ptb.train.txt.xz", "rt") as file:
        lines = {tuple(line.split()) for line in file}
    vocabulary = {word for line in lines for word in line}
    wide = read_treebank(data / "wsj-sample" / "wsj-sample-ldc-layout.zip", profile="ptb-wide")
    assert sum(len(tree.words) for tree in wide.trees) == 54791
    found = {
        name: sum(
            tuple(key if key in vocabulary else "<unk>" for key in map(mapping, tree.words)) in lines
            for tree in wide.trees
        )
        for name, mapping in {"aligned": aligned, "original": original}.items()
    }
    assert found["aligned"] == 2559
    assert found["original"] == 2124


@pytest.mark.parametrize("option", ["--words", "--out"])
@pytest.mark.parametrize("other", ["--trees", "--dev"])
def test_an_output_never_replaces_another_file_that_is_read(option, other, tmp_path, bank):
    trees = tmp_path / "trees.txt"
    trees.write_text("( the cat )\n")
    ended = onlstm("evaluate", bank, other, trees, option, trees)
    assert (ended.code, trees.read_text()) == (2, "( the cat )\n")
    assert f"{option} {trees}: an input of this command" in ended.err
