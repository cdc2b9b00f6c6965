"""From hidden states to words: the full softmax, a mixture of softmaxes (Yang et al. 2018), an adaptive one
(Grave et al. 2017).

Each head answers two questions: `log_probs`, of every word after states (N, H), and `mean_nll` of given words, for
training. `word_log_probs` is the log-probability of given words, for scoring.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.device import exact
from onlstm.kernels.softmax import cross_entropy_
from onlstm.lm.dropout import Masks

_LOGITS_AT_ONCE = 1 << 22
"""Logits in memory at any time, however many words are asked for: what a processor's caches hold."""


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

    def mean_nll(self, h: Tensor, words: Tensor, masks: Masks) -> Tensor:
        """Return the mean negative log-probability of words (T, B) after states (T, B, H)."""
        flat = h.flatten(0, 1), self.weight, self.bias, words.flatten(), self.narrow
        loss: Tensor = _MeanNll.apply(*flat)  # type: ignore[no-untyped-call]
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
        return self._mixed(h, torch.tanh(self.latent(h)))

    def mean_nll(self, h: Tensor, words: Tensor, masks: Masks) -> Tensor:
        """Return the mean negative log-probability of words (T, B) after states (T, B, H)."""
        contexts = masks.locked(torch.tanh(self.latent(h)), self.dropout if self.training else 0.0)
        return F.nll_loss(self._mixed(h.flatten(0, 1), contexts.flatten(0, 1)), words.flatten())

    def _mixed(self, h: Tensor, contexts: Tensor) -> Tensor:
        log_probs = F.linear(contexts.view(len(h), self.k, -1), self.weight, self.bias).log_softmax(-1)
        weighted: Tensor = log_probs + self.prior(h).log_softmax(-1)[..., None]
        return weighted.logsumexp(1)


class AdaptiveSoftmax(nn.AdaptiveLogSoftmaxWithLoss):
    """Frequent words in the head, rare ones in ever narrower tails; the vocabulary is in order of frequency."""

    def __init__(self, hidden_size: int, vocab_size: int) -> None:
        cutoffs = [c for c in (2000, 10_000, 50_000, 200_000) if c < vocab_size] or [max(1, vocab_size // 2)]
        super().__init__(hidden_size, vocab_size, cutoffs)

    def log_probs(self, h: Tensor) -> Tensor:
        """Return (N, V) from (N, H)."""
        return self.log_prob(h)

    def mean_nll(self, h: Tensor, words: Tensor, masks: Masks) -> Tensor:
        """Return the mean negative log-probability of words (T, B) after states (T, B, H)."""
        loss: Tensor = self(h.flatten(0, 1), words.flatten()).loss
        return loss


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
    return _rows(count, width * getattr(head, "k", 1))


def _rows(count: int, width: int) -> Iterator[slice]:
    step = max(1, _LOGITS_AT_ONCE // width)
    return (slice(first, min(first + step, count)) for first in range(0, count, step))


class _MeanNll(torch.autograd.Function):
    """The mean cross entropy of a linear layer; forward computes the gradients too, while each logit is at hand."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, narrow: bool) -> Tensor:
        dtype = torch.bfloat16 if narrow else h.dtype
        factor, offset = weight.to(dtype), bias.to(dtype)
        learns = any(ctx.needs_input_grad)
        total = h.new_zeros((), dtype=exact(h))
        grads = [torch.empty_like(h), torch.zeros_like(weight), torch.zeros_like(bias)] if learns else []
        for rows in _rows(len(words), len(weight)):
            states = h[rows].to(dtype)
            logits = torch.addmm(offset, states, factor.t())
            nll, d_bias = cross_entropy_(logits, words[rows], 1 / len(words))
            total += nll.sum(dtype=total.dtype)
            if learns:
                grads[0][rows] = logits @ factor
                grads[1] += logits.t() @ states
                grads[2] += d_bias
        ctx.save_for_backward(*grads)
        return (total / len(words)).to(h.dtype)

    @staticmethod
    def backward(ctx: Any, *d_loss: Tensor) -> tuple[Tensor | None, ...]:
        return (*(grad * d_loss[0] for grad in ctx.saved_tensors), None, None)
