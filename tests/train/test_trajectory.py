"""Training follows the original code's losses exactly: a golden run, and a three-layer one against a plain loop."""

import json
import lzma
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from onlstm import cell
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import evaluate
from onlstm.text.tokenizer import Tokenizer
from onlstm.train import fit
from onlstm.train.config import TrainConfig
from onlstm.train.language_model import LanguageModelTraining

SHARED = Path(__file__).parents[3] / "shared"
OFF = dict.fromkeys(("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_dropout"), 0.0)


def watched(run):
    """Return a list that every batch of a training is added to."""
    forward, batches = run.forward, []
    run.forward = lambda: batches.append(forward()) or batches[-1]
    return batches


def restart(run):
    """Begin the text again, as the original's second phase does."""
    run.start_averaging()
    run._state, run.progress.cursor = None, 0


def golden(name):
    path = SHARED / "golden" / name
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    return path


@pytest.mark.data
def test_the_golden_run(tmp_path):
    expected = json.loads(golden("lm_trajectory.json").read_text())["runs"][0]
    known: dict[str, int] = {}
    text = {}
    for split, lines in (("train", 2000), ("valid", 200), ("test", 200)):
        with lzma.open(SHARED / "data" / "ptb-lm" / f"ptb.{split}.txt.xz", "rt") as file:
            words = [word for _, line in zip(range(lines), file, strict=False) for word in [*line.split(), "<eos>"]]
        text[split] = np.array([known.setdefault(word, len(known)) for word in words])
    sizes = {"vocab_size": len(known), "embedding_size": 32, "hidden_size": 48, "num_layers": 2, "chunk_size": 8}
    model = LanguageModel(LMConfig(**sizes, **OFF), Tokenizer.of_words(list(known))).double()
    with np.load(golden("lm_2layer_f64_init.npz")) as init:
        model.load_state_dict({ours: torch.from_numpy(init[theirs]) for ours, theirs in names(2).items()})
    settings = TrainConfig(batch_size=10, bptt=35, vary_bptt=False, lr=5.0, averaging="asgd-compat")
    run = LanguageModelTraining(model, text["train"], text["valid"], settings, tmp_path)
    batches = watched(run)
    for k in range(130):
        if k == 100:
            check(model, text, expected["eval_after_sgd"])
            restart(run)
        assert fit.step(run)["loss"] == pytest.approx(expected["raw_loss"][k], abs=1e-10)
        assert batches.pop().objective.item() == pytest.approx(expected["total_loss"][k], abs=1e-10)
    check(model, text, expected["eval_after_asgd_current"])
    weights = {"current": [p.detach().clone() for p in run.parameters], "averaged": run.averages.means()}
    by_tensor = {id(p): name for name, p in model.named_parameters()}
    with np.load(golden("lm_2layer_f64_samples.npz")) as samples:
        for kind, tensors in weights.items():
            for parameter, value in zip(run.parameters, tensors, strict=True):
                flat = value.numpy().ravel()
                places = np.linspace(0, flat.size - 1, min(200, flat.size)).astype(np.int64)
                want = samples[f"after_asgd_{kind}.{names(2)[by_tensor[id(parameter)]]}"]
                assert np.abs(flat[places] - want).max() < 1e-8


def check(model, text, expected):
    for split, batch in (("valid", 10), ("test", 1)):
        found = evaluate(model, text[split], batch=batch, compat=True).nll
        assert found == pytest.approx(expected[f"{split}_loss"], abs=1e-10)


def names(layers):
    """Our names to the original's."""
    found = {"embedding.weight": "encoder.weight", "decoder.weight": "encoder.weight", "decoder.bias": "decoder.bias"}
    for k in range(layers):
        for ours, theirs in (("ih", "ih.0"), ("hh", "hh")):
            for kind in ("weight", "bias"):
                found[f"layers.{k}.{kind}_{ours}_l0"] = f"rnn.cells.{k}.{theirs}.{kind}"
    return found


@pytest.mark.parametrize("averaging", ["asgd-compat", "nt-asgd"])
def test_three_layers_follow_a_plain_loop(tmp_path, averaging):
    ids = np.random.default_rng(0).integers(0, 40, 900)
    sizes = {"vocab_size": 40, "embedding_size": 12, "hidden_size": 18, "num_layers": 3, "chunk_size": 3}
    torch.manual_seed(3)
    model = LanguageModel(LMConfig(**sizes, **OFF)).double()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    settings = TrainConfig(batch_size=5, bptt=7, vary_bptt=False, lr=5.0, averaging=averaging)
    run = LanguageModelTraining(model, ids, ids, settings, tmp_path)
    found = []
    for k in range(40):
        if k == 20:
            restart(run)
        found.append(fit.step(run)["loss"])
    losses, mean = plain_loop(start, ids, averaging)
    assert found == pytest.approx(losses, abs=1e-10)
    averages = dict(zip((n for n, _ in model.named_parameters()), run.averages.means(), strict=True))
    for name, value in mean.items():
        assert torch.allclose(averages[name], value, atol=1e-10), name


def plain_loop(start, ids, averaging):
    """The same training written out, with the eager equations: losses, and the averaged weights at the end."""
    weights = {name: nn.Parameter(value) for name, value in start.items() if name != "decoder.weight"}
    every = list(weights.values())
    same = {"lr": 5.0, "weight_decay": 1.2e-6}
    optimizer = torch.optim.SGD(every, **same)
    data = torch.from_numpy(ids[: len(ids) // 5 * 5].reshape(5, -1).T.copy())
    losses, iterates, state, place = [], [], None, 0
    for step in range(40):
        if step == 20:
            state, place = None, 0
            if averaging == "asgd-compat":
                optimizer = torch.optim.ASGD(every, t0=0, lambd=0.0, **same)
        x, y = data[place : place + 7], data[place + 1 : place + 8]
        place += 7
        nll, h, state = plain_loss(weights, x, y, state)
        loss = nll + 2 * h.square().mean() + (h[1:] - h[:-1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(every, 0.25)
        optimizer.step()
        losses.append(nll.item())
        if step >= 20:
            iterates.append([p.detach().clone() for p in every])
    kept = iterates[1:] if averaging == "asgd-compat" else iterates  # ASGD leaves out its first
    return losses, dict(zip(weights, (torch.stack(each).mean(0) for each in zip(*kept, strict=True)), strict=True))


def plain_loss(weights, x, y, state):
    """The loss of one window, the last layer's output, and the states to go on from."""
    h = F.embedding(x, weights["embedding.weight"])
    states = []
    for k, (_, size) in enumerate(pairwise((12, 18, 18, 12))):
        w_ih, w_hh = (weights[f"layers.{k}.weight_{part}_l0"] for part in ("ih", "hh"))
        bias = weights[f"layers.{k}.bias_ih_l0"] + weights[f"layers.{k}.bias_hh_l0"]
        now = state[k] if state else (h.new_zeros(5, size), h.new_zeros(5, size))
        outputs = []
        for row in h:
            h_t, c_t, _ = cell.step(F.linear(row, w_ih, bias) + F.linear(now[0], w_hh), now[1], 3)
            now = h_t, c_t
            outputs.append(h_t)
        h = torch.stack(outputs)
        states.append((now[0].detach(), now[1].detach()))
    logits = F.linear(h, weights["embedding.weight"], weights["decoder.bias"])
    return F.cross_entropy(logits.flatten(0, 1), y.flatten()), h, states
