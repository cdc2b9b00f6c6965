"""The Gumbel Tree-LSTM: against lists of nodes, the paper's layers under autograd, and its trees."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from formulas import TEXTS, ids, random_encoder
from onlstm.paper.logic import induced
from onlstm.trees import Tree, tree_from_distances


def encoder(D=6, scale=1.5):
    return random_encoder("gumbel-tree-lstm", 1, D, scale)


@torch.no_grad()
def plain(module, text):
    """Return the vector of a formula and the spans of its tree: the best neighbours become one, again and again."""
    nodes, spans = [], []
    for k, token in enumerate(ids(text)):
        h, c = (module.leaf.weight @ module.embedding.weight[token] + module.leaf.bias).chunk(2)
        nodes.append((h, c, k, k + 1))
    while len(nodes) > 1:
        candidates = []
        for (h_l, c_l, start, _), (h_r, c_r, _, end) in pairwise(nodes):
            i, f_l, f_r, o, g = (module.compose.weight @ torch.cat([h_l, h_r]) + module.compose.bias).chunk(5)
            c = torch.sigmoid(f_l + 1) * c_l + torch.sigmoid(f_r + 1) * c_r + torch.sigmoid(i) * torch.tanh(g)
            candidates.append((torch.sigmoid(o) * torch.tanh(c), c, start, end))
        best = max(range(len(candidates)), key=lambda k: float(candidates[k][0] @ module.q))
        nodes[best : best + 2] = [candidates[best]]
        spans.append(nodes[best][2:])
    return nodes[0][0], spans


def test_it_is_the_plain_loop_and_its_heights_are_its_trees():
    module = encoder()
    vectors, heights = module([ids(text) for text in TEXTS]), module.heights([ids(text) for text in TEXTS])
    for row, text in enumerate(TEXTS):
        expected, spans = plain(module, text)
        torch.testing.assert_close(vectors[row].detach(), expected, rtol=0, atol=1e-12)
        tree = tree_from_distances(heights[row], text.split(), "unbiased")
        assert tree == Tree.from_spans(text.split(), spans)
    (own,) = induced.of_encoder(module, TEXTS[:2])
    assert own.decoder == "own"
    assert own.n == 2


def layers(module, formulas):
    """Return the vectors by the paper's layers: all candidates anew in each, masks, straight-through choices."""
    lengths = torch.tensor([len(row) for row in formulas])
    tokens = pad_sequence(formulas, batch_first=True)
    h, c = module.leaf(module.dropout(module.embedding(tokens))).chunk(2, -1)
    ended = []
    for step in range(1, tokens.shape[1]):
        rows = int((lengths > step).sum())
        ended.append(h[rows:, 0])
        h, c = h[:rows], c[:rows]
        i, f_l, f_r, o, g = module.compose(torch.cat([h[:, :-1], h[:, 1:]], -1)).chunk(5, -1)
        c_p = (f_l + 1).sigmoid() * c[:, :-1] + (f_r + 1).sigmoid() * c[:, 1:] + i.sigmoid() * g.tanh()
        h_p = o.sigmoid() * c_p.tanh()
        scores = h_p @ module.q
        if module.training:
            scores = scores - torch.empty_like(scores).exponential_().log()
        there = torch.arange(scores.shape[1]) < (lengths[:rows] - step)[:, None]
        soft = scores.masked_fill(~there, -torch.inf).softmax(-1)
        y = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0) + (soft - soft.detach())
        upto = y.cumsum(-1)
        m_l, m_p, m_r = (mask[..., None] for mask in (1 - upto, y, upto - y))
        h, c = (m_l * old[:, :-1] + m_p * new + m_r * old[:, 1:] for old, new in ((h, h_p), (c, c_p)))
    return torch.cat([h[:, 0], *reversed(ended)])


@pytest.mark.parametrize("training", [False, True])
def test_vectors_and_gradients_are_those_of_the_papers_layers(training):
    module, results = encoder(scale=0.9).train(training), []
    module.dropout.p = 0.2
    formulas = [ids(text) for text in TEXTS[:1] + TEXTS]
    weights = torch.randn(len(formulas), module.size, dtype=torch.float64)
    for encode in (module, partial(layers, module)):
        torch.manual_seed(0)
        vectors = encode(formulas)
        module.zero_grad()
        (vectors * weights).sum().backward()
        results.append([vectors.detach(), *(p.grad for p in module.parameters())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert expected.abs().max() > 1e-3


def test_choices_are_sampled_by_the_softmax_of_their_scores():
    module = encoder().train()
    torch.manual_seed(0)
    scores = torch.tensor([0.3, -0.9, 5.0]).double()
    there = torch.tensor([True, True, False]).expand(4000, 3)
    chosen = module.validity(scores.expand(4000, 3), there).argmax(-1)
    shares = torch.bincount(chosen, minlength=3) / 4000
    torch.testing.assert_close(shares[:2].double(), scores[:2].softmax(-1), rtol=0, atol=0.03)
    assert shares[2] == 0
