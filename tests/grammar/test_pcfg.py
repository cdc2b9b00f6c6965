"""The grammar: distributions that sum to one, likelihood by its definition, reading in batches, the folder."""

import itertools
import json
import os

import pytest
import torch

from onlstm.errors import UserError
from onlstm.grammar.config import GrammarConfig
from onlstm.grammar.pcfg import Grammar, batches
from onlstm.kernels import chart
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.text.tokenizer import Tokenizer

WORDS = ["the", "cat", "dog", "saw", "slept"]


def grammar(seed=0, N=4, P=6, size=8, dtype=torch.float64):
    torch.manual_seed(seed)
    tokenizer = Tokenizer.of_words(WORDS)
    config = GrammarConfig(vocab_size=len(tokenizer), nonterminals=N, preterminals=P, size=size)
    return Grammar(config, tokenizer).to(dtype).eval()


def test_every_distribution_sums_to_one():
    model = grammar()
    rules = model.rules()
    for table in (rules.root, rules.left, rules.right, model.emissions().T):
        torch.testing.assert_close(table.exp().sum(-1), torch.ones_like(table[..., 0]), rtol=0, atol=1e-12)


def test_sentences_of_a_length_are_as_likely_as_derivations_of_that_length():
    """Summed over all sentences, words do not matter: what is left is the probability that a tree has n leaves."""
    model = grammar()
    rules = model.rules()
    left, right = rules.left.exp(), rules.right.exp()
    leaf = [left[:, 4:].sum(1), right[:, 4:].sum(1)]
    leaves = {2: leaf[0] * leaf[1]}
    leaves[3] = leaf[0] * (right[:, :4] @ leaves[2]) + (left[:, :4] @ leaves[2]) * leaf[1]
    for n, by_symbol in leaves.items():
        everything = torch.tensor(list(itertools.product(range(model.config.vocab_size), repeat=n)))
        assert model(everything)[1].exp().sum().item() == pytest.approx(
            (rules.root.exp() @ by_symbol).item(), abs=1e-12
        )


@pytest.mark.skipif(not chart.has_bfloat16(), reason="this processor does not multiply in bfloat16")
def test_bfloat16_rounds_but_a_little():
    model, ids = grammar(size=64, dtype=torch.float32), torch.tensor([[2, 3, 4, 2, 1], [1, 1, 2, 3, 0]])
    exact = model(ids)
    exact_gradients = torch.autograd.grad(exact[0], list(model.parameters()))
    rounded = model(ids, narrow=True)
    assert (exact[1] - rounded[1]).abs().max() < 0.05 * exact[1].abs().min()
    gradients = torch.autograd.grad(rounded[0], list(model.parameters()))
    for gradient, expected in zip(gradients, exact_gradients, strict=True):
        assert (gradient - expected).norm() < 0.05 * expected.norm() + 1e-6


def test_sentences_read_together_are_read_as_alone():
    model = grammar()
    generator = torch.Generator().manual_seed(1)
    sentences = [torch.randint(0, 7, (n,), generator=generator).tolist() for n in (3, 0, 7, 1, 3, 2, 7, 5, 40)]
    rules, emissions = model.rules(), model.emissions()
    for best, read in ((False, chart.posteriors), (True, chart.viterbi)):
        results = dict(model.read(sentences, best=best))
        assert sorted(results) == [k for k, sentence in enumerate(sentences) if len(sentence) > 1]
        for k, result in results.items():
            alone = read(rules, emissions[torch.tensor([sentences[k]])])
            torch.testing.assert_close(result.spans, alone.spans, rtol=0, atol=1e-9)
            assert torch.equal(result.labels, alone.labels)


def test_batches_hold_sentences_of_one_length():
    lengths = [4, 2, 4, 1, 0, 2, 4, 4]
    assert list(batches([[0] * n for n in lengths], 3)) == [[1, 5], [0, 2, 6], [7]]


def test_a_sentence_of_500_words_is_read_and_one_beyond_memory_is_refused(monkeypatch):
    model = grammar(dtype=torch.float32)
    ((_, result),) = model.read([[2, 3] * 250])
    assert result.spans[0].triu(2).sum().item() == pytest.approx(499, rel=1e-3)
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    with pytest.raises(UserError, match=r"sentence 2 has 3 words: this machine's memory"):
        list(model.read([[2], [2, 3, 4]]))


def test_the_folder_holds_it_all(tmp_path):
    model = grammar(dtype=torch.float32)
    model.save(tmp_path / "run", trust="none")
    loaded = Grammar.load(tmp_path / "run")
    assert loaded.config == model.config
    assert loaded.tokenizer.vocabulary == model.tokenizer.vocabulary
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), model.state_dict().values(), strict=True)
    )
    model.save(tmp_path / "half", half=True)
    ids = torch.tensor([[2, 3, 4, 2, 1]])
    torch.testing.assert_close(Grammar.load(tmp_path / "half")(ids)[1], model(ids)[1], rtol=1e-3, atol=0)


def test_folders_that_are_something_else_are_refused_in_a_line(tmp_path):
    sizes = {"embedding_size": 4, "hidden_size": 8, "chunk_size": 2}
    LanguageModel(LMConfig(vocab_size=7, **sizes), Tokenizer.of_words(WORDS)).save(tmp_path / "lm")
    with pytest.raises(UserError, match="folder of a language model; a grammar is needed"):
        Grammar.load(tmp_path / "lm")
    grammar().save(tmp_path / "grammar")
    with pytest.raises(UserError, match="folder of a grammar; a language model is needed"):
        LanguageModel.load(tmp_path / "grammar")
    path = tmp_path / "grammar" / "config.json"
    content = json.loads(path.read_text())
    content["grammar"]["nonterminals"] = 5
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="does not fit config"):
        Grammar.load(tmp_path / "grammar")
    content["grammar"]["colours"] = 5
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="colours"):
        Grammar.load(tmp_path / "grammar")
