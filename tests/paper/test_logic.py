"""The experiment on logic: exact resume, learning, jobs in a run folder, other files, predictions, the figure."""

import json
import re
import signal
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from onlstm import folder as store
from onlstm.errors import UserError
from onlstm.kernels import build as kernel
from onlstm.paper.logic import experiment, figure, formulas, trained
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import ModelConfig, Request, Source, TrainConfig
from onlstm.paper.logic.data import Data
from onlstm.paper.logic.encoders import ENCODERS, build
from onlstm.paper.logic.experiment import run
from onlstm.paper.logic.formulas import VOCABULARY, Pair
from onlstm.paper.logic.generate import generate
from onlstm.paper.logic.training import ClassifierTraining
from onlstm.train import checkpoint
from onlstm.train.fit import Stop, fit, restore, step

SMALL = {"embedding_size": 8, "hidden_size": 12, "chunk_size": 4}
COUNTS = {0: 8, 1: 20, 2: 30, 4: 40, 6: 40, 9: 10}
PAIRS = [pair for n, pairs in generate(1500, seed=3).items() for pair in pairs[: COUNTS.get(n, 0)]]


def settings_of(**more):
    return TrainConfig(**{"epochs": 3, "batch_size": 16, "lr": 5e-3, "log_steps": 3} | more)


def training(folder, encoder="onlstm", **more):
    torch.manual_seed(5)
    made = Classifier(ModelConfig(encoder=encoder, **SMALL))
    folder.mkdir(exist_ok=True)
    parts = Problems.of(PAIRS[::2]), Problems.of(PAIRS[1::2])
    return ClassifierTraining(made, *parts, settings_of(**more), folder, seed=1)


def test_every_pair_is_seen_once_an_epoch_and_orders_differ(tmp_path):
    made = training(tmp_path)
    first = [rows.tolist() for rows in made._order]
    assert sorted(row for rows in first for row in rows) == list(range(len(PAIRS[::2])))
    made.progress.epoch = 1
    assert [rows.tolist() for rows in made._batches()] != first


@pytest.mark.parametrize(
    ("growing", "limits"), [(0, [9, 9]), (1, [2, 9]), (3, [2, 4, 6, 9]), (8, [2, 2, 3, 4, 5, 6, 7, 8, 9])]
)
def test_pairs_grow_with_the_epochs(tmp_path, growing, limits):
    made = training(tmp_path, growing_epochs=growing)
    for epoch, limit in enumerate(limits):
        made.progress.epoch = epoch
        made._begin_epoch()
        rows = sorted(row for batch in made._order for row in batch.tolist())
        assert rows == [row for row, pair in enumerate(PAIRS[::2]) if pair.length <= limit]
        assert made.length == made.end == len(made._order)


def test_the_shortest_pairs_come_first_if_all_are_long(tmp_path):
    made = training(tmp_path)
    longer = Problems.of([pair for pair in PAIRS if pair.length > 3])
    made = ClassifierTraining(made.model, longer, longer, settings_of(growing_epochs=2), tmp_path)
    assert {longer.operators[row] for batch in made._order for row in batch} == {4}


def test_renamed_batches_keep_their_relations(tmp_path):
    made = training(tmp_path, rename=True)
    batch, seen = made._train.batch(made._order[0]), set()
    for cursor in range(4):
        made.progress.cursor = cursor
        texts = [" ".join(VOCABULARY[k] for k in ids) for ids in made._renamed(batch.formulas)]
        seen.add(tuple(texts))
        for left, right, label in zip(*batch.sides, batch.labels, strict=True):
            assert Pair("", texts[left], texts[right]).truth == formulas.RELATIONS[label]
    assert len(seen) == 4


def ending(folder):
    log = [json.loads(line) for line in (folder / checkpoint.LOG).read_text().splitlines()]
    for record in log:
        record.pop("seconds")
    content = checkpoint.load(folder)
    state = [value for each in content["optimizer"]["state"].values() for value in each.values()]
    return (folder / store.WEIGHTS).read_bytes(), log, [*content["model"].values(), *state, content["random"]]


RUNS = [("onlstm", {"rename": True}), ("tree-lstm", {"average_epochs": 2}), ("rrnet", {"growing_epochs": 2})]
if kernel.has_bfloat16():
    RUNS += [("lstm", {"precision": "bfloat16"}), ("rl-spinn", {"precision": "bfloat16"})]


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: run[0])
def whole(request, tmp_path_factory):
    """An encoder, settings, and how a run of them ends that was not stopped."""
    (encoder, more), folder = request.param, tmp_path_factory.mktemp("whole") / "run"
    assert fit(training(folder, encoder, **more))
    return encoder, more, ending(folder)


