"""Corpora: published counts, parts held out, defects, and a straightforward encoding as the oracle."""

import bz2
import gzip
import hashlib
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.text.config import TextConfig
from onlstm.text.corpus import encode_text, load
from onlstm.text.corpus import prepare as prepare_corpus
from onlstm.text.rules import rules
from onlstm.text.tokenizer import Tokenizer, vocabulary

DATA = Path(__file__).parents[3] / "shared" / "data"
RAW = ["The cat saw Mr. Lee, who slept.", "", "It didn't see 3 dogs!", "...", "No one came to the U.S."]


def write(folder, **files):
    for name, lines in files.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


def prepare(sources, folder, say=lambda line: None, **settings):
    return prepare_corpus(sources, folder, TextConfig(**settings), say)


def counts(corpus):
    return {split: part.tokens for split, part in corpus.parts.items()}


def words(corpus, part):
    return [corpus.tokenizer.vocabulary[id] for id in getattr(corpus, part)]


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")
@pytest.mark.parametrize(
    ("name", "tokens", "entries"),
    [("ptb-lm", (929_589, 73_760, 82_430), 10_000), ("wikitext-2", (2_088_628, 217_646, 245_569), 33_278)],
)
def test_published_counts(tmp_path, name, tokens, entries):
    corpus = prepare(DATA / name, tmp_path)
    assert tuple(counts(corpus).values()) == tokens
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == tokens
    assert len(corpus.tokenizer) == entries
    assert corpus.tokenizer.profile == "pretokenized"
    path = next(path for path in (DATA / name).iterdir() if "train" in path.name)
    with lzma.open(path, "rb") as file:
        text = file.read()
    assert corpus.parts["train"].sha256 == hashlib.sha256(text).hexdigest()
    written = text.decode().replace("\n", " <eos> ").split()
    assert words(corpus, "train") == written


@settings(deadline=None)
@given(lines=st.lists(st.text(st.sampled_from([*"aB.'5\u00e9 \t"]), max_size=12), min_size=3, max_size=30))
@pytest.mark.parametrize("profile", ["pretokenized", "generic", "ptb-en"])
def test_ids_are_those_of_the_tokenizer(tmp_path_factory, profile, lines):
    folder = write(tmp_path_factory.mktemp("text"), train=["a", *lines], valid=["b B", *lines], test=["5"])
    corpus = prepare(folder, folder / "out", profile=profile, min_count=2)
    skip = profile != "pretokenized"
    for part, text in (("train", ["a", *lines]), ("valid", ["b B", *lines]), ("test", ["5"])):
        expected = []
        for line in text:
            ids = [token.id for token in corpus.tokenizer.tokens(line)]
            expected += [*ids, corpus.tokenizer.eos_id] if ids or not skip else []
        assert getattr(corpus, part).tolist() == expected
        assert encode_text(corpus.tokenizer, folder / f"{part}.txt").tolist() == expected
        found = corpus.parts[part]
        assert found.unknown == expected.count(corpus.tokenizer.unk_id)
        assert found.lines + found.words == found.tokens == len(expected)
    counted = Counter(word for line in ["a", *lines] for word in rules(profile).words(line))
    assert corpus.tokenizer.vocabulary == vocabulary(counted, None, 2)


def test_vocabulary_is_of_the_training_text(tmp_path):
    write(tmp_path, train=["a a b", "c"], valid=["d d d"], test=["a"])
    corpus = prepare(tmp_path, tmp_path / "out", vocab_size=4)
    assert corpus.tokenizer.vocabulary == ["<unk>", "<eos>", "a", "b"]
    assert words(corpus, "valid") == ["<unk>"] * 3 + ["<eos>"]


def test_text_is_encoded_by_the_rules_of_a_tokenizer(tmp_path):
    write(tmp_path, a=["The cat, the dog", ""], b=["dog"])
    tokenizer = Tokenizer.of_words(["dog", ","], "generic", punctuation=True)
    ids = encode_text(tokenizer, [tmp_path / "a.txt", tmp_path / "b.txt"])
    read = [tokenizer.vocabulary[id] for id in ids]
    assert read == ["<unk>", "<unk>", ",", "<unk>", "dog", "<eos>", "dog", "<eos>"]
    write(tmp_path, a=["", " "])
    with pytest.raises(UserError, match=r"no words in .*a\.txt"):
        encode_text(tokenizer, tmp_path / "a.txt")


