"""The training of a grammar: it learns, it follows its teacher, it resumes bit for bit."""

import numpy as np
import pytest
import torch

from onlstm.errors import UserError
from onlstm.grammar.config import GrammarConfig
from onlstm.grammar.pcfg import Grammar
from onlstm.train import checkpoint
from onlstm.train.config import GrammarTrainConfig
from onlstm.train.fit import Stop, fit, restore, save
from onlstm.train.grammar import GrammarTraining, likelihood


def sentences(count, seed=0):
    """Sentences of 2 to 7 words, where an even word is followed by itself plus one."""
    generator = np.random.default_rng(seed)
    firsts = [generator.integers(0, 5, size=generator.integers(1, 4)) * 2 for _ in range(count)]
    return [np.stack((words, words + 1), 1).flatten() for words in firsts]


TRAIN, VALID = sentences(200), sentences(40, seed=1)


def branching(n, left):
    shares = np.zeros((n + 1, n + 1), np.float16)
    for k in range(n - 1):
        shares[(0, n - k) if left else (k, n)] = 1
    return shares


def training(folder, *, shares=None, seed=0, **settings):
    torch.manual_seed(seed)
    model = Grammar(GrammarConfig(vocab_size=10, nonterminals=6, preterminals=8, size=16))
    folder.mkdir(exist_ok=True)
    config = GrammarTrainConfig(**{"epochs": 4, "batch_size": 16, "lr": 2e-2} | settings)
    return GrammarTraining(model, TRAIN, VALID, config, folder, shares=shares, seed=seed)


def test_likelihood_rises(tmp_path):
    run = training(tmp_path / "run", epochs=8)
    before = likelihood(run.model, VALID)
    records = []
    assert fit(run, [records.append])
    after = likelihood(run.model, VALID)
    assert before < -2.3  # a model in which words know nothing of each other has log 10 at best
    assert after > -2.0
    epochs = [record.numbers for record in records if record.event == "epoch"]
    assert epochs[-1]["valid_loss"] == pytest.approx(-after)


@pytest.mark.parametrize("left", [True, False])
def test_the_teacher_is_followed(tmp_path, left):
    shares = [branching(len(words), left) for words in TRAIN]
    run = training(tmp_path / "run", shares=shares, tilt=4.0, epochs=6)
    assert fit(run)
    wanted = dict(run.model.eval().read([VALID[k].tolist() for k in range(20)]))
    spans = [result.spans[0].numpy() * branching(len(VALID[k]), left) for k, result in wanted.items()]
    constituents = sum(len(VALID[k]) - 1 for k in wanted)
    assert sum(part.sum() for part in spans) > 0.9 * constituents


def test_the_tilt_falls_as_planned():
    config = GrammarTrainConfig(tilt=2.0, tilt_hold=0.3, tilt_end=1.2)
    assert [round(config.tilt_at(done), 6) for done in (0, 0.3, 0.75, 1)] == [2, 2, 1, 0.444444]
    with pytest.raises(UserError, match="tilt_end"):
        GrammarTrainConfig(tilt_hold=1.2)


def test_a_run_that_was_cut_goes_on_bit_for_bit(tmp_path):
    shares = [branching(len(words), left=True) for words in TRAIN]
    whole = training(tmp_path / "whole", shares=shares)
    assert fit(whole)
    run = training(tmp_path / "parts", shares=shares)
    for place in (1, 17, 18, 40):
        stop = Stop()

        def stopped(record, run=run, place=place, stop=stop):
            stop.requested = run.progress.step >= place

        assert not fit(run, [stopped], stop=stop)
        run = training(tmp_path / "parts", shares=shares)
        restore(run, checkpoint.load(tmp_path / "parts"))
    assert fit(run)
    for a, b in zip(whole.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(a, b)
    save(run)


def test_no_sentences(tmp_path):
    with pytest.raises(UserError, match="no sentences of two words or more"):
        GrammarTraining(Grammar(GrammarConfig(vocab_size=3)), [], VALID, GrammarTrainConfig(), tmp_path)
