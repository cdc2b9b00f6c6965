"""RRNet: against a plain loop with a list for its stack, finite differences of given actions, REINFORCE against all."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call

from formulas import TEXTS, estimates_have_the_mean, ids, policy_alone_learns_from_its_choices, random_encoder
from onlstm.paper.logic import induced
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.formulas import Pair
from onlstm.paper.logic.rrnet import MERGE, RECUR, SPLIT


def encoder(D=8, scale=1.5):
    return random_encoder("rrnet", 4, D, scale)


def lstm(cell, x, h, c):
    i, f, g, o = (cell.weight @ torch.cat([x, h]) + cell.bias).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def plain(module, text, choose):
    """Return the vector, the actions and their probability: `choose` takes the probabilities of three actions."""
    h = c = module.embedding.weight.new_zeros(module.size)
    stack, actions, probability = [], [], 1.0
    for x in module.embedding.weight[ids(text)]:
        first, _, second = module.policy
        scores = second.weight @ (first.weight @ torch.cat([h, x]) + first.bias).clamp(min=0) + second.bias
        p = torch.softmax(scores if stack else scores[:MERGE], 0)
        actions.append(choose(p))
        probability = probability * p[actions[-1]]
        if actions[-1] == SPLIT:
            stack.append(lstm(module.F1, x, h, c)[0])
            h, c = lstm(module.F2, x, h, c)
        elif actions[-1] == RECUR:
            h, c = lstm(module.F3, x, h, c)
        else:
            h = torch.tanh(module.merged.weight @ torch.cat([h, stack.pop()]) + module.merged.bias)
            h, c = lstm(module.F4, x, h, c)
    return h, tuple(actions), probability


def possible(n):
    """Return all sequences of n actions that never merge with an empty stack."""
    rows = product((SPLIT, RECUR, MERGE), repeat=n)
    return [row for row in rows if all(row[:k].count(SPLIT) >= row[:k].count(MERGE) for k in range(1, n + 1))]


def along(module, text, row):
    steps = iter(row)
    return plain(module, text, lambda p: next(steps))


def test_it_is_the_plain_loop():
    module, seen = encoder(), Counter()
    formulas = [ids(text) for text in TEXTS]
    with torch.no_grad():
        vectors, log_p = module.sample(formulas)
        for row, text in enumerate(TEXTS):
            expected, actions, probability = plain(module, text, lambda p: int(p.argmax()))
            torch.testing.assert_close(vectors[row], expected, rtol=0, atol=1e-12)
            assert log_p[row] == pytest.approx(math.log(probability), abs=1e-10)
            seen.update(actions)
    assert min(seen[action] for action in (SPLIT, RECUR, MERGE)) > 1, "some action was not tried"


def test_constituents_are_what_lies_between_split_and_merge(monkeypatch):
    """And what is not within one is composed from left to right, as an LSTM does."""
    module, text = encoder(), "( a ( and b ) )"
    rows = iter((RECUR, SPLIT, SPLIT, RECUR, RECUR, MERGE, MERGE))
    monkeypatch.setattr(
        module, "choice", lambda seen, sizes: (torch.tensor([next(rows)]), torch.ones(1, 3, dtype=torch.bool))
    )
    assert module.heights([ids(text)]) == [[0, 2, 1, 0, 0, 1, 2]]
    rows = iter((RECUR, SPLIT, SPLIT, RECUR, RECUR, MERGE, MERGE))
    (own,) = induced.of_encoder(module, [text])
    assert (own.decoder, own.n) == ("own", 1)


def test_sampled_actions_come_with_their_probabilities():
    module, text = encoder(scale=0.5).train(), TEXTS[2]
    with torch.no_grad():
        known = {row: float(along(module, text, row)[2]) for row in possible(4)}
        assert sum(known.values()) == pytest.approx(1)
        torch.manual_seed(0)
        _, log_p, depths = module.read([ids(text)] * 3000)
    logs = np.log([*known.values()])
    assert np.abs(logs - log_p.numpy()[:, None]).min(1).max() < 1e-10
    shares = Counter(map(tuple, torch.stack(depths, 1).tolist()))
    expected = Counter()
    for row, probability in known.items():
        sizes = [row[:k].count(SPLIT) - row[:k].count(MERGE) for k in range(5)]
        expected[tuple(map(min, sizes, sizes[1:]))] += probability
    for key, probability in expected.items():
        assert shares[key] / 3000 == pytest.approx(probability, abs=0.03)


def test_gradients_of_given_actions(monkeypatch):
    """Choices have no derivative; vectors of actions that stay have one, and log-probabilities one for the policy."""
    module = encoder(D=3, scale=0.7)
    formulas = [ids(text) for text in TEXTS[1:]]
    random = torch.Generator().manual_seed(1)

    def chosen(seen, sizes):
        free = (sizes[:, None] > 0) | (torch.arange(3) != MERGE)
        return (torch.rand(len(seen), 3, generator=random) * free).argmax(1), free

    monkeypatch.setattr(module, "choice", chosen)
    names, weights = zip(*module.named_parameters(), strict=True)

    def vectors(*values):
        random.manual_seed(1)
        return functional_call(module, dict(zip(names, values, strict=True)), (formulas,))

    assert gradcheck(vectors, weights, fast_mode=True)
    assert policy_alone_learns_from_its_choices(module, formulas)


def test_the_mean_of_the_estimates_is_the_gradient_of_the_expected_reward():
    torch.manual_seed(3)
    model = Classifier(ModelConfig(encoder="rrnet", embedding_size=4, hidden_size=6, dropout=0.0)).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    left, right = "( not a )", "b"
    batch = Problems.of([Pair("#", left, right)]).batch(np.arange(1))
    expected = 0.0
    for rows in product(possible(4), possible(1)):
        (x, _, p), (y, _, q) = (along(model.encoder, text, row) for text, row in zip((left, right), rows, strict=True))
        scores = model._relations(torch.stack([x, y]), torch.tensor([[0], [1]]))
        expected = expected + p * q * torch.nn.functional.cross_entropy(scores, batch.labels).detach()
    assert estimates_have_the_mean(model, batch, expected)
