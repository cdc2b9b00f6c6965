"""Scores of sentences and streams: against a plain loop, whatever the batch, the window or the model's mode."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import random_model
from onlstm.errors import UserError
from onlstm.lm import reader
from onlstm.lm.score import Evaluation, SentenceScore, evaluate, score, score_each
from onlstm.text.tokenizer import Tokenizer

WORDS = [f"w{k}" for k in range(28)]
TOKENIZER = Tokenizer.of_words(WORDS)
KINDS = {
    "tied": {},
    "lstm": {"rnn": "lstm"},
    "mos": {"mos": 3},
    "adaptive": {"softmax": "adaptive", "tied": False},
    "inverted": {"weight_dropout_scale": "inverted"},
}
model = partial(random_model, TOKENIZER)


def plainly(model, ids):
    """-log p of every id and `<eos>`, by running the whole model over the whole sentence."""
    eos = model.tokenizer.eos_id
    read = torch.tensor([eos, *ids])[:, None]
    after = torch.tensor([*ids, eos])
    with torch.no_grad():
        log_p = model(read).logits[:, 0].log_softmax(-1)
    return [-log_p[t, word].item() for t, word in enumerate(after)]


def flat(scores):
    return [value for each in scores for value in (*each.surprisal, each.eos)]


@pytest.mark.parametrize("kind", KINDS)
def test_score_is_the_plain_loop(kind):
    small = model(torch.float64, **KINDS[kind])
    sentences = [["w1", "w2", "w3"], [], ["w4"], ["nobody", "w5"] * 9, ["w6", "w6"]]
    for words, found in zip(sentences, score(small, sentences), strict=True):
        assert (found.words, found.ids) == (words, TOKENIZER.ids(words))
        assert [*found.surprisal, found.eos] == pytest.approx(plainly(small, found.ids), abs=1e-12)
        assert len(found.surprisal) == len(words)
        assert found.total == pytest.approx(sum(found.surprisal))


sentence = st.lists(st.sampled_from([*WORDS, "nobody"]), max_size=12)


@settings(max_examples=30, deadline=None)
@given(st.lists(sentence, max_size=12), st.integers(1, 80))
def test_batched_is_one_by_one_in_order(sentences, tokens_at_once):
    small = model()
    together = score(small, sentences, tokens_at_once=tokens_at_once)
    alone = [score(small, [each])[0] for each in sentences]
    assert [each.words for each in together] == sentences
    assert flat(together) == pytest.approx(flat(alone), abs=1e-5)


def test_text_is_tokenised_and_keeps_its_surface():
    small = model()
    small.tokenizer = Tokenizer.of_words(WORDS, profile="generic")
    raw, words = score(small, ["W1 w2, other!", ["w1", "w2", "other"]])
    assert (raw.words, words.words) == (["W1", "w2", "other"], ["w1", "w2", "other"])
    assert (raw.ids, raw.surprisal, raw.eos) == (words.ids, words.surprisal, words.eos)
    assert raw.ids[-1] == TOKENIZER.unk_id


def test_nothing_and_an_empty_sentence():
    small = model()
    assert score(small, []) == []
    (empty,) = score(small, [""])
    assert (empty.words, empty.ids, empty.surprisal, empty.total) == ([], [], [], 0)
    assert empty.eos == pytest.approx(plainly(small, [])[0], abs=1e-6)


def test_a_long_sentence_is_read_in_windows(monkeypatch):
    small = model(torch.float64)
    long = [WORDS[k * k % 28] for k in range(3000)]
    steps = []
    encode = small.encode
    monkeypatch.setattr(small, "encode", lambda ids, *a, **o: steps.append(ids.numel()) or encode(ids, *a, **o))
    found, short = score(small, [long, ["w1"]], tokens_at_once=100)
    assert max(steps) <= 100
    assert [*found.surprisal, found.eos] == pytest.approx(plainly(small, found.ids), abs=1e-9)
    assert short.eos == score(small, [["w1"]])[0].eos


def test_score_each_takes_no_more_than_it_needs(monkeypatch):
    monkeypatch.setattr(reader, "CHUNK_SENTENCES", 3)
    small, taken = model(), []

    def endless():
        for k in range(1000):
            taken.append(k)
            yield [WORDS[k % 28]]

    stream = score_each(small, endless())
    first = [next(stream) for _ in range(4)]
    assert len(taken) == 6
    assert [each.words for each in first] == [["w0"], ["w1"], ["w2"], ["w3"]]
    assert flat(first) == pytest.approx(flat(score(small, [[w] for w in WORDS[:4]])), abs=1e-6)
    monkeypatch.setattr(reader, "CHUNK_WORDS", 7)
    assert flat(score_each(small, [WORDS] * 5)) == pytest.approx(flat(score(small, [WORDS])) * 5, abs=1e-6)


def test_modes_and_gradients_are_left_alone():
    small = model(dropout_output=0.4, weight_dropout=0.5)
    expected = score(small, [WORDS])
    small.train()
    small.layers[0].eval()
    before = [module.training for module in small.modules()]
    assert score(small, [WORDS]) == expected
    assert evaluate(small, np.array(TOKENIZER.ids(WORDS))).nll > 0
    with pytest.raises(RuntimeError, match="out of bounds"):
        evaluate(small, np.array([1, 999]))
    assert [module.training for module in small.modules()] == before
    assert all(p.grad is None for p in small.parameters())


def test_mistakes_are_named():
    small = model()
    with pytest.raises(UserError, match="sentences: a list"):
        score(small, "w1 w2")
    with pytest.raises(UserError, match="tokens_at_once 0"):
        score(small, [], tokens_at_once=0)
    with pytest.raises(UserError, match="window 0"):
        evaluate(small, np.array([1, 2]), window=0)
    for ids, options in (([], {}), ([1], {"compat": True}), ([1, 2, 3], {"batch": 2, "compat": True})):
        with pytest.raises(UserError, match="nothing to predict"):
            evaluate(small, np.array(ids, dtype=np.int64), **options)
    small.tokenizer = None
    with pytest.raises(UserError, match="no tokenizer"):
        score(small, [])


STREAM = np.random.default_rng(0).integers(0, len(TOKENIZER), 101).astype(np.uint16)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_one_long_sentence(kind):
    small = model(torch.float64, **KINDS[kind])
    found = evaluate(small, STREAM)
    expected = plainly(small, STREAM.tolist())[:-1]
    assert found.nll == pytest.approx(math.fsum(expected) / 101, abs=1e-12)
    assert found.tokens == 101
    assert found.perplexity == pytest.approx(math.exp(found.nll))
    assert found.bits_per_word == pytest.approx(found.nll / math.log(2))


@pytest.mark.parametrize(
    ("batch", "compat"), [(1, False), (4, False), (100, False), (200, False), (1, True), (4, True)]
)
def test_the_window_does_not_matter(batch, compat):
    small = model(torch.float64)
    windows = (1, 2, 7, 25, 100, 101, 5000, None)
    found = [evaluate(small, STREAM, batch=batch, window=w, compat=compat).nll for w in windows]
    assert found == pytest.approx([found[0]] * len(found), abs=1e-9)


def test_columns_predict_every_token():
    small = model(torch.float64)
    eos = TOKENIZER.eos_id
    whole = [eos, *STREAM.tolist()]
    expected = 0.0
    for first in range(0, 101, 26):  # four columns, the last shorter, each read from zero after the token before it
        read, after = torch.tensor(whole[first : first + 26][: 101 - first]), STREAM[first : first + 26].tolist()
        with torch.no_grad():
            log_p = small(read[:, None]).logits[:, 0].log_softmax(-1)
        expected -= log_p[range(len(after)), after].sum().item()
    found = evaluate(small, STREAM, batch=4)
    assert (found.nll, found.tokens) == (pytest.approx(expected / 101, abs=1e-12), 101)


@pytest.mark.parametrize("batch", [1, 3])
def test_compat_counts_like_the_original(batch):
    small = model(torch.float64)
    data = torch.from_numpy(STREAM[: 101 // batch * batch].reshape(batch, -1).T.astype(np.int64))
    with torch.no_grad():
        log_p = small(data[:-1]).logits.log_softmax(-1)
    mean = -log_p.gather(-1, data[1:, :, None]).mean().item()
    found = evaluate(small, STREAM, batch=batch, compat=True)
    assert found.nll == pytest.approx(mean * (len(data) - 1) / len(data), abs=1e-12)
    assert found.tokens == data.numel()


def test_unknown_rate_is_of_words():
    unk, eos = TOKENIZER.unk_id, TOKENIZER.eos_id
    assert evaluate(model(), np.array([1, unk, 2, 3, eos])).unk_rate == 0.25
    assert evaluate(model(), np.array([eos])).unk_rate == 0


def test_hopeless_predictions_are_infinite_not_an_error():
    assert Evaluation(nll=1e4, tokens=1, unk_rate=0).perplexity == math.inf
    assert math.isnan(Evaluation(nll=math.nan, tokens=1, unk_rate=0).perplexity)
    assert SentenceScore(words=["a"], ids=[1], surprisal=[math.inf], eos=0.0).total == math.inf
