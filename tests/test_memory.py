"""Sizes are checked before memory is taken for them: in settings, in model folders, on the command line."""

import json
import platform
import subprocess
import sys

import pytest

from helpers import onlstm, random_grammar, random_model
from onlstm import memory
from onlstm.errors import UserError, nearest_divisors
from onlstm.grammar.config import GrammarConfig
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.paper.logic.classifier import Classifier
from onlstm.paper.logic.config import ModelConfig
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer

HUGE = 10**9
TOKENIZER = Tokenizer.of_words(["dogs", "bark"])


def test_what_is_available():
    assert 10**8 < memory.available() < 10**15
    memory.check(10**7, "this", "")
    with pytest.raises(UserError, match=r"^this: 1,000,000,000\.0 GB of memory are needed, .* GB are left; wait$"):
        memory.check(10**18, "this", "wait")


@pytest.mark.parametrize("limits", ["1000", "max"])
def test_a_container_has_less(tmp_path, monkeypatch, limits):
    (tmp_path / "memory.max").write_text(f"{limits}\n")
    monkeypatch.setattr(memory, "_LIMITS", (str(tmp_path / "memory.max"), str(tmp_path / "none")))
    assert (memory.available() == 1000) == (limits == "1000")


def test_what_no_machine_has():
    for settings in ({"hidden_size": HUGE}, {"num_layers": HUGE}, {"embedding_size": HUGE}, {"hidden_size": (HUGE, 4)}):
        name = next(iter(settings))
        with pytest.raises(UserError, match=rf"model\.{name} .*: at most 1,000"):
            LMConfig(**{"rnn": "onlstm", **settings})
        with pytest.raises(UserError, match=rf"model\.{name} .*: at most 1,000"):
            ModelConfig(**{name: HUGE})
    with pytest.raises(UserError, match=r"grammar\.nonterminals 1000000000: at most 1,000,000"):
        GrammarConfig(nonterminals=HUGE)
    assert nearest_divisors(7, 999_983 * 1000, 999_983 * 10) == [5, 10]


def test_what_this_machine_does_not_have(monkeypatch):
    config = LMConfig(vocab_size=9, embedding_size=8, hidden_size=20, chunk_size=4)
    monkeypatch.setattr(memory, "available", lambda: config.least_bytes)
    weights = LanguageModel(config).parameters()
    assert 0.5 * sum(4 * p.numel() for p in weights) < config.least_bytes <= memory.available()
    monkeypatch.setattr(memory, "available", lambda: 1000)
    for make in (
        lambda: LanguageModel(config),
        lambda: Grammar(GrammarConfig(vocab_size=9, nonterminals=30, preterminals=30, size=8)),
        lambda: Classifier(ModelConfig()),
        lambda: Classifier(ModelConfig(encoder="tree-lstm")),
        lambda: Classifier(ModelConfig(encoder="ordered-memory")),
    ):
        with pytest.raises(UserError, match=r"GB of memory are needed, 0\.0 GB are left; choose smaller sizes"):
            make()


SIZES = ["hidden_size", "num_layers", "embedding_size", "vocab_size", "nonterminals", "preterminals", "size"]


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("size", [HUGE, 40_000])
def test_a_folder_whose_sizes_are_not_those_of_its_weights(tmp_path, name, size):
    model = random_model(TOKENIZER) if name in LMConfig.__dataclass_fields__ else random_grammar(TOKENIZER)
    model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    settings = config.get("model") or config["grammar"]
    settings[name] = size
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"config.json|tokenizer.json") as error:
        Parser.load(tmp_path)
    assert len(str(error.value)) < 500


def test_on_the_command_line(tmp_path):
    (tmp_path / "a.txt").write_text("dogs bark\n" * 99)
    for option, size in (
        ("hidden-size", HUGE),
        ("num-layers", HUGE),
        ("embedding-size", HUGE),
        ("hidden-size", 900_000),
    ):
        for command in (["train", tmp_path / "a.txt"], ["logic"]):
            done = onlstm(*command, f"--model.{option}", size, "--out", tmp_path / "run")
            assert (done.code, done.err.count("\n")) == (2, 1)
            assert f"--model.{option} {size}: at most" in done.err or "GB of memory are needed" in done.err
            assert not (tmp_path / "run").exists()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_freed_is_kept_for_the_next_time(keeps):
    """Pages that are taken anew are counted by the system as faults."""
    program = f"""if True:
        import ctypes, resource
        from onlstm import memory
        if {keeps}:
            memory.keep()
        libc, size, pages = ctypes.CDLL(None), 10**8, []
        libc.malloc.restype = ctypes.c_void_p
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size)))
            ctypes.memset(block, 1, size)
            libc.free(block)
            pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        print(pages[0], pages[2])
    """
    first, third = map(int, subprocess.check_output([sys.executable, "-c", program], text=True).split())
    assert first > 20, "memory is taken"
    assert third < first / 10 if keeps else third > first / 2
