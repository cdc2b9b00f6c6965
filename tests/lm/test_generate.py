"""Generated text: greedy against whole passes, sampling against the distribution, options against their meaning."""

import math
from functools import partial

import pytest
import torch

from helpers import random_model
from onlstm.errors import UserError
from onlstm.lm.generate import _choose, generate
from onlstm.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.of_words(list("abcdef"))
UNK, EOS = TOKENIZER.unk_id, TOKENIZER.eos_id
model = partial(random_model, TOKENIZER, torch.float64, spread=3, seed=3, embedding_size=6, chunk_size=3)


def next_probabilities(model, words):
    with torch.no_grad():
        return model(torch.tensor([EOS, *TOKENIZER.ids(words)])[:, None]).logits[-1, 0].softmax(-1)


def greedy(model, prompt, words):
    text = list(prompt)
    for _ in range(words):
        p = next_probabilities(model, text)
        p[UNK] = 0
        text.append(TOKENIZER.vocabulary[p.argmax()])
    return text[len(prompt) :]


@pytest.mark.parametrize("options", [{}, {"rnn": "lstm"}, {"mos": 2}, {"softmax": "adaptive", "tied": False}], ids=str)
@pytest.mark.parametrize("prompt", ["", "a b", "c"])
def test_greedy_is_the_argmax_of_whole_passes(options, prompt):
    small = model(**options)
    expected = greedy(small, prompt.split(), 12)
    whole = {"words": 12, "stop_at_eos": False, "count": 2}
    assert generate(small, prompt, temperature=0, **whole) == [expected] * 2
    assert generate(small, prompt.split(), temperature=0.7, top_k=1, seed=1, **whole) == [expected] * 2
    assert generate(small, prompt.split(), top_p=1e-9, seed=2, **whole) == [expected] * 2
    assert generate(small, prompt.split(), temperature=1e-300, seed=3, **whole) == [expected] * 2


def test_frequencies_follow_the_distribution():
    small, count = model(), 4000
    p = next_probabilities(small, ["a"])
    p[UNK] = 0
    p /= p.sum()
    texts = generate(small, ["a"], words=2, count=count, seed=0, stop_at_eos=False)
    assert _chi_square([text[0] for text in texts], p) < 24.3  # 7 words: p = 0.0005 with 6 degrees of freedom
    word = max(set("abcdef"), key=lambda w: p[TOKENIZER.ids([w])[0]])
    p = next_probabilities(small, ["a", word])  # the second word depends on the first: states are each text's own
    p[UNK] = 0
    assert _chi_square([text[1] for text in texts if text[0] == word], p / p.sum()) < 24.3
    assert _chi_square([text[1] for text in texts if text[0] != word], p / p.sum()) > 24.3


def test_temperature_top_k_and_top_p_shape_the_distribution():
    small = model()
    p = next_probabilities(small, [])
    p[UNK] = 0
    p /= p.sum()
    hot = (p.log() / 2).softmax(-1)
    order = p.argsort(descending=True)
    top = p.clone()
    top[order[3:]] = 0
    for options, expected in (({"temperature": 2.0}, hot), ({"top_k": 3}, top / top.sum())):
        texts = generate(small, words=1, count=4000, seed=0, stop_at_eos=False, **options)
        assert _chi_square([text[0] for text in texts], expected) < 24.3
    share = (p[order[0]] + p[order[1]] / 2).item()  # the first word alone does not reach it, two do
    texts = generate(small, words=1, count=400, seed=0, stop_at_eos=False, top_p=share)
    assert {text[0] for text in texts} == {TOKENIZER.vocabulary[k] for k in order[:2]}


def _chi_square(words, p):
    counts = torch.zeros(len(p), dtype=torch.float64)
    for word in words:
        counts[TOKENIZER.vocabulary.index(word)] += 1
    assert (counts[p == 0] == 0).all()
    expected = p[p > 0] * len(words)
    return ((counts[p > 0] - expected) ** 2 / expected).sum().item()


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (0, 0.99)])
def test_the_ends_of_the_scale_never_pick_what_has_no_share(top_k, top_p):
    log_p = torch.tensor([[0, 0.7, 0.2, 0.1, 0]]).log().expand(3, -1)
    chosen = _choose(log_p, torch.tensor([0, 0.75, 1], dtype=torch.float64), 1.0, top_k, top_p)
    assert chosen.tolist() == [1, 2, 3]


def test_the_same_seed_gives_the_same_text_and_more_of_it():
    small = model()
    torch.manual_seed(0)
    five = generate(small, words=9, count=5, seed=7)
    assert generate(small, words=9, count=5, seed=7) == five
    assert generate(small, words=9, count=2, seed=7) == five[:2]
    assert generate(small, words=9, count=5, seed=8) != five
    assert generate(small, words=9, count=5) != generate(small, words=9, count=5)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert drawn == torch.rand(1)  # torch's own numbers were not touched
    assert len({" ".join(text) for text in five}) > 1


def test_texts_end_before_eos():
    small = model()
    whole = generate(small, words=30, count=20, seed=0, stop_at_eos=False)
    ended = generate(small, words=30, count=20, seed=0)
    assert all(len(text) == 30 for text in whole)
    assert ended == [text[: text.index("<eos>")] if "<eos>" in text else text for text in whole]
    assert len({len(text) for text in ended}) > 1


def test_unk_only_if_asked_for():
    small = model(tied=False)
    with torch.no_grad():
        small.decoder.bias[UNK] += 9
    assert not any("<unk>" in text for text in generate(small, count=50, seed=0))
    assert "<unk>" not in generate(small, temperature=0)[0]
    assert generate(small, words=3, temperature=0, unk=True) == [["<unk>"] * 3]


def test_the_mode_is_left_alone():
    small = model(dropout_output=0.4, weight_dropout=0.5)
    expected = generate(small, seed=1, count=3)
    assert generate(small.train(), seed=1, count=3) == expected
    assert all(module.training for module in small.modules())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("words", 0),
        ("count", 0),
        ("temperature", -1),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0),
        ("top_p", 2),
    ],
)
def test_bad_options_are_named(name, value):
    with pytest.raises(UserError, match=f"^{name} {value}: "):
        generate(model(), **{name: value})
