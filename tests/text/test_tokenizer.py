"""Words, ids and offsets: against rules written by hand, against HF's own encoding, and against the corpora."""

import gzip
import json
import lzma
import re
import zipfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.text.rules import PROFILES, rules
from onlstm.text.tokenizer import Tokenizer, frequent_endings, vocabulary

DATA = Path(__file__).parents[3] / "shared" / "data"
GOLDEN = Path(__file__).parents[1] / "golden" / "tokenizers"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")

ALPHABET = st.sampled_from(
    [*"aAbnNsStT.',’-–/\\%$#&*<>(5 07:é\u0301İ戦のカー한\u1112\u1161\u11abधा\u200c\u00ad\t\x1c\xa0\u3000", "<unk>"]
)
TEXT = st.lists(
    st.one_of(ALPHABET, st.sampled_from(["n't", "'s ", " u.s.", "mr. ", "1,000", "1\\/2", "cannot", " N ", "no. "])),
    max_size=25,
).map("".join)
RULES = [(name, False) for name in PROFILES] + [("generic", True)]


def trained(profile, lines, punctuation=False, size=None, min_count=1):
    counts = Counter(word for line in lines for word in rules(profile, punctuation).words(line))
    return Tokenizer.of_words(vocabulary(counts, size, min_count), profile, punctuation=punctuation)


PTB = {
    "Mr. Lee's dogs can't eat 75.3% of it.": "mr. lee 's dogs ca n't eat N N of it",
    "They’re sure he didn’t, won't; I'd've": "they 're sure he did n't wo n't i 'd 've",
    "“We cannot pay $1,000 or US$5,” she said.": "we can not pay $ N or us$ N she said",
    "A 30-year bond from the 1980s and the '80s": "a 30-year bond from the 1980s and the '80s",
    "-5 and 1/2 or 1\\/2 in 1989-90 at 10:30 p.m. today": "N and N or N in N at N p.m. today",
    "The U.S. firm X Corp., of Boston, Mass., said no.": "the u.s. firm x corp. of boston mass. said no",
    "He moved to the U.S.": "he moved to the u.s.",
    "She works at Y Inc.": "she works at y inc",
    "AT&T, S&P 500 & #3 (-LRB- x -RRB-)": "at&t s&p N & # N x",
    "the workers' pay, O'Neil's and d'Arcy's": "the workers ' pay o'neil 's and d'arcy 's",
    "non-U.S. and U.S.-based, Calif.-based B-2s": "non-u.s. and u.s.-based calif.-based b-2s",
    "and/or; 50%-owned -- 190.5-point ... N <unk>": "and\\/or 50%-owned 190.5-point N <unk>",
    "£5 for 3D mp3s, the 13th": "# N for 3d mp3s the 13th",
}
GENERIC = {
    "L’été, c'est 3.14 – co-op!": "l'été c'est 3.14 co-op",
    "Straße 1,000,000 at 10:30 (3D)": "straße 1,000,000 at 10:30 3d",
    "東京のカメラー2": "東 京 の カ メ ラ ー 2",
    "Привет, мир… नमस्ते दुनिया।": "привет мир नमस्ते दुनिया",
    "می‌خواهم ٣٫٥ שלום": "می‌خواهم ٣٫٥ שלום",
    "cafe\u0301 co\u00adop <unk> - ' _": "café coop <unk>",
}


@pytest.mark.parametrize(("text", "words"), PTB.items())
def test_ptb_words(text, words):
    assert rules("ptb-en").words(text) == words.split(" ")


@pytest.mark.parametrize(("text", "words"), GENERIC.items())
def test_generic_words(text, words):
    assert rules("generic").words(text) == words.split(" ")


def test_generic_can_keep_punctuation():
    assert rules("generic", True).words("“Yes,” she said…") == ["“", "yes", ",", "”", "she", "said", "…"]
    with pytest.raises(UserError, match="profile generic only"):
        rules("ptb-en", True)


@given(text=TEXT)
def test_pretokenized_is_str_split(text):
    assert [token.text for token in Tokenizer.of_words([]).tokens(text)] == text.split()


@given(text=TEXT)
@pytest.mark.parametrize(("profile", "punctuation"), RULES)
def test_all_ways_agree(profile, punctuation, text):
    """HF's own encoding, tokens, encode (which works piece by piece) and the words behind the vocabulary."""
    words = rules(profile, punctuation).words(text)
    tokenizer = trained(profile, [text], punctuation=punctuation)
    tokens = tokenizer.tokens(text)
    theirs = tokenizers.Tokenizer.from_str(tokenizer._backend.to_str()).encode(text)
    assert [tokenizer.vocabulary[token.id] for token in tokens] == words
    assert tokenizer.encode([text, text]) == [theirs.ids] * 2 == [[token.id for token in tokens]] * 2
    past = 0
    for token in tokens:
        assert past <= token.start < token.end <= len(text)
        assert token.text == text[token.start : token.end]
        past = token.end


