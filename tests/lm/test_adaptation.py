"""The neural cache and dynamic evaluation, each against a plain loop; and both help where text repeats itself."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from helpers import random_model
from onlstm.errors import UserError
from onlstm.lm import adaptation
from onlstm.lm.adaptation import Cache, Dynamic
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import evaluate
from onlstm.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.of_words([f"w{k}" for k in range(38)])
EOS = TOKENIZER.eos_id
STREAM = np.random.default_rng(0).integers(0, 12, 75).astype(np.uint16)
KINDS = [{}, {"rnn": "lstm"}, {"mos": 2}, {"softmax": "adaptive", "tied": False}, {"weight_dropout_scale": "inverted"}]
model = partial(random_model, TOKENIZER, torch.float64)


def cache_log_probs(model, ids, theta, lam, size):
    return torch.cat([part[0, 0] for part in adaptation._mixtures(model, ids, size, (theta,), (lam,))]).numpy()


def cached_plainly(model, ids, theta, lam, size):
    """log p of every token, place by place."""
    with torch.no_grad():
        out = model(torch.tensor([EOS, *ids[:-1].tolist()])[:, None])
    h, p_model = out.hidden[:, 0].tolist(), out.logits[:, 0].softmax(-1).tolist()
    found = []
    for t, word in enumerate(ids.tolist()):
        p = p_model[t][word]
        places = range(max(0, t - size), t)
        if places:
            weight = {i: math.exp(theta * sum(a * b for a, b in zip(h[t], h[i], strict=True))) for i in places}
            p_cache = sum(weight[i] for i in places if ids[i] == word) / sum(weight.values())
            p = (1 - lam) * p + lam * p_cache
        found.append(math.log(p))
    return found


@pytest.mark.parametrize("block", [16, 512])
@pytest.mark.parametrize("size", [1, 7, 40, 500])
def test_the_cache_is_the_plain_loop(size, block, monkeypatch):
    monkeypatch.setattr(adaptation, "_PRODUCTS_AT_ONCE", block * size)
    small = model()
    expected = cached_plainly(small, STREAM, 0.8, 0.3, size)
    assert cache_log_probs(small, STREAM, 0.8, 0.3, size) == pytest.approx(expected, abs=1e-10)
    found = Cache(theta=0.8, lam=0.3, size=size).evaluate(small, STREAM)
    assert (found.nll, found.tokens) == (pytest.approx(-sum(expected) / 75, abs=1e-10), 75)


def test_probabilities_with_a_cache_sum_to_one():
    small = model()
    for past in ([], [3], [3, 3, 5, 1, 3] * 4):
        texts = [np.array([*past, word]) for word in range(len(TOKENIZER))]
        total = sum(math.exp(cache_log_probs(small, text, 1.2, 0.4, 9)[-1]) for text in texts)
        assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_no_share_is_no_cache(options):
    small = model(**options)
    static = evaluate(small, STREAM).nll
    assert Cache(theta=1.0, lam=0.0, size=20).evaluate(small, STREAM).nll == pytest.approx(static, abs=1e-12)
    assert Cache(theta=1.0, lam=0.2, size=20).evaluate(small, STREAM).nll != pytest.approx(static, abs=1e-3)


def test_tuning_finds_the_best_pair():
    small, thetas, lams = model(), (0.0, 0.4, 2.0), (0.0, 0.1, 0.6, 0.9)
    pairs = {(t, x): Cache(theta=t, lam=x, size=30).evaluate(small, STREAM).nll for t in thetas for x in lams}
    found = Cache.tune(small, STREAM, size=30, thetas=thetas, lams=lams)
    assert (found.theta, found.lam) == min(pairs, key=lambda pair: pairs[pair])
    assert (found.nll, found.size) == (pytest.approx(min(pairs.values()), abs=1e-12), 30)


def test_large_products_stay_finite():
    small = model().float()
    assert np.isfinite(cache_log_probs(small, STREAM, 1e4, 0.1, 30)).all()


def dynamically_plainly(model, ids, lr, decay, window):
    """The nll with torch's own optimizer and clipping on a copy with eager layers."""
    learner = copy.deepcopy(model)
    for layer in learner.layers:
        layer.backend = "eager"
    origin = [p.detach().clone() for p in learner.parameters()]
    optimizer = torch.optim.SGD(learner.parameters(), lr)
    stream, total, state = torch.tensor([EOS, *ids.tolist()]), 0.0, None
    for first in range(0, len(ids), window):
        last = min(first + window, len(ids))
        out = learner(stream[first:last, None], state)
        loss = nn.functional.cross_entropy(out.logits[:, 0], stream[first + 1 : last + 1], reduction="sum")
        total += loss.item()
        optimizer.zero_grad()
        (loss / (last - first)).backward()
        nn.utils.clip_grad_norm_(learner.parameters(), 0.25)
        back = [decay * (first - p.detach()) for first, p in zip(origin, learner.parameters(), strict=True)]
        optimizer.step()
        with torch.no_grad():
            for p, change in zip(learner.parameters(), back, strict=True):
                p += change
        state = tuple((h.detach(), c.detach()) for h, c in out.state)
    return total / len(ids)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize(("lr", "decay", "window"), [(0.5, 0.0, 5), (2.0, 0.1, 7), (0.01, 0.0, 200)])
