"""The pointer sentinel mixture (Merity et al. 2017): the next word may be one of the last L.

    p(w) = g p_vocab(w) + Σ_{i: x_i = w} a_i,    (a, g) = softmax(q · h_1, …, q · h_L, q · s)

A pointer attends to the states of the last L words; the share g that it gives to a sentinel goes to the softmax. The
window is part of the model's state; what the softmax needs of it travels beside the last layer's output (`pack`).

    code          paper      meaning
    q             q          query, tanh(W h + b)
    sentinel      s          the vector that stands for the softmax
    h, words      h_i, x_i   the window: states (L, B, H) and the words read there (L, B)
    a, g          a, g       attention of the window (…, L), and the sentinel's share (…)
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.lm.cells.recurrent import LayerState
from onlstm.lm.cells.window import products
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.softmax import FullSoftmax, Losses

_TINY = 1e-30


def pack(h: Tensor, g: Tensor, a: Tensor, words: Tensor) -> Tensor:
    """Return states, shares and words side by side, (…, H + 1 + 2 L)."""
    return torch.cat((h, g[..., None], a, words), -1)


def unpack(packed: Tensor, window: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what was packed: h (…, H), g (…), a (…, L) and words (…, L) as ids."""
    h, g, a, words = packed.split((packed.shape[-1] - 1 - 2 * window, 1, window, window), -1)
    return h, g[..., 0], a, words.long()


class Pointer(nn.Module):
    """The pointer, between the last layer and the softmax. Its state: the window's h (L, B, H) and words (L, B, 1).

    Where the text is shorter than the window, words are -1.
    """

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        size = config.sizes[-1]
        self.window = config.pointer
        self.query, self.sentinel = nn.Linear(size, size), nn.Parameter(torch.zeros(size))

    def start(self, batch: int, like: Tensor) -> LayerState:
        return like.new_zeros(self.window, batch, len(self.sentinel)), like.new_full((self.window, batch, 1), -1.0)

    def forward(self, h: Tensor, ids: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Return the packed output of h (T, B, H) for words ids (T, B), and the window after them."""
        states, words = torch.cat((state[0], h)), torch.cat((state[1], ids[..., None].to(h.dtype)))
        read = words[1:, :, 0].unfold(0, self.window, 1)  # (T, B, L): the last is the word itself
        q = torch.tanh(self.query(h))
        logits = products(q, states[1:]).masked_fill(read < 0, -torch.inf)
        shares = torch.cat((logits, (q @ self.sentinel)[..., None]), -1).softmax(-1)
        packed = pack(h, shares[..., -1], shares[..., :-1], read.clamp(min=0))
        return packed, (states[-self.window :], words[-self.window :])


class PointerSoftmax(FullSoftmax):
    """The mixture of softmax and pointer, of packed states."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__(config.sizes[-1], config.vocab_size)
        self.window = config.pointer

    def forward(self, h: Tensor) -> Tensor:
        """Return what log_probs does: a mixture has no logits."""
        return self.log_probs(h)

    def log_probs(self, h: Tensor) -> Tensor:
        """Return (N, V) from packed states (N, H + 1 + 2 L)."""
        h, g, a, words = unpack(h, self.window)
        mixed = g[:, None] * F.linear(h, self.weight, self.bias).softmax(-1)
        return mixed.scatter_add(1, words, a).clamp(min=_TINY).log()

    def losses(self, h: Tensor, words: Tensor, masks: Masks) -> Losses:
        """Return the losses of words (T, B); that of pointing to them, or to the softmax, is minimised too."""
        h, g, a, read = unpack(h.flatten(0, 1), self.window)
        pointed = (a * (read == words.flatten()[:, None])).sum(-1)
        nll = self.mean_nll(h[:, None], words.flatten(), torch.stack((g, pointed), -1).clamp(min=_TINY).log())
        return Losses(nll, nll - (g + pointed).clamp(min=_TINY).log().mean())
