"""RL-SPINN: against a plain stack, finite differences of given trees, REINFORCE against all trees."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call

from formulas import TEXTS, estimates_have_the_mean, ids, policy_alone_learns_from_its_choices, random_encoder
from onlstm.paper.logic import induced
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import hidden, parents
from onlstm.paper.logic.formulas import Pair
from onlstm.trees import Tree, tree_from_distances


def encoder(D=8, scale=1.5):
    return random_encoder("rl-spinn", 2, D, scale)


def affine(layer, x):
    return layer.weight @ x + layer.bias


def leaf(module, token):
    return affine(module.leaf, module.embedding.weight[token]).chunk(2)


def parent(module, left, right):
    i, f_l, f_r, o, g = affine(module.gates, torch.cat([left[0], right[0]])).chunk(5)
    c = torch.sigmoid(f_l) * left[1] + torch.sigmoid(f_r) * right[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def p_reduce(module, stack, ahead):
    seen = [stack[-1][0][0], stack[-2][0][0], ahead[0]]
    hidden = affine(module.policy[0], torch.cat(seen)).clamp(min=0)
    return torch.sigmoid(affine(module.policy[2], hidden))[0]


def plain(module, text, choose):
    """Return the vector, the spans and the probability of a tree: `choose` says of a probability whether to reduce."""
    tokens = [leaf(module, token) for token in ids(text)]
    stack, spans, probability, k = [], [], 1.0, 0
    while k < len(tokens) or len(stack) > 1:
        reduces = k == len(tokens)
        if not reduces and len(stack) > 1:
            p = p_reduce(module, stack, tokens[k])
            reduces = choose(p)
            probability = probability * (p if reduces else 1 - p)
        if reduces:
            (right, (_, end)), (left, (start, _)) = stack.pop(), stack.pop()
            stack.append((parent(module, left, right), (start, end)))
            spans.append((start, end))
        else:
            stack.append((tokens[k], (k, k + 1)))
            k += 1
    return stack[0][0][0], spans, probability


def test_it_is_the_plain_stack_and_its_heights_are_its_trees():
    module = encoder()
    formulas = [ids(text) for text in TEXTS]
    with torch.no_grad():
        (vectors, log_p), heights = module.sample(formulas), module.heights(formulas)
    shapes = set()
    for row, text in enumerate(TEXTS):
        with torch.no_grad():
            expected, spans, probability = plain(module, text, lambda p: p > 0.5)
        torch.testing.assert_close(vectors[row], expected, rtol=0, atol=1e-12)
        assert log_p[row] == pytest.approx(math.log(probability), abs=1e-10)
        tree = tree_from_distances(heights[row], text.split(), "unbiased")
        assert tree == Tree.from_spans(text.split(), spans)
        shapes.add(tuple(spans))
    left = [tuple((0, end) for end in range(2, len(text.split()) + 1)) for text in TEXTS]
    assert shapes - {*left}, "left-branching trees alone prove little"
    (own,) = induced.of_encoder(module, TEXTS[:2])
    assert (own.decoder, own.n) == ("own", 2)


def test_sampled_trees_come_with_their_probabilities():
    module = encoder(scale=0.5).train()
    text, formulas = TEXTS[2], [ids(TEXTS[2])] * 3000
    torch.manual_seed(0)
    with torch.no_grad():
        _, log_p = module.sample(formulas)
        found = module.heights(formulas)
    shares = {tuple(row): found.count(row) / len(found) for row in found}
    assert len(shares) == 5  # all binary trees of four tokens
    probabilities = {}
    for bits in range(16):
        choices = iter([bool(bits >> k & 1) for k in range(4)])
        with torch.no_grad():
            _, spans, probability = plain(module, text, lambda p, choices=choices: next(choices))
        probabilities[Tree.from_spans(text.split(), spans)] = float(probability)
    assert sum(probabilities.values()) == pytest.approx(1)
    for heights, share in shares.items():
        tree = tree_from_distances(heights, text.split(), "unbiased")
        assert share == pytest.approx(probabilities[tree], abs=0.03)
    known = np.log([*probabilities.values()])
    assert np.abs(known - log_p.numpy()[:, None]).min(1).max() < 1e-10


def along(module, trees, leaves):
    """Return the roots of given trees, whose gates are computed anew, node by node."""
    nodes, gates = [*leaves.detach()[:, None]], []
    with torch.no_grad():
        for a, b in (children for step in trees.steps for children in zip(*step[:2], strict=True)):
            left, right = nodes[a], nodes[b]
            gates.append(module.gates(hidden(left, right)))
            nodes.append(parents(left, right, gates[-1])[0])
    return module.along(trees._replace(gates=torch.cat(gates)), leaves)


def test_gradients_of_given_trees():
    """Choices have no derivative; vectors and log-probabilities of trees that stay have one."""
    module = encoder(D=3, scale=0.7)
    formulas = [ids(text) for text in TEXTS[1:]]
    with torch.no_grad():
        leaves = module.leaf(module.embedding(torch.cat(formulas)))
        trees = module.act(leaves, np.array([len(row) for row in formulas]))
    names, weights = zip(*module.named_parameters(), strict=True)

    def vectors(*values):
        """Use `forward` for what the tests need of the module under other weights."""
        module.forward = lambda: along(module, trees, module.leaf(module.embedding(torch.cat(formulas))))
        return functional_call(module, dict(zip(names, values, strict=True)), ())

    assert gradcheck(vectors, weights, fast_mode=True)
    assert policy_alone_learns_from_its_choices(module, formulas)


def test_the_mean_of_the_estimates_is_the_gradient_of_the_expected_reward():
    torch.manual_seed(3)
    model = Classifier(ModelConfig(encoder="rl-spinn", embedding_size=4, hidden_size=6, dropout=0.0)).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    left, right = "( not a )", "b"
    choices = [[bool(bits >> k & 1) for k in range(4)] for bits in range(16)]
    batch = Problems.of([Pair("#", left, right)]).batch(np.arange(1))
    expected, seen = 0.0, set()
    for row in choices:
        steps = iter(row)
        vector, spans, probability = plain(model.encoder, left, lambda p, steps=steps: next(steps))
        if (key := tuple(sorted(spans))) not in seen:
            seen.add(key)
            states = torch.stack([vector, plain(model.encoder, right, None)[0]])
            nll = torch.nn.functional.cross_entropy(model._relations(states, torch.tensor([[0], [1]])), batch.labels)
            expected = expected + probability * nll.detach()
    assert estimates_have_the_mean(model, batch, expected)


def test_the_baseline_is_the_running_mean_of_the_rewards():
    module = encoder()
    assert module.advantage(torch.tensor([1.0, 3.0]).double()).tolist() == [1.0, 3.0]
    assert module.baseline == pytest.approx(0.2)
    assert module.advantage(torch.tensor([1.0]).double()).tolist() == pytest.approx([0.8])
