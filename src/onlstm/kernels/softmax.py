"""The cross entropy of a softmax and its gradient in one pass over the logits, which it replaces.

`reference` is the definition, for any device and precision; float32 and bfloat16 on a CPU have a C++ kernel,
softmax.cpp.
"""

import torch
from torch import Tensor

from onlstm.kernels import build


def cross_entropy_(logits: Tensor, words: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Replace logits (N, V) by the gradient of `scale` times the sum of the cross entropies of words (N,).

    Return these (N,) and the gradient's sum over N (V,). With logits in bfloat16 both are in float32.
    """
    narrow = logits.dtype in (torch.float32, torch.bfloat16)
    if logits.device.type == "cpu" and narrow and logits.is_contiguous() and build.load("softmax"):
        nll, d_bias = torch.ops.onlstm_softmax.cross_entropy_(logits, words.contiguous(), scale)
        return nll, d_bias
    return reference(logits, words, scale)


def reference(logits: Tensor, words: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Compute what `cross_entropy_` does in plain PyTorch."""
    log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    nll = -log_p.gather(1, words[:, None])[:, 0]
    d_logits = log_p.exp_().scatter_add_(1, words[:, None], log_p.new_full((len(words), 1), -1.0)).mul_(scale)
    logits.copy_(d_logits)
    return nll, logits.sum(0, dtype=log_p.dtype)
