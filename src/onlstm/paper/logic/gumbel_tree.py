"""The encoder Gumbel Tree-LSTM: a Tree-LSTM that chooses which two neighbours to compose next.

Choi et al. 2018, "Learning to Compose Task-Specific Tree Structures" (AAAI). In each layer all pairs of neighbours
are composed, a query scores the candidates, and one of them replaces its two children; the other nodes are copied.
Training samples it (straight-through Gumbel-softmax: a hard choice, the softmax's gradient); a test takes the best.

    code            paper                meaning
    r               r_i = [h_i; c_i]     hidden and cell state of each node of a layer
    r_p             r~_i                 the candidates: parents of nodes i and i + 1
    q               q                    query: validity of a candidate is softmax(q · h_p)
    v, y            v_i, y_i             the validity with Gumbel noise; the choice, one-hot
    m_l, m_p, m_r   m^l, m^p, m^r        of the next layer: the nodes left of the parent, the parent, those right of it

A candidate is composed once, when its nodes become neighbours, and kept. Until it is chosen, it adds to the gradient
through its score alone, whose slope is kept with it: so the gradients are those of the paper's layers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import TreeEncoder
from onlstm.paper.logic.linear import Linear, linear


def _at_nodes(left: Float[Tensor, "B m S"], right: Float[Tensor, "B m S"]) -> Float[Tensor, "B m+1 S"]:
    """Return the sum of gradients of candidates by their left nodes, 0 … m - 1, and by their right ones, 1 … m."""
    d_r = torch.cat([left, torch.zeros_like(left[:, :1])], 1)
    d_r[:, 1:] += right
    return d_r


class _Scores(torch.autograd.Function):
    """The scores of a layer's candidates, known already, as functions of its nodes."""

    @staticmethod
    def forward(ctx: Any, r: Tensor, scores: Tensor, slopes: Tensor, numbers: Tensor) -> Tensor:
        ctx.slopes, ctx.numbers = slopes, numbers
        return scores.clone()

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, "B m"]) -> tuple[Tensor, Tensor, None, None]:
        left, right = ctx.slopes[ctx.numbers].mul_(grad[..., None]).chunk(2, -1)
        return _at_nodes(left, right), grad, None, None


class _Next(torch.autograd.Function):
    """The next layer, m_l r_i + m_p r_p + m_r r_(i+1): y is one-hot, with the gradient of the softmax v."""

    @staticmethod
    def forward(ctx: Any, r: Tensor, v: Tensor, parent: Tensor, place: Tensor, *candidates: Tensor) -> Tensor:
        ctx.save_for_backward(r, place)
        ctx.candidates, ctx.numbers = candidates
        columns = torch.arange(v.shape[1], device=r.device)
        after = r[:, :-1].where((columns < place[:, None])[..., None], r[:, 1:])
        return after.where((columns != place[:, None])[..., None], parent[:, None])

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, "B m S"]) -> tuple[Tensor | None, ...]:
        r, place = ctx.saved_tensors
        nodes = r[:, :-1], ctx.candidates[ctx.numbers], r[:, 1:]
        d_left, d_p, d_right = (torch.einsum("bms,bms->bm", grad, state) for state in nodes)
        d_v = d_p - d_right + (d_right - d_left).flip(1).cumsum(1).flip(1)  # m_l = 1 - cumsum(y), m_r = cumsum(y) - y
        side = torch.arange(grad.shape[1], device=r.device)[:, None] - place[:, None, None]  # left: negative
        d_r = _at_nodes(grad * (side < 0), grad * (side > 0))
        return d_r, d_v, grad[torch.arange(len(r), device=r.device), place], None, None, None


