"""The encoder RL-SPINN: it builds a binary tree while it reads, and learns how from rewards alone.

Yogatama et al. 2017, "Learning to Compose Words into Sentences with Reinforcement Learning" (ICLR): the shift-reduce
encoder of Bowman et al. 2016 without its tracking LSTM. There is a stack of nodes (h, c). An action shifts the next
token onto it, or reduces its two topmost nodes to one, as in a Tree-LSTM; n tokens take 2n - 1 actions. A policy, a
feed-forward network of two layers, sees the two topmost nodes and the next token and chooses where both are possible:
in training it is sampled, a test takes the likelier. It learns by REINFORCE alone and the rest by backpropagation
alone. (PAPER.md says what of this is our reading.)

A first pass, without gradients, acts action by action; the second takes its trees, all nodes of a depth together, so
that gradients need few and large products.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import Sampler, hidden, parents
from onlstm.paper.logic.linear import Linear, Repeated


class Trees(NamedTuple):
    """What was done. Nodes have numbers: first the tokens, formula by formula, then all parents."""

    steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
    """Of each action: left children, right children and their parents."""
    roots: np.ndarray
    gates: Tensor
    """Of all parents."""
    seen: Tensor
    """What the policy saw at each choice, of all formulas,"""
    reduced: Tensor
    """what it chose,"""
    owners: Tensor
    """and whose choice it was."""


class RLSPINN(Sampler):
    """The hidden state of the root."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.leaf = Linear(config.embedding_size, 2 * self.size)
        self.gates = Linear(2 * self.size, 5 * self.size)
        neurons = max(1, self.size // 4)
        self.policy = nn.Sequential(Linear(3 * self.size, neurons), nn.ReLU(), nn.Linear(neurons, 1))

    def sample(self, formulas: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        leaves = self.leaf(self.dropout(self.embedding(torch.cat(list(formulas)).to(self.device))))
        trees = self.act(leaves.detach(), np.array([len(ids) for ids in formulas]))
        choices = -F.binary_cross_entropy_with_logits(self.policy(trees.seen)[:, 0], trees.reduced, reduction="none")
        log_p = leaves.new_zeros(len(formulas)).index_add(0, trees.owners, choices)
        return self.along(trees, leaves)[:, : self.size], log_p

    @torch.no_grad()
    def act(self, leaves: Tensor, lengths: np.ndarray) -> Trees:
        """Return the trees of formulas, longest first."""
        B, n = len(lengths), len(leaves)
        nodes, made = torch.cat([leaves, leaves.new_empty(n - B, leaves.shape[1])]), n
        gates, compose = leaves.new_empty(n - B, 5 * self.size), Repeated(self.gates)
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
                seen.append(torch.cat([nodes[self._index(k), : self.size] for k in shown], -1))
                p = self.policy(seen[-1])[:, 0].sigmoid()
                reduced.append((torch.rand_like(p) if self.training else 0.5) < p)
                owners.append(self._index(chooses))
                reduces[chooses] = reduced[-1].cpu().numpy()
            pushes, pops = rows[~reduces], rows[reduces]
            left, right = stack[pops, top[pops] - 1], stack[pops, top[pops]]
            number = made + np.arange(len(pops))
            if len(pops):
                both = nodes[self._index(left)], nodes[self._index(right)]
                gates[made - n : made - n + len(pops)] = sums = compose(hidden(*both))
                nodes[made : made + len(pops)], _ = parents(*both, sums)
            steps.append((left, right, number))
            made += len(pops)
            top += np.bincount(pushes, minlength=B) - np.bincount(pops, minlength=B)
            stack[pops, top[pops]], stack[pushes, top[pushes]] = number, token[pushes]
            token[pushes] += 1
        none = leaves.new_empty(0, 3 * self.size)
        shapes = (
            torch.cat([none, *seen]),
            torch.cat([none[:, 0], *reduced]),
            torch.cat([self._index(token[:0]), *owners]),
        )
        return Trees(steps, stack[:, 0], gates, *shapes)

    def _index(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows).to(self.device)

    def along(self, trees: Trees, leaves: Tensor) -> Tensor:
        """Return the roots of given trees: those of a depth need the nodes one deeper only."""
        left, right, numbers = (np.concatenate(part) for part in zip(*trees.steps, strict=True))
        depth = np.zeros(len(leaves) + len(numbers), np.int64)
        for children in reversed(trees.steps):
            depth[children[0]] = depth[children[1]] = depth[children[2]] + 1
        height = depth.max() - depth
        order = height[: len(leaves)].argsort(kind="stable")  # of the tokens, the deepest first
        counts = np.bincount(height[order], minlength=depth.max() + 1)
        words = leaves.index_select(0, self._index(order)).split(counts.tolist())
        place = np.zeros_like(depth)  # of a node among those of its depth
        below, compose = leaves[:0], Repeated(self.gates)
        for level, (tokens, nodes) in enumerate(zip(np.split(order, counts.cumsum()[:-1]), words, strict=True)):
            here = height[numbers] == level
            if any(here):
                a, b = (below.index_select(0, self._index(place[side[here]])) for side in (left, right))
                gates = trees.gates[self._index(numbers[here] - len(leaves))]
                nodes = torch.cat([nodes, parents(a, b, compose(hidden(a, b), gates))[0]])
            below = nodes
            place[np.concatenate([tokens, numbers[here]])] = np.arange(len(below))
        return below.index_select(0, self._index(place[trees.roots]))

    @torch.no_grad()
    def heights(self, formulas: Sequence[Tensor]) -> list[list[int]]:
        lengths = np.array([len(ids) for ids in formulas])
        trees = self.act(self.leaf(self.embedding(torch.cat(list(formulas)).to(self.device))), lengths)
        first = np.arange(2 * lengths.sum() - len(lengths))  # token of each node
        heights = np.zeros_like(first)
        for step, (left, right, numbers) in enumerate(trees.steps, 1):
            first[numbers] = first[left]
            heights[first[right]] = step
        return [part.tolist() for part in np.split(heights[: lengths.sum()], lengths.cumsum()[:-1])]