@given(text=TEXT)
@pytest.mark.parametrize(("profile", "punctuation"), RULES)
def test_surface_forms_lose_no_letter(profile, punctuation, text):
    tokens = Tokenizer.of_words([], profile, punctuation=punctuation).tokens(text)
    covered = {place for token in tokens for place in range(token.start, token.end)}
    brackets = {place for found in re.finditer("-[LR][RCS]B-", text) for place in range(*found.span())}
    lost = [char for place, char in enumerate(text) if char.isalnum() and place not in covered | brackets]
    assert not lost


def test_surface_forms_and_offsets():
    text = "  He paid 1,000.5% more, cafe\u0301 owners’ “N” \u1112\u1161\u11ab."
    tokenizer = Tokenizer.of_words(["N", "more"], "ptb-en")
    tokens = tokenizer.tokens(text)
    assert [token.text for token in tokens] == ["He", "paid", "1,000.5", "%", "more", "café", "owners", "’", "N", "한"]
    assert tokens[2] == ("1,000.5", 10, 17, 0)
    assert [token.id for token in tokens][2:5] == [0, 0, 1]


def test_ids_are_one_for_each_word():
    tokenizer = Tokenizer.of_words(["the", "N", "do", "n't", "café"], "ptb-en")
    words = ["The", "75.3", "1\\/2", "%", "N", ",", "", "don't", "n’t", "cafe\u0301", "-LRB-", "a b"]
    unk = tokenizer.unk_id
    assert tokenizer.ids(words) == [0, 1, 1, 1, 1, unk, unk, unk, 3, 4, unk, unk]
    assert Tokenizer.of_words(["The"]).ids(["The", "the"]) == [0, 1]
    assert tokenizer.ids([]) == []


@given(
    text=TEXT,
    known=st.sets(st.sampled_from(["a", "an", "the", "N"])),
    endings=st.sets(st.text("aeghinst'é", max_size=3)),
)
@pytest.mark.parametrize(("profile", "punctuation"), RULES)
def test_unknown_words_by_their_endings(profile, punctuation, text, known, endings):
    """All ways agree, and an unknown word has the longest ending that is shorter than itself."""
    entries = [*known, *(f"<unk> -{ending}" for ending in endings if ending)]
    tokenizer = Tokenizer.of_words(entries, profile, punctuation=punctuation)
    words = rules(profile, punctuation).words(text)

    def expected(word):
        if word in tokenizer.index:
            return word
        fitting = [ending for ending in endings if ending and word.endswith(ending) and len(word) > len(ending)]
        return f"<unk> -{max(fitting, key=len)}" if fitting else "<unk>"

    tokens = tokenizer.tokens(text)
    assert [tokenizer.vocabulary[token.id] for token in tokens] == [expected(word) for word in words]
    assert tokenizer.encode([text]) == [[token.id for token in tokens]]
    assert tokenizer.unknown(token.id for token in tokens) == sum(word not in {*known, "<eos>"} for word in words)
    plain = Tokenizer.of_words([*known], profile, punctuation=punctuation)
    assert [(t.text, t.start, t.end) for t in tokens] == [(t.text, t.start, t.end) for t in plain.tokens(text)]


def test_endings_survive_a_file(tmp_path):
    tokenizer = Tokenizer.of_words(["dogs", "<unk> -ing", "<unk> -s"], "ptb-en")
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.ids(["Dogs", "Cats", "sing", "ing", "s"]) == [0, 2, 1, 3, 3]
    assert loaded.unknown_ids == {1, 2, 3}


def test_frequent_endings_count_unknown_words_only():
    counts = Counter({"walking": 5, "talking": 3, "the": 99, "cats": 4, "I": 7})
    assert frequent_endings(counts, ["the", "cats"], most=2) == ["<unk> -g", "<unk> -ing"]
    assert frequent_endings(counts, ["the", "cats"], most=99) == [f"<unk> -{e}" for e in ("g", "ing", "ng")]
    assert frequent_endings(counts, ["the"], most=0) == []


@given(words=st.lists(TEXT, max_size=5))
@pytest.mark.parametrize("profile", PROFILES)
def test_ids_never_lose_a_word(profile, words):
    assert len(Tokenizer.of_words(["a"], profile).ids(words)) == len(words)


@given(lines=st.lists(st.text("abc <unk>", max_size=20)), size=st.none() | st.integers(3, 6), least=st.integers(1, 3))
def test_vocabulary_by_size_and_count(lines, size, least):
    counts = Counter(word for line in lines for word in line.split())
    found = trained("pretokenized", lines, size=size, min_count=least).vocabulary
    assert found[:2] == ["<unk>", "<eos>"]
    wanted = sorted((word for word in counts if word not in found[:2]), key=lambda word: (-counts[word], word))
    wanted = [word for word in wanted if counts[word] >= least]
    assert found[2:] == wanted[: None if size is None else size - 2]


