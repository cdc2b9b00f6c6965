"""The augmented loss (Inan et al. 2017, "Tying Word Vectors and Word Classifiers"): words like the right one count too.

    J_aug = KL( ỹ || ŷ ),    ỹ = softmax(Lᵀ u / τ),    ŷ = softmax(logits / τ)

with u the vector of the right word, L all words' vectors, τ a temperature. It is added to the cross entropy with the
weight α; evaluation is the plain softmax's. The vectors are those of the softmax, which is tied to the embedding.

    code          paper
    temperature   τ
    like          ỹ
"""

from typing import Any

import torch
from torch import Tensor

from onlstm.kernels.softmax import cross_entropy_
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.softmax import FullSoftmax, Losses, rows_at_once


class AugmentedSoftmax(FullSoftmax):
    """A full softmax with a second loss for training."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__(config.sizes[-1], config.vocab_size)
        self.temperature, self.alpha = config.augmented_temperature, config.augmented

    def losses(self, h: Tensor, words: Tensor, masks: Masks) -> Losses:
        """Return the losses of words (T, B) after h (T, B, H): nll, which is not differentiated, and nll + α J_aug."""
        flat = h.flatten(0, 1), self.weight, self.bias, words.flatten(), self.temperature, self.alpha
        return Losses(*_Augmented.apply(*flat))  # type: ignore[no-untyped-call]


class _Augmented(torch.autograd.Function):
    """Mean cross entropy, and its sum with α J_aug; forward computes the gradients too, while each logit is at hand.

    That of J_aug by the logits is (ŷ - ỹ) / τ; the target ỹ is not learnt from.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, temperature: float, alpha: float
    ) -> tuple[Tensor, Tensor]:
        size, nll, divergence = len(words), h.new_zeros(()), h.new_zeros(())
        d_h, d_weight, d_bias = torch.empty_like(h), torch.zeros_like(weight), torch.zeros_like(bias)
        for rows in rows_at_once(size, 2 * len(weight)):
            logits = torch.addmm(bias, h[rows], weight.t())
            like = (weight[words[rows]] @ weight.t()).div_(temperature).log_softmax(-1)
            model = (logits / temperature).log_softmax(-1)
            target = like.exp()
            divergence += torch.dot(target.view(-1), like.sub_(model).view(-1))
            nll += cross_entropy_(logits, words[rows], 1 / size)[0].sum()
            logits.add_(model.exp_().sub_(target), alpha=alpha / (temperature * size))
            d_h[rows] = logits @ weight
            d_weight += logits.t() @ h[rows]
            d_bias += logits.sum(0)
        ctx.save_for_backward(d_h, d_weight, d_bias)
        nll /= size
        ctx.mark_non_differentiable(nll)
        return nll, nll + alpha * divergence / size

    @staticmethod
    def backward(ctx: Any, *d_losses: Tensor) -> tuple[Tensor | None, ...]:
        return (*(grad * d_losses[1] for grad in ctx.saved_tensors), None, None, None)
