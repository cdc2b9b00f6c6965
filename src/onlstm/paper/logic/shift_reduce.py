"""The encoders RL-SPINN and RRNet: both build a binary tree while they read, and learn how from rewards alone.

There is a stack of nodes. An action shifts the next token onto it, or reduces its two topmost nodes to one; n tokens
take 2n - 1 actions. A policy, a feed-forward network of two layers, chooses where both are possible: in training it is
sampled, a test takes the likelier. The policy learns by REINFORCE alone and the rest by backpropagation alone.

RL-SPINN: Yogatama et al. 2017, "Learning to Compose Words into Sentences with Reinforcement Learning" (ICLR): the
shift-reduce encoder of Bowman et al. 2016 without its tracking LSTM. Nodes compose as in a Tree-LSTM, and the policy
sees the two topmost nodes and the next token.

RRNet: Jacob et al. 2018, "Learning Hierarchical Structures On-The-Fly with a Recurrent-Recursive Model for Sequences"
(RepL4NLP). One LSTM cell is both recurrent and recursive: a constituent goes on from its state with the next token, or
with a whole constituent in a token's place, and so skips what is in that. The policy sees no token ahead. (PAPER.md
says what of this is our reading.)

A first pass, without gradients, acts action by action; the second computes its trees again, all nodes of a depth
together, so that gradients need few and large products.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import Sampler
from onlstm.paper.logic.linear import Linear, linear


class Trees(NamedTuple):
    """What was done. Nodes have numbers: first the tokens, formula by formula, then all parents."""

    steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
    """Of each action: left children, right children and their parents."""
    roots: np.ndarray
    seen: Tensor
    """What the policy saw at each choice, of all formulas,"""
    reduced: Tensor
    """what it chose,"""
    owners: Tensor
    """and whose choice it was."""


class ShiftReduce(Sampler, ABC):
    """The vector of the root; a node's first D numbers are its vector, the others are its own affair."""

    sees: int
    """Nodes that the policy sees: the topmost, the one below it, the next token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        hidden = max(1, self.size // 4)
        self.policy = nn.Sequential(Linear(self.sees * self.size, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    @abstractmethod
    def leaves(self, x: Float[Tensor, "n E"]) -> Float[Tensor, "n S"]:
        """Return the nodes of tokens."""

    @abstractmethod
    def compose(self, left: Float[Tensor, "n S"], right: Float[Tensor, "n S"]) -> Float[Tensor, "n S"]:
        """Return the parents of nodes."""

    def sample(self, formulas: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        leaves = self.leaves(self.dropout(self.embedding(torch.cat(list(formulas)).to(self.device))))
        trees = self.act(leaves.detach(), np.array([len(ids) for ids in formulas]))
        choices = -F.binary_cross_entropy_with_logits(self.policy(trees.seen)[:, 0], trees.reduced, reduction="none")
        log_p = leaves.new_zeros(len(formulas)).index_add(0, trees.owners, choices)
        return self.along(trees, leaves)[:, : self.size], log_p

    @torch.no_grad()
    def act(self, leaves: Tensor, lengths: np.ndarray) -> Trees:
        """Return the trees of formulas, longest first."""
        B, n = len(lengths), len(leaves)
        nodes, made = torch.cat([leaves, leaves.new_empty(n - B, leaves.shape[1])]), n
        ends = lengths.cumsum()
        token = ends - lengths  # the next of each formula
        stack, top = np.zeros((B, lengths[0]), np.int64), np.full(B, -1)
        steps, seen, reduced, owners = [], [], [], []
        for step in range(2 * lengths[0] - 1):
            rows = np.arange((2 * lengths - 1 > step).sum())
            ahead = token[rows] < ends[rows]
            reduces = ~ahead
            chooses = rows[ahead & (top[rows] > 0)]
            if len(chooses):
                shown = stack[chooses, top[chooses]], stack[chooses, top[chooses] - 1], token[chooses]
                seen.append(torch.cat([nodes[self._index(k), : self.size] for k in shown[: self.sees]], -1))
                p = self.policy(seen[-1])[:, 0].sigmoid()
                reduced.append((torch.rand_like(p) if self.training else 0.5) < p)
                owners.append(self._index(chooses))
                reduces[chooses] = reduced[-1].cpu().numpy()
            pushes, pops = rows[~reduces], rows[reduces]
            left, right = stack[pops, top[pops] - 1], stack[pops, top[pops]]
            parents = made + np.arange(len(pops))
            made += len(pops)
            nodes[self._index(parents)] = self.compose(nodes[self._index(left)], nodes[self._index(right)])
            steps.append((left, right, parents))
            top += np.bincount(pushes, minlength=B) - np.bincount(pops, minlength=B)
            stack[pops, top[pops]], stack[pushes, top[pushes]] = parents, token[pushes]
            token[pushes] += 1
        none = leaves.new_empty(0, self.sees * self.size)
        shapes = (
            torch.cat([none, *seen]),
            torch.cat([none[:, 0], *reduced]),
            torch.cat([self._index(token[:0]), *owners]),
        )
        return Trees(steps, stack[:, 0], *shapes)

    def _index(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows).to(self.device)

    def along(self, trees: Trees, leaves: Tensor) -> Tensor:
        """Return the roots of given trees: those of a depth need the nodes one deeper only."""
        left, right, parents = (np.concatenate(part) for part in zip(*trees.steps, strict=True))
        depth = np.zeros(len(leaves) + len(parents), np.int64)
        for children in reversed(trees.steps):
            depth[children[0]] = depth[children[1]] = depth[children[2]] + 1
        place = np.zeros_like(depth)  # of a node among those of its depth
        below = leaves[:0]
        for level in range(int(depth.max()), -1, -1):
            here, (words,) = depth[parents] == level, (depth[: len(leaves)] == level).nonzero()
            children = (below.index_select(0, self._index(place[side[here]])) for side in (left, right))
            parts = [leaves.index_select(0, self._index(words))] + ([self.compose(*children)] if any(here) else [])
            below = torch.cat(parts)
            place[np.concatenate([words, parents[here]])] = np.arange(len(below))
        return below.index_select(0, self._index(place[trees.roots]))

    @torch.no_grad()
    def heights(self, formulas: Sequence[Tensor]) -> list[list[int]]:
        lengths = np.array([len(ids) for ids in formulas])
        trees = self.act(self.leaves(self.embedding(torch.cat(list(formulas)).to(self.device))), lengths)
        first = np.arange(2 * lengths.sum() - len(lengths))  # token of each node
        heights = np.zeros_like(first)
        for step, (left, right, parents) in enumerate(trees.steps, 1):
            first[parents] = first[left]
            heights[first[right]] = step
        return [part.tolist() for part in np.split(heights[: lengths.sum()], lengths.cumsum()[:-1])]


class RLSPINN(ShiftReduce):
    """Nodes are (h, c) of a Tree-LSTM."""

    sees = 3

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.leaf = Linear(config.embedding_size, 2 * self.size)
        self.gates = Linear(2 * self.size, 5 * self.size)

    def leaves(self, x: Tensor) -> Tensor:
        nodes: Tensor = self.leaf(x)
        return nodes

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        (h_l, c_l), (h_r, c_r) = left.chunk(2, -1), right.chunk(2, -1)
        i, f_l, f_r, o, g = self.gates(torch.cat([h_l, h_r], -1)).chunk(5, -1)
        c = f_l.sigmoid() * c_l + f_r.sigmoid() * c_r + i.sigmoid() * g.tanh()
        return torch.cat([o.sigmoid() * c.tanh(), c], -1)


class RRNet(ShiftReduce):
    """Nodes are (h, c, x): the state to go on from, and what the cell reads of it: a token's x, a constituent's h."""

    sees = 2

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.project = Linear(config.embedding_size, self.size)
        self.cell = nn.LSTMCell(self.size, self.size)

    def leaves(self, x: Tensor) -> Tensor:
        x = self.project(x)
        bias = self.cell.bias_ih + self.cell.bias_hh
        i, _, g, o = linear(x, self.cell.weight_ih, bias, narrow=self.rounds).chunk(4, -1)
        c = i.sigmoid() * g.tanh()  # from the state zero
        return torch.cat([o.sigmoid() * c.tanh(), c, x], -1)

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        (h, c, _), x = left.chunk(3, -1), right.chunk(3, -1)[2]
        gates = linear(h, self.cell.weight_hh, self.cell.bias_hh, narrow=self.rounds)
        gates = gates + linear(x, self.cell.weight_ih, self.cell.bias_ih, narrow=self.rounds)
        i, f, g, o = gates.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return torch.cat([h, c, h], -1)
