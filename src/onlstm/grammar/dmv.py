"""DMV+CCM (Klein and Manning 2004, "Corpus-Based Induction of Syntactic Structure"): dependencies times constituents.

A head takes all its dependents on one side, then all on the other, the first side drawn by a fair coin; every span that
is joined on the way has the CCM's weight too. EM estimates both models from the posteriors of the product. Expected
counts are gradients: of log P by the logarithm of a parameter.

    code          paper       meaning
    attach        P_CHOOSE    of a dependent, (2, K, K) at [side, head, dependent]; `root`: of the sentence's head
    stop, go      P_STOP      whether a side is closed, (2, K, 2): by side, head, and whether it has no dependent yet
    first         P_ORDER     the side a head begins with, (2, K)
    weights       φ(i, j)     see `onlstm.grammar.ccm`; here of a word its context's, of the sentence its yield's alone

Sides: 0 is left, 1 is right. In letters: S sentences, n words, K tags.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onlstm.grammar.ccm import Array, Corpus, Group, Spans, by_sentence, span_weights
from onlstm.trees.average import best_trees


class Dependencies(NamedTuple):
    """Parameters, of tags or, one row for each sentence, of words: then (S, …), with n in the place of K."""

    root: Tensor
    attach: Tensor
    stop: Tensor
    go: Tensor
    first: Tensor

    def of_words(self, tags: Tensor) -> "Dependencies":
        """Return the parameters of the words of sentences (S, n)."""
        sides = torch.arange(2)[:, None]
        stop, go, first = (part[sides, tags[:, None]] for part in self[2:])
        attach = self.attach[sides[..., None], tags[:, None, :, None], tags[:, None, None, :]]
        return Dependencies(self.root[tags], attach, stop, go, first)


class Charts(NamedTuple):
    """Spans by their width, for heads that begin with their left side and with their right."""

    left: dict[int, Tensor]
    right: dict[int, Tensor]


def harmonic(S: int, n: int) -> Dependencies:
    """Return where EM starts, for words: near ones attach, and a side that has a dependent is likely to stop."""
    place = torch.arange(n, dtype=torch.float64)
    attach = (1 / (1 + (place[:, None] - place).abs())).expand(S, 2, n, n)
    stop = place.new_tensor([0.75, 0.25]).expand(S, 2, n, 2)
    return Dependencies(place.new_full((S, n), 0.02), attach, stop, 1 - stop, place.new_full((S, 2, n), 0.5))


def probability(model: Dependencies, weights: Tensor) -> Tensor:
    """Return the sum over derivations of each sentence (S,), given the weights (S, n + 1, n + 1) of spans.

    By the width of a span, (S, starts, n) for each place of the head: `begun[side]`, those with dependents on their
    first side alone; `turned[side]`, those that have closed it and take the other's; `whole`, those with both closed.
    """
    n = model.root.shape[1]
    edge = torch.eye(n, dtype=torch.bool)
    begun, turned, whole = (Charts({}, {}), Charts({}, {}), dict[int, Tensor]())

    def by_edge(values: Tensor, side: int, first: int, last: int, count: int) -> Tensor:
        """Return stop or go of every head of the spans from first + i to last + i; at their edge it is adjacent."""
        where = first if side == 0 else last
        return torch.where(edge[where : where + count], values[:, side, None, :, 1], values[:, side, None, :, 0])

    def joined(heads: dict[int, Tensor], side: int, w: int) -> Tensor:
        """Return spans of w words made of a head's, and of a dependent's on that side."""
        count, total = n - w + 1, torch.zeros(())
        for k in range(1, w):  # words of the dependent
            a, b = (k, 0) if side == 0 else (0, w - k)  # where the head's span and the dependent's start
            pull = torch.einsum("sid,shd->sih", whole[k][:, b : b + count], model.attach[:, side])
            go = by_edge(model.go, side, a, a + w - k - 1, count)
            total = total + heads[w - k][:, a : a + count] * go * pull
        return total

    for w in range(1, n + 1):
        count, phi = n - w + 1, weights.diagonal(w, 1, 2)[..., None]
        stops = [by_edge(model.stop, side, 0, w - 1, count) for side in (0, 1)]
        for side in (0, 1):
            begun[side][w] = phi * (joined(begun[side], side, w) if w > 1 else edge * model.first[:, side, None])
            turned[side][w] = begun[side][w] * stops[side] + phi * joined(turned[side], 1 - side, w)
        whole[w] = turned[0][w] * stops[1] + turned[1][w] * stops[0]
    return (whole[n][:, 0] * model.root).sum(-1)


class DMVCCM:
    """The product of both models for a corpus."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus, self.evidence = corpus, corpus.start()
        self.dependencies: Dependencies | None = None
        """Of tags; None: the harmonic start."""

    def step(self) -> float:
        """Take one iteration of EM; return the log-likelihood of the parameters before it.

        Sentences of one word teach nothing.
        """
        K, total, posteriors = len(self.corpus.tags), 0.0, []
        zeros = torch.zeros(2, K, 2, dtype=torch.float64)
        counts = [zeros.new_zeros(K), zeros.new_zeros(2, K, K), zeros.clone(), zeros.clone()]
        for group in self.corpus.groups:
            if group.tags.shape[1] == 1:
                posteriors.append(np.zeros(group.yields.shape))
                continue
            log_p, posterior, expected = self.expectations(group)
            total += float(log_p.sum())
            posteriors.append(posterior)
            tags = torch.from_numpy(group.tags)
            sides, heads = torch.arange(2)[:, None], tags[:, None].expand(-1, 2, -1)
            counts[0].index_put_((tags,), expected[0], accumulate=True)
            pairs = sides[..., None], tags[:, None, :, None], tags[:, None, None, :]
            counts[1].index_put_(pairs, expected[1], accumulate=True)
            for count, value in zip(counts[2:], expected[2:], strict=True):
                count.index_put_((sides, heads), value, accumulate=True)
        root, attach, stop, go = counts
        decided = (stop + go).clamp(min=1e-300)
        chosen = attach / attach.sum(-1, keepdim=True).clamp(min=1e-300)
        half = zeros.new_full((2, K), 0.5)
        self.dependencies = Dependencies(root / root.sum(), chosen, stop / decided, go / decided, half)
        self.evidence = self.corpus.estimate(posteriors)
        return total

    def expectations(self, group: Group) -> tuple[Tensor, Array, list[Tensor]]:
        """Return log P of each sentence, posteriors of spans, and expected counts of root, attach, stop and go."""
        S, n = group.tags.shape
        words = self.dependencies.of_words(torch.from_numpy(group.tags)) if self.dependencies else harmonic(S, n)
        variables = [part.clamp(min=1e-300).log().requires_grad_() for part in (*words[:4], self.weights(group))]
        root, attach, stop, go, weights = (variable.exp() for variable in variables)
        log_p = probability(Dependencies(root, attach, stop, go, words.first), weights).log()
        *expected, posterior = torch.autograd.grad(log_p.sum(), variables, materialize_grads=True)
        return log_p.detach(), posterior.numpy(), expected

    def weights(self, group: Group) -> Tensor:
        """Return the CCM's weights, (S, n + 1, n + 1)."""
        weights, n = span_weights(self.evidence, group), group.tags.shape[1]
        words = range(n), range(1, n + 1)
        weights[:, *words] = self.evidence.contexts[group.contexts[:, *words], 0]
        if n > 1:
            weights[:, 0, n] = self.evidence.yields[group.yields[:, 0, n], 0]
        return torch.from_numpy(weights)

    def trees(self) -> list[Spans]:
        """Return the spans of the tree of every sentence whose posteriors have the largest sum."""
        charts = [np.asarray(self.expectations(group)[1]) for group in self.corpus.groups]
        return by_sentence(self.corpus, [best_trees(chart) for chart in charts])