@pytest.mark.parametrize("stop_at", [1, 4, 5, 9])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path, whole, stop_at):
    encoder, more, end = whole
    first, stop = training(tmp_path / "cut", encoder, **more), Stop()

    def listen(record):
        stop.requested = record.event != "epoch" and record.step == stop_at

    assert not fit(first, [listen], stop=stop)
    if first.progress.cursor < len(first._order):
        step(first)  # what is not in the checkpoint is as if it had not been
    checkpoint.append_log(tmp_path / "cut", {"event": "lost", "seconds": 0})
    torch.rand(7)
    second = training(tmp_path / "cut", encoder, **more)
    restore(second, checkpoint.load(tmp_path / "cut"))
    assert second.progress.step == stop_at
    assert fit(second)
    cut = ending(tmp_path / "cut")
    assert end[:2] == cut[:2]
    assert all(torch.equal(a, b) for a, b in zip(end[2], cut[2], strict=True))


def test_the_mean_of_the_last_epochs_is_validated_and_kept(tmp_path):
    made, ends, said = training(tmp_path, epochs=3, average_epochs=2), [], []

    def listen(record):
        if record.event == "epoch":
            ends.append({name: value.clone() for name, value in made.model.state_dict().items()})
            said.append(record.numbers["valid_accuracy"])

    fit(made, [listen])
    best = made.progress.best_epoch
    assert best > 1, "the first epoch's mean is its own weights"
    kept = load_file(tmp_path / store.WEIGHTS)
    for name, value in kept.items():
        torch.testing.assert_close(value, (ends[best - 1][name] + ends[best - 2][name]) / 2, rtol=0, atol=1e-7)
    made.model.load_state_dict(kept)
    assert said[best - 1] == 100 * made.model.right(made._valid).mean()


def test_plateaus_halve_the_learning_rate_and_the_best_weights_are_kept(tmp_path):
    made = training(tmp_path)
    saved, factors = [], []
    for accuracy in (50.0, 60.0, 60.0, 59.0, 58.0, 58.0, 58.0, 58.0, 61.0):
        made.progress.epoch += 1
        made._react(accuracy)
        saved.append(made.progress.best_epoch)
        factors.append(made.progress.lr_factor)
    assert saved == [1, 2, 2, 2, 2, 2, 2, 2, 9]
    assert factors == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle"])
def test_decaying_schedules_end_near_zero(tmp_path, schedule):
    rates = []
    fit(training(tmp_path, schedule=schedule, warmup=0.1), [lambda record: rates.append(record.numbers["lr"])])
    assert max(rates) <= 5e-3
    assert rates[-2] < 0.05 * max(rates)