DEFECTS = {
    "latin1": ("good\nthe caf\xe9\n".encode("latin1"), r"bad\.txt:2: not UTF-8 \(byte 0xe9 at column 8\); .*latin1"),
    "after accents": (b"\xc3\xa9\xc3\xa9\xff", r"bad\.txt:1: not UTF-8 \(byte 0xff at column 3\)"),
    "utf-16": ("hello\n".encode("utf-16"), r"bad\.txt:1: not UTF-8 .*iconv -f utf-16"),
    "cut inside a character": ("one\ncafé".encode()[:-1], r"bad\.txt:2: not UTF-8 \(byte 0xc3 at column 4\)"),
    "cut gz": (gzip.compress(os.urandom(9999))[:500], r"bad\.txt: broken or truncated archive"),
    "cut xz": (lzma.compress(os.urandom(9999))[:500], r"bad\.txt: broken or truncated archive"),
    "bad xz": (lzma.compress(b"hello " * 99)[:20] + b"junk" * 20, r"bad\.txt: broken or truncated archive"),
    "cut bz2": (bz2.compress(os.urandom(9999))[:500], r"bad\.txt: (broken or truncated archive|cannot be read)"),
    "empty": (b"", "no words for train"),
    "blank": (b" \n\n", "no words for train"),
    "one word": (b"hello", "no words for train; add text, or put one sentence on a line"),
    "two lines": (b"hello\nyou", "no words for train"),
    "no words": (b"... !\n" * 50, "no words for train"),
}


