"""The continuous neural cache (Grave, Joulin and Usunier 2017): recent words are likely to come again.

    p(w) = (1 - λ) p_model(w) + λ p_cache(w),    p_cache(w) ∝ Σ_i 1[w = x_{i+1}] exp(θ h_t · h_i)

with h_t the last layer's output after reading x_t, and i the last `size` places before t. Before the second word there
is no cache, and p is the model's. Nothing is trained; λ and θ are chosen on validation text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onlstm.errors import UserError, at_least_one
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import evaluating, read_columns, tokenizer_of
from onlstm.lm.score import Evaluation
from onlstm.lm.softmax import word_log_probs

THETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)
LAMS = (0.0, 0.01, 0.02, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5)
_PRODUCTS_AT_ONCE = 1 << 21


@dataclass(frozen=True, kw_only=True)
class Cache:
    """The weights of a cache and what they gave on the text they were tuned on."""

    theta: float
    """How sharply likeness of states counts."""
    lam: float
    """The cache's share."""
    size: int
    """Places looked back at."""
    nll: float
    """Nats per token."""


def evaluate_with_cache(model: LanguageModel, ids: np.ndarray, theta: float, lam: float, size: int) -> Evaluation:
    """Return how well the stream is predicted with a cache; without it, see `score.evaluate`."""
    return Evaluation.of(model, ids, (part[0, 0] for part in _mixtures(model, ids, size, (theta,), (lam,))))


def tune_cache(
    model: LanguageModel,
    valid_ids: np.ndarray,
    size: int = 2000,
    thetas: Sequence[float] = THETAS,
    lams: Sequence[float] = LAMS,
) -> Cache:
    """Return the pair of weights that predicts `valid_ids` best; the text is read once for all of them."""
    parts = [-part.sum(-1, dtype=torch.float64) for part in _mixtures(model, valid_ids, size, thetas, lams)]
    nll = torch.stack(parts).sum(0) / len(valid_ids)
    theta, lam = divmod(int(nll.argmin()), len(lams))
    return Cache(theta=thetas[theta], lam=lams[lam], size=size, nll=nll.min().item())


@torch.no_grad()
def _mixtures(
    model: LanguageModel, ids: np.ndarray, size: int, thetas: Sequence[float], lams: Sequence[float]
) -> Iterator[Tensor]:
    """Yield the log-probabilities (thetas, lams, T) of the tokens, block by block."""
    at_least_one(size=size, tokens=len(ids), thetas=len(thetas), lams=len(lams))
    if any(not 0 <= lam < 1 for lam in lams):
        raise UserError(f"lambda {', '.join(map(str, lams))}: from 0 to less than 1 is needed")
    shares = model.embedding.weight.new_tensor(lams)[:, None]
    block = max(16, min(512, _PRODUCTS_AT_ONCE // size))
    hidden = words = None  # of the block and of the `size` places before it
    with evaluating(model):
        for h, after in read_columns(model, np.append(tokenizer_of(model).eos_id, ids)[None], block):
            hidden = h[:, 0] if hidden is None else torch.cat((hidden[-size:], h[:, 0]))
            words = after[:, 0] if words is None else torch.cat((words[-size:], after[:, 0]))
            count, here = len(h), torch.arange(len(words), device=h.device)
            log_p = word_log_probs(model.head, h[:, 0], after[:, 0])
            ago = here[-count:, None] - here  # places between t and i
            unseen = (ago < 1) | (ago > size)
            same = words[-count:, None] == words
            products = hidden[-count:] @ hidden.T
            mixtures = []
            for theta in thetas:
                weights = (theta * products).masked_fill_(unseen, -torch.inf).softmax(-1)
                cached = weights.masked_fill_(~same, 0).sum(-1).log()
                mixed = torch.logaddexp(log_p + (1 - shares).log(), cached + shares.log())
                if count == len(words):  # nothing before
                    mixed[:, 0] = log_p[0]
                mixtures.append(mixed)
            yield torch.stack(mixtures)