def test_dynamic_evaluation_is_the_plain_loop(options, lr, decay, window):
    small = model(**options)
    found = Dynamic(lr=lr, decay=decay, window=window).evaluate(small, STREAM)
    assert found.nll == pytest.approx(dynamically_plainly(small, STREAM, lr, decay, window), abs=1e-9)
    assert found.tokens == 75


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_without_learning_it_is_static(options):
    small = model(**options)
    static = evaluate(small, STREAM, window=5)
    with torch.no_grad():  # as a caller may have it
        assert Dynamic(lr=0, decay=0, window=5).evaluate(small, STREAM) == static


def test_the_model_is_given_back_as_it_came(monkeypatch):
    small = model(dropout_output=0.4, weight_dropout=0.5).train()
    small.decoder.bias.requires_grad_(False)
    before = copy.deepcopy(small.state_dict())

    def unchanged():
        assert list(small.state_dict()) == list(before)
        assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())
        assert all(p.grad is None for p in small.parameters())
        assert all(module.training for module in small.modules())

    Dynamic(lr=0.7, decay=0.1).evaluate(small, STREAM)
    unchanged()
    learnt = []
    learn = Dynamic._learn

    def fails_at_the_third(*args):
        learn(*args)
        learnt.append(not torch.equal(small.embedding.weight, before["embedding.weight"]))
        if len(learnt) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Dynamic, "_learn", fails_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        Dynamic(lr=0.7, decay=0.1).evaluate(small, STREAM)
    assert learnt == [True] * 3
    unchanged()


def test_dynamic_tuning_finds_the_best_pair():
    small, lrs, decays = model(), (0.0, 0.3, 1e9), (0.0, 0.05)
    pairs = {(lr, d): Dynamic(lr=lr, decay=d).evaluate(small, STREAM[:40]).nll for lr in lrs for d in decays}
    found = Dynamic.tune(small, STREAM, lrs=lrs, decays=decays, limit=40)
    assert (found.lr, found.decay) == min(pairs, key=lambda pair: pairs[pair])
    assert (found.nll, found.window) == (min(pairs.values()), 5)
    assert math.isnan(Dynamic(lr=1e308).evaluate(small, STREAM).nll)
    assert Dynamic.tune(small, STREAM, lrs=(1e308, 0.1), decays=(0.0,)).lr == 0.1


def test_mistakes_are_named():
    small = model()
    for options in ({"lr": -1}, {"lr": math.nan}, {"lr": 1, "decay": 2}, {"lr": 1, "window": 0}):
        with pytest.raises(UserError, match=f"^{list(options)[-1]} "):
            Dynamic(**options).evaluate(small, STREAM)
    with pytest.raises(UserError, match=r"^lambda 1"):
        Cache(theta=1.0, lam=1.0, size=5).evaluate(small, STREAM)
    with pytest.raises(UserError, match=r"^size 0"):
        Cache(theta=1.0, lam=0.1, size=0).evaluate(small, STREAM)
    with pytest.raises(UserError, match=r"^tokens 0"):
        Cache.tune(small, STREAM[:0])


def topics(seed, count):
    """A stream in which each stretch of 60 words keeps to four of the vocabulary's words."""
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.choice(draw.choice(38, 4, replace=False), 60) for _ in range(count)])


def test_both_help_where_text_repeats_itself():
    torch.manual_seed(0)
    config = LMConfig(vocab_size=len(TOKENIZER), embedding_size=16, hidden_size=16, num_layers=1, chunk_size=4)
    small = LanguageModel(config, TOKENIZER)
    text = torch.from_numpy(topics(0, 80)).view(40, -1).T
    optimizer = torch.optim.Adam(small.parameters(), 0.01)
    for _ in range(5):
        for first in range(0, len(text) - 1, 20):
            last = min(first + 20, len(text) - 1)
            optimizer.zero_grad()
            small.loss(text[first:last], text[first + 1 : last + 1], None).nll.backward()
            optimizer.step()
    small.eval()
    valid, test = topics(1, 10), topics(2, 10)
    static = evaluate(small, test).nll
    cache = Cache.tune(small, valid, size=30)
    assert cache.lam > 0
    assert cache.evaluate(small, test).nll < static - 0.5
    best = Dynamic.tune(small, valid, limit=300)
    assert best.evaluate(small, test).nll < static - 0.2
