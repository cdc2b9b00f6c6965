"""What a grammar is shown to have learnt: sums, and what every rule and word has, against plain definitions."""

import pytest
import torch

from helpers import random_grammar
from onlstm.errors import UserError
from onlstm.grammar.inspection import inspect_grammar
from onlstm.kernels.chart import inside
from onlstm.text.tokenizer import Tokenizer

WORDS = ["the", "a", "cat", "dog", "saw", "slept"]
SMALL = random_grammar(Tokenizer.of_words(WORDS, "generic"))
LINES = ["The cat slept.", "A dog saw the cat.", "Dog!", "", "The cat saw a Zebra."]


def test_without_a_text_the_likeliest_come_first():
    found = inspect_grammar(SMALL, rules=10, words=3)
    with torch.no_grad():
        rules, emissions = SMALL.rules(), SMALL.emissions().exp()
    table = rules.left.exp()[:, :, None] * rules.right.exp()[:, None, :]
    assert [rule.probability for rule in found.rules] == pytest.approx(table.flatten().topk(10).values.tolist())
    for rule in found.rules:
        a, b, c = (int(name[1:]) + 5 * (name[0] == "T") for name in (rule.parent, rule.left, rule.right))
        assert rule.probability == pytest.approx(float(table[a, b, c]))
        assert rule.uses is None
    assert {row.name for row in found.preterminals} == {f"T{k}" for k in range(7)}
    for row in found.preterminals:
        probabilities = emissions[:, int(row.name[1:])]
        assert [share for _, share in row.words] == pytest.approx(probabilities.topk(3).values.tolist())
        assert [word for word, _ in row.words] == [SMALL.tokenizer.vocabulary[k] for k in probabilities.topk(3).indices]
    assert (found.sentences, found.words, found.nats_per_word, found.more) == (0, 0, None, False)


def test_uses_are_expected_counts():
    calls = []
    found = inspect_grammar(SMALL, LINES, rules=10_000, words=20, on_progress=lambda *done: calls.append(done))
    assert (found.sentences, found.words, calls[-1]) == (3, 13, (3, 3))
    assert sum(rule.uses for rule in found.rules) == pytest.approx(2 + 4 + 4, rel=1e-4)  # n - 1 for n words
    assert sum(row.uses for row in found.preterminals) == pytest.approx(13, rel=1e-4)
    uses = [row.uses for row in found.preterminals]
    assert uses == sorted(uses, reverse=True)
    the = sum(row.uses * share for row in found.preterminals for word, share in row.words if word == "the")
    assert the == pytest.approx(3, rel=1e-4)
    log_z, rules, emissions = [], SMALL.rules(), SMALL.emissions()
    for line in (LINES[0], LINES[1], LINES[4]):
        ids = torch.tensor([[token.id for token in SMALL.tokenizer.tokens(line)]])
        log_z.append(inside(rules, emissions[ids]).item())
    assert found.nats_per_word == pytest.approx(-sum(log_z) / 13, rel=1e-5)


def test_limits():
    assert inspect_grammar(SMALL, LINES, limit=2).more
    assert not inspect_grammar(SMALL, LINES, limit=3).more
    with pytest.raises(UserError, match=r"^rules 0: at least 1 is needed$"):
        inspect_grammar(SMALL, rules=0)


def test_broken_weights_are_refused():
    broken = random_grammar(Tokenizer.of_words(WORDS, "generic"))
    with torch.no_grad():
        broken.words.fill_(torch.nan)
    with pytest.raises(UserError, match=r"^the grammar's probabilities are not finite"):
        inspect_grammar(broken, LINES)
