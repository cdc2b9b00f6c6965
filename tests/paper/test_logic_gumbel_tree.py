"""The Gumbel Tree-LSTM: against lists of nodes, finite differences of its soft form, and its trees."""

from itertools import pairwise

import torch

from formulas import TEXTS, gradients_are_derivatives, ids
from onlstm.paper.logic import gumbel_tree, induced
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.encoders import build
from onlstm.trees import Tree, tree_from_distances


def encoder(D=6, scale=1.5):
    torch.manual_seed(1)
    config = ModelConfig(encoder="gumbel-tree-lstm", embedding_size=4, hidden_size=D, dropout=0.0)
    module = build(config).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-scale, scale)
    return module


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
            c = torch.sigmoid(f_l) * c_l + torch.sigmoid(f_r) * c_r + torch.sigmoid(i) * torch.tanh(g)
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


def test_gradients_of_the_soft_form(monkeypatch):
    """The straight-through gradient is no derivative; without the hard choice it has to be one."""
    monkeypatch.setattr(gumbel_tree, "straight_through", lambda soft: soft)
    module = encoder(D=3, scale=0.7)
    assert gradients_are_derivatives(module)


def test_choices_are_hard_and_sampled_by_their_softmax():
    module = encoder().train()
    torch.manual_seed(0)
    h_p = torch.randn(1, 3, 6, dtype=torch.float64).expand(4000, 3, 6)
    there = torch.tensor([True, True, False]).expand(4000, 3)
    y = module.choice(h_p, there).detach()
    assert set(y.unique().tolist()) == {0.0, 1.0}
    expected = (h_p[0] @ module.q).detach()[:2].softmax(-1)
    torch.testing.assert_close(y.mean(0)[:2], expected, rtol=0, atol=0.03)
    assert y[:, 2].sum() == 0
    soft = torch.tensor([[0.2, 0.5, 0.3]], requires_grad=True)
    (gumbel_tree.straight_through(soft) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert soft.grad.tolist() == [[1.0, 2.0, 3.0]]
