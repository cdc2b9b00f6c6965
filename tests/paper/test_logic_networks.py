"""Encoders of formulas and the classifier: batches against one pair at a time, a recursive Tree-LSTM, `nn.LSTM`."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from onlstm.errors import UserError
from onlstm.paper.logic import embedded, encoders, formulas
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import ModelConfig, TrainConfig
from onlstm.paper.logic.embedded import Dropout
from onlstm.paper.logic.encoders import ENCODERS, build
from onlstm.paper.logic.formulas import VOCABULARY, Pair
from onlstm.paper.logic.generate import generate

SMALL = {"embedding_size": 8, "hidden_size": 12, "chunk_size": 4}
COUNTS = {0: 8, 1: 20, 2: 30, 4: 40, 6: 40, 9: 10}
PAIRS = [pair for n, pairs in generate(1500, seed=3).items() for pair in pairs[: COUNTS.get(n, 0)]]


def repeats(text):
    """Return whether two neighbours occur twice: candidates of the same score, of which rounding chooses one."""
    neighbours = [*pairwise(text.split())]
    return len({*neighbours}) < len(neighbours)


SOME = {
    "ordered-memory": PAIRS[::30],
    "rl-spinn": PAIRS[::4],
    "rrnet": PAIRS[::4],
    "gumbel-tree-lstm": [pair for pair in PAIRS if not repeats(pair.left) and not repeats(pair.right)][::3],
}
"""Fewer for the slow: one at a time they take long."""


def ids(text):
    return torch.tensor([VOCABULARY.index(token) for token in text.split()])


def model(encoder, dtype=torch.float64, **more):
    torch.manual_seed(0)
    found = Classifier(ModelConfig(encoder=encoder, **SMALL | more)).to(dtype)
    with torch.no_grad():
        for p in found.parameters():
            p.uniform_(-0.7, 0.7)
    return found.eval()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("more", [{}, {"num_layers": 2}])
def test_batches_give_what_single_pairs_give(encoder, more):
    made, problems = model(encoder, **more), Problems.of(SOME.get(encoder, PAIRS))
    together = made(problems.batch(np.arange(len(problems))))
    alone = torch.cat([made(problems.batch(np.array([k]))) for k in range(len(problems))])
    assert (together - alone).abs().max() < 1e-10
    assert (made.logits(problems) - alone).abs().max() < 1e-10
    assert together.std(0).min() > 1e-3, "all logits alike prove nothing"


@pytest.mark.parametrize(
    "config",
    [
        {"encoder": "onlstm"},
        {"encoder": "onlstm", "num_layers": 3, "free_last_chunk": True},
        {"encoder": "lstm"},
        {"encoder": "lstm", "hidden_size": 7, "num_layers": 2},
    ],
)
def test_states_and_gradients_are_those_of_the_layer_alone(config):
    """The oracles know nothing of packed rows, shared beginnings or open master gates: `nn.LSTM`, the eager cell."""
    made = build(ModelConfig(**SMALL | config)).double().eval()
    texts = sorted({pair.left for pair in PAIRS[::6]}, key=lambda text: -len(text.split()))
    weights = torch.randn(len(texts), made.size, dtype=torch.float64)

    def gradients(states):
        made.zero_grad()
        (states * weights).sum().backward()
        return [p.grad for p in made.parameters()]

    found = made([ids(text) for text in texts])
    shared = gradients(found)
    made.rnn.backend = "eager"
    alone = torch.stack([made.rnn(made.embedding(ids(text))[:, None])[0][-1, 0] for text in texts])
    torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)
    torch.testing.assert_close(shared, gradients(alone), rtol=1e-9, atol=1e-10)


def test_an_lstm_of_the_papers_size_is_torchs_in_single_precision():
    made = build(ModelConfig(encoder="lstm")).eval()
    texts = ["( ( not a ) ( or ( b ( and ( not c ) ) ) ) )", "( not a )", "f"]
    found = made([ids(text) for text in texts])
    alone = torch.stack([made.rnn(made.embedding(ids(text)))[0][-1] for text in texts])
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-6)


def test_each_part_has_its_dropout():
    """Ordered Memory has dropouts in its cell and in its attention, too."""
    given = {"dropout": 0.4, "dropout_embedding": 0.0, "dropout_classifier": 0.3}
    for rates, expected in ((given, (0.0, 0.3, {0.4})), ({"dropout": 0.4}, (0.4, 0.4, {0.4}))):
        model = Classifier(ModelConfig(encoder="ordered-memory", **SMALL, **rates))
        encoder, head = (
            [part for part in whole.modules() if isinstance(part, Dropout)] for whole in (model.encoder, model.head)
        )
        inner = {part.p for part in encoder if part is not model.encoder.dropout}
        assert (model.encoder.dropout.p, *{part.p for part in head}, inner) == expected


@pytest.mark.parametrize("encoder", ["onlstm", "lstm"])
def test_every_place_of_a_token_has_one_of_its_dropped_out_embeddings(encoder):
    made = build(ModelConfig(encoder=encoder, **SMALL)).double().train()
    made.dropout.p, tokens = 0.4, ids("( ( ( not a ) ( or b ) ) ( and ( not ( a ( or a ) ) ) ) )")
    torch.manual_seed(1)
    vector = made([tokens])
    torch.manual_seed(1)
    rows = made.dropout(made.embedding.weight.repeat(encoders._MASKS, 1))
    ends = [0, *embedded._CUTS, len(tokens)]
    masks = torch.cat([torch.randint(encoders._MASKS, (end - start,)) for start, end in pairwise(ends)])
    plain = made.rnn(rows[tokens + len(VOCABULARY) * masks][:, None])[0][-1]
    assert_close(vector, plain, rtol=0, atol=1e-12)
    weights = list(made.parameters())
    for found, expected in zip(*(torch.autograd.grad(v.sum(), weights) for v in (vector, plain)), strict=True):
        assert_close(found, expected, rtol=0, atol=1e-12)
    places = (tokens == VOCABULARY.index("a")).nonzero().flatten()
    assert len(set(masks[places].tolist())) > 1
    state = torch.get_rng_state()
    made.eval()([tokens])
    assert torch.equal(state, torch.get_rng_state()), "a test draws nothing"


@pytest.mark.parametrize("encoder", ["onlstm", "lstm"])
def test_a_pass_has_one_drop_connect_mask(encoder):
    made = build(ModelConfig(encoder=encoder, **SMALL, dropout=0.0, weight_dropout=0.5))
    words = ids("( ( not a ) ( or ( b ( and ( not c ) ) ) ) )")
    torch.manual_seed(3)
    found = made([words])[0]
    torch.manual_seed(3)
    dropped = torch.nn.functional.dropout(made.rnn.weight_hh_l0, 0.5)
    assert (dropped == 0).any()
    output, _ = torch.func.functional_call(made.rnn, {"weight_hh_l0": dropped}, made.embedding(words))
    torch.testing.assert_close(found, output[-1])
    made.eval()
    torch.testing.assert_close(made([words])[0], made.rnn(made.embedding(words))[0][-1])


@settings(deadline=None)
@given(st.lists(st.sampled_from([pair.left for pair in PAIRS]), min_size=1, unique=True))
def test_parts_hold_every_formula_and_equal_beginnings_once(texts):
    texts = [text.split() for text in sorted(texts, key=lambda text: -len(text.split()))]
    parts, places = embedded.parts_of([ids(" ".join(text)) for text in texts])
    ends = []
    before = [[]]
    for part in parts:
        before = [list(before[k]) for k in part.parents]
        tokens = iter(part.tokens.tolist())
        for size in part.sizes.tolist():
            for text in before[:size]:
                text.append(VOCABULARY[next(tokens)])
        assert next(tokens, None) is None
        ends += before
    assert [ends[k] for k in places] == texts
    assert len({tuple(text) for text in ends}) == len(ends)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_gradients_of_a_batch_are_the_mean_of_those_of_its_pairs(encoder):
    made, problems = model(encoder), Problems.of(SOME.get(encoder, PAIRS))

    def gradients(batches):
        made.zero_grad()
        for rows in batches:
            batch = problems.batch(rows)
            torch.nn.functional.cross_entropy(made(batch), batch.labels, reduction="sum").backward()
        learnt = [p for name, p in made.named_parameters() if "policy" not in name]  # policies learn from rewards
        return [p.grad.clone() for p in learnt]

    rows = np.arange(len(problems))
    for whole, single in zip(gradients([rows]), gradients(rows[:, None]), strict=True):
        torch.testing.assert_close(whole, single, rtol=1e-9, atol=1e-9)


def tree_states(made, tokens):
    """Return h and c of the formula at the front of `tokens`, node by node."""
    token = tokens.pop(0)
    if token != "(":
        i, o, u = made.leaf(made.embedding(ids(token))[0]).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c
    (h_l, c_l), (h_r, c_r) = tree_states(made, tokens), tree_states(made, tokens)
    assert tokens.pop(0) == ")"
    i, f_l, f_r, o, u = made.compose(torch.cat([h_l, h_r])).chunk(5)
    c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f_l + 1) * c_l + torch.sigmoid(f_r + 1) * c_r
    return torch.sigmoid(o) * torch.tanh(c), c


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, len(PAIRS) - 1), min_size=1, max_size=12))
def test_the_tree_lstm_is_the_recursive_one(rows):
    made = model("tree-lstm").encoder
    texts = [pair.right for pair in (PAIRS[k] for k in rows)]
    found = made([ids(text) for text in texts])
    expected = torch.stack([tree_states(made, text.split())[0] for text in texts])
    assert (found - expected).abs().max() < 1e-12


def test_dropout_is_torchs_in_distribution():
    ours, x = Dropout(0.2), torch.rand(400, 500) + 1
    torch.manual_seed(0)
    found = ours(x)
    assert (found == 0).double().mean() == pytest.approx(0.2, abs=0.005)
    torch.testing.assert_close(found[found > 0], (x / 0.8)[found > 0])
    assert ours(x).eq(found).float().mean() < 0.8, "a new mask each time"
    assert torch.equal(ours.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_equal_nodes_of_trees_are_one_but_not_within_a_formula():
    levels, roots = encoders._levels([ids(text) for text in ("( a ( and a ) )", "( a ( and b ) )", "( a ( and a ) )")])
    assert [len(level.inner) for level in levels] == [2, 2, 0]
    assert [[VOCABULARY[token] for token, _ in level.leaves] for level in levels] == [[], ["a"], ["and", "a", "b"]]
    assert [nth for level in levels for _, nth in level.leaves] == [0, 0, 1, 0]
    assert roots == [0, 1, 0]


def test_formulas_are_encoded_once_and_longest_first():
    pairs = [Pair("#", "a", "( not b )"), Pair("#", "( not b )", "a"), Pair("=", "a", "a")]
    batch = Problems.of(pairs).batch(np.array([2, 0, 1]))
    assert [len(each) for each in batch.formulas] == [4, 1]
    assert batch.sides.tolist() == [[1, 1, 0], [1, 0, 1]]
    assert [formulas.RELATIONS[k] for k in batch.labels] == ["=", "#", "#"]


def test_chunk_sizes_that_do_not_fit():
    with pytest.raises(UserError, match=r"model\.chunk_size: hidden_size 400 is not a multiple of chunk_size 7"):
        build(ModelConfig(chunk_size=7))


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (ModelConfig, {"dropout": 1.0}, "model.dropout 1.0"),
        (ModelConfig, {"hidden_size": 0}, "model.hidden_size 0: at least 1"),
        (ModelConfig, {"slots": 0}, "model.slots 0: at least 1"),
        (TrainConfig, {"lr": 0.0}, "train.lr 0.0: a number above 0"),
        (TrainConfig, {"epochs": 0}, "train.epochs 0: at least 1"),
        (TrainConfig, {"beta1": 1.0}, "train.beta1 1.0"),
    ],
)
def test_settings_that_cannot_be(kind, values, message):
    with pytest.raises(UserError, match=message):
        kind(**values)
