"""Classifiers of formula pairs: batches against one pair at a time, a recursive Tree-LSTM, exact resume, learning."""

import json
import signal
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.lm import folder as store
from onlstm.paper.logic import classifier, encoders, evaluation, experiment, figure, formulas
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.data import Data, Source, majority
from onlstm.paper.logic.encoders import ENCODERS, ModelConfig, build
from onlstm.paper.logic.formulas import VOCABULARY, Pair
from onlstm.paper.logic.generate import generate
from onlstm.paper.logic.training import ClassifierTraining, TrainConfig
from onlstm.train import checkpoint
from onlstm.train.fit import Stop, fit, restore, step

SMALL = {"embedding_size": 8, "hidden_size": 12, "chunk_size": 4}
PAIRS = [pair for some in generate({0: 8, 1: 20, 2: 30, 4: 40, 6: 40, 9: 10}, seed=3).values() for pair in some]


def ids(text):
    return torch.tensor([VOCABULARY.index(token) for token in text.split()])


def model(encoder, dtype=torch.float64, **more):
    torch.manual_seed(0)
    found = Classifier(ModelConfig(encoder=encoder, **SMALL | more)).to(dtype)
    with torch.no_grad():
        for p in found.parameters():
            p.uniform_(-0.7, 0.7)
    return found.eval()


def settings_of(**more):
    return TrainConfig(**{"epochs": 3, "batch_size": 16, "lr": 5e-3, "log_steps": 3} | more)


def training(folder, encoder="onlstm", **more):
    torch.manual_seed(5)
    made = Classifier(ModelConfig(encoder=encoder, **SMALL))
    folder.mkdir(exist_ok=True)
    parts = Problems.of(PAIRS[::2]), Problems.of(PAIRS[1::2])
    return ClassifierTraining(made, *parts, settings_of(**more), folder, seed=1)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("more", [{}, {"num_layers": 2}])
def test_batches_give_what_single_pairs_give(encoder, more):
    made, problems = model(encoder, **more), Problems.of(PAIRS)
    together = made(problems.batch(np.arange(len(problems))))
    alone = torch.cat([made(problems.batch(np.array([k]))) for k in range(len(problems))])
    assert (together - alone).abs().max() < 1e-10
    assert (made.logits(problems) - alone).abs().max() < 1e-10
    assert together.std(0).min() > 1e-3, "all logits alike prove nothing"


@pytest.mark.parametrize(
    "config",
    [
        {"encoder": "onlstm"},
        {"encoder": "onlstm", "num_layers": 3, "free_last_chunk": True},
        {"encoder": "lstm"},
        {"encoder": "lstm", "hidden_size": 7, "num_layers": 2},
    ],
)
def test_states_and_gradients_are_those_of_the_layer_alone(config):
    """The oracles know nothing of packed rows, shared beginnings or open master gates: `nn.LSTM`, the eager cell."""
    made = build(ModelConfig(**SMALL | config)).double().eval()
    texts = sorted({pair.left for pair in PAIRS[::6]}, key=lambda text: -len(text.split()))
    weights = torch.randn(len(texts), made.size, dtype=torch.float64)

    def gradients(states):
        made.zero_grad()
        (states * weights).sum().backward()
        return [p.grad for p in made.parameters()]

    found = made([ids(text) for text in texts])
    shared = gradients(found)
    made.rnn.backend = "eager"
    alone = torch.stack([made.rnn(made.embedding(ids(text))[:, None])[0][-1, 0] for text in texts])
    torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)
    torch.testing.assert_close(shared, gradients(alone), rtol=1e-9, atol=1e-10)


def test_an_lstm_of_the_papers_size_is_torchs_in_single_precision():
    made = build(ModelConfig(encoder="lstm")).eval()
    texts = ["( ( not a ) ( or ( b ( and ( not c ) ) ) ) )", "( not a )", "f"]
    found = made([ids(text) for text in texts])
    alone = torch.stack([made.rnn(made.embedding(ids(text)))[0][-1] for text in texts])
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-6)


