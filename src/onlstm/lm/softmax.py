"""From hidden states to words: the full softmax, a mixture of softmaxes (Yang et al. 2018), an adaptive one
(Grave et al. 2017).

Each head answers two questions: `log_probs`, of every word after states (N, H), and `losses` of given words, for
training: their mean negative log-probability, and what is minimised, which may have more terms. `word_log_probs` is the
log-probability of given words, for scoring.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.device import exact
from onlstm.kernels.softmax import cross_entropy_
from onlstm.lm.dropout import Masks

_LOGITS_AT_ONCE = 1 << 22
"""Logits in memory at any time, however many words are asked for: what a processor's caches hold."""


class Losses(NamedTuple):
    """What a training step learns about its words."""

    nll: Tensor
    """Their mean negative log-probability."""
    objective: Tensor
    """What is minimised; `nll` itself, unless a head adds to it."""


class FullSoftmax(nn.Linear):
    """One logit for each word. Training never holds all logits of a step: gradients are taken slice by slice.

    With `narrow`, training rounds the factors of its three products to bfloat16; log_probs never does.
    """

    def __init__(self, hidden_size: int, vocab_size: int, narrow: bool = False) -> None:
        super().__init__(hidden_size, vocab_size)
        self.narrow = narrow

    def log_probs(self, h: Tensor) -> Tensor:
        """Return (N, V) from (N, H)."""
        return F.linear(h, self.weight, self.bias).log_softmax(-1)

    def losses(self, h: Tensor, words: Tensor, masks: Masks) -> Losses:
        """Return the losses of words (T, B) after states (T, B, H)."""
        nll = self.mean_nll(h.flatten(0, 1), words.flatten())
        return Losses(nll, nll)

    def mean_nll(self, h: Tensor, words: Tensor, prior: Tensor | None = None) -> Tensor:
        """Return the mean negative log-probability of words (N,) after states (N, H).

        With a prior (N, K) that of mixtures of K softmaxes, the prior's in logarithms, of states (N, K, H). A column
        more is the log-probability that something else gives to each word.
        """
        narrow = self.narrow and prior is None  # mixtures are not rounded
        loss: Tensor = _MeanNll.apply(h, self.weight, self.bias, words, narrow, prior)  # type: ignore[no-untyped-call]
        return loss


class MixtureSoftmax(FullSoftmax):
    """K softmaxes over as many contexts made from each state, weighted by a prior made from it too."""

    def __init__(self, hidden_size: int, embedding_size: int, vocab_size: int, k: int, dropout: float) -> None:
        super().__init__(embedding_size, vocab_size)
        self.k, self.dropout = k, dropout
        self.prior = nn.Linear(hidden_size, k, bias=False)
        self.latent = nn.Linear(hidden_size, k * embedding_size)

    def forward(self, h: Tensor) -> Tensor:
        """Return what log_probs does: a mixture has no logits."""
        return self.log_probs(h)

    def log_probs(self, h: Tensor) -> Tensor:
        """Return (N, V) from (N, H)."""
        contexts = torch.tanh(self.latent(h)).view(len(h), self.k, -1)
        log_probs = F.linear(contexts, self.weight, self.bias).log_softmax(-1)
        weighted: Tensor = log_probs + self.prior(h).log_softmax(-1)[..., None]
        return weighted.logsumexp(1)

    def losses(self, h: Tensor, words: Tensor, masks: Masks) -> Losses:
        """Return the losses of words (T, B) after states (T, B, H)."""
        contexts = masks.locked(torch.tanh(self.latent(h)), self.dropout if self.training else 0.0)
        prior = self.prior(h).log_softmax(-1).flatten(0, 1)
        nll = self.mean_nll(contexts.view(len(prior), self.k, -1), words.flatten(), prior)
        return Losses(nll, nll)