@pytest.mark.parametrize(("data", "message"), DEFECTS.values(), ids=DEFECTS)
def test_defects_are_named_in_one_line(tmp_path, data, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        prepare(path, tmp_path / "out", profile="generic")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_long_lines(tmp_path, monkeypatch):
    write(tmp_path, train=[" ".join(["word"] * 100_000), "b"], valid=["a"])
    assert counts(prepare(tmp_path, tmp_path / "out")) == {"train": 100_003, "valid": 2}
    monkeypatch.setattr("onlstm.text.sources.LONGEST", 1 << 18)
    monkeypatch.setattr("onlstm.text.sources._BLOCK", 1 << 10)
    with pytest.raises(UserError, match=r"train\.txt:1: a line of more than"):
        prepare(tmp_path, tmp_path / "out")


def test_one_token_files(tmp_path):
    write(tmp_path, train=["hello"], valid=["hello"], test=["you"])
    corpus = prepare(tmp_path, tmp_path / "out")
    assert counts(corpus) == {"train": 2, "valid": 2, "test": 2}
    assert words(corpus, "test") == ["<unk>", "<eos>"]


def test_missing_and_unreadable(tmp_path):
    for sources, message in (
        (tmp_path / "none.txt", "no such file"),
        (tmp_path, "no text file in this folder"),
        ([], "name a file"),
    ):
        with pytest.raises(UserError, match=message):
            prepare(sources, tmp_path / "out")
    write(tmp_path, train=["a"] * 9)
    with pytest.raises(UserError, match="cannot write the corpus"):
        prepare(tmp_path / "train.txt", tmp_path / "train.txt")
    no_marks = {"profile": "ptb-en", "punctuation": True}
    for options in ({"profile": "english"}, {"vocab_size": 2}, {"min_count": 0}, no_marks):
        with pytest.raises(UserError, match=r"there are|at least|generic only"):
            prepare(tmp_path / "train.txt", tmp_path / "out", **options)


def test_parts_are_held_out_and_reported(tmp_path):
    write(tmp_path, a=[f"a{n} x" for n in range(30)], b=[f"b{n} x" for n in range(10)])
    said = []
    corpus = prepare(
        [tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "out", profile="pretokenized", say=said.append
    )
    assert "split: 5 % of the lines are held out for valid and 5 % for test" in said
    assert "valid: 2 lines, 4 words, 6 tokens, 2 unknown" in said
    assert json.loads((tmp_path / "out" / "corpus.json").read_text())["decisions"] == said
    ids = encode_text(Tokenizer.of_words(["a9", "a29", "x"]), tmp_path / "a.txt")
    assert (len(corpus.valid), len(ids)) == (6, 90)
    assert corpus.parts["valid"].sha256 == hashlib.sha256(b"a9 x\na29 x\n").hexdigest()


def test_valid_is_held_out_of_train(tmp_path):
    write(tmp_path, train=[f"w{n}" for n in range(40)], test=["w1"])
    corpus = prepare(tmp_path, tmp_path / "out")
    assert counts(corpus) == {"train": 76, "valid": 4, "test": 2}


def test_no_test_part(tmp_path):
    write(tmp_path, train=["a"], valid=["a"])
    assert prepare(tmp_path, tmp_path / "out").test is None


PROFILE_SIGNS = {
    "unk": (["a <unk> b"], "pretokenized"),
    "wikitext": (["a role @-@ playing game"], "pretokenized"),
    "apart": (["a , b .", "c , d ."], "pretokenized"),
    "clitics": (["it does n't"], "pretokenized"),
    "raw": (["Yes, it is.", "No, it isn't; a . b"], "generic"),
    "french": (
        ["Oui ! Non , dit-il ; et toi ?", "Bien, merci, oui, non, euh, ah, bon, fin, puis, là, ici."],
        "generic",
    ),
    "plain": (["no marks at all"], "generic"),
}


@pytest.mark.parametrize(("lines", "profile"), PROFILE_SIGNS.values(), ids=PROFILE_SIGNS)
def test_the_profile_is_told_by_the_text(tmp_path, lines, profile):
    write(tmp_path, train=lines * 3)
    said = []
    assert prepare(tmp_path, tmp_path / "out", say=said.append).tokenizer.profile == profile
    assert any(line.startswith(f"profile: {profile} (") for line in said)


def test_standard_input(tmp_path):
    code = (
        "import sys; from onlstm.errors import UserError; from onlstm.text.corpus import prepare\n"
        "try: print(prepare('-', sys.argv[1]).parts['train'].words)\n"
        "except UserError as error: print(error)\n"
        "assert 'torch' not in sys.modules"
    )

    def run(data):
        command = [sys.executable, "-c", code, str(tmp_path / "out")]
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode().strip()

    assert run(b"two words\n" * 20) == "36"
    assert run(gzip.compress(b"two words\n" * 20)) == "36"
    assert run(b"fine\n\xe9\n").startswith("standard input:2: not UTF-8 (byte 0xe9 at column 1)")


def test_types_fit_the_vocabulary(tmp_path):
    write(tmp_path, train=[f"w{n}" for n in range(65_534)], valid=["w1"])
    assert prepare(tmp_path, tmp_path / "out").train.dtype == np.uint16
    write(tmp_path, train=[f"w{n}" for n in range(65_535)], valid=["w1"])
    corpus = prepare(tmp_path, tmp_path / "out")
    assert corpus.train.dtype == np.uint32
    assert len(set(corpus.train.tolist())) == 65_536
    assert isinstance(corpus.train, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        corpus.train[0] = 0


def _break_json(folder):
    (folder / "corpus.json").write_text((folder / "corpus.json").read_text()[:50])


def _other_tokenizer(folder):
    Tokenizer.of_words(["x"]).save(folder / "tokenizer.json")


def _wrong_type(folder):
    (folder / "corpus.json").write_text(json.dumps([1]))


BREAK = {
    "nothing finished": (lambda folder: (folder / "corpus.json").unlink(), r"corpus\.json: No such file"),
    "json cut": (_break_json, r"corpus\.json: truncated"),
    "json of another kind": (_wrong_type, r"corpus\.json: truncated or not a corpus\.json"),
    "ids cut": (lambda folder: os.truncate(folder / "train.ids", 3), r"train\.ids: 3 bytes, not the"),
    "ids missing": (lambda folder: (folder / "valid.ids").unlink(), r"valid\.ids: No such file"),
    "other tokenizer": (_other_tokenizer, r"tokenizer\.json: 3 words, corpus\.json says"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json: No such file"),
}


@pytest.mark.parametrize(("spoil", "message"), BREAK.values(), ids=BREAK)
def test_broken_corpora_are_refused(tmp_path, spoil, message):
    write(tmp_path, train=RAW, valid=RAW, test=RAW)
    prepare(tmp_path, tmp_path / "out")
    spoil(tmp_path / "out")
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_an_interrupted_preparation_leaves_nothing_finished(tmp_path):
    write(tmp_path, train=RAW, valid=RAW, test=RAW)
    prepare(tmp_path, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert sorted(before) == ["corpus.json", "test.ids", "tokenizer.json", "train.ids", "valid.ids"]

    def interrupt(line):
        if line.startswith("valid: "):
            raise KeyboardInterrupt

    for folder in ("out", "new"):
        with pytest.raises(KeyboardInterrupt):
            prepare(tmp_path, tmp_path / folder, profile="ptb-en", say=interrupt)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "test.txt").unlink()
    prepare(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out" / "test.ids").exists()


def test_words_can_be_kept_however_rare(tmp_path):
    (tmp_path / "train.txt").write_text("The dog saw the dog, the owl.\n" * 3 + "A skater swims.\n")
    (tmp_path / "valid.txt").write_text("the skater\n")
    found = prepare(
        tmp_path, tmp_path / "out", profile="generic", punctuation=True, vocab_size=7, keep="skater skaters swims"
    )
    assert found.tokenizer.vocabulary == ["<unk>", "<eos>", "the", "dog", ".", "skater", "swims"]
    assert list(found.valid) == [2, 5, 1]


def test_many_unknown_words_are_a_warning(tmp_path):
    (tmp_path / "a.txt").write_text("one two three\none four five\n" * 20)
    said = []
    prepare([tmp_path / "a.txt"], tmp_path / "corpus", said.append, vocab_size=3, profile="pretokenized")
    assert any(line.startswith("warning: 67% of the words of the train text are unknown, so ") for line in said)
