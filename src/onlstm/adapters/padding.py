"""How a language model reads rows of words, (B, T), of which a mask may hide some, and its state as one tensor.

Words that are read move to the front of their row, and rows are sorted by length: then all rows that still have words
are computed together, from one row's end to the next.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onlstm.errors import UserError
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import States, columns, each_part


class Rows(NamedTuple):
    """What the layers make of rows (B, T); at hidden words, what they made of the last word before."""

    hidden: Tensor
    """What the softmax reads, (B, T, H)."""
    outputs: tuple[Tensor, ...]
    """The output of each layer, (B, T, H)."""
    state: Tensor
    """(B, S)."""


def visible(mask: Tensor, rows: int, steps: int) -> Tensor:
    """Return which of the last words are read, (B, T); the mask may be longer by what was read before."""
    if mask.dim() != 2 or len(mask) != rows or mask.shape[1] < steps:
        shape = tuple(mask.shape)
        raise UserError(f"attention_mask {shape}: ({rows}, {steps}) is needed, or what was read before too")
    return mask[:, -steps:].bool()


def read(
    lm: LanguageModel, ids: Tensor, embedded: Tensor, real: Tensor | None, state: States, masks: Callable[[], Masks]
) -> Rows:
    """Return what the layers make of ids (B, T), their vectors (B, T, E) given, where `real` says so, from `state` on.

    `masks` gives each part of the rows its dropout masks.
    """
    if real is None or real.all():
        encoded = lm.encode(ids.T, state, masks(), embedded=embedded.transpose(0, 1))
        outputs = tuple(output.transpose(0, 1) for output in encoded.outputs)
        return Rows(encoded.hidden.transpose(0, 1), outputs, flat(encoded.state))
    lengths, order = real.sum(1).sort(descending=True, stable=True)
    front = real.int().argsort(dim=1, descending=True, stable=True)
    words, vectors = ids.gather(1, front)[order].T, _take(embedded, front)[order].transpose(0, 1)
    state = columns(state, order)
    last, parts = flat(state), []
    for begin, end in pairwise([0, *sorted({*lengths.tolist()} - {0})]):
        live = int((lengths > begin).sum())
        before, now = columns(state, slice(live)), (slice(begin, end), slice(live))
        encoded = lm.encode(words[now], before, masks(), embedded=vectors[now])
        state = encoded.state
        last = torch.cat((flat(state), last[live:]))
        parts.append([F.pad(x, (0, 0, 0, len(ids) - live)) for x in (encoded.hidden, *encoded.outputs)])
    if not parts:
        raise UserError("input_ids: nothing to read; an empty text is `<eos>`, as the tokenizer writes it")
    back, places = order.argsort(), (real.cumsum(1) - 1).clamp(min=0)
    whole = [_take(torch.cat(pieces).transpose(0, 1)[back], places) for pieces in zip(*parts, strict=True)]
    return Rows(whole[0], tuple(whole[1:]), last[back])


def flat(states: States) -> Tensor:
    """Return the states of all layers side by side, (B, S)."""
    return torch.cat([part.transpose(0, 1).flatten(1) for layer in states for part in layer], 1)


def unflat(state: Tensor, like: States) -> States:
    """Return what was made flat, with the shapes that `like` has."""
    pieces = iter(state.split([part[:, 0].numel() for layer in like for part in layer], 1))
    return each_part(like, lambda part: next(pieces).unflatten(1, part[:, 0].shape).transpose(0, 1).contiguous())


def _take(x: Tensor, places: Tensor) -> Tensor:
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))
