"""Scores over a trie: against a plain loop, whatever the slices; every distinct prefix is run once."""

import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import random_model
from onlstm.errors import UserError
from onlstm.lm import prefixes, softmax
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.of_words([f"w{k}" for k in range(28)])
KINDS = {
    "tied": {},
    "lstm": {"rnn": "lstm"},
    "untied": {"tied": False},
    "mos": {"mos": 3},
    "adaptive": {"softmax": "adaptive", "tied": False},
}
model = partial(random_model, TOKENIZER)


@torch.no_grad()
def plainly(model, ids, given=0):
    """The sum of log p by running the whole model over the whole sentence."""
    if not len(ids):
        return 0.0
    log_p = model(torch.tensor([TOKENIZER.eos_id, *ids[:-1]])[:, None]).logits[:, 0].log_softmax(-1)
    return math.fsum(log_p[t, id].item() for t, id in enumerate(ids) if t >= given)


words = st.lists(st.integers(0, 4), max_size=6)
corpora = st.lists(words, max_size=25)  # five words: many common beginnings, many sentences twice


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_plain_loop(kind, dtype, error, monkeypatch):
    monkeypatch.setattr(prefixes, "_TILE", 7)  # does not divide the vocabulary
    monkeypatch.setattr(softmax, "_LOGITS_AT_ONCE", 70)
    exact = model(dtype, **KINDS[kind])
    draw = torch.Generator().manual_seed(1)
    sentences = [torch.randint(30, (n % 9,), generator=draw).tolist() for n in range(60)]
    sentences += [[*each, 3, 4] for each in sentences[:30]] + [[], [5], [5]]
    found = sentence_log_probs(exact, sentences, at_once=8)
    assert found == pytest.approx([plainly(exact, each) for each in sentences], abs=error)


EXACT, SMALL = model(torch.float64), model()


@settings(max_examples=60, deadline=None)
@given(corpora, st.integers(1, 9), st.data())
def test_any_slices_and_any_given_part(sentences, at_once, data):
    skip = [data.draw(st.integers(0, len(each))) for each in sentences]
    found = sentence_log_probs(EXACT, sentences, given=skip, at_once=at_once)
    assert found == pytest.approx([plainly(EXACT, *each) for each in zip(sentences, skip, strict=True)], abs=1e-12)
    assert sentence_log_probs(EXACT, sentences, given=[0] * len(sentences), at_once=at_once) == pytest.approx(
        sentence_log_probs(EXACT, sentences), abs=1e-12
    )


@settings(max_examples=40, deadline=None)
@given(corpora, st.integers(1, 9))
def test_equal_sentences_have_equal_scores_to_the_bit(sentences, at_once):
    found = sentence_log_probs(SMALL, sentences * 2, at_once=at_once)
    assert found[: len(sentences)] == found[len(sentences) :]
    by_ids = {}
    assert all(by_ids.setdefault(tuple(ids), score) == score for ids, score in zip(sentences * 2, found, strict=True))
    assert found == pytest.approx(sentence_log_probs(SMALL, sentences * 2), abs=1e-5)


def test_forms_of_a_word_compare_by_their_own_probability():
    """Where only the last word is scored, what is given cannot turn the comparison, not even a tie."""
    before = [1, 2, 3] * 20
    a, b, again, alone = sentence_log_probs(
        SMALL, [[*before, 4], [*before, 5], [*before, 4], before], given=[60, 60, 60, 60]
    )
    assert a == again
    assert a - b == pytest.approx(plainly(SMALL, [*before, 4], 60) - plainly(SMALL, [*before, 5], 60), abs=1e-5)
    assert alone == 0


@settings(max_examples=40, deadline=None)
@given(corpora, st.integers(1, 9))
def test_every_prefix_is_run_once(sentences, at_once):
    watched, run, rows = model(), [], []
    encode, total = watched.encode, prefixes._normaliser
    watched.encode = lambda ids, state=None: run.append(ids.numel()) or encode(ids, state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefixes, "_normaliser", lambda tiles, h: rows.append(len(h)) or total(tiles, h))
        seen = []
        sentence_log_probs(watched, sentences, at_once=at_once, on_progress=lambda *each: seen.append(each))
        distinct = {tuple(each[:k]) for each in sentences for k in range(len(each))}
        assert sum(run) == sum(rows) == len(distinct)
        assert max(run, default=0) <= at_once
        assert all(a[0] < b[0] for a, b in pairwise(seen))
        assert not seen or seen[-1] == (len(distinct), len(distinct))
        rows.clear()
        sentence_log_probs(watched, sentences, given=[max(0, len(each) - 1) for each in sentences])
        assert sum(rows) == len({tuple(each[:-1]) for each in sentences if each})


@pytest.mark.parametrize("spread", [7, 400])
def test_logits_of_any_size(spread):
    large = model(spread=spread)
    sentences = [[1, 2, 3], [1, 2, 4], [7, 8]]
    biggest = max(large(torch.tensor(each)[:, None]).logits.abs().max().item() for each in sentences)
    assert (biggest > 100) == (spread == 400)
    expected = [plainly(large, each) for each in sentences]
    assert sentence_log_probs(large, sentences) == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_long_sentences_need_no_recursion():
    long = [k * k % 28 for k in range(1500)]
    found = sentence_log_probs(EXACT, [long, long[:-1], [1]])
    assert found == pytest.approx([plainly(EXACT, each) for each in (long, long[:-1], [1])], abs=1e-8)


def test_nothing_and_the_model_is_left_alone():
    small = model(dropout_output=0.4, weight_dropout=0.5)
    assert sentence_log_probs(small, []) == []
    assert sentence_log_probs(small, [[], []]) == [0.0, 0.0]
    expected = sentence_log_probs(small, [[1, 2]])
    small.train()
    small.layers[0].eval()
    before = [module.training for module in small.modules()]
    assert sentence_log_probs(small, [[1, 2]]) == expected
    assert [module.training for module in small.modules()] == before
    small.tokenizer = None
    with pytest.raises(UserError, match="no tokenizer"):
        sentence_log_probs(small, [])
