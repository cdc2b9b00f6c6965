"""A long text as a recurrent network reads it: side by side in columns, window by window."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from onlstm.lm.model import LanguageModel, States
from onlstm.lm.reader import tokenizer_of


class Columns:
    """A stream of ids laid out in `batch` columns of equal length, each of which goes on where the last ended."""

    def __init__(self, ids: np.ndarray, batch: int, kept: slice = slice(None)) -> None:
        self.length = len(ids) // batch
        self._rows = ids[: self.length * batch].reshape(batch, self.length)[kept]

    def window(self, first: int, length: int) -> tuple[Tensor, Tensor]:
        """Return ids (T, B) from `first` on and the words after them; T is `length`, or what is left."""
        last = min(first + length, self.length - 1)
        both = torch.from_numpy(self._rows[:, first : last + 1].T.astype(np.int64, order="C"))
        return both[:-1], both[1:]


def read_on(model: LanguageModel, ids: np.ndarray, window: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the last layer's output (T, H) before each of a window's words, and these (T,).

    `<eos>` is read first, and the state carried on; gradients end with the window.
    """
    columns = Columns(np.concatenate(([tokenizer_of(model).eos_id], ids)), 1)
    state: States | None = None
    for first in range(0, len(ids), window):
        now, words = (each.to(model.embedding.weight.device) for each in columns.window(first, window))
        hidden, state, *_ = model.encode(now, state)
        state = tuple((h.detach(), c.detach()) for h, c in state)
        yield hidden[:, 0], words[:, 0]
