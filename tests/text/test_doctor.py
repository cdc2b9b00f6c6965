"""The doctor: its figures against plain counting, and one text for every complaint."""

import json
import lzma
from dataclasses import asdict

import pytest

from helpers import onlstm
from onlstm.cli.text import page
from onlstm.errors import UserError
from onlstm.text.config import TextConfig
from onlstm.text.corpus import prepare
from onlstm.text.doctor import examine
from onlstm.text.tokenizer import Tokenizer

ANIMALS = ["cat", "dog", "cow", "hen", "pig", "owl"]
SENTENCES = [f"The {a} saw the {b} near house {n}, I think." for n in range(8) for a in ANIMALS for b in ANIMALS]


def text(tmp_path, lines, name="text.txt"):
    path = tmp_path / name
    path.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
    return path


def problems(diagnosis):
    return " | ".join(finding.problem for finding in diagnosis.findings)


def test_figures(tmp_path):
    found = examine(text(tmp_path, [*SENTENCES, "", "once"]))
    assert (found.lines, found.blank, found.words) == (290, 1, 288 * 10 + 1)
    assert found.tokens == found.words + 289
    assert found.profile == "generic"
    assert found.vocabulary == 2 + 6 + 8 + 6 + 1 - 0
    assert found.once == 1
    assert found.histogram == (("1-5", 1), ("6-10", 288))
    assert found.longest == 10
    assert (found.unknown, found.held_out_unknown) == (0.0, 0.0)
    assert "every 20th line" in found.held_out


def test_counts_are_those_of_a_preparation(tmp_path):
    text(tmp_path, SENTENCES, "train.txt")
    text(tmp_path, ["The fox saw a zebra, no?"] * 4, "valid.txt")
    found = examine(tmp_path, TextConfig(min_count=2))
    corpus = prepare(tmp_path, tmp_path / "out", TextConfig(min_count=2))
    splits = corpus.parts.values()
    assert found.words == sum(part.words for part in splits)
    assert found.tokens == sum(part.tokens for part in splits)
    assert found.vocabulary == len(corpus.tokenizer)
    valid = corpus.parts["valid"]
    assert found.held_out_unknown == pytest.approx(100 * valid.unknown / valid.words)
    assert found.held_out == "valid.txt"
    assert set(found.missed) == {"a", "fox", "no", "zebra"}


def test_with_the_tokenizer_of_a_run(tmp_path):
    tokenizer = Tokenizer.of_words(["the", "saw", "cat"], "ptb-en")
    found = examine(text(tmp_path, ["The cat saw the dog."]), tokenizer=tokenizer)
    assert (found.profile, found.reason, found.vocabulary) == ("ptb-en", "of the run", 5)
    assert found.unknown == pytest.approx(20)
    assert found.held_out_unknown is None
    assert found.sample == ((("The", True), ("cat", True), ("saw", True), ("the", True), ("dog", False)),)
    assert "20.0 % unknown words in this text" in problems(found)
    assert "too small" not in problems(found)
    assert "The · cat · saw · the · [dog]" in "\n".join(page(found, {}))


COMPLAINTS = {
    "latin1": ("the caf\xe9 is\n".encode("latin1") * 9, {}, "text.txt:1: not UTF-8 (byte 0xe9 at column 8)"),
    "nul": (b"the cat\nd\0g\n", {}, "text.txt:2: not text (a NUL byte at column 2)"),
    "utf-16": ("the caf\xe9 is\n".encode("utf-16"), {}, "text.txt:1: not UTF-8"),
    "archive": (lzma.compress(bytes(range(256)) * 99)[:99], {}, "text.txt: broken or truncated archive"),
    "empty": (b"", {}, "text.txt: empty"),
    "no words": (b"\n ...\n", {}, "no words at all"),
    "small": (SENTENCES, {}, "too small to train on: 2,880 words"),
    "paragraphs": ([" ".join(SENTENCES[:20])] * 3, {}, "paragraphs, not sentences"),
    "a huge line": ([*SENTENCES, "so " * 100_000], {}, "longest 100,000"),
    "one word a line": (ANIMALS * 9, {}, "most lines have one word"),
    "duplicates": (SENTENCES * 2, {}, "50% of the lines are repeated"),
    "unknown": ([f"word{n} and" for n in range(400)], {}, "50.0 % unknown words in every 20th line"),
    "never unknown": (SENTENCES, {}, "no unknown word to train <unk> on"),
    "tokenised": (["the cat , he said , slept ."] * 9, {"profile": "generic"}, "looks tokenised already"),
    "raw": (SENTENCES, {"profile": "pretokenized"}, "looks raw"),
    "upper": ([line.upper() for line in SENTENCES], {"profile": "pretokenized"}, "upper case only"),
    "thai": (["สวัสดีครับผมชื่อสมชาย"] * 9, {}, "a script without spaces"),
    "chinese": (["我们今天去公园看花。"] * 9, {}, "a script without spaces"),
    "segmented": (["我们 今天 去 公园 看 花 。"] * 9, {"profile": "generic"}, "(spaces stand between Chinese"),
    "control": (["fine", "bad\x07 one"], {}, "control characters in 1 line, first in"),
    "html": (["<p>Hello there</p>"], {}, "HTML or XML tags"),
    "entities": (["Tom &amp; Jerry ran"], {}, "HTML entities"),
    "wiki": (["a [[link]] here"], {}, "wiki markup"),
    "mojibake": (["un cafÃ© noir"], {}, "garbled letters"),
    "lost": (["un caf\ufffd noir"], {}, "replacement characters"),
    "eos": (["a b c <eos>"], {}, "the token <eos> itself"),
}


