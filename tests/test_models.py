"""Models in the box: named like runs, used where no run is named; half precision; made from a run by one command."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from helpers import onlstm, random_model
from onlstm import folder as store
from onlstm import models, recipe
from onlstm.cli.parse import run_and_text
from onlstm.errors import UserError
from onlstm.grammar.config import GrammarConfig
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.paper.card import ship
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees.tree import read_brackets

SENTENCES = ["The old cat saw a dog.", "A dog that slept saw and/or heard the old cat"]
TRUST = "guesses, all of them"


def model(**options):
    words = ["the", "a", "cat", "dog", "saw", "slept", "that", "old"]
    return random_model(Tokenizer.of_words(words, "generic"), spread=1.5, num_layers=3, **options)


def grammar(tokenizer=None):
    torch.manual_seed(0)
    tokenizer = tokenizer or model().tokenizer
    return Grammar(GrammarConfig(vocab_size=len(tokenizer), nonterminals=3, preterminals=4, size=8), tokenizer)


@pytest.fixture
def box(tmp_path, monkeypatch):
    """A box with en and en-small in it; the test is in an empty folder."""
    model().save(tmp_path / "box" / "en-small", half=True, trust=TRUST)
    grammar().save(tmp_path / "box" / "en", half=True, trust=TRUST)
    monkeypatch.setattr(models, "_BOX", tmp_path / "box")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "box"


def test_a_name_is_as_good_as_a_folder(box):
    expected = Parser.load(box / "en-small").parse(SENTENCES[0])
    assert Parser.load("en-small").parse(SENTENCES[0]) == expected
    assert len(LanguageModel.load("en-small").score(SENTENCES)) == 2
    model(seed=1).save("en-small")  # here: a folder of that name wins
    assert Parser.load("en-small").parse(SENTENCES[0]).distances != expected.distances


def test_half_precision_is_rounded_in_the_file_and_computed_in_float32(box, tmp_path):
    ours, loaded = model(), LanguageModel.load("en-small")
    ours.save(tmp_path / "whole")
    sizes = [(folder / store.WEIGHTS).stat().st_size for folder in (box / "en-small", tmp_path / "whole")]
    assert 0.4 < sizes[0] / sizes[1] < 0.7
    assert {each.dtype for each in load_file(box / "en-small" / store.WEIGHTS).values()} == {torch.float16}
    for name, value in loaded.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, ours.state_dict()[name].half().float())
    found, exact = (Parser(each).parse(SENTENCES[1]).distances for each in (loaded, ours))
    assert found == pytest.approx(exact, abs=5e-3)
    assert found != exact


def test_parse_without_a_run_uses_the_one_in_the_box(box, tmp_path):
    file, folder = tmp_path / "some text.txt", tmp_path / "texts"
    file.write_text("\n".join(SENTENCES) + "\n")
    folder.mkdir()
    (folder / "a.txt").write_text(file.read_text())
    named = onlstm("parse", "en", *SENTENCES)
    assert list(read_brackets(named.out)) == [Parser.load("en").parse(line).tree for line in SENTENCES]
    text = file.read_bytes()
    for args, input in ((SENTENCES, b""), ([file], b""), ([folder], b""), (["-"], text), ([], text)):
        assert onlstm("parse", *args, input=input) == named
        assert onlstm("parse", box / "en", *args, input=input) == named
    by_distances = onlstm("parse", "en-small", *SENTENCES)
    for option in (["--layer", 2], ["--decoder", "paper"], ["--gates", "forget"]):
        assert onlstm("parse", *SENTENCES, *option) == by_distances
    assert onlstm("parse", "en-small", "cat").out == "cat\n"
    assert onlstm("parse", "").out == "\n"
    assert onlstm("parse", "cat ").out == "cat\n"


def test_the_line_on_trust_is_for_people(box):
    line = f"en: {TRUST}\n"
    for command in ("parse", "draw"):
        done = onlstm(command, SENTENCES[0])
        assert (done.code, done.err) == (0, line)
        assert TRUST not in done.out
        assert onlstm(command, SENTENCES[0], "--quiet") == (0, done.out, "")
    done = onlstm("parse", SENTENCES[0], "--json")
    assert (json.loads(done.out)["id"], done.err) == (0, "")
    assert onlstm("parse", SENTENCES[0], "--format", "json").err == ""
    model().save("mine")
    assert onlstm("parse", "mine", SENTENCES[0]).err == ""


def test_the_line_on_trust_is_short(box):
    banks = "craft-penn 51 (36), stanford-handparsed 63 (62), masc-penn 56 (54), wsj-sample-nltk-layout 52 (40)"
    for line, shown in {
        f"trees learnt from raw text: take them as guesses; F1 (that of right-branching trees): {banks}": (
            "its trees are guesses: F1 51–63 on 4 treebanks, right-branching trees 36–62"
        ),
        "take them as guesses: wsj 52 (40)": "its trees are guesses: F1 52 on 1 treebank, right-branching trees 40",
        "never compared with a treebank": "never compared with a treebank",
    }.items():
        model().save("mine", trust=line)
        assert onlstm("parse", "mine", "the cat slept").err == f"mine: {shown}\n"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["my-rnu"], "my-rnu: no such run, file or folder; did you mean my-run?"),
        (["my-rnu", SENTENCES[0]], "my-rnu: no such run, file or folder; did you mean my-run?"),
        (["en-smal", SENTENCES[0]], "en-smal: no such run, file or folder; did you mean en-small?"),
        (["runs/firts", SENTENCES[0]], "runs/firts: no such run, file or folder; did you mean runs/first?"),
        (["./firts"], "./firts: no such run, file or folder; check the name"),
        (["hello"], "hello: no such run, file or folder; for a sentence of one word, name the run too: en"),
        (["text.txt"], "text.txt: no such run, file or folder; check the name"),
        (["en-small", "text.txt"], "text.txt: no such file; check the name"),
        (["no/such/text"], "no/such/text: no such run, file or folder"),
        (["runs/my text"], "runs/my text: no such file"),
        (["/no/such text"], "/no/such text: no such file"),
        ([SENTENCES[0], "runs/my text"], "runs/my text: no such file"),
        ([SENTENCES[0], "my-run"], "my-run: a run; name it first, before the text"),
        (["half-a-run", SENTENCES[0]], "half-a-run: not a model folder: no config.json (there is model.safetensors)"),
        (["empty"], "empty: no text file in this folder"),
        (["x" * 5000], "x"),
        (["x/" * 5000], "x"),
    ],
)
@pytest.mark.parametrize("command", ["parse", "score"])
def test_a_mistyped_name_is_no_sentence(box, command, args, line):
    model().save("my-run")
    model().save("runs/first")
    for name in ("half-a-run", "empty"):
        Path(name).mkdir()
    model().save_weights("half-a-run")
    done = onlstm(command, *args)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"onlstm: {line}")
    assert len(done.err) < 300


@given(st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=12), st.lists(st.text(max_size=9), max_size=3))
def test_what_has_blanks_and_names_nothing_is_text(parts, rest):
    words = [" ".join(parts).replace("\0", ""), *(word.replace("\0", "") for word in rest)]
    assert run_and_text(words) == ("en-small", tuple(words))


def test_draw_parses_what_has_no_tree(box, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES) + "\n")
    expected = onlstm("draw", "en", SENTENCES[0])
    assert onlstm("draw", SENTENCES[0]) == expected
    assert expected.out.count("─ cat") == 1
    assert onlstm("draw", tmp_path / "text.txt", "--select", "1") == expected
    gold = "(S (NP the old cat) (VP saw (NP a dog)))"
    assert onlstm("draw", "--gold", gold) == onlstm("draw", "en", "--gold", gold)
    assert onlstm("draw", "the old cat saw a dog", "--gold", gold) == onlstm("draw", "--gold", gold)
    assert onlstm("draw", gold).err == "", "brackets need no model"
    for args in (["hello"], ["/no/such text"], ["no/such", SENTENCES[0]], [SENTENCES[0], "en-small"]):
        done = onlstm("draw", *args)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_score_and_inspect_do_without_a_run_too(box, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(SENTENCES) + "\n")
    for command in ("score", "inspect"):
        expected = onlstm(command, "en-small", text)
        assert expected.code == 0
        assert onlstm(command, text) == expected
        assert onlstm(command, "-", input=text.read_bytes()) == expected
        assert onlstm(command, *SENTENCES) == expected
    assert onlstm("score", input=text.read_bytes()) == onlstm("score", text)
    for args in ([], ["en-small"], [box / "en-small"]):
        done = onlstm("inspect", *args)
        assert (done.code, "inspect: name a text" in done.err, done.err.count("\n")) == (2, True, 1)


def test_commands_that_need_a_run_take_a_name(box, tmp_path):
    text, bank = tmp_path / "text.txt", tmp_path / "gold.txt"
    text.write_text("the old cat saw a dog\n" * 3)
    bank.write_text("(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog))))\n" * 3)
    for args in (["eval", "{}", text], ["generate", "{}", "--seed", "1"], ["doctor", text, "--run", "{}"]):
        results = [onlstm(*(str(arg).format(run) for arg in args)) for run in ("en-small", box / "en-small")]
        assert results[0].code == 0
        assert results[0].out == results[1].out
    found = json.loads(onlstm("evaluate", "en-small", bank, "--json").out)
    assert {row["run"] for row in found["rows"] if row["system"] == "onlstm"} == {"en-small"}
    done = onlstm("eval", "en-smal", text)
    assert (done.code, done.err) == (2, "onlstm: en-smal: no such model folder; by name there is en, en-small\n")


def test_without_a_model_in_the_box_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_BOX", tmp_path)
    for command, words in product(("parse", "draw", "score", "inspect"), ([SENTENCES[0]], ["en-small", SENTENCES[0]])):
        done = onlstm(command, *words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        name = words[0] if len(words) > 1 else "en" if command in ("parse", "draw") else "en-small"
        assert done.err.startswith(f"onlstm: {name}: not in this installation; train a model")


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in models._BOX.glob("*/config.json")), ids=lambda p: p.name
)
def test_what_is_in_the_box_is_small_and_says_how_far_to_trust_it(folder):
    kind = store.kind_of(folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= {"model": 20e6, "grammar": 4e6}[kind]
    assert {path.name for path in folder.iterdir()} == {"README.md", store.CONFIG, store.WEIGHTS, store.TOKENIZER}
    assert "\n" not in store.read_config(folder)["trust"]
    tree = Parser.load(folder.name).parse("The cat that the dogs chased was tired.").tree
    assert tree.words == ("The", "cat", "that", "the", "dogs", "chased", "was", "tired")
    if kind == "grammar":
        return
    trained = recipe.Recipe.of(recipe.read(folder.name))
    saved = LMConfig.of(store.read_config(folder)["model"])  # settings that are newer than the folder: their defaults
    assert saved == replace(trained.model, vocab_size=trained.text.vocab_size, parse_layer=2)


def test_the_readme_shows_what_the_model_in_the_box_prints():
    lines = (Path(__file__).parents[1] / "README.md").read_text().splitlines()
    (place,) = [k for k, line in enumerate(lines) if line.startswith("$ onlstm parse ")]
    assert onlstm(*shlex.split(lines[place])[2:]).out == lines[place + 1] + "\n"


# Shipping


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that is done, and what was committed of its results."""
    base = tmp_path_factory.mktemp("ship")
    text = base / "text.txt"
    text.write_text("the old cat saw a dog\na dog slept\nthat cat saw the old dog\n" * 60)
    small = ["--model.embedding-size", 8, "--model.hidden-size", 12, "--model.chunk-size", 4, "--model.num-layers", 3]
    args = ["--recipe", "tiny", *small, "--train.epochs", 1, "--train.batch-size", 4, "--text.min-count", 1]
    assert onlstm("train", text, *args, "--threads", 1, "--out", base / "mine").code == 0
    (base / "results").mkdir()
    bank = base / "bank.mrg"
    bank.write_text("(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog))))\n" * 3)
    assert onlstm("evaluate", base / "mine", bank, "--out", base / "results" / "bank.json").code == 0
    (base / "results" / "twice.json").write_bytes(
        (base / "results" / "bank.json").read_bytes()
    )  # told once all the same
    return base / "mine"


