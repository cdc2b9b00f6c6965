"""PRPN against numbers printed by its authors' code: states, gates, distances, log-probabilities and gradients."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel

FOLDERS = [Path(__file__).parents[2] / "golden" / "prpn", Path(__file__).parents[4] / "shared" / "golden" / "prpn"]
CASES = json.loads((FOLDERS[0] / "index.json").read_text())
NAMES = {
    "encoder.weight": "embedding.weight",
    "decoder": "decoder",
    "parser.gate.1": "layers.0.parser.conv",
    "parser.gate.2": "layers.0.parser.norm",
    "parser.gate.5": "layers.0.parser.out",
    "predictor.projector_pred.1": "layers.0.predictor.key",
    "predictor.ffd.1": "layers.0.predictor.out",
    "predictor.ffd.2": "layers.0.predictor.norm",
    **{f"predictor.res.res.0.{a}": f"layers.0.predictor.blocks.0.{b}" for a, b in ((0, 0), (1, 1), (4, 3), (5, 4))},
    **{
        f"reader.{k}.{a}": f"layers.0.readers.{k}.{b}"
        for k in range(2)
        for a, b in {
            "memory_rnn.ih.0": "ih",
            "memory_rnn.ih.1": "ih_norm",
            "memory_rnn.hh.0": "hh",
            "memory_rnn.hh.1": "hh_norm",
            "memory_rnn.c_norm": "c_norm",
            "projector_summ.1": "key",
        }.items()
    },
}
DROPOUTS = dict.fromkeys(
    ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_dropout"), 0.0
)


def ours(name):
    whole, _, last = name.rpartition(".")
    return NAMES.get(name) or f"{NAMES[whole]}.{last}"


def load(case):
    paths = [folder / f"{case}.npz" for folder in FOLDERS if (folder / f"{case}.npz").exists()]
    if not paths:
        pytest.skip(f"no {case}.npz in ../shared/golden/prpn")
    with np.load(paths[0]) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays}


def network(about, golden):
    config = LMConfig(
        rnn="prpn",
        vocab_size=about["V"],
        embedding_size=about["E"],
        hidden_size=about["H"],
        num_layers=about["L"],
        slots=about["slots"],
        lookback=about["lookback"],
        resolution=about["resolution"],
        soft_gates=not about["hard"],
        residual_blocks=about["res"],
        tied=about["tied"],
        **DROPOUTS,
    )
    model = LanguageModel(config).double().train(about["train"])
    weights = {
        ours(key.removeprefix(kind)): golden[key] for kind in ("w.", "buf.") for key in golden if key.startswith(kind)
    }
    if about["tied"]:
        weights["decoder.weight"] = weights["embedding.weight"]
    model.load_state_dict(weights)
    return model


def state_of(golden, at, layers):
    swapped = {name: golden[f"{at}.{name}"].transpose(0, 1) for name in ("parser.dist", "pred")}
    memories = [golden[f"{at}.reader{k}.{part}"].transpose(0, 1) for k in range(layers) for part in "hc"]
    return (golden[f"{at}.parser.emb"], swapped["parser.dist"][..., None], swapped["pred"], *memories)


def close(found, golden, limit):
    finite = golden.isfinite()
    assert (found[~finite] == golden[~finite]).all()
    assert (found[finite] - golden[finite]).abs().max() <= limit if finite.any() else True


@pytest.mark.parametrize("case", CASES)
def test_every_number_is_the_authors(case):
    about, golden = CASES[case], load(case)
    model = network(about, golden)
    prpn = model.layers[0]
    for window, (before, after) in {"a": ("s0", "s1"), "b": ("s1", "s2")}.items():
        first = 0 if window == "a" else about["T"]
        ids = golden["tokens"][first : first + about["T"] + 1]
        state = state_of(golden, before, about["L"])
        _inner(prpn, model, ids, state, golden, window)
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        step = model.loss(ids[:-1], ids[1:], (state,), Masks())
        close(step.nll, golden[f"{window}.loss"], 1e-11)
        for found, expected in zip(step.state[0], state_of(golden, after, about["L"]), strict=True):
            close(found, expected, 1e-11)
        model.zero_grad()
        step.nll.backward()
        for name in (key for key in golden if key.startswith(f"grad.{window}.")):
            close(model.get_parameter(ours(name.removeprefix(f"grad.{window}."))).grad, golden[name], 1e-10)
        for name in (key for key in golden if key.startswith("buf_after_a.") and window == "a"):
            close(model.get_buffer(ours(name.removeprefix("buf_after_a."))), golden[name], 1e-11)
        assert about["train"] or all((model.get_buffer(name) == value).all() for name, value in buffers.items())


@torch.no_grad()
def _inner(prpn, model, ids, state, golden, window):
    """Distances, gates, attention and log-probabilities; the running means are put back."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    words, dist, memory, *states = state
    x = model.embedding(ids[:-1])
    d, d_next = prpn.parser(torch.cat((words, x)), lambda values: values)
    gate, gate_next, _ = prpn.gates(d, d_next, dist)
    found = {"dist": d, "dist_next": d_next, "gate": gate, "gate_next": gate_next}
    for k, reader in enumerate(prpn.readers):
        x, found[f"attn{k}"], *_ = reader(x, gate, *states[2 * k : 2 * k + 2], reader.hh.weight, lambda h: h)
    found["h"] = x
    found["out"], found["sel"], found["attn_pred"], _ = prpn.predictor(x, gate_next, memory, lambda values: values)
    found["logprob"] = model.head.log_probs(found["out"].flatten(0, 1)).unflatten(0, ids[:-1].shape)
    for name, value in found.items():
        close(value, golden[f"{window}.{name}"], 1e-11)
    for name, value in model.named_buffers():
        value.copy_(buffers[name])


def test_chained_windows_have_the_authors_gradients():
    case = "hard_2layer_eval_tied"
    about, golden = CASES[case], load(case)
    model, ids, T = network(about, golden), golden["tokens"], about["T"]
    first = model.loss(ids[:T], ids[1 : T + 1], (state_of(golden, "s0", 2),))
    second = model.loss(ids[T:-1], ids[T + 1 :], first.state)
    (first.nll + second.nll).backward()
    for name in (key for key in golden if key.startswith("grad.chain.")):
        close(model.get_parameter(ours(name.removeprefix("grad.chain."))).grad, golden[name], 1e-10)