@pytest.mark.parametrize(("lines", "options", "problem"), COMPLAINTS.values(), ids=COMPLAINTS)
def test_every_problem_is_found_and_answered(tmp_path, lines, options, problem):
    found = examine(text(tmp_path, lines), TextConfig(**options))
    assert problem in problems(found)
    assert all(finding.remedy for finding in found.findings)
    shown = "\n".join(page(found, {}))
    assert problem in shown
    assert shown.count("→") == len(found.findings)
    assert json.loads(json.dumps(asdict(found)))["words"] == found.words


def test_a_good_text_gets_no_complaint(tmp_path):
    names = [f"{a}{b}" for a in ANIMALS for b in ANIMALS]
    lines = [f"The {a} saw {n % 97} of the {b} in village {n}." for n in range(10) for a in names for b in names]
    found = examine(text(tmp_path, [*lines, "A rare zebra passed by."]), TextConfig(min_count=2))
    assert not found.findings
    assert "Nothing to fix." in "\n".join(page(found, {}))


def test_what_is_tokenised_may_have_unknown_words(tmp_path):
    found = examine(text(tmp_path, ["the <unk> slept", "", "the cat slept"] * 20))
    assert (found.profile, found.reason) == ("pretokenized", "<unk> stands as a word")
    assert found.blank == 20
    assert found.tokens == found.words + 60
    assert found.held_out_unknown is not None
    assert "never" not in problems(found)
    assert found.unknown > 10


def test_broken_files_do_not_stop_it(tmp_path):
    good = text(tmp_path, SENTENCES, "good.txt")
    bad = text(tmp_path, b"a good line\na b\xe9d line\nand one more\n", "bad.txt")
    found = examine([bad, good, tmp_path / "none.txt", text(tmp_path, b"", "empty.txt")])
    assert found.lines == len(SENTENCES) + 3
    for problem in ("bad.txt:2: not UTF-8", "none.txt: no such file", "empty.txt: empty"):
        assert problem in problems(found)
    assert "U+FFFD" not in problems(found)


def test_nothing_to_read(tmp_path):
    found = examine(tmp_path / "none.txt")
    assert found.words == 0
    assert "no words at all" in "\n".join(page(found, {}))
    with pytest.raises(UserError, match="name a file"):
        examine([])
    with pytest.raises(UserError, match="there are ptb-en"):
        examine(text(tmp_path, SENTENCES), TextConfig(profile="english"))


def shown(path, *options):
    """What the command says has to be done."""
    return onlstm("doctor", path, *options).out.partition("What to do\n")[2]


WAYS = {
    "paragraphs": ([" ".join(SENTENCES[:20])] * 3, [], "onlstm sentences TEXT --out SENTENCES"),
    "known": (SENTENCES, ["--min-count", "1"], "onlstm train --text.min-count 2"),
    "cut": ([f"word{n} and" for n in range(400)] * 2, ["--vocab-size", "9"], "onlstm train --text.vocab-size 18"),
    "tokenised": (
        ["the cat , he said , slept ."] * 9,
        ["--profile", "generic"],
        "onlstm train --text.profile pretokenized",
    ),
    "raw": (SENTENCES, ["--recipe", "ptb-paper"], "onlstm train --text.profile generic"),
}


@pytest.mark.parametrize(("lines", "options", "way"), WAYS.values(), ids=WAYS)
def test_the_command_names_the_option_that_does_what_it_advises(tmp_path, lines, options, way):
    assert f": {way}" in shown(text(tmp_path, lines), *options)


def test_the_command_is_silent_where_the_recipe_does_it(tmp_path):
    once = text(tmp_path, [*SENTENCES, "A rare zebra passed by."])
    assert "no unknown word" in shown(once, "--min-count", "1")
    assert "no unknown word" not in shown(once), "the recipe leaves out words that occur once"
    upper = text(tmp_path, [line.upper() for line in SENTENCES], "upper.txt")
    assert "upper case" not in shown(upper), "its rules ignore case"
    assert "upper case" in shown(upper, "--recipe", "ptb-paper")
    assert onlstm("doctor", upper, "--recipe", "nosuch").code == 2