def test_given_words_keep_their_ids():
    assert Tokenizer.of_words(["b", "<eos>", "a"]).vocabulary == ["b", "<eos>", "a", "<unk>"]
    tokenizer = Tokenizer.of_words(["b", "<eos>", "a"])
    assert (tokenizer.eos_id, tokenizer.unk_id, len(tokenizer)) == (1, 3, 4)
    with pytest.raises(UserError, match="'b' twice"):
        Tokenizer.of_words(["b", "a", "b"])


def test_unknown_profile():
    with pytest.raises(UserError, match="there are ptb-en, generic, pretokenized"):
        rules("english")


@pytest.mark.parametrize(("profile", "punctuation"), RULES)
def test_rules_travel(tmp_path, profile, punctuation):
    text = "Mr. O’Neil’s 5 cats, cafe\u0301!"
    ours = trained(profile, [text], punctuation=punctuation)
    ours.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.profile, again.punctuation, again.vocabulary) == (profile, punctuation, ours.vocabulary)
    assert again.tokens(text) == ours.tokens(text)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize(("profile", "punctuation"), RULES)
def test_files_of_the_first_version_load_for_ever(profile, punctuation):
    path = GOLDEN / f"{profile}{'-punctuation' * punctuation}.json"
    text = "Mr. O’Neil’s 5 cats can't eat 75.3% of the U.S. café, 東京!"
    tokenizer = Tokenizer.load(path)
    assert (tokenizer.profile, tokenizer.punctuation) == (profile, punctuation)
    ids = tokenizers.Tokenizer.from_file(str(path)).encode(text).ids
    assert [token.id for token in tokenizer.tokens(text)] == ids
    assert set(ids) == set(range(2, len(tokenizer)))  # all its words, none unknown


def _changed(text, **parts):
    return json.dumps(json.loads(text) | parts)


BAD_FILES = {
    "truncated": (lambda text: text[: len(text) // 2], "truncated or not a tokenizer.json"),
    "empty": (lambda text: "", "truncated or not"),
    "not ours": (lambda text: _changed(text, normalizer={"type": "Lowercase"}), "not the rules of"),
    "no eos": (lambda text: text.replace("<eos>", "<end>"), "lacks <unk> or <eos>"),
    "gap": (lambda text: re.sub(r'("\w+": )3\b', r"\g<1>9", text), "gaps in its ids"),
    "bytes": (lambda text: gzip.compress(text.encode()), "truncated or not"),
}


@pytest.mark.parametrize(("spoil", "words"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_are_refused_in_one_line(tmp_path, spoil, words):
    path = tmp_path / "tokenizer.json"
    trained("generic", ["two words"]).save(path)
    spoilt = spoil(path.read_text())
    path.write_bytes(spoilt if isinstance(spoilt, bytes) else spoilt.encode())
    with pytest.raises(UserError, match=words) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        Tokenizer.load(tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="cannot write"):
        Tokenizer.of_words([]).save(tmp_path / "no" / "tokenizer.json")


@needs_data
@pytest.mark.data
def test_ptb_text_stays_what_it_is():
    """The profile maps the language-modelling text to itself, but for periods of abbreviations that end a line."""
    with lzma.open(DATA / "ptb-lm" / "ptb.valid.txt.xz", "rt") as file:
        lines = file.readlines()
    words = rules("ptb-en").words
    changed = [line for line in lines if words(line) != line.split()]
    assert all(line.rstrip().endswith(".") for line in changed)
    assert len(changed) <= 10
    assert sum(len(words(line)) for line in lines) == 70_390


@needs_data
@pytest.mark.data
def test_treebank_sentences_become_ptb_lines():
    with zipfile.ZipFile(DATA / "wsj-sample" / "wsj-sample-nltk-layout.zip") as archive:
        trees = "".join(archive.read(name).decode() for name in archive.namelist() if name.endswith(".mrg"))
    with lzma.open(DATA / "ptb-lm" / "ptb.train.txt.xz", "rt") as file:
        lines = defaultdict(list)
        for line in file:
            lines[len(line.split())].append(line.split())
    sentences = []
    for part in re.split(r"\n\(|^\(", trees)[1:]:
        leaves = re.findall(r"\(([^\s()]+) ([^\s()]+)\)", part)
        sentences.append(" ".join(word for tag, word in leaves if tag != "-NONE-"))
    found = [rules("ptb-en").words(sentence) for sentence in sentences[::10]]
    assert len(found) > 200
    known = [
        any(all(b in (a, "<unk>") for a, b in zip(words, line, strict=True)) for line in lines[len(words)])
        for words in found
    ]
    assert sum(known) / len(known) > 0.98
