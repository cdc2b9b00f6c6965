"""Each cell against an independent loop over words, columns and neurons, in numpy and without our code."""

import numpy as np
import pytest
import torch

from onlstm.lm.cells.characters import LENGTH
from onlstm.lm.cells.nested import nested_mask
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel
from onlstm.text.tokenizer import Tokenizer

WORDS = ["<unk>", "<eos>", "a", "cat", "dog", "été"]
OFF = dict.fromkeys(("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_dropout"), 0.0)
H, T, B = 4, 7, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def make(**settings):
    torch.manual_seed(3)
    shape = {"vocab_size": len(WORDS), "embedding_size": H, "hidden_size": H, "num_layers": 1, "init_range": 0.9}
    model = LanguageModel(LMConfig(**OFF | shape | settings), Tokenizer.of_words(WORDS)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.uniform_(-0.9, 0.9)
    return model


def numbers(module):
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def ids():
    return torch.randint(len(WORDS), (T, B), generator=torch.Generator().manual_seed(2))


def lstm(w, x, state, capped=False):
    h, c = state
    a = w["weight_ih"] @ x + w["weight_hh"] @ h + w["bias"]
    i, f, g, o = sigmoid(a[:H]), sigmoid(a[H : 2 * H]), np.tanh(a[2 * H : 3 * H]), sigmoid(a[3 * H :])
    c = f * c + (np.minimum(1 - f, i) if capped else i) * g
    return (o * np.tanh(c), c), 1 - f.mean()


def rhn(w, x, state):
    (s,), kept = state[:1], 1.0
    for k in range(len(w["weight_hh"]) // (2 * H)):
        rows = slice(2 * H * k, 2 * H * (k + 1))
        a = w["weight_hh"][rows] @ s + w["bias"][rows] + (w["weight_ih"] @ x if k == 0 else 0)
        t = sigmoid(a[H:])
        s, kept = np.tanh(a[:H]) * t + s * (1 - t), kept * (1 - t)
    return (s,), 1 - kept.mean()


def nas(w, x, state):
    h, c = state
    p, q = np.split(w["weight_ih"] @ x + w["bias"], 8), np.split(w["weight_hh"] @ h, 8)

    def relu(v):
        return np.maximum(v, 0)

    first = [sigmoid(p[0] + q[0]), relu(p[1] + q[1]), sigmoid(p[2] + q[2]), relu(p[3] * q[3])]
    first += [np.tanh(p[4] + q[4]), sigmoid(p[5] + q[5]), np.tanh(p[6] + q[6]), sigmoid(p[7] + q[7])]
    c = np.tanh(np.tanh(first[0] * first[1]) + c) * np.tanh(first[2] + first[3])
    right = np.tanh(np.tanh(first[4] * first[5]) + sigmoid(first[6] + first[7]))
    return (np.tanh(c * right), c), None


def clockwork(w, x, state, t):
    h, new = state[0], state[0].copy()
    for k in range(H):
        if t % (1 if k < H // 2 else 2) == 0:
            slower = [j for j in range(H) if k < H // 2 or j >= H // 2]
            new[k] = np.tanh(w["weight_ih"][k] @ x + w["bias"][k] + sum(w["weight_hh"][k, j] * h[j] for j in slower))
    return (new,), 1.0 if t % 2 == 0 else 0.5


CELLS = {
    "variational": ({}, lambda w, x, state, t: lstm(w, x, state)),
    "nested": ({}, lambda w, x, state, t: lstm(w, x, state)),
    "rhn": ({"depth": 3}, lambda w, x, state, t: rhn(w, x, state)),
    "nas": ({}, lambda w, x, state, t: nas(w, x, state)),
    "clockwork": ({"clocks": 2}, clockwork),
}


@pytest.mark.parametrize("rnn", CELLS)
def test_a_layer_is_its_loop(rnn):
    settings, step = CELLS[rnn]
    model = make(rnn=rnn, **settings)
    encoded, w, table = (
        model.encode(ids(), distances=True),
        numbers(model.layers[0]),
        model.embedding.weight.detach().numpy(),
    )
    for column in range(B):
        state = (np.zeros(H), np.zeros(H))
        for t, id in enumerate(ids()[:, column].tolist()):
            state, distance = step(w, table[id], state, t)
            assert np.allclose(encoded.hidden[t, column].detach(), state[0], atol=1e-12)
            if distance is not None:
                assert encoded.distances.forget[0, t, column].item() == pytest.approx(distance, abs=1e-12)


@pytest.mark.parametrize("size", [H - 2, H])
def test_melis_sums_all_layers_and_projects_to_embeddings_of_another_size(size):
    model = make(rnn="melis", num_layers=2, embedding_size=size)
    encoded, skip = model.encode(ids()), model.layers[0]
    table = model.embedding.weight.detach().numpy()
    down = np.eye(H) if size == H else skip.down.weight.detach().numpy()
    states = [(np.zeros(H), np.zeros(H))] * 2
    for t, id in enumerate(ids()[:, 0].tolist()):
        x, total = table[id], 0
        for k, layer in enumerate(skip.layers):
            states[k], _ = lstm(numbers(layer), x, states[k], capped=True)
            x = states[k][0]
            total = total + x
        assert np.allclose(encoded.hidden[t, 0].detach(), down @ total, atol=1e-12)


def test_the_pointer_is_its_definition():
    model, L = make(rnn="variational", pointer=3, tied=False), 3
    words = ids()
    log_p = model(words).logits.log_softmax(-1).detach().numpy()
    plain = make(rnn="variational", tied=False)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("pointer")})
    hidden, w = plain.encode(words).hidden.detach().numpy(), numbers(model)
    for t in range(T):
        h, seen = hidden[: t + 1, 0], words[: t + 1, 0].tolist()
        q = np.tanh(w["pointer.query.weight"] @ h[-1] + w["pointer.query.bias"])
        shares = softmax(np.array([*(q @ past for past in h[-L:]), q @ w["pointer.sentinel"]]))
        p = shares[-1] * softmax(w["decoder.weight"] @ h[-1] + w["decoder.bias"])
        for word, share in zip(seen[-L:], shares[:-1], strict=True):
            p[word] += share
        assert np.allclose(log_p[t, 0], np.log(p), atol=1e-10)


def test_words_are_their_characters():
    model = make(rnn="lstm", filters=(2, 1, 1), character_size=3, tied=False)
    w = numbers(model.embedding)
    for id, word in enumerate(model.tokenizer.vocabulary):
        spelt = [256, *word.encode(), 257]
        letters = w["weight"][spelt + [258] * (LENGTH - len(spelt))]
        y = []
        for k, width in enumerate((1, 2, 3)):
            kernel, bias = w[f"convolutions.{k}.weight"], w[f"convolutions.{k}.bias"]
            for f in range(len(kernel)):
                windows = [letters[i : i + width].T for i in range(LENGTH - width + 1)]
                y.append(max(np.tanh((kernel[f] * window).sum() + bias[f]) for window in windows))
        y = np.array(y)
        for k in range(2):
            a = w[f"highways.{k}.weight"] @ y + w[f"highways.{k}.bias"]
            t = sigmoid(a[H:])
            y = t * np.maximum(a[:H], 0) + (1 - t) * y
        assert np.allclose(model.embedding(torch.tensor([id]))[0].detach(), y, atol=1e-12)


def test_the_augmented_loss_is_its_definition():
    model = make(rnn="variational", augmented=0.7, augmented_temperature=2.0)
    words = ids()
    step, hidden, w = (
        model.loss(words[:-1], words[1:], None),
        model.encode(words[:-1]).hidden.detach().numpy(),
        numbers(model),
    )
    vectors, total, nll = w["embedding.weight"], 0.0, 0.0
    for t in range(T - 1):
        for column in range(B):
            logits, right = vectors @ hidden[t, column] + w["decoder.bias"], int(words[t + 1, column])
            like, model_p = softmax(vectors @ vectors[right] / 2), softmax(logits / 2)
            total += (like * np.log(like / model_p)).sum() / (B * (T - 1))
            nll -= np.log(softmax(logits)[right]) / (B * (T - 1))
    assert step.nll.item() == pytest.approx(nll, abs=1e-12)
    assert step.objective.item() == pytest.approx(nll + 0.7 * total, abs=1e-12)


def test_nested_dropout_that_leaves_all_neurons_is_a_variational_lstm():
    outputs = []
    for rnn, more in (("variational", {}), ("nested", {"nested_mean": 1e6})):
        model = make(rnn=rnn, dropout_recurrent=0.4, **more).train()
        outputs.append(model.encode(ids(), None, Masks(torch.Generator().manual_seed(5))).hidden)
    assert torch.equal(*outputs)
    assert outputs[0].abs().max() > 0.1


def test_nested_dropout_leaves_the_first_neurons():
    torch.manual_seed(0)
    masks = nested_mask(torch.rand(20_000).double(), 5.0, 40)
    assert (masks.diff(dim=1) <= 0).all()
    assert masks.sum(1).mean().item() == pytest.approx(5, rel=0.05)
    model = make(rnn="nested", nested_mean=0.5).train()
    output = model.encode(ids(), None, Masks(torch.Generator().manual_seed(0))).hidden
    dropped = output == 0
    assert (dropped == dropped[0]).all()
    assert (dropped.int().diff(dim=-1) >= 0).all()


def test_the_variational_mask_is_the_same_at_all_times():
    model = make(rnn="variational", dropout_recurrent=0.5).train()
    layer, x = model.layers[0], torch.zeros(3, 2000, H, dtype=torch.float64)
    drop = layer.state_dropout(x, Masks(torch.Generator().manual_seed(0)))
    ones = torch.ones(2000, H, dtype=torch.float64)
    assert torch.equal(drop(ones), drop(ones))
    assert set(drop(ones).unique().tolist()) == {0.0, 2.0}
    assert drop(ones).mean().item() == pytest.approx(1, abs=0.05)