def test_a_pass_has_one_drop_connect_mask():
    made = build(ModelConfig(**SMALL, dropout=0.0, weight_dropout=0.5))
    words = ids("( ( not a ) ( or ( b ( and ( not c ) ) ) ) )")
    torch.manual_seed(3)
    found = made([words])[0]
    torch.manual_seed(3)
    torch.testing.assert_close(found, made.rnn(made.embedding(words))[0][-1])


@settings(deadline=None)
@given(st.lists(st.sampled_from([pair.left for pair in PAIRS]), min_size=1, unique=True))
def test_parts_hold_every_formula_and_equal_beginnings_once(texts):
    texts = [text.split() for text in sorted(texts, key=lambda text: -len(text.split()))]
    parts, places = encoders._parts([ids(" ".join(text)) for text in texts])
    ends = []
    before = [[]]
    for part in parts:
        before = [list(before[k]) for k in part.parents]
        tokens = iter(part.tokens.tolist())
        for size in part.sizes.tolist():
            for text in before[:size]:
                text.append(VOCABULARY[next(tokens)])
        assert next(tokens, None) is None
        ends += before
    assert [ends[k] for k in places] == texts
    assert len({tuple(text) for text in ends}) == len(ends)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_gradients_of_a_batch_are_the_mean_of_those_of_its_pairs(encoder):
    made, problems = model(encoder), Problems.of(PAIRS)

    def gradients(batches):
        made.zero_grad()
        for rows in batches:
            batch = problems.batch(rows)
            torch.nn.functional.cross_entropy(made(batch), batch.labels, reduction="sum").backward()
        return [p.grad.clone() for p in made.parameters()]

    rows = np.arange(len(problems))
    for whole, single in zip(gradients([rows]), gradients(rows[:, None]), strict=True):
        torch.testing.assert_close(whole, single, rtol=1e-9, atol=1e-9)


def tree_states(made, tokens):
    """Return h and c of the formula at the front of `tokens`, node by node."""
    token = tokens.pop(0)
    if token != "(":
        i, o, u = made.leaf(made.embedding(ids(token))[0]).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c
    (h_l, c_l), (h_r, c_r) = tree_states(made, tokens), tree_states(made, tokens)
    assert tokens.pop(0) == ")"
    i, f_l, f_r, o, u = made.compose(torch.cat([h_l, h_r])).chunk(5)
    c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f_l + 1) * c_l + torch.sigmoid(f_r + 1) * c_r
    return torch.sigmoid(o) * torch.tanh(c), c


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, len(PAIRS) - 1), min_size=1, max_size=12))
def test_the_tree_lstm_is_the_recursive_one(rows):
    made = model("tree-lstm").encoder
    texts = [pair.right for pair in (PAIRS[k] for k in rows)]
    found = made([ids(text) for text in texts])
    expected = torch.stack([tree_states(made, text.split())[0] for text in texts])
    assert (found - expected).abs().max() < 1e-12


def test_dropout_is_torchs_in_distribution():
    ours, x = encoders.Dropout(0.2), torch.rand(400, 500) + 1
    torch.manual_seed(0)
    found = ours(x)
    assert (found == 0).double().mean() == pytest.approx(0.2, abs=0.005)
    torch.testing.assert_close(found[found > 0], (x / 0.8)[found > 0])
    assert ours(x).eq(found).float().mean() < 0.8, "a new mask each time"
    assert torch.equal(ours.eval()(x), x)
    assert torch.equal(encoders.Dropout(0.0)(x), x)


def test_equal_nodes_of_trees_are_one_but_not_within_a_formula():
    levels, roots = encoders._levels([ids(text) for text in ("( a ( and a ) )", "( a ( and b ) )", "( a ( and a ) )")])
    assert [len(level.inner) for level in levels] == [2, 2, 0]
    assert [[VOCABULARY[token] for token, _ in level.leaves] for level in levels] == [[], ["a"], ["and", "a", "b"]]
    assert [nth for level in levels for _, nth in level.leaves] == [0, 0, 1, 0]
    assert roots == [0, 1, 0]


def test_formulas_are_encoded_once_and_longest_first():
    pairs = [Pair("#", "a", "( not b )"), Pair("#", "( not b )", "a"), Pair("=", "a", "a")]
    batch = Problems.of(pairs).batch(np.array([2, 0, 1]))
    assert [len(each) for each in batch.formulas] == [4, 1]
    assert batch.sides.tolist() == [[1, 1, 0], [1, 0, 1]]
    assert [formulas.RELATIONS[k] for k in batch.labels] == ["=", "#", "#"]


