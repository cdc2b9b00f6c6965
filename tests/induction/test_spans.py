"""What models say about spans: files of bytes, shares, agreement."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.induction import spans
from onlstm.induction.spans import FULL, Shares, Text
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees.decode import spans_from_distances, tree_from_distances

TEXT = Text(
    Tokenizer.of_words(list("abcdef")),
    valid=[np.array([0, 1, 2, 3])] * 2,
    train=[np.array([0, 1]), np.array([0, 1, 2, 3]), np.array([3, 2, 1, 0])],
)


@given(st.lists(st.lists(st.integers(0, 4), min_size=7, max_size=7), min_size=1, max_size=5), st.integers(1, 7))
@pytest.mark.parametrize("decoder", ["paper", "unbiased"])
def test_spans_of_many_sentences_are_those_of_their_trees(decoder, rows, n):
    distances = np.array(rows, float)[:, :n]
    for d, inside in zip(distances, spans_from_distances(distances, decoder), strict=True):
        whole = {(0, n)} if n > 1 else set()
        assert {*map(tuple, np.argwhere(inside))} == {*tree_from_distances(d, decoder=decoder).spans()} | whole


def test_lines_of_two_words_up_to_a_limit_are_sentences():
    ids = np.array([5, 5, 9, 5, 9, 9, 5, 5, 5, 5, 9, 5, 5, 5, 9])
    assert spans.lines(ids, 9, 2, 3).tolist() == [[0, 2], [11, 14]]


def member(folder, *trees):
    """A member that says for sure that every sentence of four words has these spans."""

    def read(sentences):
        n = len(sentences[0])
        shares = np.zeros((len(sentences), n + 1, n + 1))
        for start, end in [(0, n), *(trees if n == 4 else ())]:
            shares[:, start, end] = 1
        return shares

    for split in ("valid", "train"):
        spans.write(folder, TEXT, split, read, lambda done: None)
    return folder


def test_language_models_teach_shares_and_grammars_a_vote(tmp_path):
    left = member(tmp_path / "left", (0, 2), (0, 3))
    flat = member(tmp_path / "flat", (0, 2))  # its best tree has a span more
    shares = Shares([left, flat], TEXT, by_grammars=False)
    assert [len(share) - 1 for share in shares] == [2, 4, 4]
    assert shares[1][[0, 0, 0, 2], [4, 2, 3, 4]].tolist() == [1.0, 1.0, 0.5, 0.0]
    voted = Shares([left, flat], TEXT, by_grammars=True)
    assert voted[1][[0, 0, 0, 2], [4, 2, 3, 4]].tolist() == [1.0, 1.0, 0.5, 0.5]


def test_agreement_is_the_mean_f1_of_pairs(tmp_path):
    left, right = member(tmp_path / "l", (0, 2), (0, 3)), member(tmp_path / "r", (2, 4), (1, 4))
    even = member(tmp_path / "e", (0, 2), (2, 4))
    assert spans.agreement([left, left], TEXT) == 100
    assert spans.agreement([left, right], TEXT) == 0
    assert spans.agreement([left, right, even], TEXT) == pytest.approx(100 / 3)
    assert spans.agreement([left], TEXT) is None


def test_what_is_there_is_not_written_again(tmp_path):
    folder = member(tmp_path / "m", (0, 2))
    spans.write(folder, TEXT, "train", lambda sentences: 1 / 0, lambda done: None)
    assert spans.load(folder, "train", 4)[0, 0, 2] == FULL
    (folder / "train-04.npy").write_bytes(b"x")
    with pytest.raises(UserError, match=r"train-04.npy: missing or damaged"):
        spans.load(folder, "train", 4)
