"""Trees of formulas: brackets, known heights and distances, the encoders' own."""

import pytest
import torch

from onlstm.paper.logic import induced
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.encoders import build
from onlstm.paper.logic.formulas import VOCABULARY, operators
from onlstm.paper.logic.generate import generate
from onlstm.trees import tree_from_distances

PAIRS = [pair for pairs in generate(600, seed=5).values() for pair in pairs]
SMALL = {"embedding_size": 8, "hidden_size": 12, "chunk_size": 4, "slots": 4}


def test_the_sample_has_distinct_formulas_with_something_to_score(monkeypatch):
    monkeypatch.setattr(induced, "_EACH", 7)
    texts = induced.sample(PAIRS)
    assert len({*texts}) == len(texts)
    assert induced.sample(PAIRS[::-1]) == texts
    assert [len(text.split()) for text in texts] == sorted((len(text.split()) for text in texts), reverse=True)
    assert {text for pair in PAIRS for text in (pair.left, pair.right)} > {*texts}
    counts = [sum(min(12, operators(text)) == n for text in texts) for n in range(13)]
    assert counts[0] == 0 < counts[1] <= max(counts) == 7
    assert "( not a )" not in texts


def test_trees_without_an_encoder():
    texts = ["( ( not a ) ( and b ) )", "( a ( and b ) )"]
    left, right, _ = induced.without_encoder(texts)
    assert left.by_length["1"] == pytest.approx(0, abs=1e-4)
    assert right.by_length["1"] == pytest.approx(100, abs=1e-4)
    assert left.by_length["2"] == right.by_length["2"] == pytest.approx(50, abs=1e-4)  # one of two brackets each
    assert left.f1 == pytest.approx(25, abs=1e-4)
    assert left.n == 2
    assert left.by_length["3"] is None
    assert [tree.f1 for tree in induced.without_encoder([])] == [None] * 3


def test_heights_of_the_brackets_give_the_brackets(monkeypatch):
    """A memory that puts each token as high as its brackets are nested has the gold trees."""
    texts = induced.sample(PAIRS)
    encoder = build(ModelConfig(encoder="ordered-memory", **SMALL)).eval()

    def heights(formulas):
        rows = []
        for ids in formulas:
            depth, row = 0, []
            for token in ids.tolist():
                row.append(50 - depth)  # the first part of a bracket is split from the second where it is open
                depth += {"(": 1, ")": -1}.get(VOCABULARY[token], 0)
            rows.append(row)
        return rows

    monkeypatch.setattr(encoder, "heights", heights)
    (own,) = induced.of_encoder(encoder, texts)
    assert own.decoder == "own"
    assert own.f1 == pytest.approx(100, abs=1e-4)


def test_ties_of_an_ordered_memory_branch_to_the_left(monkeypatch):
    encoder = build(ModelConfig(encoder="ordered-memory", **SMALL)).eval()
    monkeypatch.setattr(encoder, "heights", lambda formulas: [[0, *[3] * (len(ids) - 1)] for ids in formulas])
    texts = induced.sample(PAIRS)
    (own,) = induced.of_encoder(encoder, texts)
    assert own.by_length == induced.without_encoder(texts)[0].by_length


def test_an_onlstm_has_trees_of_each_layer_and_decoder():
    torch.manual_seed(0)
    encoder = build(ModelConfig(num_layers=2, **SMALL)).eval()
    texts = induced.sample(PAIRS)
    rows = induced.of_encoder(encoder, texts)
    assert [(row.layer, row.decoder) for row in rows] == [(k, d) for k in (1, 2) for d in ("paper", "unbiased")]
    text = texts[-1]  # alone, by the public way
    ids = torch.tensor([VOCABULARY.index(token) for token in text.split()])
    with torch.no_grad():
        distances = encoder.rnn.scan(encoder.embedding(ids)[:, None]).distances.forget[1, :, 0].tolist()
    tree = tree_from_distances(distances, text.split(), "unbiased")
    words = [k for k, token in enumerate(text.split()) if token not in "()"]
    expected = induced.restricted(tree, words)
    assert induced._trees([text], [distances], "unbiased") == [expected]
    assert induced.of_encoder(encoder, [text])[3] == induced._scored([text], [expected], "unbiased", 2)


@pytest.mark.parametrize("encoder", ["lstm", "tree-lstm"])
def test_others_have_none(encoder):
    assert induced.of_encoder(build(ModelConfig(encoder=encoder, **SMALL)), ["( a ( and b ) )"]) == []
