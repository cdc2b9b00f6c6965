"""Words made of their characters (Kim et al. 2016, "Character-Aware Neural Language Models"): the CharCNN input.

Numbers in parentheses are the paper's equations. Characters are the bytes of UTF-8, so that any text can be spelt; the
paper has one vector for each character of its corpus instead.

    code          paper     meaning
    spelling      C^k       a word: begin, its bytes, end, padding, `LENGTH` in all
    weight        Q         vectors of characters, (bytes + 3, d)
    filters       H, w      number of filters of width 1, 2, …
    y             y^k       the strongest answer of each filter, (E,)
    t             t         transform gate of a highway layer: how much is new
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.lm.config import LMConfig

LENGTH = 24
"""Bytes of a word that are read, with marks of its begin and end; the longest in the Penn Treebank has 19 letters."""
_BEGIN, _END, _PADDING = 256, 257, 258
_HIGHWAYS = 2
_TRANSFORM_BIAS = -2.0


def spelling(word: str) -> list[int]:
    """Return the ids of a word's characters.

    >>> spelling("at")[:5]
    [256, 97, 116, 257, 258]
    """
    ids = [_BEGIN, *word.encode()[: LENGTH - 2], _END]
    return ids + [_PADDING] * (LENGTH - len(ids))


class Characters(nn.Module):
    """The vectors of words, computed; called where others look them up."""

    spellings: Tensor

    def __init__(self, config: LMConfig, words: Sequence[str] | None) -> None:
        """Make the parameters; without words, their spellings are to be loaded with the weights."""
        super().__init__()
        d, size = config.character_size, config.embedding_size
        self.weight = nn.Parameter(torch.empty(_PADDING + 1, d))
        widths = [(width, count) for width, count in enumerate(config.filters, 1) if count]
        self.convolutions = nn.ModuleList(nn.Conv1d(d, count, width) for width, count in widths)
        self.highways = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(_HIGHWAYS))
        table = [spelling(word) for word in words] if words else [[0] * LENGTH] * config.vocab_size
        self.register_buffer("spellings", torch.tensor(table, dtype=torch.int32))
        for highway in self.highways:
            nn.init.constant_(highway.bias[size:], _TRANSFORM_BIAS)  # type: ignore[index]

    def rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors of the distinct words among ids, (U, E), and which of them each of ids is."""
        distinct, which = ids.unique(return_inverse=True)
        return self(distinct), which

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors (…, E) of ids (…)."""
        letters = F.embedding(self.spellings[ids.flatten()], self.weight).transpose(1, 2)
        y = torch.cat([torch.tanh(conv(letters)).amax(-1) for conv in self.convolutions], -1)  # (5), (6)
        for highway in self.highways:
            g, t = highway(y).chunk(2, -1)
            t = torch.sigmoid(t)
            y = t * F.relu(g) + (1 - t) * y  # (8)
        vectors: Tensor = y.unflatten(0, ids.shape)
        return vectors
