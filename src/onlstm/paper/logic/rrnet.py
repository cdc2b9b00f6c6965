"""The encoder RRNet: an LSTM that opens and closes constituents while it reads, and learns where from rewards alone.

Jacob et al. 2018, "Learning Hierarchical Structures On-The-Fly with a Recurrent-Recursive Model for Sequences"
(RepL4NLP). Beside its state (h, c) it has a stack. With each token x_t it takes one of three actions:

    split    a constituent begins:  F1(x_t, h, c) is pushed;             the state becomes F2(x_t, h, c)
    recur    it goes on:                                                 the state becomes F3(x_t, h, c)
    merge    it has ended:          h_m = tanh(W [h; what is popped]);   the state becomes F4(x_t, h_m, c)

F1 to F4 are LSTM cells (of F1 the h is kept), so what was read before a constituent skips it on the stack. A policy,
a feed-forward network of two layers, sees h and x_t; in training its choice is sampled, a test takes the likeliest.
It learns by REINFORCE alone and the rest by backpropagation alone. (PAPER.md says where this comes from.)
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import Sampler, by_step
from onlstm.paper.logic.linear import Linear, Repeated

SPLIT, RECUR, MERGE = range(3)


def state(
    cell: Repeated, x: Float[Tensor, "n E"], h: Float[Tensor, "n D"], c: Float[Tensor, "n D"]
) -> tuple[Float[Tensor, "n D"], Float[Tensor, "n D"]]:
    """Return the state (h, c) of an LSTM cell after x."""
    i, f, g, o = cell(torch.cat([x, h], -1)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


class Stacks(NamedTuple):
    """A stack for each formula."""

    content: Float[Tensor, "B depth D"]
    sizes: Int[Tensor, " B"]

    def top(self, rows: Int[Tensor, " n"]) -> Float[Tensor, "n D"]:
        """Return the topmost vectors of some stacks."""
        return self.content[rows, self.sizes[rows] - 1]

    def after(self, action: Int[Tensor, " B"], rows: Int[Tensor, " n"], pushed: Float[Tensor, "n D"]) -> "Stacks":
        """Return the stacks after actions, of which some rows split."""
        room = F.pad(self.content, (0, 0, 0, int(self.sizes.max()) + 1 - self.content.shape[1]))  # grow, or shrink
        content = room.index_put((rows, self.sizes[rows]), pushed) if len(rows) else self.content
        return Stacks(content, self.sizes + (action == SPLIT).long() - (action == MERGE).long())


class Layers(NamedTuple):
    """F1 to F4, and what merges, in a pass."""

    F1: Repeated
    F2: Repeated
    F3: Repeated
    F4: Repeated
    merged: Repeated

    def step(self, x: Tensor, h: Tensor, c: Tensor, stacks: Stacks, action: Tensor) -> tuple[Tensor, Tensor, Stacks]:
        """Return the state and the stacks after a token: the formulas of an action together."""
        order = action.argsort(stable=True)
        split, recur, merge = order.split(action.bincount(minlength=3).tolist())
        h_m = self.merged(torch.cat([h[merge], stacks.top(merge)], -1)).tanh()
        pushed, _ = state(self.F1, x[split], h[split], c[split])
        states = (
            state(self.F2, x[split], h[split], c[split]),
            state(self.F3, x[recur], h[recur], c[recur]),
            state(self.F4, x[merge], h_m, c[merge]),
        )
        h, c = (torch.cat(parts)[order.argsort()] for parts in zip(*states, strict=True))
        return h, c, stacks.after(action, split, pushed)


class RRNet(Sampler):
    """The hidden state after the last token of each formula."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        E, D = config.embedding_size, self.size
        self.F1, self.F2, self.F3, self.F4 = (Linear(E + D, 4 * D) for _ in range(4))
        self.merged = Linear(2 * D, D)
        hidden = max(1, D // 4)
        self.policy = nn.Sequential(Linear(D + E, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def sample(self, formulas: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        vectors, log_p, _ = self.read(formulas)
        return vectors, log_p

    @torch.no_grad()
    def heights(self, formulas: Sequence[Tensor]) -> list[list[int]]:
        depths = [depth.tolist() for depth in self.read(formulas)[2]]
        deepest = max(map(max, depths))
        return [[0, *(deepest - depths[t][row] for t in range(1, len(ids)))] for row, ids in enumerate(formulas)]

    def read(self, formulas: Sequence[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return the vectors (B, D) of formulas, longest first, log-probabilities (B,) of their actions, and depths.

        A token's depth is the number of constituents around the split left of it; there are depths for each step.
        """
        tokens, alive = by_step(formulas)
        x = self.dropout(self.embedding(tokens.to(self.device))).split(alive)
        h = c = x[0].new_zeros(alive[0], self.size)
        stacks = Stacks(h[:, None], torch.zeros(alive[0], dtype=torch.long, device=self.device))
        layers = self.layers()
        ended, depths, seen, actions = [], [], [], []
        for x_t in x:
            rows = len(x_t)
            ended.append(h[rows:])
            h, c, stacks = h[:rows], c[:rows], Stacks(*(part[:rows] for part in stacks))
            seen.append(torch.cat([h, x_t], -1).detach())
            actions.append(self.choice(seen[-1], stacks.sizes))
            before = stacks.sizes
            h, c, stacks = layers.step(x_t, h, c, stacks, actions[-1][0])
            depths.append(torch.minimum(before, stacks.sizes))
        chosen, possible = (torch.cat(parts) for parts in zip(*actions, strict=True))
        scores = self.policy(torch.cat(seen)).masked_fill(~possible, -torch.inf)
        owners = torch.cat([torch.arange(rows, device=self.device) for rows in alive])
        log_p = h.new_zeros(alive[0]).index_add(0, owners, -F.cross_entropy(scores, chosen, reduction="none"))
        return torch.cat([h, *reversed(ended)]), log_p, depths

    @torch.no_grad()
    def choice(self, seen: Float[Tensor, "B S"], sizes: Int[Tensor, " B"]) -> tuple[Tensor, Tensor]:
        """Return the actions (B,), and which were possible (B, 3): an empty stack has nothing to merge with."""
        possible = (sizes[:, None] > 0) | (torch.arange(3, device=sizes.device) != MERGE)
        p = self.policy(seen).masked_fill(~possible, -torch.inf).softmax(-1)
        return p.multinomial(1)[:, 0] if self.training else p.argmax(-1), possible

    def layers(self) -> Layers:
        """Return the layers of a pass."""
        return Layers(*map(Repeated, (self.F1, self.F2, self.F3, self.F4, self.merged)))
