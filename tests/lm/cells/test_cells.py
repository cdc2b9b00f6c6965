"""Every network of the paper's Table 1: one test for all that a language model asks of each."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from onlstm.errors import UserError
from onlstm.inspect import inspect
from onlstm.lm.adaptation import Cache
from onlstm.lm.config import LMConfig, check_settings
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.lm.score import evaluate, score
from onlstm.parser import Parser
from onlstm.recipe import Recipe, read
from onlstm.text.tokenizer import Tokenizer
from onlstm.train.config import TrainConfig
from onlstm.train.fit import Stop, fit, restore, save
from onlstm.train.language_model import LanguageModelTraining

WORDS = ["<unk>", "<eos>", "a", "cat", "dog", "sees", "old"]
NAMES = ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_dropout")
NETWORKS = {
    "onlstm": {"chunk_size": 2},
    "lstm": {},
    "variational": {"dropout_recurrent": 0.3, "tied": False},
    "rhn": {"depth": 3, "num_layers": 1, "dropout_recurrent": 0.2},
    "nas": {"dropout_recurrent": 0.2},
    "melis": {"hidden_size": 6, "num_layers": 3},
    "prpn": {"slots": 3, "lookback": 2, "dropout_recurrent": 0.2},
    "clockwork": {"clocks": 2},
    "nested": {"nested_mean": 0.5},
}
SETTINGS = {
    **{name: {"rnn": name, **more} for name, more in NETWORKS.items()},
    "zaremba": {"rnn": "lstm", "tied": False, "dropout_each_step": True},
    "characters": {"rnn": "lstm", "filters": (1, 2, 1), "character_size": 3, "tied": False},
    "pointer": {"rnn": "lstm", "pointer": 4, "tied": False},
    "mos": {"rnn": "lstm", "mos": 3},
    "augmented": {"rnn": "variational", "augmented": 0.5, "augmented_temperature": 3.0},
}
PAPER = (Path(__file__).parents[3] / "PAPER.md").read_text(encoding="utf-8")
PUBLISHED = re.findall(r"\| `([a-z-]+)` \| ([\d,]+) \((?:(\d+)M|not published)\) \|", PAPER)
"""Recipe, number of parameters, millions as published."""


def make(name, p=0.0, seed=0, **more):
    torch.manual_seed(seed)
    shape = {"vocab_size": len(WORDS), "embedding_size": 4, "hidden_size": 4, "num_layers": 2, "init_range": 0.9}
    settings = dict.fromkeys(NAMES, p) | shape | SETTINGS[name] | more
    settings = {key: 0.0 if key == "dropout_recurrent" and not p else value for key, value in settings.items()}
    return LanguageModel(LMConfig(**settings), Tokenizer.of_words(WORDS)).double()


def ids(steps, batch=2, seed=1):
    return torch.randint(len(WORDS), (steps, batch), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_and_windows(name):
    """Gradients are those of finite differences; a text in two windows is read as in one."""
    model, text, eps = make(name).eval(), ids(6), 1e-6

    def loss():
        return model.loss(text[:-1], text[1:], None).objective

    learnt = {"embedding.weight": name != "augmented"}  # the target, too, is made of them, and not learnt from
    parameters = [p for key, p in model.named_parameters() if learnt.get(key, True)]
    gradients = torch.autograd.grad(loss(), parameters)
    for p, gradient in zip(parameters, gradients, strict=True):
        direction, before = torch.randn_like(p), p.detach().clone()
        ends = []
        with torch.no_grad():
            for sign in (1, -1):
                p.copy_(before + sign * eps * direction)
                ends.append(loss().item())
            p.copy_(before)
        assert (ends[0] - ends[1]) / (2 * eps) == pytest.approx((gradient * direction).sum().item(), abs=1e-7, rel=1e-5)
    with torch.no_grad():
        whole, first = model.encode(text, distances=True), model.encode(text[:2], distances=True)
        second = model.encode(text[2:], first.state, distances=True)
    assert torch.allclose(torch.cat((first.hidden, second.hidden)), whole.hidden, atol=1e-12)
    for part, other in zip(sum(second.state, ()), sum(whole.state, ()), strict=True):
        assert torch.equal(part.isfinite(), other.isfinite())
        assert torch.allclose(part.nan_to_num(), other.nan_to_num(), atol=1e-12)
    assert (whole.distances is None) == (name == "nas")
    for a, b in zip(model.start(3), whole.state, strict=True):
        assert [(len(x), x.shape[2]) for x in a] == [(len(x), x.shape[2]) for x in b]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_that_was_cut_goes_on_bit_for_bit(tmp_path, name):
    text = np.random.default_rng(0).integers(0, len(WORDS), 120)
    settings = {"optimizer": "adamw", "averaging": "none", "lr": 0.01, "batch_size": 3, "bptt": 7, "epochs": 2}
    config = TrainConfig(**settings, valid_batch_size=2, vary_bptt=False)

    def training(folder):
        model = make(name, p=0.2)
        model.save_description(tmp_path / folder)
        return LanguageModelTraining(model, text, text[:40], config, tmp_path / folder)

    whole, run, stop = training("whole"), training("parts"), Stop()
    assert fit(whole)
    assert not fit(run, [lambda record: setattr(stop, "requested", record.step >= 4)], stop=stop)
    again = training("parts")
    from onlstm.train import checkpoint

    restore(again, checkpoint.load(run.folder))
    assert fit(again)
    for (key, a), b in zip(whole.model.state_dict().items(), again.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    assert whole.progress.history == again.progress.history
    save(again)


@pytest.mark.parametrize("name", SETTINGS)
def test_all_that_reads_a_model_reads_this_one(tmp_path, name):
    """Folder, scores by three ways, cache, generation and trees."""
    model = make(name).float().eval()
    model.save(tmp_path)
    loaded = LanguageModel.load(tmp_path)
    sentences = [["a", "cat", "sees", "a", "dog"], ["a", "dog"]]
    scores = score(loaded, sentences)
    assert scores[0].surprisal == score(model, sentences)[0].surprisal
    numbers = [model.tokenizer.ids(words) for words in sentences]
    by_prefix = sentence_log_probs(loaded, numbers)
    assert by_prefix == pytest.approx([-s.total for s in scores], rel=1e-4)
    stream = np.array([*numbers[0], model.tokenizer.eos_id])
    total = evaluate(loaded, stream, window=2).nll * len(stream)
    assert total == pytest.approx(scores[0].total + scores[0].eos, rel=1e-4)
    assert math.isfinite(Cache(theta=0.3, lam=0.1, size=5).evaluate(loaded, stream).nll)
    probabilities = loaded(ids(3)).logits.softmax(-1).sum(-1)
    assert torch.allclose(probabilities, torch.ones(3, 2), atol=1e-5)
    assert loaded.generate("a cat", words=4, count=2, seed=1) == model.generate("a cat", words=4, count=2, seed=1)
    if name == "nas":
        for refused in (Parser, lambda model: inspect(model, ["a cat sees a dog"])):
            with pytest.raises(UserError, match=r"^rnn nas: its cell has no gate"):
                refused(loaded)
    else:
        assert {len(parse.tree.words) for parse in Parser(loaded, layer="last").parse(sentences)} == {5, 2}
        spreads = inspect(loaded, ["a cat sees a dog", "a dog"]).spreads
        assert len(spreads) == 2 * loaded.config.distance_layers


@pytest.mark.parametrize(("name", "count", "millions"), PUBLISHED)
def test_the_published_number_of_parameters(name, count, millions):
    """With 10,000 words; PAPER.md says what papers leave open."""
    config = replace(Recipe.of(read(name)).model, vocab_size=10_000)
    with torch.device("meta"):
        model = LanguageModel(config)
    found = sum(p.numel() for p in model.parameters())
    assert f"{found:,}" == count
    assert not millions or abs(found / 1e6 - int(millions)) < 1


def test_every_row_has_its_recipe():
    assert len(PUBLISHED) == 13


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"rnn": "gru"},
            r"^model.rnn gru: one of onlstm, lstm, variational, rhn, nas, melis, prpn, clockwork, nested is",
        ),
        ({"rnn": "lstm", "depth": 3}, r"^model.depth: not a setting of rnn lstm; only of rhn$"),
        (
            {"rnn": "lstm", "dropout_recurrent": 0.1},
            r"^model.dropout_recurrent: not a setting of rnn lstm; only of var",
        ),
        ({"rnn": "rhn", "slots": 3}, r"^model.slots: not a setting of rnn rhn; only of prpn$"),
        ({"rnn": "prpn", "hidden_size": (6, 8)}, r"^model.hidden_size .*: rnn prpn needs one number for all layers$"),
        ({"rnn": "prpn", "hidden_size": 7}, r"^model.hidden_size 7: rnn prpn needs an even number$"),
        ({"rnn": "clockwork", "clocks": 3, "tied": False}, r"^model.clocks 3: must divide the layers' sizes"),
        ({"filters": (2, 3), "tied": False}, r"^model.filters: need tied: false and embedding_size: 5, their number$"),
        ({"rnn": "lstm", "hidden_size": (8, 6)}, r"^model.tied: the last layer has 6 neurons, the embedding 400; "),
        ({"rnn": "lstm", "pointer": 5, "mos": 2}, r"^model.pointer and model.augmented: only with softmax: full"),
        ({"rnn": "lstm", "augmented": 1.0, "tied": False, "hidden_size": 8}, r"^model.augmented: only with tied: true"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(settings, message):
    with pytest.raises(UserError, match=message) as caught:
        LMConfig(**{"hidden_size": 8, "num_layers": 2, "chunk_size": 4} | settings)
    assert "\n" not in str(caught.value)


def test_a_chunk_size_for_an_lstm_is_refused_only_where_it_was_asked_for():
    with pytest.raises(UserError, match=r"^model.chunk_size: not a setting of rnn lstm; only of onlstm$"):
        check_settings("lstm", ["chunk_size"])
    assert replace(LMConfig(chunk_size=5), rnn="lstm").chunk_size == 5  # as folders of LSTMs have it


def test_dropout_is_drawn_once_or_for_each_word():
    x, masks = torch.ones(50, 2, 3), Masks(torch.Generator().manual_seed(0))
    once, often = masks.locked(x, 0.5), masks.locked(x, 0.5, each_step=True)
    assert torch.equal(once[0], once[-1])
    assert 0.3 < (often == 0).double().mean() < 0.7
    assert not torch.equal(often[0], often[1])
