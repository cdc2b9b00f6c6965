"""Two ways to adapt to the text that is being predicted; their settings are tuned on validation text.

The continuous neural cache (Grave, Joulin and Usunier 2017): recent words are likely to come again.

    p(w) = (1 - λ) p_model(w) + λ p_cache(w),    p_cache(w) ∝ Σ_i 1[w = x_{i+1}] exp(θ h_t · h_i)

with h_t the last layer's output after reading x_t, and i the last `size` places before t. Before the second word there
is no cache, and p is the model's. Nothing is trained.

Dynamic evaluation (Krause et al. 2018), with plain gradient descent: the model continues to learn. The text is read in
segments; each is scored first and learnt from afterwards:

    θ ← θ - lr · g + decay · (θ_0 - θ)

with g the gradient of the segment's mean loss, its global norm clipped, and θ_0 the weights as they were. Dropout is
off. The model is given back as it came.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn

from onlstm.device import exact
from onlstm.errors import UserError, at_least_one
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import evaluating, read_columns, tokenizer_of
from onlstm.lm.score import Evaluation, counted
from onlstm.lm.softmax import word_log_probs

THETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)
LAMS = (0.0, 0.01, 0.02, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5)
LRS = (0.03, 0.1, 0.3, 1.0)
DECAYS = (0.0, 0.001, 0.01)
_CLIP = 0.25
_PRODUCTS_AT_ONCE = 1 << 21


@dataclass(frozen=True, kw_only=True)
class Cache:
    """The weights of a cache."""

    theta: float
    """How sharply likeness of states counts."""
    lam: float
    """The cache's share."""
    size: int = 2000
    """Places looked back at."""
    nll: float = math.nan
    """Nats per token of the text they were tuned on."""

    @classmethod
    def tune(
        cls,
        model: LanguageModel,
        ids: np.ndarray,
        *,
        size: int = 2000,
        thetas: Sequence[float] = THETAS,
        lams: Sequence[float] = LAMS,
        on_progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> "Cache":
        """Return the pair of weights that predicts a stream best; it is read once for all of them."""
        parts = counted(_mixtures(model, ids, size, thetas, lams), len(ids), on_progress)
        sums = [part.sum(-1, dtype=exact(part)) for part in parts]
        nll = -torch.stack(sums).sum(0) / len(ids)
        theta, lam = divmod(int(nll.argmin()), len(lams))
        return cls(theta=thetas[theta], lam=lams[lam], size=size, nll=float(nll.min()))

    def evaluate(
        self,
        model: LanguageModel,
        ids: np.ndarray,
        on_progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> Evaluation:
        """Return how well the stream is predicted with the cache; without it, see `score.evaluate`."""
        parts = counted(_mixtures(model, ids, self.size, (self.theta,), (self.lam,)), len(ids), on_progress)
        return Evaluation.of(model, ids, (part[0, 0] for part in parts))


@torch.no_grad()
def _mixtures(
    model: LanguageModel, ids: np.ndarray, size: int, thetas: Sequence[float], lams: Sequence[float]
) -> Iterator[Tensor]:
    """Yield the log-probabilities (thetas, lams, T) of the tokens, block by block."""
    at_least_one(size=size, tokens=len(ids))
    if any(not 0 <= lam < 1 for lam in lams):
        raise UserError(f"lambda {', '.join(map(str, lams))}: from 0 to less than 1 is needed")
    shares = model.embedding.weight.new_tensor(lams)[:, None]
    block = max(16, min(512, _PRODUCTS_AT_ONCE // size))
    past_hidden = shares.new_zeros(0, model.config.sizes[-1])  # of the `size` places before the block
    past_words = torch.zeros(0, dtype=torch.int64, device=shares.device)
    with evaluating(model):
        for output, words in _segments(model, ids, block):
            log_p, count = word_log_probs(model.head, output, words), len(words)
            hidden = output[:, : model.config.sizes[-1]]
            seen = torch.cat((past_hidden, hidden))
            after = torch.cat((past_words, words))
            past_hidden, past_words = seen[-size:], after[-size:]
            here = torch.arange(len(after), device=after.device)
            ago = here[-count:, None] - here  # places between t and i
            unseen = (ago < 1) | (ago > size)
            same = words[:, None] == after
            products = hidden @ seen.T
            mixtures = []
            for theta in thetas:
                weights = (theta * products).masked_fill_(unseen, -torch.inf).softmax(-1)
                cached = weights.masked_fill_(~same, 0).sum(-1).log()
                mixed = torch.logaddexp(log_p + (1 - shares).log(), cached + shares.log())
                if count == len(after):  # nothing before
                    mixed[:, 0] = log_p[0]
                mixtures.append(mixed)
            yield torch.stack(mixtures)


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """The settings of dynamic evaluation."""

    lr: float
    """Learning rate."""
    decay: float = 0.0
    """Share of the way back to the first weights, each segment."""
    window: int = 5
    """Tokens in a segment."""
    nll: float = math.nan
    """Nats per token of the text they were tuned on."""

    def __post_init__(self) -> None:
        at_least_one(window=self.window)
        if not (self.lr >= 0 and math.isfinite(self.lr)):
            raise UserError(f"lr {self.lr}: a number of 0 or more is needed")
        if not 0 <= self.decay <= 1:
            raise UserError(f"decay {self.decay}: from 0 to 1 is needed")

    @classmethod
    def tune(
        cls,
        model: LanguageModel,
        ids: np.ndarray,
        *,
        window: int = 5,
        limit: int = 10_000,
        lrs: Sequence[float] = LRS,
        decays: Sequence[float] = DECAYS,
        on_progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> "Dynamic":
        """Return the settings that predict the first `limit` tokens of a stream best."""
        at_least_one(limit=limit)
        tried = [cls(lr=lr, decay=decay, window=window) for lr, decay in product(lrs, decays)]
        head, nll = ids[:limit], list[float]()
        for settings in tried:
            past, whole = len(nll) * len(head), len(tried) * len(head)
            shown = partial(_shifted, on_progress, past, whole)
            nll.append(settings.evaluate(model, head, shown).nll)
        best = min(range(len(tried)), key=lambda k: math.inf if math.isnan(nll[k]) else nll[k])
        return replace(tried[best], nll=nll[best])

    def evaluate(
        self,
        model: LanguageModel,
        ids: np.ndarray,
        on_progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> Evaluation:
        """Return how well the stream is predicted by a model that learns from each segment once it is scored."""
        at_least_one(tokens=len(ids))
        return Evaluation.of(model, ids, counted(self._log_probs(model, ids), len(ids), on_progress))

    def _log_probs(self, model: LanguageModel, ids: np.ndarray) -> Iterator[Tensor]:
        """Yield the log-probabilities of each segment's tokens, then learn from it; in the end put the weights back."""
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        origin = [weight.detach().clone() for weight in weights]
        try:
            # cuDNN's LSTM has gradients in training mode only, and dropout is to be off.
            with evaluating(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
                for hidden, words in _segments(model, ids, self.window):
                    log_p = word_log_probs(model.head, hidden, words)
                    yield log_p.detach()
                    self._learn(-log_p.mean(), weights, origin)
        finally:
            with torch.no_grad():
                for weight, first in zip(weights, origin, strict=True):
                    weight.copy_(first)

    def _learn(self, loss: Tensor, weights: list[nn.Parameter], origin: list[Tensor]) -> None:
        """Take one step."""
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients if g is not None])).item()
        step = self.lr * min(1.0, _CLIP / (norm + 1e-6))
        with torch.no_grad():
            for weight, first, g in zip(weights, origin, gradients, strict=True):
                if self.decay:
                    weight.lerp_(first, self.decay)
                if g is not None:
                    weight.sub_(g, alpha=step)


def _shifted(on_progress: Callable[[int, int], object], past: int, whole: int, done: int, total: int) -> None:
    """Report a part of several."""
    on_progress(past + done, whole)


def _segments(model: LanguageModel, ids: np.ndarray, length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the last layer's output (T, H) before each token of a segment, and these (T,); `<eos>` is read first."""
    text = np.append(tokenizer_of(model).eos_id, ids)[None]
    return ((hidden[:, 0], words[:, 0]) for hidden, words in read_columns(model, text, length))
