"""Recipes: what comes with the package, options on top of them, and mistakes that name the nearest key."""

import pytest
import yaml

from helpers import onlstm
from onlstm import recipe
from onlstm.cli.main import app, joined, load_commands
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.recipe import Recipe
from onlstm.train.config import TrainConfig


def settings(*words: str) -> dict:
    """The arguments that `onlstm train` is called with."""
    load_commands()
    _, bound, _ = app.parse_args(list(joined(["train", "text.txt", *words])), exit_on_error=False, print_error=False)
    return bound.arguments


def refused(*words: object) -> str:
    ended = onlstm("train", "text.txt", *words)
    assert (ended.code, ended.out) == (2, "")
    return ended.err.strip()


@pytest.mark.parametrize("name", recipe.names())
def test_every_recipe_says_what_it_is_and_comes_back_from_its_settings(name):
    loaded = Recipe.of(recipe.read(name))
    assert all((loaded.about, loaded.source, loaded.expected))
    assert loaded.command.startswith("onlstm train ")
    assert f"--recipe {name}" in loaded.command
    assert Recipe.of(yaml.safe_load(yaml.safe_dump(loaded.settings()))) == loaded


@pytest.mark.parametrize("name", recipe.names())
def test_the_command_line_reads_a_recipe_as_the_library_does(name):
    arguments, loaded = settings("--recipe", name), Recipe.of(recipe.read(name))
    assert arguments["text"] == loaded.text
    assert arguments["model"] == loaded.model
    assert arguments["train"] == loaded.train
    assert arguments["seed"] == loaded.seed


def test_the_recipes_are_there():
    names = [
        "en-small",
        "ptb-evening",
        "ptb-paper",
        "ptb-paper-lstm",
        "quick",
        "syneval-paper",
        "syneval-small",
        "tiny",
        "wikitext2",
    ]
    table_1 = ["gal-variational", "inan-augmented", "kim-charcnn", "melis-skip", "mos", "pointer-sentinel", "prpn-lm"]
    table_1 += ["prpn-up", "table1-small", "zaremba-large", "zaremba-medium", "zilly-rhn", "zoph-nas"]
    assert recipe.names() == sorted(names + table_1)


def test_settings_of_another_network_are_refused_where_they_are_asked_for(tmp_path):
    message = r"model.chunk_size: not a setting of rnn lstm; only of onlstm$"
    with pytest.raises(UserError, match=f"^{message}"):
        settings("--model.rnn", "lstm", "--model.chunk-size", "4")
    (tmp_path / "mine.yaml").write_text("model: {rnn: lstm, chunk_size: 4}")
    with pytest.raises(UserError, match=message):
        recipe.read(str(tmp_path / "mine.yaml"))
    assert (
        settings("--recipe", "quick", "--model.rnn", "lstm")["model"].rnn == "lstm"
    )  # the recipe's chunks do not count


def test_ptb_paper_is_the_default_of_the_configurations():
    loaded = Recipe.of(recipe.read("ptb-paper"))
    assert loaded.model == LMConfig()
    assert loaded.train == TrainConfig()
    assert loaded.seed == 141


def test_the_syneval_network_is_untied_two_layers_of_650():
    model = Recipe.of(recipe.read("syneval-paper")).model
    assert (model.embedding_size, model.sizes, model.tied) == (200, (650, 650), False)


def test_options_stand_above_the_recipe_and_have_their_types():
    options = "--model.hidden-size 640 --model.tied false --model.dropout_input 0 --train.lr 1e-3 --seed 7"
    options += " --train.optimizer adamw --train.averaging none --text.vocab-size null --text.profile ptb-en"
    arguments = settings(*options.split())
    model, train, text = arguments["model"], arguments["train"], arguments["text"]
    assert (model.hidden_size, model.tied, model.dropout_input) == (640, False, 0.0)
    assert (train.lr, train.optimizer) == (0.001, "adamw")
    assert (text.vocab_size, text.profile, arguments["seed"]) == (None, "ptb-en", 7)
    assert settings("--model.hidden-size", "[24, 16, 256]")["model"].sizes == (24, 16, 256)
    assert settings("--model.tied", "--seed", "7")["model"].tied
    assert settings("--model.hidden-size=400", "--model.embedding-size=400")["model"].sizes == (400, 400, 400)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--model.hiden-size 3", "Did you mean --model.hidden-size?"),
        ("--train.learning_rate 3", "Unknown option: --train.learning_rate=3."),
        ("--modle.x 3", "Unknown option: --modle.x=3."),
        ("--model.hidden-size big", "--model.hidden-size big: a whole number or a list such as [1150, 1150, 400] is"),
        ("--model.hidden-size [24,16", "--model.hidden-size [24,16: a whole number or a list"),
        ("--model.tied perhaps", 'Invalid value for --model.tied: unable to convert "perhaps" into bool.'),
        ("--model.rnn gru", "Invalid value"),
        ("--train.lr fast", 'Invalid value for --train.lr: unable to convert "fast" into float.'),
        ("--train.lr 0", "train.lr 0.0: a number above 0 is needed"),
        ("--train.lr nan", "train.lr nan: a number above 0 is needed"),
        ("--train.epochs 2.5", "train.epochs 2.5: a whole number is needed"),
        ("--train.epochs 0", "train.epochs 0: at least 1 is needed"),
        ("--model.chunk-size 7", "nearest that work: 4, 8"),
        ("--model.dropout-input 1", "--model.dropout-input 1.0: a number from 0 to less than 1 is needed"),
        ("--model.vocab-size 5", "--model.vocab-size: comes from the text; set text.vocab_size"),
        ("--text.min-count 0", "--text.min-count 0: at least 1 is needed"),
        ("--seed -1", "seed -1: a number from 0 to below 2**63 is needed"),
        ("--recipe quik", "recipe quik: no such recipe; did you mean quick?"),
        ("--recipe nowhere.yaml", "recipe nowhere.yaml: cannot be read (No such file or directory)"),
    ],
)
def test_a_mistake_in_an_option_is_named(options, message):
    assert message in refused(*options.split())


def test_a_file_is_a_recipe_and_its_mistakes_are_named(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model: {hidden_size: [8, 16], embedding_size: 16, chunk_size: 4}\ntrain: {epochs: 2}")
    arguments = settings("--recipe", str(path))
    assert (arguments["model"].sizes, arguments["train"].epochs) == ((8, 16), 2)
    for content, message in [
        ("model: [1\n", "mine.yaml:2: not YAML"),
        ("- 1", "mine.yaml: a recipe has the keys text, model and train"),
        ("model: {hiden_size: 8}", 'Unknown option: "[model][hiden_size]" from mine.yaml. Did you mean'),
        ("model: {hidden_size: x}", "model.hidden_size x: a whole number or a list"),
        ("model: 3", "mine.yaml: model 3: settings are needed, as in model: {NAME: VALUE}"),
        ("modle: {hidden_size: 8}", "mine.yaml: modle: no such setting; did you mean model?"),
        ("train: {epochs: many}", "train.epochs many: a whole number is needed"),
        ("train: {epochs: 1.5}", "train.epochs 1.5: a whole number is needed"),
    ]:
        path.write_text(content)
        assert message in refused("--recipe", path)


def test_a_recipe_of_plain_data_names_an_unknown_key():
    with pytest.raises(UserError, match="hiden_size"):
        Recipe.of({"name": "x", "model": {"hiden_size": 3}})