def test_every_pair_is_seen_once_an_epoch_and_orders_differ(tmp_path):
    run = training(tmp_path)
    first = [rows.tolist() for rows in run._order]
    assert sorted(row for rows in first for row in rows) == list(range(len(PAIRS[::2])))
    run.progress.epoch = 1
    assert [rows.tolist() for rows in run._batches()] != first


def test_renamed_batches_keep_their_relations(tmp_path):
    run = training(tmp_path, rename=True)
    batch, seen = run._train.batch(run._order[0]), set()
    for cursor in range(4):
        run.progress.cursor = cursor
        texts = [" ".join(VOCABULARY[k] for k in each) for each in run._renamed(batch.formulas)]
        seen.add(tuple(texts))
        for left, right, label in zip(*batch.sides, batch.labels, strict=True):
            assert formulas.relation(texts[left], texts[right]) == formulas.RELATIONS[label]
    assert len(seen) == 4


def ending(folder):
    log = [json.loads(line) for line in (folder / checkpoint.LOG).read_text().splitlines()]
    for record in log:
        record.pop("seconds")
    content = checkpoint.load(folder)
    state = [value for each in content["optimizer"]["state"].values() for value in each.values()]
    return (folder / store.WEIGHTS).read_bytes(), log, [*content["model"].values(), *state, content["random"]]


@pytest.mark.parametrize("encoder", ["onlstm", "tree-lstm"])
@pytest.mark.parametrize("stop_at", [1, 4, 5, 9])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path, encoder, stop_at):
    more = {"rename": encoder == "onlstm"}
    assert fit(training(tmp_path / "whole", encoder, **more))
    first, stop = training(tmp_path / "cut", encoder, **more), Stop()

    def listen(record):
        stop.requested = record["event"] != "epoch" and record["step"] == stop_at

    assert not fit(first, [listen], stop=stop)
    if first.progress.cursor < len(first._order):
        step(first)  # what is not in the checkpoint is as if it had not been
    checkpoint.append_log(tmp_path / "cut", {"event": "lost", "seconds": 0})
    torch.rand(7)
    second = training(tmp_path / "cut", encoder, **more)
    restore(second, checkpoint.load(tmp_path / "cut"))
    assert second.progress.step == stop_at
    assert fit(second)
    whole, cut = ending(tmp_path / "whole"), ending(tmp_path / "cut")
    assert whole[:2] == cut[:2]
    assert all(torch.equal(a, b) for a, b in zip(whole[2], cut[2], strict=True))


def test_plateaus_halve_the_learning_rate_and_the_best_weights_are_kept(tmp_path):
    run = training(tmp_path)
    saved, factors = [], []
    for accuracy in (50.0, 60.0, 60.0, 59.0, 58.0, 58.0, 58.0, 58.0, 61.0):
        run.progress.epoch += 1
        run._react(accuracy)
        saved.append(run.progress.best_epoch)
        factors.append(run.progress.lr_factor)
    assert saved == [1, 2, 2, 2, 2, 2, 2, 2, 9]
    assert factors == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle"])
def test_decaying_schedules_end_near_zero(tmp_path, schedule):
    rates = []
    fit(training(tmp_path, schedule=schedule, warmup=0.1), [lambda record: rates.append(record["lr"])])
    assert max(rates) <= 5e-3
    assert rates[-2] < 0.05 * max(rates)


