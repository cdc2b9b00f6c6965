"""Recipes: what comes with the package, overrides by type, and mistakes that name the nearest key."""

import pytest
import yaml

from onlstm import recipe
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.train.config import TrainConfig


@pytest.mark.parametrize("name", recipe.names())
def test_every_recipe_resolves_and_says_what_it_is(name):
    found = recipe.resolve(recipe.read(name))
    assert found.about
    assert found.source
    assert found.expected
    assert found.command.startswith("onlstm train ")
    assert f"--recipe {name}" in found.command
    assert recipe.resolve(yaml.safe_load(yaml.safe_dump(found.settings()))) == found


def test_the_recipes_are_there():
    names = ["en-small", "ptb-paper", "ptb-paper-lstm", "quick", "syneval-paper", "syneval-small", "tiny", "wikitext2"]
    assert recipe.names() == names


def test_ptb_paper_is_the_default_of_the_configurations():
    found = recipe.resolve(recipe.read("ptb-paper"))
    assert found.model == LMConfig()
    assert found.train == TrainConfig()
    assert found.seed == 141


def test_the_syneval_network_is_untied_two_layers_of_650():
    found = recipe.resolve(recipe.read("syneval-paper")).model
    assert (found.embedding_size, found.sizes, found.tied) == (200, (650, 650), False)


def test_overrides_take_strings_of_the_command_line():
    over = {
        "model": {"hidden-size": "640", "tied": "false", "dropout_input": "0"},
        "train": {"lr": "1e-3", "optimizer": "adamw", "averaging": "none"},
        "text": {"vocab-size": "null", "profile": "ptb-en"},
        "seed": "7",
    }
    found = recipe.resolve(recipe.read("quick"), over)
    assert (found.model.hidden_size, found.model.tied, found.model.dropout_input) == (640, False, 0.0)
    assert (found.train.lr, found.train.optimizer) == (0.001, "adamw")
    assert (found.text.vocab_size, found.text.profile, found.seed) == (None, "ptb-en", 7)
    sizes = recipe.resolve(recipe.read("quick"), {"model": {"hidden-size": "[24, 16, 256]"}}).model.sizes
    assert sizes == (24, 16, 256)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model": {"hiden-size": "3"}}, "model.hiden_size: no such setting; did you mean model.hidden_size?"),
        ({"train": {"learning_rate": "3"}}, "train.learning_rate: no such setting; there are train.epochs"),
        ({"modle": {"x": "3"}}, "modle: no such setting; did you mean model?"),
        ({"model": {"vocab-size": "3"}}, "model.vocab_size: comes from the text; say text.vocab_size"),
        ({"train": {"epochs": "many"}}, "train.epochs many: a whole number is needed"),
        ({"train": {"epochs": "2.5"}}, "train.epochs 2.5: a whole number is needed"),
        ({"train": {"lr": "true"}}, "train.lr true: a number is needed"),
        ({"model": {"tied": "1"}}, "model.tied 1: true or false is needed"),
        ({"model": {"rnn": "gru"}}, "model.rnn gru: one of onlstm, lstm is needed"),
        ({"model": {"hidden_size": "[1, a]"}}, "a whole number or a list [1150, 1150, 400] is needed"),
        ({"seed": "x"}, "seed x: a whole number is needed"),
        ({"train": {"epochs": "0"}}, "train.epochs 0: at least 1"),
        ({"train": {"clip": "-1"}}, "train.clip -1.0: at least 0"),
        ({"train": {"patience": "-3"}}, "train.patience -3: at least 0"),
        ({"train": {"lr": "["}}, "train.lr [: a number is needed"),
        ({"train": {"lr": "nan"}}, "train.lr nan: a number above 0 is needed"),
        ({"model": {"init_range": "-1"}}, "model.init_range -1.0: at least 0"),
        ({"model": {"mos": "-1"}}, "model.mos -1: at least 0"),
        ({"model": "3"}, "model 3: settings are needed, such as model.vocab_size"),
        ({"name": {"x": "1"}}, "name {'x': '1'}: a word is needed"),
        ({"seed": "99999999999999999999999"}, "seed 99999999999999999999999: from 0 to less than 2**63"),
        ({"text": {"min_count": "0"}}, "text.min_count 0: at least 1"),
    ],
)
def test_mistakes_are_named(overrides, message):
    with pytest.raises(UserError) as caught:
        recipe.resolve(recipe.read("quick"), overrides)
    assert message in str(caught.value)


def test_a_file_may_be_a_recipe_and_may_be_broken(tmp_path):
    good = tmp_path / "mine.yaml"
    good.write_text("text: {}\nmodel: {rnn: lstm}\ntrain: {epochs: 2}\n")
    found = recipe.resolve(recipe.read(str(good)))
    assert (found.name, found.model.rnn, found.train.epochs) == ("mine", "lstm", 2)
    good.write_text("text: {}\nmodel: {rnn: lstm\n")
    with pytest.raises(UserError, match=r"mine.yaml:\d: not YAML"):
        recipe.read(str(good))
    for text, message in (("text: 5", "text 5: settings"), ("model: [1, 2]", "model"), ("1: 2", "1: no such setting")):
        good.write_text(text)
        with pytest.raises(UserError, match=message):
            recipe.resolve(recipe.read(str(good)))
    good.write_bytes(b"about: caf\xe9")
    with pytest.raises(UserError, match="cannot be read"):
        recipe.read(str(good))
    good.write_text("just words")
    with pytest.raises(UserError, match="a recipe has the keys"):
        recipe.read(str(good))
    with pytest.raises(UserError, match="no such file"):
        recipe.read(str(tmp_path / "other.yaml"))
