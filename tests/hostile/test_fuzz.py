"""Readers of files from anywhere: whatever the file holds, a value or a `UserError` comes out, and nothing else.

`make test` tries the same few examples each time; `make fuzz` tries many others.
"""

import io
import json
from contextlib import suppress
from copy import deepcopy

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers import random_grammar, random_model
from hostile.world import COMMON
from onlstm.errors import UserError
from onlstm.folder import read_config
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.import_original import read_checkpoint
from onlstm.lm.model import LanguageModel
from onlstm.paper.syntax import blimp
from onlstm.paper.syntax.pairs import read_pairs
from onlstm.text.tokenizer import Tokenizer
from onlstm.train import checkpoint
from onlstm.trees.tree import Tree, read_brackets
from onlstm.trees.treebank import load_profile, read_treebank
from onlstm.trees.treebank.brackets import read_text

PIECES = ["(", ")", " ", "\n", "S", "NP", "(DT the)", "(NN owl)", "-NONE-", "*", "#", "\ufeff", "\0", "\udc80"]
TEXT = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=40).map("".join)
SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, -1, 1, 2, 7, 10**9, 40_000, 2**63, -(2**63), 10**30, 1.5, 1e308, float("nan"), float("inf")])
    | st.sampled_from(["", "a", "\udc80", "9" * 5000])
    | st.text(max_size=4)
)
KEYS = st.text(max_size=3)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=5
)


@st.composite
def bent(draw, base):
    """A value like `base` with some parts replaced, deleted or added."""
    value = {"root": deepcopy(base)}
    for _ in range(draw(st.integers(1, 3))):
        place, key = value, "root"
        while isinstance(place[key], dict | list) and place[key] and draw(st.integers(0, 9)):
            place = place[key]
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if draw(st.integers(0, 4)) or key == "root":
            place[key] = draw(JSON)
        elif isinstance(place, dict):
            place[draw(st.text(max_size=3))] = place.pop(key)
        else:
            del place[key]
    return value["root"]