def test_a_run_is_shipped_with_its_card(run, tmp_path):
    results = run.parent / "results"
    args = ["--half", "--layer", 1, "--results", results, "--note", "Text: invented; CC0", "--out", tmp_path / "new"]
    done = onlstm("convert", run, *args)
    assert (done.code, done.err) == (0, "")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        *("README.md", store.CONFIG, store.WEIGHTS, store.TOKENIZER)
    }
    trained, scored = (json.loads(path.read_text()) for path in (run / "result.json", results / "bank.json"))
    card = (tmp_path / "new" / "README.md").read_text()
    assert card.startswith("# new\n")
    for part in (
        trained["command"],
        "Text: invented; CC0",
        f"{trained['numbers']['test_perplexity']:.2f}",
        "half prec",
    ):
        assert part in card
    rows = {(row["system"], str(row.get("layer")), row.get("decoder")): row["f1"] for row in scored["rows"]}
    for decoder in ("paper", "unbiased"):
        (line,) = [line for line in card.splitlines() if f"| {decoder}" in line]
        assert [cell.strip() for cell in line.split("|")][1:5] == [
            *("bank", "on-lstm", decoder, f"{rows['onlstm', '1', decoder]:.1f}")
        ]
    trust = store.read_config(tmp_path / "new")["trust"]
    assert trust.endswith(f"bank {rows['onlstm', '1', 'paper']:.0f} ({rows['right', 'None', None]:.0f})")
    parser = Parser.load(tmp_path / "new")
    assert parser.layers == (1,)
    expected = Parser.load(run, layer=1).parse("the old cat slept").distances
    assert parser.parse("the old cat slept").distances == pytest.approx(expected, abs=1e-3)


