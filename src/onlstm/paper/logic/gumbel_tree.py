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
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import TreeEncoder, hidden, parents
from onlstm.paper.logic.linear import Linear, Repeated, linear


class _Children(torch.autograd.Function):
    """The two nodes of each formula that are composed next; and all nodes, whose gradient has room for theirs."""

    @staticmethod
    def forward(ctx: Any, r: Float[Tensor, "B m+1 S"], place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.rows, ctx.place = torch.arange(len(r), device=r.device), place
        return r[ctx.rows, place], r[ctx.rows, place + 1], r

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor, None]:
        d_left, d_right, d_r = d
        d_r[ctx.rows, ctx.place] += d_left
        d_r[ctx.rows, ctx.place + 1] += d_right
        return d_r, None


class _Next(torch.autograd.Function):
    """The next layer, m_l r_i + m_p r_p + m_r r_(i+1): y is one-hot, with the gradient of v, the softmax of the scores.

    Scores are known already; as functions of the nodes they have the slopes.
    """

    @staticmethod
    def forward(ctx: Any, r: Tensor, scores: Tensor, parent: Tensor, v: Tensor, place: Tensor, *kept: Tensor) -> Tensor:
        ctx.save_for_backward(r, v, place)
        ctx.candidates, ctx.slopes, ctx.numbers = kept
        columns = torch.arange(v.shape[1], device=r.device)
        after = r[:, :-1].where((columns < place[:, None])[..., None], r[:, 1:])
        return after.where((columns != place[:, None])[..., None], parent[:, None])

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, "B m S"]) -> tuple[Tensor | None, ...]:
        r, v, place = ctx.saved_tensors
        nodes = r[:, :-1], ctx.candidates[ctx.numbers], r[:, 1:]
        d_left, d_p, d_right = (torch.einsum("bms,bms->bm", grad, state) for state in nodes)
        d_v = d_p - d_right + (d_right - d_left).flip(1).cumsum(1).flip(1)  # m_l = 1 - cumsum(y), m_r = cumsum(y) - y
        d_scores = v * (d_v - (v * d_v).sum(-1, keepdim=True))
        left, right = ctx.slopes[ctx.numbers].chunk(2, -1)
        side = torch.arange(grad.shape[1], device=r.device) - place[:, None]  # left: negative
        d_r = F.pad(left * d_scores[..., None], (0, 0, 0, 1))
        d_r[:, 1:].addcmul_(right, d_scores[..., None])
        d_r[:, :-1].addcmul_(grad, (side < 0).to(grad)[..., None])
        d_r[:, 1:].addcmul_(grad, (side > 0).to(grad)[..., None])
        return d_r, d_scores, grad[torch.arange(len(r), device=r.device), place], *[None] * 5


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
        m, count, ended, places = r.shape[1] - 1, 0, [], []
        scores, numbers = r.new_zeros(len(r), m), left.new_zeros(len(r), m)
        gates, candidates, slopes = (r.new_empty(3 * int(left.sum()), k * self.size) for k in (5, 2, 4))
        columns, compose = torch.arange(m, device=self.device), Repeated(self.compose)
        new = columns < left[:, None]
        while len(columns):
            B = int((left > 0).sum())
            ended.append(r[B:, 0, : self.size])  # formulas that are a single node leave the batch
            r, scores, numbers, left, new = r[:B], scores[:B], numbers[:B], left[:B], new[:B]
            row, column = new.nonzero(as_tuple=True)
            nodes = r.detach()[row, column], r.detach()[row, column + 1]
            sums = compose(hidden(*nodes))
            made, parts = parents(*nodes, sums, forget=1)
            some = slice(count, count := count + len(row))
            gates[some], candidates[some] = sums.detach(), made.detach()
            if torch.is_grad_enabled():
                slopes[some] = self.slopes(*nodes, parts)
            numbers[row, column] = torch.arange(some.start, count, device=self.device)
            scores = scores.index_put((row, column), made[:, : self.size] @ self.q)
            v = self.validity(scores.detach(), columns < left[:, None])
            places.append(place := v.argmax(-1))
            a, b, r = _Children.apply(r, place)  # type: ignore[no-untyped-call]
            sums = gates[numbers[torch.arange(B, device=r.device), place]]
            parent, _ = parents(a, b, compose(hidden(a, b), sums), forget=1)
            r = _Next.apply(r, scores, parent, v, place, candidates, slopes, numbers)  # type: ignore[no-untyped-call]
            left, place, columns = left - 1, place[:, None], columns[:-1]
            stay = columns + (columns >= place)
            scores, numbers = scores.gather(1, stay), numbers.gather(1, stay)
            new = ((columns == place) | (columns == place - 1)) & (columns < left[:, None])
        return torch.cat([r[:, 0, : self.size], *reversed(ended)]), places

    @torch.no_grad()
    def slopes(self, left: Tensor, right: Tensor, parts: Sequence[Tensor]) -> Tensor:
        """Return the derivatives of the scores of parents by the states of their children, left and right (n, 4D)."""
        i, f_l, f_r, o, g, tanh_c = parts
        d_c = self.q * o * (1 - tanh_c**2)
        d_gates = [d_c * g, d_c * left[:, self.size :], d_c * right[:, self.size :], self.q * tanh_c]
        d_sums = [*(d * gate * (1 - gate) for d, gate in zip(d_gates, parts, strict=False)), d_c * i * (1 - g**2)]
        d_l, d_r = linear(torch.cat(d_sums, -1), self.compose.weight.T, narrow=self.rounds).chunk(2, -1)
        return torch.cat([d_l, d_c * f_l, d_r, d_c * f_r], -1)

    def validity(self, scores: Float[Tensor, "B m"], there: Bool[Tensor, "B m"]) -> Float[Tensor, "B m"]:
        """Return the share of each candidate, in training after noise; the largest is chosen."""
        if self.training:
            scores = scores - torch.empty_like(scores).exponential_().clamp(min=1e-20).log()  # Gumbel's
        return scores.masked_fill(~there, -torch.inf).softmax(-1)