@st.composite
def damaged(draw, data):
    """The bytes of a file, some of them replaced, lost or added, or cut short."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 9))] = draw(st.binary(max_size=9))
    return bytes(data[: draw(st.none() | st.integers(0, len(data)))])


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def value_or_user_error(read, *args, **options):
    with suppress(UserError):
        return read(*args, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


FEW = settings(max_examples=settings.default.max_examples // 4, suppress_health_check=list(HealthCheck))
"""A quarter of the examples that a property has elsewhere: these are slower."""
DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b"7" * 5000]


@FEW
@given(TEXT)
@example("(" * 10_000 + "a" + ")" * 10_000)
@example("(S " * 10_000)
def test_brackets(text):
    trees = value_or_user_error(lambda: list(read_brackets(text)))
    for tree in trees or ():
        assert Tree.from_brackets(str(tree)).words == tree.words
    for name in ("ptb", "ptb-wide"):
        value_or_user_error(lambda: list(read_text(text, load_profile(name))))  # noqa: B023


@FEW
@given(bent({"words": ["a", "b", "c"], "spans": [[0, 3], [1, 3]], "labels": ["S", "NP"], "confidence": [1.0, 0.5]}))
def test_parses_in_json(value):
    tree = value_or_user_error(Tree.from_json, json.dumps(value))
    if tree:
        assert Tree.from_json(tree.to_json()) == tree


@FEW
@given(damaged(COMMON["tiger.xml"].encode()) | damaged(COMMON["bank.mrg"].encode()) | st.binary(max_size=60))
def test_treebanks(folder, data):
    path = folder / "bank"
    path.write_bytes(data)
    for profile in ("auto", "tiger", "alpino", "ptb"):
        bank = value_or_user_error(read_treebank, path, profile=profile)
        assert bank is None or len(bank.trees) == len(bank.sources)


PAIR = {"sentence_good": "a b", "sentence_bad": "b a", "UID": "x", "linguistics_term": "y", "pairID": "0"}
ITEM = {"template": "t", "condition": "c", "grammatical": "a b", "ungrammatical": "b a"}


@FEW
@given(st.lists(bent(ITEM) | bent(PAIR), max_size=3).map(lambda rows: "\n".join(map(json.dumps, rows)).encode()))
@example(DEEP[0])
@example(DEEP[1])
def test_json_pairs(folder, data):
    path = folder / "pairs.jsonl"
    path.write_bytes(data)
    value_or_user_error(lambda: list(read_pairs(path, str)))
    value_or_user_error(lambda: list(blimp.read(path, str)))


@FEW
@given(damaged(b"grammatical\tungrammatical\na b\tb a\n") | damaged(json.dumps(ITEM).encode()))
def test_damaged_pairs(folder, data):
    for name in ("pairs.jsonl", "pairs.tsv"):
        (folder / name).write_bytes(data)
        value_or_user_error(lambda: list(read_pairs(folder / name, str)))  # noqa: B023


TOKENIZER = Tokenizer.of_words(["the", "owl"], "generic")


@FEW
@given(
    bent(json.loads(TOKENIZER._backend.to_str())).map(lambda value: json.dumps(value).encode())
    | damaged(TOKENIZER._backend.to_str().encode())
)
@example(DEEP[0])
@example(DEEP[1])
def test_tokenizer_files(folder, data):
    (folder / "tokenizer.json").write_bytes(data)
    tokenizer = value_or_user_error(Tokenizer.load, folder / "tokenizer.json")
    if tokenizer:
        assert [token.text for token in tokenizer.tokens("The owl")] == ["The", "owl"]


@pytest.fixture(scope="module", params=["model", "grammar"])
def run(request, folder):
    random = {"model": random_model, "grammar": random_grammar}[request.param]
    random(TOKENIZER).save(folder / request.param)
    return folder / request.param, json.loads((folder / request.param / "config.json").read_text())


@FEW
@given(data=st.data())
def test_config_json(run, data):
    path, config = run
    value = data.draw(bent(config) | bent(config[path.name]).map(lambda part: config | {path.name: part}))
    (path / "config.json").write_text(json.dumps(value), errors="surrogatepass")
    value_or_user_error(read_config, path)
    loaded = value_or_user_error({"model": LanguageModel, "grammar": Grammar}[path.name].load, path)
    assert loaded is None or loaded.tokenizer.vocabulary == TOKENIZER.vocabulary


@FEW
@given(data=damaged(b'{"format_version": 1}'))
@example(DEEP[0])
@example(DEEP[1])
@example(DEEP[2])
def test_damaged_config_json(folder, data):
    (folder / "damaged").mkdir(exist_ok=True)
    (folder / "damaged" / "config.json").write_bytes(data)
    value_or_user_error(read_config, folder / "damaged")


WEIGHTS = {"rnn.cells.0.ih.0.weight": torch.zeros(10, 2), "encoder.weight": torch.zeros(3, 2), "x": [1, "a", None]}
FILES = [saved(WEIGHTS), saved([WEIGHTS, {"a": 1}]), saved(WEIGHTS, _use_new_zipfile_serialization=False)]


@FEW
@given(st.sampled_from(FILES).flatmap(damaged) | st.binary(max_size=60))
def test_checkpoints_of_the_original(folder, data):
    path = folder / "old.pt"
    path.write_bytes(data)
    value_or_user_error(read_checkpoint, path)
    (folder / "trainer.pt").write_bytes(data)
    value_or_user_error(checkpoint.load, folder)


@FEW
@given(bent({"format_version": 1, "about": {"recipe": {"name": "tiny"}}, "step": 3}))
def test_trainer_pt(folder, value):
    (folder / "trainer.pt").write_bytes(saved(value))
    content = value_or_user_error(checkpoint.load, folder)
    assert content is None or content["format_version"] == 1