MODEL = {"hidden_size": 40, "embedding_size": 16, "dropout": 0.0}
TRAIN = {"epochs": 10, "batch_size": 16, "lr": 1e-2, "schedule": "one-cycle"}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A run on all pairs of the short formulas over two variables, to be learnt by heart."""
    folder = tmp_path_factory.mktemp("logic")
    short = ["a", "b", "( not a )", "( not b )"]
    short += [f"( {x} ( {word} {y} ) )" for x, y in ("ab", "ba") for word in ("and", "or")]
    lines = ["\t".join([Pair("", x, y).truth, x, y]) for x in short for y in short]
    (folder / "train1").write_text("\n".join(lines * 8))
    (folder / "test1").write_text("\n".join(lines))
    out = folder / "run"
    about = {"encoder": ("onlstm", "tree-lstm"), "seeds": 2, "data": folder, "command": "onlstm logic …"}
    request = Request(out=out, max_train_ops=2, model=ModelConfig(**MODEL), train=TrainConfig(**TRAIN), **about)
    return out, run(request)


def test_small_runs_learn(learnt):
    _, found = learnt
    (majority,) = found.encoders["majority"]
    assert majority.by_length["1"] < 40
    for name in ("onlstm", "tree-lstm"):
        rows = found.encoders[name]
        assert [row.seed for row in rows] == [0, 1]
        for row in rows:
            assert row.by_length["1"] > 80
            assert row.by_length["2"] is None
            assert row.n == majority.n == row.counts["1"]
            assert row.command == "onlstm logic …"
            assert row.settings == MODEL | TRAIN


def test_the_majority_is_that_of_the_training_pairs():
    data = Data.load(Source(pairs=2000, max_train_ops=3))
    row = data.majority()
    counts = Counter(pair.relation for pair in data.train)
    assert counts[row.relation] == max(counts.values())
    short = [pair for pair in data.test if pair.length == 2]
    assert row.by_length["2"] == pytest.approx(100 * np.mean([pair.relation == row.relation for pair in short]))
    assert max(pair.length for pair in data.train) == 3 < max(pair.length for pair in data.test)
    assert not {*data.train} & {*data.valid}
    assert not {*data.train, *data.valid} & {*data.test}


def test_resume_keeps_what_is_done(learnt):
    out, found = learnt
    before = (out / "onlstm-0" / "result.json").read_bytes()
    again = run(Request(out=out, resume=True))
    assert again == found
    assert (out / "onlstm-0" / "result.json").read_bytes() == before
    with pytest.raises(UserError, match=r"onlstm-0: model\.hidden_size was 40, not 50"):
        run(Request(out=out, resume=True, model=ModelConfig(hidden_size=50)))
    with pytest.raises(UserError, match=r"onlstm-0: model\.dropout was 0.0, not 0.2"):  # the default
        run(Request(out=out, resume=True, typed=frozenset(["model.dropout"])))
    with pytest.raises(UserError, match="onlstm-0: there is a run already: continue it with --resume"):
        run(Request(out=out, pairs=600, encoder=("onlstm",), seeds=1))


def test_a_signal_ends_it_and_resume_comes_to_the_same_end(tmp_path):
    options = {
        "encoder": ("lstm",),
        "seeds": 1,
        "seed": 3,
        "pairs": 500,
        "model": ModelConfig(hidden_size=8, chunk_size=2),
        "train": TrainConfig(epochs=2, batch_size=8),
        "command": "onlstm logic …",
    }

    def interrupt(record):
        if record.step == 5:
            signal.raise_signal(signal.SIGTERM)

    whole = run(Request(out=tmp_path / "whole", **options))
    ended = run(Request(out=tmp_path / "cut", **options), listeners=lambda number, count: [interrupt])
    assert ended == signal.SIGTERM
    assert not (tmp_path / "cut" / "result.json").exists()
    found = run(Request(out=tmp_path / "cut", resume=True, command="onlstm logic --resume"))
    assert found.encoders["lstm"][0].command == "onlstm logic …"  # that with the settings
    assert found.encoders["lstm"][0].by_length == whole.encoders["lstm"][0].by_length
    assert ending(tmp_path / "whole" / "lstm-3")[:2] == ending(tmp_path / "cut" / "lstm-3")[:2]


def test_other_data_is_not_resumed(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    lines = ["\t".join(pair) for pair in PAIRS]
    (data / "train6").write_text("\n".join(lines))
    (data / "test6").write_text("\n".join(lines))
    quick = {"data": data, "model": ModelConfig(hidden_size=8, chunk_size=2), "epochs": 1}
    out = tmp_path / "run"
    run(Request(out=out, encoder=("onlstm",), seeds=1, **quick))
    (data / "train6").write_text("\n".join(lines[::-1]))
    with pytest.raises(UserError, match="no longer those it was trained on"):
        run(Request(out=out, resume=True, epochs=2))


def test_other_names_of_variables_change_nothing(learnt, tmp_path):
    out, _ = learnt
    lines = ["\t".join(pair) for pair in PAIRS]
    (tmp_path / "plain").write_text("\n".join(lines))
    order = list(dict.fromkeys(word for pair in PAIRS for side in pair[1:] for word in side.split() if len(word) == 1))
    names = dict(zip((w for w in order if w not in "()"), "abcdef", strict=True))
    back = {new: f"{old}x" for old, new in names.items()}

    def other(side):
        return " ".join(back.get(names.get(word, word), word) for word in side.split())

    (tmp_path / "other").write_text("\n".join("\t".join([p.relation, other(p.left), other(p.right)]) for p in PAIRS))
    said = []
    found = trained.evaluate(out, [tmp_path / "other"], say=said.append)
    assert "renamed" in said[0]
    renamed = [Pair(p.relation, *(" ".join(names.get(w, w) for w in s.split()) for s in p[1:])) for p in PAIRS]
    (tmp_path / "same").write_text("\n".join("\t".join(pair) for pair in renamed))
    assert found.encoders == trained.evaluate(out, [tmp_path / "same"]).encoders
    assert found.wrong_labels == 0


def test_other_files_are_read_with_the_variables_of_the_training(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    letters = dict(zip("abcdef", "uvwxyz", strict=True))
    lines = ["\t".join([p.relation, *(" ".join(letters.get(w, w) for w in s.split()) for s in p[1:])]) for p in PAIRS]
    for name in ("train1", "test1"):
        (data / name).write_text("\n".join(lines))
    out = tmp_path / "run"
    small = ModelConfig(hidden_size=8, chunk_size=2)
    run(Request(out=out, encoder=("onlstm",), seeds=1, data=data, model=small, epochs=1, max_train_ops=12))
    names = experiment.Job.read(out / "onlstm-0").variables
    assert set(names) == set("uvwxyz")
    (tmp_path / "last").write_text("\n".join(lines[::-1]))
    (tmp_path / "first").write_text("\n".join(lines))
    first, last = (trained.evaluate(out, [tmp_path / name]) for name in ("first", "last"))
    assert first.renamed == last.renamed == names
    assert first.encoders == last.encoders
    told = trained.predict(out, "( z ( and x ) )", "x")
    assert told.renamed == {"z": names["z"], "x": names["x"]}


def test_predictions_are_the_models(learnt):
    out, _ = learnt
    found = trained.predict(out, "(a (and b))", "b", ["onlstm"])
    best = max((out / "onlstm-0", out / "onlstm-1"), key=lambda folder: experiment.result(folder).valid)
    assert found.run == str(best)
    made = experiment.load_model(best)
    shares = made.logits(Problems.of([Pair("<", "( a ( and b ) )", "b")])).softmax(-1)[0]
    assert found.probability == pytest.approx(float(shares.max()), rel=1e-5)
    assert found.relation == formulas.RELATIONS[shares.argmax()]
    assert (found.truth, found.truth_name) == ("<", "forward entailment")


OWN = """
import torch