def test_what_was_never_scored_says_so(run, tmp_path):
    assert onlstm("convert", run, "--out", tmp_path / "new").code == 0
    assert "never compared with a treebank" in store.read_config(tmp_path / "new")["trust"]
    assert "Not measured." in (tmp_path / "new" / "README.md").read_text()
    weights = load_file(tmp_path / "new" / store.WEIGHTS)
    assert {value.dtype for value in weights.values()} == {torch.float32}
    assert Parser.load(tmp_path / "new").layers == (2,)


def test_what_cannot_be_shipped_is_one_line(run, tmp_path):
    model().save(tmp_path / "bare")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    for args, line in (
        ([tmp_path / "bare", "--out", tmp_path / "new"], f"{tmp_path / 'bare'}: no result of `onlstm train`"),
        ([run, "--out", tmp_path / "full"], f"--out {tmp_path / 'full'}: already there"),
        ([run, "--layer", "4", "--out", tmp_path / "new"], "model.parse_layer 4: the layers are 1 to 3"),
        ([run, "--results", tmp_path, "--out", tmp_path / "new"], f"{tmp_path}: no results (*.json) there"),
        ([tmp_path, "--out", tmp_path / "new"], f"{tmp_path}: not a model folder"),
    ):
        done = onlstm("convert", *args)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert done.err.startswith(f"onlstm: {line}")
        assert not (tmp_path / "new").exists()