class GumbelTreeLSTM(TreeEncoder):
    """The hidden state of the root of the tree that it builds of each formula; its temperature is the paper's, 1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.leaf = Linear(config.embedding_size, 2 * self.size)
        self.compose = Linear(2 * self.size, 5 * self.size)
        self.q = nn.Parameter(torch.randn(self.size) * 0.01)

    def forward(self, formulas: Sequence[Tensor]) -> Tensor:
        return self.build(formulas)[0]

    @torch.no_grad()
    def heights(self, formulas: Sequence[Tensor]) -> list[list[int]]:
        rows = [[0] * len(ids) for ids in formulas]
        splits = [list(range(1, len(ids))) for ids in formulas]  # between the nodes that are left
        for step, places in enumerate(self.build(formulas)[1], 1):
            for row, split, place in zip(rows, splits, places.tolist(), strict=False):
                row[split.pop(place)] = step
        return rows

    def build(self, formulas: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the vectors (B, D) of formulas, longest first, and in each step the places of the parents chosen."""
        left = torch.tensor([len(ids) for ids in formulas], device=self.device) - 1  # candidates of each
        r = self.leaf(self.dropout(self.embedding(pad_sequence(list(formulas), batch_first=True).to(self.device))))
        m, known, ended, places = r.shape[1] - 1, 0, [], []
        scores, numbers = r.new_zeros(len(r), m), left.new_zeros(len(r), m)
        some = 3 * int(left.sum()) * torch.is_grad_enabled()  # gradients alone need them
        candidates, slopes = (r.new_empty(some, k * self.size) for k in (2, 4))
        columns = torch.arange(m, device=self.device)
        new = columns < left[:, None]
        while len(columns):
            B = int((left > 0).sum())
            ended.append(r[B:, 0, : self.size])  # formulas that are a single node leave the batch
            r, scores, numbers, left, new = r[:B], scores[:B], numbers[:B], left[:B], new[:B]
            row, column = new.nonzero(as_tuple=True)
            children = r.detach()[row, column], r.detach()[row, column + 1]
            h, *_ = made = self.parents(*children)
            if some:
                candidates[known : known + len(row)] = torch.cat(made[:2], -1).detach()
                slopes[known : known + len(row)] = self.slopes(*children, *made[1:])
            numbers[row, column] = torch.arange(known, known := known + len(row), device=self.device)
            scores = scores.index_put((row, column), h @ self.q)
            by_nodes: Tensor = _Scores.apply(r, scores, slopes, numbers)  # type: ignore[no-untyped-call]
            v = self.validity(by_nodes, columns < left[:, None])
            places.append(place := v.argmax(-1))
            parent = torch.cat(self.parents(*(r[torch.arange(B, device=r.device), place + k] for k in (0, 1)))[:2], -1)
            r = _Next.apply(r, v, parent, place, candidates, numbers)  # type: ignore[no-untyped-call]
            left, place, columns = left - 1, place[:, None], columns[:-1]
            stay = columns + (columns >= place)
            scores, numbers = scores.gather(1, stay), numbers.gather(1, stay)
            new = ((columns == place) | (columns == place - 1)) & (columns < left[:, None])
        return torch.cat([r[:, 0, : self.size], *reversed(ended)]), places

    def parents(self, left: Float[Tensor, "n S"], right: Float[Tensor, "n S"]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return the states (h, c) of the parents of nodes, and their gates."""
        (h_l, c_l), (h_r, c_r) = left.chunk(2, -1), right.chunk(2, -1)
        i, f_l, f_r, o, g = self.compose(torch.cat([h_l, h_r], -1)).chunk(5, -1)
        i, f_l, f_r, o, g = gates = [i.sigmoid(), (f_l + 1).sigmoid(), (f_r + 1).sigmoid(), o.sigmoid(), g.tanh()]
        c = f_l * c_l + f_r * c_r + i * g
        return o * c.tanh(), c, gates

    @torch.no_grad()
    def slopes(self, left: Tensor, right: Tensor, c: Tensor, gates: Sequence[Tensor]) -> Tensor:
        """Return the derivatives of the scores of parents by the states of their children, left and right (n, 4D)."""
        i, f_l, f_r, o, g = gates
        d_c = self.q * o * (1 - c.tanh() ** 2)
        d_gates = [d_c * g, d_c * left.chunk(2, -1)[1], d_c * right.chunk(2, -1)[1], self.q * c.tanh()]
        d_sums = [*(d * gate * (1 - gate) for d, gate in zip(d_gates, gates, strict=False)), d_c * i * (1 - g**2)]
        d_l, d_r = linear(torch.cat(d_sums, -1), self.compose.weight.T, narrow=self.rounds).chunk(2, -1)
        return torch.cat([d_l, d_c * f_l, d_r, d_c * f_r], -1)

    def validity(self, scores: Float[Tensor, "B m"], there: Bool[Tensor, "B m"]) -> Float[Tensor, "B m"]:
        """Return the share of each candidate, in training after noise; the largest is chosen."""
        if self.training:
            scores = scores - torch.empty_like(scores).exponential_().clamp(min=1e-20).log()  # Gumbel's
        return scores.masked_fill(~there, -torch.inf).softmax(-1)
