"""Trees from parts of speech: the constituent-context model (Klein and Manning 2002), trained by EM without brackets.

Sentences of one length are computed together. `onlstm.grammar.dmv` multiplies it with a model of dependencies.

    code          paper          meaning
    yields        α              the tags inside a span; `contexts` x: the two tags beside it
    yes, no       p(c | α), …    how likely a yield, or a context, is a constituent or not, smoothed with 2 and 8 counts
    weights       φ(i, j)        yes / no of yield and context: a tree's probability is the product over its spans
    posterior     p_BRACKET      how likely a span is in the tree, (S, n + 1, n + 1) at [s, i, j]

In letters: S sentences, n words, w the width of a span.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onlstm.errors import UserError
from onlstm.trees.average import best_trees

Tags = Sequence[str]
Array = NDArray[np.float64]
Spans = tuple[tuple[int, int], ...]
LONGEST = 40
"""Words of a sentence, at most: products of probabilities stay within a float."""
_SMOOTHING = np.array([2.0, 8.0])
_EDGE = ("<start>", "<end>")


class Group(NamedTuple):
    """Sentences of one length."""

    places: list[int]
    """Where they stand among all."""
    tags: NDArray[np.int64]
    """(S, n)."""
    yields: NDArray[np.int64]
    """(S, n + 1, n + 1), of the span [i, j) at [s, i, j]; -1 below the diagonal."""
    contexts: NDArray[np.int64]


class Evidence(NamedTuple):
    """How likely each yield, or each context, is a constituent, and is none: (K, 2)."""

    yields: Array
    contexts: Array


class Corpus:
    """Tag sequences, numbered: every yield and context has a row of its own."""

    def __init__(self, sentences: Sequence[Tags]) -> None:
        if not any(sentences):
            raise UserError("no sentences to learn from")
        if max(map(len, sentences)) > LONGEST:
            raise UserError(f"a sentence of {max(map(len, sentences))} words; at most {LONGEST} can be learnt from")
        self.tags: dict[str, int] = {}
        self.yields: dict[tuple[str, ...], int] = {}
        self.contexts: dict[tuple[str, str], int] = {}
        by_length: dict[int, list[int]] = {}
        for place, sentence in enumerate(sentences):
            by_length.setdefault(len(sentence), []).append(place)
        self.groups = [self._group([tuple(sentences[k]) for k in places], places) for places in by_length.values()]

    def _group(self, sentences: list[tuple[str, ...]], places: list[int]) -> Group:
        n = len(sentences[0])
        yields = np.full((len(sentences), n + 1, n + 1), -1)
        contexts = yields.copy()
        tags = np.array([[self.tags.setdefault(tag, len(self.tags)) for tag in sentence] for sentence in sentences])
        for s, sentence in enumerate(sentences):
            padded = (_EDGE[0], *sentence, _EDGE[1])
            for i in range(n + 1):
                for j in range(i, n + 1):
                    context = padded[i], padded[j + 1]
                    yields[s, i, j] = self.yields.setdefault(sentence[i:j], len(self.yields))
                    contexts[s, i, j] = self.contexts.setdefault(context, len(self.contexts))
        return Group(places, tags.reshape(len(sentences), n), yields, contexts)

    def start(self) -> Evidence:
        """Return the evidence that EM starts from."""
        sizes = [(len(group.places), 1, 1) for group in self.groups]
        shapes = [split_posterior(group.tags.shape[1]) for group in self.groups]
        return self.estimate([np.tile(p, size) for p, size in zip(shapes, sizes, strict=True)])

    def estimate(self, posteriors: Sequence[Array]) -> Evidence:
        """Return the M-step: evidence from the posteriors of each group; sentences of one word only count as seen."""
        totals = np.zeros((len(self.yields), 3)), np.zeros((len(self.contexts), 3))
        for group, p in zip(self.groups, posteriors, strict=True):
            upper = np.triu(np.ones(p.shape[1:], bool))
            known = float(p.shape[1] > 2)
            for total, ids in zip(totals, (group.yields, group.contexts), strict=True):
                for column, values in enumerate((known * p, known * (1 - p), np.ones_like(p))):
                    np.add.at(total[:, column], ids[:, upper], values[:, upper])
        yields, contexts = ((total[:, :2] + _SMOOTHING) / (total[:, 2:] + _SMOOTHING.sum()) for total in totals)
        return Evidence(yields, contexts)


def split_posterior(n: int) -> Array:
    """Return where EM starts, (n + 1, n + 1): how likely a span is in a tree of random splits."""
    p = np.zeros((n + 1, n + 1))
    for i in range(n):
        for j in range(i + 1, n + 1):
            w, edges = j - i, (i == 0) + (j == n)
            p[i, j] = 1 if w == 1 or edges == 2 else 1 / w if edges else 2 / (w * (w + 1))
    return p


def span_weights(evidence: Evidence, group: Group) -> Array:
    """Return φ of every span, (S, n + 1, n + 1); 1 for words and the sentence, which all trees have."""
    odds, n = [part[:, 0] / part[:, 1] for part in evidence], group.tags.shape[1]
    weights = np.where(group.yields < 0, 1.0, odds[0][group.yields] * odds[1][group.contexts])
    weights[:, range(n), range(1, n + 1)] = weights[:, 0, n] = 1
    return weights


def bracket_posterior(weights: Tensor) -> tuple[Tensor, Array]:
    """Return log Σ over binary trees of the product of their weights (S,), and the posterior of every span.

    The posterior is the gradient of the first by log φ.
    """
    log_w = weights.log().requires_grad_()
    w, n = log_w.exp(), weights.shape[1] - 1
    inside = {1: w.diagonal(1, 1, 2)}  # by width: (S, starts)
    for width in range(2, n + 1):
        count = n - width + 1
        splits = [inside[k][:, :count] * inside[width - k][:, k : k + count] for k in range(1, width)]
        inside[width] = w.diagonal(width, 1, 2) * torch.stack(splits).sum(0)
    log_z = inside[n][:, 0].log()
    (posterior,) = torch.autograd.grad(log_z.sum(), log_w)
    return log_z.detach(), posterior.numpy()


class CCM:
    """The constituent-context model of a corpus."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.evidence = corpus.start()

    def step(self) -> None:
        """Take one iteration of EM."""
        self.evidence = self.corpus.estimate(self.posteriors())

    def posteriors(self) -> list[Array]:
        """Return the posterior of every span, group by group."""
        return [bracket_posterior(torch.tensor(self._weights(group)))[1] for group in self.corpus.groups]

    def _weights(self, group: Group) -> Array:
        return span_weights(self.evidence, group)

    def log_likelihood(self) -> float:
        """Return the sum over sentences of two words or more of log p(yields, contexts), all binary trees as likely."""
        total = 0.0
        for group in (group for group in self.corpus.groups if group.tags.shape[1] > 1):
            n = group.tags.shape[1]
            log_z, _ = bracket_posterior(torch.tensor(self._weights(group)))
            spans = np.triu(np.ones((n + 1, n + 1), bool))
            spans[n, n] = False
            none = np.log(self.evidence.yields[:, 1])[group.yields]
            none += np.log(self.evidence.contexts[:, 1])[group.contexts]
            catalan = math.comb(2 * (n - 1), n - 1) // n
            total += float(log_z.sum()) + none[:, spans].sum() - len(group.places) * math.log(catalan)
        return total

    def trees(self) -> list[Spans]:
        """Return the spans of the likeliest tree of every sentence, words and sentence left out."""
        return by_sentence(self.corpus, [best_trees(np.log(self._weights(group))) for group in self.corpus.groups])


def by_sentence(corpus: Corpus, spans: Sequence[NDArray[np.intp]]) -> list[Spans]:
    """Return the spans of each sentence, in the order of the corpus."""
    trees: dict[int, Spans] = {}
    for group, rows in zip(corpus.groups, spans, strict=True):
        trees |= {place: tuple((int(i), int(j)) for i, j in row) for place, row in zip(group.places, rows, strict=True)}
    return [trees[k] for k in range(len(trees))]