def test_names_are_known_without_torch():
    code = "import sys\nfrom onlstm import models\nmodels.names(); models.is_run('x'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_loading_a_model_does_not_import_torchs_compiler():
    code = "import sys, onlstm; onlstm.Parser.load('en-small').parse('A cat sat.')"
    assert subprocess.run([sys.executable, "-c", f"{code}; sys.exit('torch._dynamo' in sys.modules)"]).returncode == 0


def test_a_grammar_is_made_ready_to_ship(tmp_path):
    tokenizer = Tokenizer.of_words(["the", "cat", "sat"], "generic")
    grammar(tokenizer).save(tmp_path / "run")
    with pytest.raises(UserError, match="no result of `onlstm induce`"):
        ship(tmp_path / "run", tmp_path / "new", half=True, layer=None, results=None, notes=())
    stages = [{"name": "final", "seconds": 120.0, "likelihood": -5.5, "agreement": None}]
    origin = {"kind": "induction", "name": "mine", "command": "onlstm induce text", "versions": {}, "seconds": 120.0}
    record = {"format_version": 1, **origin, "threads": 2, "machine": "x", "stages": stages}
    (tmp_path / "run" / "result.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="a grammar has no layers"):
        ship(tmp_path / "run", tmp_path / "new", half=True, layer=2, results=None, notes=())
    ship(tmp_path / "run", tmp_path / "new", half=True, layer=None, results=None, notes=["Licence: CC BY-SA"])
    card = (tmp_path / "new" / "README.md").read_text()
    assert "# new" in card
    assert "3 nonterminals, 4 preterminals" in card
    assert "final 2 min, likelihood -5.50" in card
    assert "- Licence: CC BY-SA" in card
    assert Grammar.load(tmp_path / "new").tokenizer.vocabulary == tokenizer.vocabulary