class AdaptiveSoftmax(nn.AdaptiveLogSoftmaxWithLoss):
    """Frequent words in the head, rare ones in ever narrower tails; the vocabulary is in order of frequency."""

    def __init__(self, hidden_size: int, vocab_size: int) -> None:
        cutoffs = [c for c in (2000, 10_000, 50_000, 200_000) if c < vocab_size] or [max(1, vocab_size // 2)]
        super().__init__(hidden_size, vocab_size, cutoffs)

    def log_probs(self, h: Tensor) -> Tensor:
        """Return (N, V) from (N, H)."""
        return self.log_prob(h)

    def losses(self, h: Tensor, words: Tensor, masks: Masks) -> Losses:
        """Return the losses of words (T, B) after states (T, B, H)."""
        nll = self(h.flatten(0, 1), words.flatten()).loss
        return Losses(nll, nll)


Head = FullSoftmax | AdaptiveSoftmax


def word_log_probs(head: Head, h: Tensor, words: Tensor) -> Tensor:
    """Return the log-probability (N,) of words (N,) after states (N, H)."""
    parts = [h.new_zeros(0)]
    for rows in slices(len(words), head):
        if isinstance(head, AdaptiveSoftmax):
            parts.append(head(h[rows], words[rows]).output)
        else:
            parts.append(head.log_probs(h[rows]).gather(1, words[rows, None])[:, 0])
    return torch.cat(parts)


def slices(count: int, head: Head) -> Iterator[slice]:
    """Yield slices of `count` states that `log_probs` can take at once."""
    width = head.n_classes if isinstance(head, AdaptiveSoftmax) else head.weight.shape[0]
    return rows_at_once(count, width * getattr(head, "k", 1))


def rows_at_once(count: int, width: int) -> Iterator[slice]:
    """Yield slices of `count` rows of `width` logits, as many as should be in memory at any time."""
    step = max(1, _LOGITS_AT_ONCE // width)
    return (slice(first, min(first + step, count)) for first in range(0, count, step))


class _MeanNll(torch.autograd.Function):
    """The mean cross entropy of a linear layer, or of mixtures of several; see `FullSoftmax.mean_nll`.

    Forward computes the gradients too, while each logit is at hand. In a mixture, log p = log Σ_k exp(prior_k - nll_k),
    every softmax learns by its share of p: the posterior.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, narrow: bool, prior: Tensor | None
    ) -> Tensor:
        dtype, k, size = torch.bfloat16 if narrow else h.dtype, 1 if prior is None else h.shape[1], len(words)
        factor, offset = weight.to(dtype), bias.to(dtype)
        learns = any(ctx.needs_input_grad)
        total = h.new_zeros((), dtype=exact(h))
        grads = [torch.empty_like(h), torch.zeros_like(weight), torch.zeros_like(bias)] if learns else []
        d_prior = [] if prior is None else [torch.empty_like(prior)]
        for rows in rows_at_once(size, k * len(weight)):
            states = h[rows].to(dtype).view(-1, h.shape[-1])
            logits = torch.addmm(offset, states, factor.t())
            nll, d_bias = cross_entropy_(logits, words[rows].repeat_interleave(k), 1 / size)
            if prior is not None:
                joint = prior[rows] - F.pad(nll.view(-1, k), (0, prior.shape[1] - k))
                nll = -joint.logsumexp(1)
                posterior = (joint + nll[:, None]).exp()
                d_prior[0][rows] = posterior / -size
                share = posterior[:, :k].reshape(-1, 1)
                states, d_bias = states * share, (logits.t() @ share)[:, 0]
            total += nll.sum(dtype=total.dtype)
            if learns:
                d_states = logits @ factor if prior is None else (logits @ factor).mul_(share)
                grads[0][rows] = d_states.view_as(h[rows])
                grads[1] += logits.t() @ states
                grads[2] += d_bias
        ctx.save_for_backward(*grads, *d_prior)
        return (total / size).to(h.dtype)

    @staticmethod
    def backward(ctx: Any, *d_loss: Tensor) -> tuple[Tensor | None, ...]:
        d_h, d_weight, d_bias, *d_prior = (grad * d_loss[0] for grad in ctx.saved_tensors)
        return d_h, d_weight, d_bias, None, None, *(d_prior or [None])
