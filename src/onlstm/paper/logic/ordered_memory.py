"""The encoder Ordered Memory: a stack of memory slots that soft attention over their height writes and erases.

Shen et al. 2019, "Ordered Memory" (NeurIPS). A token x_t is put at some height of the stack: all that is below this
height has been composed into one vector, and the token is composed with it and with everything above. The attention
over heights p_t is soft, and its cumulative sums say how far a slot is written or erased.

    code          paper            meaning
    D, N          D, N             size of a slot, number of slots; slot N - 1 is the highest, the whole formula so far
    x             x~_t             a token: its embedding, projected and normalised
    M             M_t              memory: what stands left of the token at each height
    M_hat         M^_t             candidate memory: the same, composed with the token
    beta          β_t              scores of the heights
    p             p_t              attention over the heights; its mode is the height of the split left of the token
    up            π→_t             cumulative sums of p from the lowest slot: how far a slot has composed the token
    down          π←_t             those from the highest: how far a slot is replaced by its candidate
    g_v, g_h, g_c vg, hg, cg       gates of the cell: of the lower vector v, of the memory h, of the new content u

A token reaches at most one slot deeper than the one before it: after t tokens the highest t slots are in use, up to N.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.kernels.composition import Pass, Weights, fused
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import Dropout, TreeEncoder, parts_of
from onlstm.paper.logic.linear import Linear

_OUT_OF_REACH = 1e-5
"""A slot has attention if at least this share of the previous token lies up to the next higher one (authors' code)."""


class Memory(NamedTuple):
    """The state after a token, n slots in use."""

    x: Float[Tensor, "B D"]
    M: Float[Tensor, "B n D"]
    M_hat: Float[Tensor, "B n D"]
    p: Float[Tensor, "B n"]

    def grown(self, N: int) -> "Memory":
        """Return the memory with one more slot, if there are not N: below the others, and with the token in it."""
        if self.p.shape[1] == N:
            return self
        M, M_hat = (torch.cat([self.x[:, None], slots], 1) for slots in (self.M, self.M_hat))
        return Memory(self.x, M, M_hat, F.pad(self.p, (1, 0)))


def attention(beta: Float[Tensor, "B n"], p_prev: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
    """Return p_t, in proportion to exp(β_t) times the share of the previous token up to the next slot, its π→."""
    reach = F.pad(p_prev.cumsum(-1)[:, 1:], (0, 1), value=1.0)  # the highest slot always
    near = reach.clamp(min=_OUT_OF_REACH).log()
    return (beta + near).masked_fill(reach < _OUT_OF_REACH, -torch.inf).softmax(-1)


class GatedRecursiveCell(nn.Module):
    """The composition of two vectors, σ(g_v) v + σ(g_h) h + σ(g_c) u, not yet normalised; 4 D hidden neurons."""

    def __init__(self, D: int, p: float) -> None:
        super().__init__()
        self.p = p
        self.gates = nn.Sequential(Dropout(p), Linear(2 * D, 4 * D), nn.ReLU(), Dropout(p), Linear(4 * D, 4 * D))

    def forward(self, v: Float[Tensor, "B D"], h: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        g_v, g_h, g_c, u = self.gates(torch.cat([v, h], -1)).chunk(4, -1)
        composed: Tensor = g_v.sigmoid() * v + g_h.sigmoid() * h + g_c.sigmoid() * u
        return composed


class OrderedMemory(TreeEncoder):
    """The highest slot of the candidate memory after the last token of each formula."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        D, self.slots = self.size, config.slots
        self.norm = nn.LayerNorm(D)  # of tokens and of what is composed: both go into the same slots
        self.project = Linear(config.embedding_size, D)
        self.query, self.key = (nn.Sequential(Dropout(config.dropout), Linear(D, D), nn.LayerNorm(D)) for _ in range(2))
        self.score = nn.Sequential(nn.ReLU(), Dropout(config.dropout), nn.Linear(D, 1))
        self.noise = config.attention_noise
        self.cell = GatedRecursiveCell(D, config.dropout)

    def forward(self, formulas: Sequence[Tensor]) -> Tensor:
        return self.scan(formulas)[0]

    def heights(self, formulas: Sequence[Tensor]) -> list[list[int]]:
        with torch.no_grad():
            steps = self.scan(formulas, cuts=())[1]
        N = steps[-1].shape[1]
        modes = [[N - p.shape[1] + k for k in p.argmax(-1).tolist()] if p.shape[1] else [0] * len(p) for p in steps]
        return [[modes[t][row] for t in range(len(ids))] for row, ids in enumerate(formulas)]

    def scan(self, formulas: Sequence[Tensor], **cuts: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        """Return the vectors (B, D) of formulas, longest first, and p of every token (rows that have not ended, n).

        Formulas that begin alike are read as one, with one dropout; `cuts=()`: each by itself (see `parts_of`).
        """
        N = self.slots if self.training else 2 * self.slots
        parts, places = parts_of(formulas, self.device, **cuts)
        slots = sum(rows * min(t, N) for t, rows in enumerate(torch.cat([part.sizes for part in parts]).tolist()))
        compose = self.fused(slots) if fused(self.embedding.weight) else self.compose
        memory, steps, last = None, list[Tensor](), list[Tensor]()
        for part in parts:
            words, alive = self.norm(self.project(self.dropout(self.embedding(part.tokens)))), part.sizes.tolist()
            if memory:  # of the beginnings that go on
                memory = Memory(*(rows.index_select(0, part.parents) for rows in memory))
            tops = []
            for x, query in zip(words.split(alive), self.query(words).split(alive), strict=True):
                if memory:
                    before = Memory(*(rows[: len(x)] for rows in memory)).grown(N)
                    memory, top = self.step(x, query, before, compose)
                else:  # nothing to compose it with
                    none = x[:, None][:, :0]
                    memory, top = Memory(x, none, none, none[..., 0]), x
                steps.append(memory.p)
                tops.append(top)
            last += [top[after:] for top, after in zip(tops, [*alive[1:], 0], strict=True)][::-1]
        return torch.cat(last).index_select(0, places), steps

    def step(self, x: Tensor, query: Tensor, before: Memory, compose: Callable[..., Any]) -> tuple[Memory, Tensor]:
        """Return the memory after the token x, and the highest slot of its M_hat."""
        beta = self.score(query[:, None] + self.key(before.M_hat))[..., 0] / self.size**0.5
        if self.training and self.noise:
            beta = beta + self.noise * torch.randn_like(beta)
        p = attention(beta, before.p)
        up = p.cumsum(-1)
        down = 1 - up + p
        M = torch.lerp(before.M, before.M_hat, down[..., None])
        M_hat, top = compose(x, M, up)
        return Memory(x, M, M_hat, p), top

    def compose(
        self, x: Float[Tensor, "B D"], M: Float[Tensor, "B n D"], up: Float[Tensor, "B n"]
    ) -> tuple[Tensor, Tensor]:
        """Return M_hat, the token composed with one slot after the other, each as far as `up` says; and its highest."""
        M_hat, v = [], x
        for h, share in zip(M.unbind(1), up.split(1, -1), strict=True):
            v = torch.lerp(x, self.norm(self.cell(v, h)), share)
            M_hat.append(v)
        return torch.stack(M_hat, 1), v

    def fused(self, rows: int) -> Pass:
        """Return what computes `compose` in the kernel, for at most so many slots of all formulas and tokens."""
        weights = Weights(*self.cell.parameters(), *self.norm.parameters())
        return Pass(weights, self.norm.eps, self.cell.p if self.training else 0.0, rows, narrow=self.rounds)
