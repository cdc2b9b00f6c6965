"""A long text as a recurrent network reads it: side by side in columns, window by window."""

import numpy as np
import torch
from torch import Tensor


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
