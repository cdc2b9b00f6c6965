"""The encoder Gumbel Tree-LSTM: a Tree-LSTM that chooses which two neighbours to compose next.

Choi et al. 2018, "Learning to Compose Task-Specific Tree Structures" (AAAI). In each layer all pairs of neighbours
are composed, a query scores the candidates, and one of them replaces its two children; the other nodes are copied.
Training samples it (straight-through Gumbel-softmax: the choice is hard, its gradient that of the softmax); a test
takes the best.

    code            paper                meaning
    h, c            r_i = [h_i; c_i]     hidden and cell state of each node of a layer
    h_p, c_p        r~_i                 the candidates: parents of nodes i and i + 1
    q               q                    query: validity of a candidate is softmax(q · h_p)
    y               y_i                  the choice, one-hot
    m_l, m_p, m_r   m^l, m^p, m^r        of the next layer: the nodes left of the parent, the parent, those right of it

B formulas, longest first; n nodes of the longest. A formula that is one node leaves the batch; nodes behind the end of
the others are never chosen.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import TreeEncoder


def straight_through(soft: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
    """Return the one-hot mode of each row, with the gradient of the row itself."""
    hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
    return hard + (soft - soft.detach())


def gumbel(like: Tensor) -> Tensor:
    """Return Gumbel noise: -log of exponential noise."""
    return -torch.empty_like(like).exponential_().clamp(min=1e-20).log()


class GumbelTreeLSTM(TreeEncoder):
    """The hidden state of the root of the tree that it builds of each formula; its temperature is the paper's, 1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.leaf = nn.Linear(config.embedding_size, 2 * self.size)
        self.compose = nn.Linear(2 * self.size, 5 * self.size)
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
        lengths = torch.tensor([len(ids) for ids in formulas])
        tokens = pad_sequence(list(formulas), batch_first=True)
        h, c = self.leaf(self.dropout(self.embedding(tokens))).chunk(2, -1)
        ended, places = [], []
        for step in range(1, tokens.shape[1]):
            rows = int((lengths > step).sum())
            ended.append(h[rows:, 0])
            h, c = h[:rows], c[:rows]
            h_p, c_p = self.parents(h, c)
            y = self.choice(h_p, torch.arange(h_p.shape[1]) < (lengths[:rows] - step)[:, None])
            places.append(y.argmax(-1))
            upto = y.cumsum(-1)
            m_l, m_p, m_r = (mask[..., None] for mask in (1 - upto, y, upto - y))
            h, c = (m_l * old[:, :-1] + m_p * new + m_r * old[:, 1:] for old, new in ((h, h_p), (c, c_p)))
        return torch.cat([h[:, 0], *reversed(ended)]), places

    def parents(self, h: Float[Tensor, "B n D"], c: Float[Tensor, "B n D"]) -> tuple[Tensor, Tensor]:
        """Return the states of the parents of all neighbours."""
        i, f_l, f_r, o, g = self.compose(torch.cat([h[:, :-1], h[:, 1:]], -1)).chunk(5, -1)
        c_p = f_l.sigmoid() * c[:, :-1] + f_r.sigmoid() * c[:, 1:] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c_p.tanh(), c_p

    def choice(self, h_p: Float[Tensor, "B n D"], there: Bool[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Return which candidates become parents."""
        scores = h_p @ self.q
        if self.training:
            scores = scores + gumbel(scores)
        return straight_through(scores.masked_fill(~there, -torch.inf).softmax(-1))
