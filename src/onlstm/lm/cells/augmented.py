"""The augmented loss (Inan et al. 2017, "Tying Word Vectors and Word Classifiers"): words like the right one count too.

    J_aug = KL( ỹ || ŷ ),    ỹ = softmax(Lᵀ u / τ),    ŷ = softmax(logits / τ)

with u the vector of the right word, L all words' vectors, τ a temperature. It is added to the cross entropy with the
weight α; evaluation is the plain softmax's. The vectors are those of the softmax, which is tied to the embedding.

    code          paper
    temperature   τ
    like          ỹ
"""

from torch import Tensor
from torch.nn import functional as F

from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.softmax import FullSoftmax


class AugmentedSoftmax(FullSoftmax):
    """A full softmax with a second loss for training."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__(config.sizes[-1], config.vocab_size)
        self.temperature, self.alpha = config.augmented_temperature, config.augmented

    def losses(self, h: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean negative log-probability of words (T, B) after h (T, B, H), and α times J_aug."""
        flat, right = h.flatten(0, 1), words.flatten()
        logits = F.linear(flat, self.weight, self.bias)
        vectors = self.weight.detach()  # the target is not learnt from
        like = F.linear(vectors[right], vectors).div(self.temperature).log_softmax(-1)
        model = logits.div(self.temperature).log_softmax(-1)
        divergence = F.kl_div(model, like, log_target=True, reduction="sum") / len(right)
        return F.cross_entropy(logits, right), self.alpha * divergence

    def mean_nll(self, h: Tensor, words: Tensor, masks: Masks) -> Tensor:
        """Return the first of `losses`."""
        return F.cross_entropy(F.linear(h, self.weight, self.bias).flatten(0, 1), words.flatten())
