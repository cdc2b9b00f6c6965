"""Dynamic evaluation (Krause et al. 2018), with plain gradient descent: the model goes on learning while it is tested.

The text is read in segments. Each is scored first and learnt from afterwards:

    θ ← θ - lr · g + decay · (θ_0 - θ)

with g the gradient of the segment's mean loss, its global norm clipped, and θ_0 the weights as they were. Dropout is
off. The model is given back as it came.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from onlstm.errors import UserError, at_least_one
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import evaluating, read_columns, tokenizer_of
from onlstm.lm.score import Evaluation
from onlstm.lm.softmax import word_log_probs

LRS = (0.03, 0.1, 0.3, 1.0)
DECAYS = (0.0, 0.001, 0.01)
_CLIP = 0.25


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """The settings of dynamic evaluation and what they gave on the text they were tuned on."""

    lr: float
    """Learning rate."""
    decay: float
    """Share of the way back to the first weights, each segment."""
    window: int
    """Tokens in a segment."""
    nll: float
    """Nats per token."""


def evaluate_dynamic(
    model: LanguageModel, ids: np.ndarray, *, lr: float, decay: float = 0.0, window: int = 5
) -> Evaluation:
    """Return how well the stream is predicted by a model that learns from each segment once it is scored."""
    at_least_one(window=window, tokens=len(ids))
    if not (lr >= 0 and math.isfinite(lr)):
        raise UserError(f"lr {lr}: a number of 0 or more is needed")
    if not 0 <= decay <= 1:
        raise UserError(f"decay {decay}: from 0 to 1 is needed")
    return Evaluation.of(model, ids, _log_probs(model, ids, lr, decay, window))


def tune_dynamic(
    model: LanguageModel,
    valid_ids: np.ndarray,
    lrs: Sequence[float] = LRS,
    decays: Sequence[float] = DECAYS,
    limit: int = 10_000,
    *,
    window: int = 5,
) -> Dynamic:
    """Return the settings that predict the first `limit` tokens of `valid_ids` best."""
    at_least_one(limit=limit, lrs=len(lrs), decays=len(decays))

    def run(lr: float, decay: float) -> Dynamic:
        nll = evaluate_dynamic(model, valid_ids[:limit], lr=lr, decay=decay, window=window).nll
        return Dynamic(lr=lr, decay=decay, window=window, nll=math.inf if math.isnan(nll) else nll)

    return min(itertools.starmap(run, itertools.product(lrs, decays)), key=lambda tried: tried.nll)


def _log_probs(model: LanguageModel, ids: np.ndarray, lr: float, decay: float, window: int) -> Iterator[Tensor]:
    """Yield the log-probabilities of each segment's tokens, and learn from them; in the end put the weights back."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    origin = [weight.detach().clone() for weight in weights]
    text = np.append(tokenizer_of(model).eos_id, ids)[None]
    try:
        # cuDNN's LSTM has gradients in training mode only, and dropout is to be off.
        with evaluating(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for hidden, words in read_columns(model, text, window):
                log_p = word_log_probs(model.head, hidden[:, 0], words[:, 0])
                yield log_p.detach()
                _learn(-log_p.mean(), weights, origin, lr, decay)
    finally:
        with torch.no_grad():
            for weight, first in zip(weights, origin, strict=True):
                weight.copy_(first)


def _learn(loss: Tensor, weights: list[nn.Parameter], origin: list[Tensor], lr: float, decay: float) -> None:
    """Take one step."""
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients if g is not None])).item()
    step = lr * min(1.0, _CLIP / (norm + 1e-6))
    with torch.no_grad():
        for weight, first, g in zip(weights, origin, gradients, strict=True):
            if decay:
                weight.lerp_(first, decay)
            if g is not None:
                weight.sub_(g, alpha=step)