SETTINGS = {
    "model": {"hidden_size": 40, "embedding_size": 16, "dropout": 0.0},
    "train": {"epochs": 10, "batch_size": 16, "lr": 1e-2, "schedule": "one-cycle"},
}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A run on all pairs of the short formulas over two variables, to be learnt by heart."""
    folder = tmp_path_factory.mktemp("logic")
    short = ["a", "b", "( not a )", "( not b )"]
    short += [f"( {x} ( {word} {y} ) )" for x, y in ("ab", "ba") for word in ("and", "or")]
    lines = ["\t".join([formulas.relation(x, y), x, y]) for x in short for y in short]
    (folder / "train1").write_text("\n".join(lines * 8))
    (folder / "test1").write_text("\n".join(lines))
    out = folder / "run"
    found = experiment.run(
        experiment.Request(
            out=out,
            encoders=["onlstm", "tree-lstm"],
            seeds=[0, 1],
            source={"path": str(folder), "max_train_ops": 2},
            settings=SETTINGS,
            command="onlstm logic …",
        )
    )
    return out, found


def test_small_runs_learn(learnt):
    _, found = learnt
    (common,) = found["encoders"]["majority"]
    assert common["by_length"]["1"] < 40
    for name in ("onlstm", "tree-lstm"):
        rows = found["encoders"][name]
        assert [row["seed"] for row in rows] == [0, 1]
        for row in rows:
            assert row["by_length"]["1"] > 80
            assert row["by_length"]["2"] is None
            assert row["n"] == common["n"] == row["counts"]["1"]
            assert row["command"] == "onlstm logic …"
            assert row["settings"] == {**SETTINGS["model"], **SETTINGS["train"]}


def test_the_majority_is_that_of_the_training_pairs():
    data = Data.load(Source(pairs=2000, max_train_ops=3))
    row = majority(data)
    counts = Counter(pair.relation for pair in data.train)
    assert counts[row["relation"]] == max(counts.values())
    short = [pair for pair in data.test if formulas.length(pair) == 2]
    assert row["by_length"]["2"] == pytest.approx(100 * np.mean([pair.relation == row["relation"] for pair in short]))
    assert max(formulas.length(pair) for pair in data.train) == 3 < max(formulas.length(pair) for pair in data.test)
    assert not {*data.train} & {*data.valid}
    assert not {*data.train, *data.valid} & {*data.test}


def test_resume_keeps_what_is_done(learnt):
    out, found = learnt
    before = (out / "onlstm-0" / "result.json").read_bytes()
    again = experiment.run(experiment.Request(out=out, resume=True))
    assert again["encoders"] == found["encoders"]
    assert (out / "onlstm-0" / "result.json").read_bytes() == before
    with pytest.raises(UserError, match=r"onlstm-0: model\.hidden_size was 40, not 50"):
        experiment.run(experiment.Request(out=out, resume=True, settings={"model": {"hidden_size": 50}}))
    with pytest.raises(UserError, match="onlstm-0: there is a run already: go on with --resume"):
        experiment.run(experiment.Request(out=out, source={"pairs": 600}, encoders=["onlstm"], seeds=[0]))


def test_a_signal_ends_it_and_resume_comes_to_the_same_end(tmp_path):
    options = {
        "encoders": ["lstm"],
        "seeds": [3],
        "source": {"pairs": 500},
        "settings": {"model": {"hidden_size": 8}, "train": {"epochs": 2, "batch_size": 8}},
        "command": "onlstm logic …",
    }

    def interrupt(record):
        if record["step"] == 5:
            signal.raise_signal(signal.SIGTERM)

    whole = experiment.run(experiment.Request(out=tmp_path / "whole", **options))
    ended = experiment.run(experiment.Request(out=tmp_path / "cut", **options), listeners=lambda: [interrupt])
    assert ended == signal.SIGTERM
    assert not (tmp_path / "cut" / "result.json").exists()
    found = experiment.run(experiment.Request(out=tmp_path / "cut", resume=True, command="onlstm logic --resume"))
    assert found["encoders"]["lstm"][0]["command"] == "onlstm logic …"  # that with the settings
    assert found["encoders"]["lstm"][0]["by_length"] == whole["encoders"]["lstm"][0]["by_length"]
    assert ending(tmp_path / "whole" / "lstm-3")[:2] == ending(tmp_path / "cut" / "lstm-3")[:2]


def test_other_data_is_not_resumed(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    lines = ["\t".join(pair) for pair in PAIRS]
    (data / "train6").write_text("\n".join(lines))
    (data / "test6").write_text("\n".join(lines))
    source = {"path": str(data)}
    quick = {"model": {"hidden_size": 8, "chunk_size": 2}, "train": {"epochs": 1}}
    out = tmp_path / "run"
    experiment.run(experiment.Request(out=out, encoders=["onlstm"], seeds=[0], source=source, settings=quick))
    (data / "train6").write_text("\n".join(lines[::-1]))
    with pytest.raises(UserError, match="no longer those it was trained on"):
        experiment.run(experiment.Request(out=out, resume=True, settings={"train": {"epochs": 2}}))


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
    found = evaluation.evaluate(out, [tmp_path / "other"], say=said.append)
    assert "renamed" in said[0]
    renamed = [Pair(p.relation, *(" ".join(names.get(w, w) for w in s.split()) for s in p[1:])) for p in PAIRS]
    (tmp_path / "same").write_text("\n".join("\t".join(pair) for pair in renamed))
    assert found["encoders"] == evaluation.evaluate(out, [tmp_path / "same"])["encoders"]
    assert found["wrong_labels"] == 0


def test_predictions_are_the_models(learnt):
    out, _ = learnt
    found = evaluation.predict(out, "(a (and b))", "b", ["onlstm"])
    run = max((out / "onlstm-0", out / "onlstm-1"), key=lambda run: evaluation.result(run)["valid"])
    assert found["run"] == str(run)
    made = classifier.load_model(run)
    shares = made.logits(Problems.of([Pair("<", "( a ( and b ) )", "b")])).softmax(-1)[0]
    assert found["probability"] == pytest.approx(float(shares.max()), rel=1e-5)
    assert found["relation"] == formulas.RELATIONS[shares.argmax()]
    assert (found["truth"], found["truth_name"]) == ("<", "forward entailment")


def test_the_figure_as_png(learnt, tmp_path):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    _, found = learnt
    assert figure.png(found, tmp_path / "a.png")
    picture = (tmp_path / "a.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])) == (1350, 720)
    one_seed = {name: rows[:1] for name, rows in found["encoders"].items()}
    assert figure.png(found | {"encoders": one_seed}, tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes() != picture, "no shade between the seeds"


def test_without_matplotlib_there_is_no_png(learnt, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not figure.png(learnt[1], tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


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
    found = experiment.run(
        experiment.Request(
            out=tmp_path / "run",
            encoders=["own_encoder:Mean", "majority"],
            seeds=[0],
            source={"pairs": 800},
            settings={"model": {"hidden_size": 8}, "train": {"epochs": 1}},
        )
    )
    assert list(found["encoders"]) == ["own_encoder:Mean", "majority"]
    assert (tmp_path / "run" / "own_encoder.Mean-0" / "model.safetensors").exists()
    assert "own_encoder:Mean" in figure.svg(found)
    for name, message in {
        "own_encoder:nothing": "should make a torch.nn.Module",
        "own_encoder:Absent": "has no attribute 'Absent'",
        "absent_module:Mean": "No module named 'absent_module'",
        "onltsm": "did you mean onlstm?",
    }.items():
        with pytest.raises(UserError, match=message):
            build(ModelConfig(encoder=name))


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (ModelConfig, {"dropout": 1.0}, "model.dropout 1.0"),
        (ModelConfig, {"hidden_size": 0}, "model.hidden_size 0: at least 1"),
        (TrainConfig, {"lr": 0.0}, "train.lr 0.0: a number above 0"),
        (TrainConfig, {"epochs": 0}, "train.epochs 0: at least 1"),
        (TrainConfig, {"beta1": 1.0}, "train.beta1 1.0"),
    ],
)
def test_settings_that_cannot_be(kind, values, message):
    with pytest.raises(UserError, match=message):
        kind(**values)


def test_chunk_sizes_that_do_not_fit():
    with pytest.raises(UserError, match=r"model\.chunk_size: hidden_size 400 is not a multiple of chunk_size 7"):
        build(ModelConfig(chunk_size=7))


def test_the_figure_has_bands_a_boundary_and_the_published(learnt):
    _, found = learnt
    picture = figure.svg(found)
    assert picture.count("<polygon") == 2  # of two encoders with two seeds
    assert "trained on at most 2" in picture
    assert "ON-LSTM, published" in picture
    assert found["published"]["ON-LSTM"] == {"7": 91, "8": 87, "9": 85, "10": 81, "11": 78, "12": 75}
