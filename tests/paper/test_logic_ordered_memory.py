"""Ordered Memory: against plain loops over all slots, finite differences, and what it does by construction."""

import pytest
import torch

from formulas import TEXTS, gradients_are_derivatives, ids
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.encoders import build
from onlstm.paper.logic.ordered_memory import attention


def encoder(scale=1.5, **sizes):
    torch.manual_seed(1)
    config = {"embedding_size": 4, "hidden_size": 6, "slots": 3, "dropout": 0.0} | sizes
    module = build(ModelConfig(encoder="ordered-memory", **config)).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-scale, scale)
    return module


def norm(layer, x):
    centred = x - x.mean()
    return layer.weight * centred / (centred.pow(2).mean() + layer.eps).sqrt() + layer.bias


def affine(layer, x):
    return layer.weight @ x + layer.bias


@torch.no_grad()
def plain(module, text, N):
    """Return the vector and the attention of a formula: all N slots from the start, empty, one number at a time."""
    D = module.size
    M, M_hat = [torch.zeros(D).double()] * N, [torch.zeros(D).double()] * N
    p, history = None, []
    for token in ids(text):
        x = norm(module.norm, affine(module.project, module.embedding.weight[token]))
        if p is None:  # nothing to compose with: the token is everywhere
            p, up, down = [0.0] * N, [0.0] * N, [1.0] * N
        else:
            weights = []
            for k in range(N):
                query = norm(module.query[2], affine(module.query[1], x))
                key = norm(module.key[2], affine(module.key[1], M_hat[k]))
                beta = affine(module.score[2], (query + key).clamp(min=0))[0] / D**0.5
                reach = 1.0 if k == N - 1 else sum(p[: k + 2])
                weights.append(torch.exp(beta) * reach if reach >= 1e-5 else 0.0)
            p = [weight / sum(weights) for weight in weights]
            up, down = [sum(p[: k + 1]) for k in range(N)], [sum(p[k:]) for k in range(N)]
        M = [(1 - down[k]) * M[k] + down[k] * M_hat[k] for k in range(N)]
        M_hat, v = [], x
        for k in range(N):
            hidden = affine(module.cell.gates[1], torch.cat([v, M[k]])).clamp(min=0)
            g_v, g_h, g_c, u = affine(module.cell.gates[4], hidden).view(4, D)
            sum_ = torch.sigmoid(g_v) * v + torch.sigmoid(g_h) * M[k] + torch.sigmoid(g_c) * u
            v = (1 - up[k]) * x + up[k] * norm(module.norm, sum_)
            M_hat.append(v)
        history.append(p)
    return M_hat[-1], history


@pytest.mark.parametrize("slots", [1, 2, 3, 12])
@pytest.mark.parametrize("training", [False, True])
def test_it_is_the_plain_loop(slots, training):
    module = encoder(slots=slots).train(training)
    N = slots if training else 2 * slots
    with torch.no_grad():
        vectors, steps = module.scan([ids(text) for text in TEXTS], cuts=())
    for row, text in enumerate(TEXTS):
        expected, history = plain(module, text, N)
        torch.testing.assert_close(vectors[row], expected, rtol=0, atol=1e-10)
        for p, whole in zip(steps, history, strict=False):
            shown = p[row].tolist()
            assert shown == pytest.approx([float(share) for share in whole[N - len(shown) :]], abs=1e-10)
            assert sum(map(float, whole[: N - len(shown)])) == 0, "slots that are left out have no attention"
    assert vectors.std(0).min() > 1e-2, "all vectors alike prove nothing"


@pytest.mark.parametrize("slots", [2, 12])
def test_formulas_that_begin_alike_are_read_as_one(slots):
    texts = ["( ( not a ) ( or ( b ( and c ) ) ) )", "( ( not a ) ( or ( b ( and d ) ) ) )", "( ( not a ) ( or c ) )"]
    formulas = [ids(text) for text in (*texts, "( ( not b ) ( or c ) )", "( not a )", "( not b )", "c")]
    module = encoder(slots=slots)
    alone = module.scan(formulas, cuts=())
    for cuts in (3, 5, 7), (1,), (2, 9), (4, 6, 8, 30):
        vectors, steps = module.scan(formulas, cuts=cuts)
        torch.testing.assert_close(vectors, alone[0], rtol=0, atol=1e-12)
        assert sum(map(len, steps)) < sum(map(len, alone[1])) or cuts == (1,)
    torch.testing.assert_close(module(formulas), alone[0], rtol=0, atol=1e-12)


def test_gradients():
    module = encoder(scale=0.7, embedding_size=2, hidden_size=3, slots=2)
    assert gradients_are_derivatives(module)


def test_attention_goes_one_slot_deeper_at_most():
    p = attention(torch.tensor([[900.0, 2.0, -900.0, 0.0]]), torch.tensor([[0.0, 0.0, 0.0, 1.0]]))
    assert p.tolist() == [[0.0, 0.0, 0.0, 1.0]]
    p = attention(torch.tensor([[900.0, 2.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 0.5, 0.5]]))
    weights = torch.tensor([0, 0.5 * torch.e**2, 1, 1])
    torch.testing.assert_close(p[0], weights / weights.sum())


def test_heights_are_the_modes_counted_from_below():
    module = encoder(slots=12).eval()
    _, steps = module.scan([ids(text) for text in TEXTS], cuts=())
    heights = module.heights([ids(text) for text in TEXTS])
    assert [len(row) for row in heights] == [len(text.split()) for text in TEXTS]
    N = steps[-1].shape[1]
    for row, text in enumerate(TEXTS):
        _, history = plain(module, text, N)
        expected = [max(range(N), key=lambda k, p=p: float(p[k])) for p in history[1:]]
        assert heights[row] == [0, *expected]


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_noise_on_attention_is_as_large_as_named_and_in_training_alone(noise):
    """At a formula's third token two heights compete, both with reach 1: their noises add up."""
    module, formulas = encoder(attention_noise=noise, scale=0.5), [ids("a and b")] * 5000

    def odds():
        with torch.no_grad():
            p = module.scan(formulas)[1][2]
        return (p[:, 1] / p[:, 0]).log()

    noisy, plain = odds(), module.eval() and odds()
    assert float(plain.std()) < 1e-12
    assert float(noisy.mean() - plain.mean()) == pytest.approx(0, abs=4 * noise * (2 / 5000) ** 0.5)
    assert float(noisy.std()) == pytest.approx(noise * 2**0.5, rel=0.05)
