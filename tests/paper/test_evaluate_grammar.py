"""`onlstm evaluate` with runs of grammars: what they read, their rows, labelled scores, votes with language models."""

import json
from dataclasses import replace

import pytest

from helpers import onlstm, random_grammar, random_model
from onlstm.errors import UserError
from onlstm.paper import report
from onlstm.paper.parsing.alignment import readings
from onlstm.paper.parsing.evaluate import run
from onlstm.paper.parsing.request import Request
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees.average import votes
from onlstm.trees.calibration import calibration
from onlstm.trees.f1 import score
from onlstm.trees.labels import labelled_score, many_to_one
from onlstm.trees.restrict import restricted
from onlstm.trees.treebank import read_treebank

TREEBANK = """
( (S (NP-SBJ (DT The) (JJ old) (NN cat)) (VP (VBD paid) (NP ($ $) (CD 75.3) (NN million))) (. .)) )
( (S (NP-SBJ (NNS Dogs)) (VP (VBD saw) (NP (NP (DT the) (NN cat)) (PP (IN on) (NP (DT the) (NN mat))))) (. .)) )
( (S (NP-SBJ (DT The) (NN dog)) (VP (VBD saw) (NP (DT the) (NN mat) (PP (IN on) (NP (DT the) (JJ old) (NN mat)
  (PP (IN on) (NP (DT the) (JJ old) (NN mat))))))) (. .)) )
( (S (NP-SBJ (NNS Dogs)) (VP (VBD paid) (NP (# #) (CD 3)) (NP (DT the) (NN cat))) (. .)) )
( (FRAG (NN Mat) (. .)) )
"""
DEV = """
( (S (NP (DT The) (NN cat)) (VP (VBD saw) (NP (DT the) (JJ old) (NN dog)))) )
( (S (NP (NNS Dogs)) (VP (VBD saw) (NP (NP (DT the) (NN mat)) (PP (IN on) (NP (DT the) (NN mat)))))) )
( (S (NP-SBJ (NNS Dogs)) (VP (VBD paid) (NP (# #) (CD 3)) (NP (DT the) (NN cat))) (. .)) )
"""
WORDS = ["N", "$", "the", "old", "cat", "paid", "dog", "dogs", "saw", "on", "mat", "million"]


@pytest.fixture
def bank(tmp_path):
    (tmp_path / "bank.mrg").write_text(TREEBANK)
    (tmp_path / "dev.mrg").write_text(DEV)
    return tmp_path / "bank.mrg"


def save_grammar(folder, seed=0, words=WORDS):
    random_grammar(Tokenizer.of_words(words), seed=seed).save(folder)
    return folder


def save_model(folder, seed=0):
    random_model(Tokenizer.of_words(WORDS), seed=seed, spread=2.25, num_layers=3, chunk_size=2).save(folder)
    return folder


def expected(folder, bank, decoder="mbr"):
    """The gold trees, and the grammar's own over the same words."""
    parser = Parser.load(folder, labels=True, decoder=decoder)
    trees = []
    for reading in readings(bank, parser.model):
        tree = parser.parse(list(reading.words)).tree
        nodes = tuple(node for node in tree.nodes if node.end - node.start > 1)
        trees.append(restricted(replace(tree, nodes=nodes), reading.positions, reading.gold.words))
    return bank.trees, trees


def the_row(rows, **facts):
    (row,) = (row for row in rows if facts.items() <= vars(row).items())
    return row


@pytest.mark.parametrize(
    ("words", "first", "fourth"),
    [
        (WORDS, "the old cat paid $ N million", "dogs paid N the cat"),
        ([*WORDS, "#"], "the old cat paid $ N million", "dogs paid # N the cat"),
        ([word for word in WORDS if word != "$"], "the old cat paid N million", "dogs paid N the cat"),
    ],
)
def test_signs_are_read_only_if_they_are_known(bank, words, first, fourth):
    reads = readings(read_treebank(bank, profile="ptb"), random_grammar(Tokenizer.of_words(words)))
    assert [" ".join(reads[k].words) for k in (0, 3)] == [first, fourth]
    for reading in reads:
        assert len(reading.positions) == len(reading.gold.words)
        assert not {"$", "#"} & {reading.words[i] for i in reading.positions}


def test_rows_are_the_scores_of_the_grammars_trees(tmp_path, bank):
    folder = save_grammar(tmp_path / "run")
    evaluation = run(Request(runs=[folder], treebank=bank, rule=("on-lstm", "evalb"), decoder=("mbr", "viterbi")))
    treebank = read_treebank(bank, profile="ptb")
    for decoder in ("mbr", "viterbi"):
        gold, trees = expected(folder, treebank, decoder)
        for rule in ("on-lstm", "evalb"):
            row = the_row(evaluation.rows, system="grammar", decoder=decoder, rule=rule, subset="all")
            assert (row.layer, row.run, row.ties, row.n) == (None, str(folder), None, 5)
            assert row.f1 == pytest.approx(score(gold, trees, rule).f1)
            assert row.confidence == calibration(gold, trees)
            assert (row.labelled_f1, row.label_accuracy) == (None, None)
    chosen = evaluation.headline
    assert (chosen.system, chosen.layer, chosen.decoder) == ("grammar", None, "mbr")
    assert "untrained" not in {row.system for row in evaluation.rows}
    assert evaluation.treebank.unk_share == 0