class Mean(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.size = config.hidden_size
        self.embedding = torch.nn.Embedding(config.vocab_size, self.size)

    def forward(self, formulas):
        return torch.stack([self.embedding(ids).mean(0) for ids in formulas])

def nothing(config):
    return None
"""


def test_anybodys_encoder_joins_the_table(tmp_path, monkeypatch):
    (tmp_path / "own_encoder.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *sys.path])
    request = Request(
        out=tmp_path / "run",
        encoder=("own_encoder:Mean", "majority"),
        seeds=1,
        pairs=800,
        model=ModelConfig(hidden_size=8),
        epochs=1,
    )
    found = run(request)
    assert list(found.encoders) == ["own_encoder:Mean", "majority"]
    assert (tmp_path / "run" / "own_encoder.Mean-0" / "model.safetensors").exists()
    assert "own_encoder:Mean" in figure.svg(found)
    with pytest.raises(UserError, match="own_encoder:Mean is code outside it; if you trust it, name it"):
        trained.predict(tmp_path / "run", "a", "( not a )")
    assert trained.predict(tmp_path / "run", "a", "( not a )", ["own_encoder:Mean"]).truth
    for name, message in {
        "own_encoder:nothing": "name a torch.nn.Module of your own",
        "own_encoder:Absent": "has no attribute 'Absent'",
        "absent_module:Mean": "No module named 'absent_module'",
        "onltsm": "did you mean onlstm?",
    }.items():
        with pytest.raises(UserError, match=message):
            build(ModelConfig(encoder=name))


def test_the_figure_has_bands_a_boundary_and_the_published(learnt):
    _, found = learnt
    picture = figure.svg(found)
    assert picture.count("<polygon") == 2  # of two encoders with two seeds
    assert "trained on at most 2" in picture
    every = figure.svg(replace(found, encoders=dict.fromkeys(ENCODERS, found.encoders["onlstm"])))
    assert every.count("<polygon") == len(ENCODERS)
    for name in ("Ordered Memory", "Gumbel Tree-LSTM", "RRNet", "RL-SPINN"):
        assert f">{name}</text>" in every
    names = re.findall(r">(ours|published|ON-LSTM|LSTM|RRNet|Tree-LSTM|Logical inference[^<]*)</text>", picture)
    assert names[0] == "Logical inference: accuracy by length"
    assert (names.index("ours"), names.count("ON-LSTM"), names[names.index("published") + 1]) == (1, 2, "ON-LSTM")
    assert "Tree-LSTM" in names, "named as ours"
    assert found.published["ON-LSTM"] == {"7": 91, "8": 87, "9": 85, "10": 81, "11": 78, "12": 75}