def test_labels_are_named_on_another_treebank(tmp_path, bank):
    folder = save_grammar(tmp_path / "run")
    evaluation = run(Request(runs=[folder], treebank=bank, dev=tmp_path / "dev.mrg", rule=("on-lstm", "evalb-onlstm")))
    several = run(Request(runs=[folder], treebank=bank, dev=tmp_path / "dev.mrg", decoder=("mbr", "viterbi")))
    assert "dev.mrg, 1 sentences left out" in several.headline.chosen
    gold, trees = expected(folder, read_treebank(bank, profile="ptb"))
    dev = expected(folder, read_treebank(tmp_path / "dev.mrg", profile="ptb"))
    new = [part[:2] for part in dev]  # the third sentence is to be scored
    meaning = many_to_one(*new, "evalb-onlstm") | many_to_one(*new)
    assert len(set(meaning.values())) > 1
    for rule in ("on-lstm", "evalb-onlstm"):
        row = the_row(evaluation.rows, system="grammar", rule=rule, subset="all")
        f1, accuracy = labelled_score(gold, trees, meaning, rule)
        assert (row.labelled_f1, row.label_accuracy) == (pytest.approx(f1), pytest.approx(accuracy))
        assert 0 < f1 <= row.f1
    assert evaluation.headline.chosen == "a grammar has no layers to choose from"
    assert the_row(evaluation.rows, system="left", rule="on-lstm", subset="all").labelled_f1 is None


def test_grammars_and_language_models_vote(tmp_path, bank):
    grammars = [save_grammar(tmp_path / f"g{seed}", seed) for seed in range(2)]
    network = save_model(tmp_path / "lm")
    evaluation = run(Request(runs=[*grammars, network], treebank=bank, dev=tmp_path / "dev.mrg", decoder=("unbiased",)))
    systems = {row.system for row in evaluation.rows}
    assert {"grammar", "onlstm", "vote", "untrained", "right"} <= systems
    mean = the_row(evaluation.rows, system="grammar", run=None, subset="all")
    ones = [the_row(evaluation.rows, system="grammar", run=str(path), subset="all") for path in grammars]
    for name in ("f1", "labelled_f1", "label_accuracy"):
        assert getattr(mean, name) == pytest.approx(sum(getattr(row, name) for row in ones) / 2)
    assert mean.confidence.gap == pytest.approx(sum(row.confidence.gap for row in ones) / 2)
    treebank = read_treebank(bank, profile="ptb")
    gold, first = expected(grammars[0], treebank)
    _, second = expected(grammars[1], treebank)
    assert the_row(evaluation.rows, run="2 grammar", subset="all").f1 == pytest.approx(
        score(gold, votes([first, second])).f1
    )
    parser = Parser.load(network, decoder="unbiased")
    third = [parser.diagram(list(r.words), r.gold, r.positions).tree for r in readings(treebank, parser.model)]
    both = the_row(evaluation.rows, run="3 runs", subset="all")
    assert (both.system, both.layer, both.decoder) == ("vote", None, "vote")
    assert both.f1 == pytest.approx(score(gold, votes([first, second, third])).f1)
    assert both.confidence


def test_the_command_prints_saves_and_reports(tmp_path, bank):
    folder, saved = save_grammar(tmp_path / "run"), tmp_path / "results" / "grammar.json"
    saved.parent.mkdir()
    done = onlstm("evaluate", folder, bank, "--dev", tmp_path / "dev.mrg", "--out", saved)
    assert done.code == 0, done.err
    assert "Headline: grammar, mbr, F1" in done.out
    assert "labelled F1: " in done.out
    assert "precision of spans: " in done.out
    record = json.loads(onlstm("evaluate", folder, bank, "--json").out)
    row = next(row for row in record["rows"] if row["system"] == "grammar")
    assert (row["layer"], row["decoder"], row["labelled_f1"], row["label_accuracy"]) == (None, "mbr", None, None)
    assert row["confidence"].keys() == {"upper", "lower", "gap"}
    assert next(row for row in record["rows"] if row["system"] == "right")["confidence"] is None
    (result,) = json.loads(saved.read_text())["runs"]
    assert (result["rnn"], result["sizes"]) == ("grammar", [5, 7])
    page = report.pages(report.collect(saved.parent))["parsing.md"]
    assert "grammar 5→7" in page
    assert "Headline: grammar, `mbr`, F1" in page


@pytest.mark.parametrize("option", [{"layers": ("2",)}, {"gates": "forget"}])
def test_options_of_language_models_are_refused(tmp_path, bank, option):
    folder = save_grammar(tmp_path / "run")
    with pytest.raises(UserError, match=rf"^--layers and --gates: {folder} is a grammar, which has neither$"):
        run(Request(runs=[folder], treebank=bank, **option))
