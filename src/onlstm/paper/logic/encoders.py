"""From formulas to vectors: the recurrent encoders of the paper, a Tree-LSTM along the brackets, and your own.

An encoder is a module with an attribute `size` (D) whose `forward` takes distinct formulas, longest first, each a
tensor of places in `VOCABULARY` on the module's device, and returns their vectors (B, D). Name the class or function
that makes one from a `ModelConfig` to add it to the table: `onlstm logic --encoder onlstm mine:MeanOfWords`, with
mine.py

    class MeanOfWords(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.size = config.hidden_size
            self.embedding = torch.nn.Embedding(config.vocab_size, self.size)

        def forward(self, formulas):
            return torch.stack([self.embedding(ids).mean(0) for ids in formulas])
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.errors import UserError, nearest
from onlstm.kernels import ops
from onlstm.layer import ONLSTM
from onlstm.lm.cells.lstm import open_gates
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.embedded import Encoder, parts_of
from onlstm.paper.logic.formulas import VOCABULARY
from onlstm.paper.logic.gumbel_tree import GumbelTreeLSTM
from onlstm.paper.logic.linear import Linear, linear
from onlstm.paper.logic.ordered_memory import OrderedMemory
from onlstm.paper.logic.rl_spinn import RLSPINN
from onlstm.paper.logic.rrnet import RRNet

_OWN = "name a torch.nn.Module of your own with a whole number `size`, made from a ModelConfig"
_MASKS = 32
"""Ways in which the embedding of a token is dropped out in a batch."""


class Recurrent(Encoder):
    """The last hidden state of an ON-LSTM or LSTM; nothing is padded, and what is equal is computed once.

    Formulas that begin alike are read as one up to there, with one dropout (see `parts_of`). A token's embedding is
    dropped out in `_MASKS` ways, of which each of its places takes one.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        sizes = config.embedding_size, config.hidden_size, config.num_layers
        between = config.dropout if config.num_layers > 1 else 0.0
        self.weight_dropout = config.weight_dropout
        self.rnn: nn.RNNBase
        if config.encoder == "lstm":
            self.rnn = nn.LSTM(*sizes, dropout=between)
            return
        chunks: Any = {"chunk_size": config.chunk_size, "free_last_chunk": config.free_last_chunk}
        try:
            self.rnn = ONLSTM(*sizes, dropout=between, **chunks)
        except ValueError as error:
            raise UserError(f"model.chunk_size: {error}") from None

    def forward(self, formulas: Sequence[Tensor]) -> Tensor:
        parts, places = parts_of(formulas, self.device)
        (first, start, *rest), *others = self._layers()
        masks = _MASKS if self.training and self.dropout.p else 1
        words = F.linear(self.dropout(self.embedding.weight.repeat(masks, 1)), first, start)  # all that there can be
        layers: Any = [(None, None, *rest), *others]
        zero = words.new_zeros(1, self.size)
        states = [(zero, zero)] * len(layers)
        last = []
        for part in parts:
            rows, chosen = words, part.tokens
            if masks > 1:
                chosen = chosen + len(VOCABULARY) * torch.randint(masks, chosen.shape, device=self.device)
            for k, (w_ih, bias, w_hh, chunk_size) in enumerate(layers):
                h, c = (state.index_select(0, part.parents) for state in states[k])
                options: Any = {"places": None if k else chosen, "narrow": self.rounds}
                rows, h, c, *_ = ops.scan(rows, w_ih, w_hh, bias, h, c, part.sizes, chunk_size, **options)
                rows = F.dropout(rows, self.rnn.dropout, self.training)
                states[k] = h, c
            last.append(h)
        return torch.cat(last).index_select(0, places)

    def _layers(self) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
        """Yield w_ih, bias, w_hh and chunk size of each layer for `ops.scan`: the weights of one pass."""
        for w_ih, w_hh, b_ih, b_hh in self.rnn.all_weights:
            dropped = F.dropout(w_hh, self.weight_dropout, self.training)
            if isinstance(self.rnn, ONLSTM):
                yield w_ih, b_ih + b_hh, dropped, self.rnn.chunk_size
            else:
                weights, recurrent, bias = open_gates(w_ih, dropped, b_ih + b_hh)
                yield weights, bias, recurrent, self.size


class TreeLSTM(Encoder):
    """The binary Tree-LSTM of Tai et al. 2015, composing along the brackets it is given: an upper bound.

    All nodes at the same depth are computed together, the deepest first, so a level needs the one below it only. Equal
    nodes of different formulas at the same depth are computed once (and with one dropout).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.leaf = Linear(config.embedding_size, 3 * self.size)
        self.compose = Linear(2 * self.size, 5 * self.size)

    def forward(self, formulas: Sequence[Tensor]) -> Tensor:
        levels, roots = _levels(formulas)
        tokens = torch.tensor([token for level in levels for token, _ in level.leaves], device=self.device)
        i, o, u = self.leaf(self.dropout(self.embedding(tokens))).chunk(3, -1)
        c = i.sigmoid() * u.tanh()
        sizes = [len(level.leaves) for level in levels]
        leaves = list(zip((o.sigmoid() * c.tanh()).split(sizes), c.split(sizes), strict=True))
        halves = self.compose.weight.chunk(2, -1)
        h, c = leaves[-1]
        for level, below, (h_leaf, c_leaf) in zip(levels[-2::-1], levels[:0:-1], leaves[-2::-1], strict=True):
            children = [below.places(side, self.device) for side in zip(*level.inner, strict=True)]
            h, c = self._parents(h, c, children, halves)
            h, c = torch.cat([h, h_leaf]), torch.cat([c, c_leaf])
        return torch.index_select(h, 0, levels[0].places(roots, self.device))

    def _parents(
        self, h: Tensor, c: Tensor, children: Sequence[Tensor], halves: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the states over left and right children; each child's part of the product is computed once."""
        gates: Tensor = self.compose.bias
        for side, weight in zip(children, halves, strict=True):
            distinct, place = side.unique(return_inverse=True)
            gates = gates + linear(h.index_select(0, distinct), weight, narrow=self.rounds).index_select(0, place)
        i, f_l, f_r, o, u = gates.chunk(5, -1)
        c_l, c_r = (c.index_select(0, side) for side in children)
        c = i.sigmoid() * u.tanh() + (f_l + 1).sigmoid() * c_l + (f_r + 1).sigmoid() * c_r  # 1: remember, at first
        return o.sigmoid() * c.tanh(), c


class _Level:
    """The distinct nodes at one depth, over all formulas, numbered: those with children 0, 1, …, leaves -1, -2, …"""

    def __init__(self) -> None:
        self.inner: dict[tuple[int, int], int] = {}
        """By the numbers of their children one level below."""
        self.leaves: dict[tuple[int, int], int] = {}
        """By token and its number among the equal ones of its formula: within one, dropouts differ."""

    def places(self, numbers: Iterable[int], device: torch.device) -> Tensor:
        """Return where nodes stand when the leaves are behind the others."""
        return torch.tensor([k if k >= 0 else len(self.inner) + ~k for k in numbers], device=device)


def _levels(formulas: Sequence[Tensor]) -> tuple[list[_Level], list[int]]:
    """Return the nodes of all formulas by depth, and the numbers of the formulas themselves at depth 0."""
    opening, closing = VOCABULARY.index("("), VOCABULARY.index(")")
    levels = [_Level()]
    roots: list[int] = []
    for ids in formulas:
        begun: list[list[int]] = [[]]  # the children so far of each bracket that is open
        seen = [0] * len(VOCABULARY)
        for token in ids.tolist():
            if token == opening:
                begun.append([])
                if len(begun) > len(levels):
                    levels.append(_Level())
            elif token == closing:
                left, right = begun.pop()
                known = levels[len(begun) - 1].inner
                begun[-1].append(known.setdefault((left, right), len(known)))
            else:
                known = levels[len(begun) - 1].leaves
                begun[-1].append(~known.setdefault((token, seen[token]), len(known)))
                seen[token] += 1
        roots += begun[0]
    return levels, roots


ENCODERS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "onlstm": Recurrent,
    "lstm": Recurrent,
    "tree-lstm": TreeLSTM,
    "ordered-memory": OrderedMemory,
    "gumbel-tree-lstm": GumbelTreeLSTM,
    "rrnet": RRNet,
    "rl-spinn": RLSPINN,
}


def build(config: ModelConfig) -> nn.Module:
    """Return the encoder that the configuration names.

    >>> encoder = build(ModelConfig(encoder="tree-lstm", hidden_size=6))
    >>> encoder([torch.tensor([VOCABULARY.index(token) for token in "( not a )".split()])]).shape
    torch.Size([1, 6])
    """
    module, colon, attribute = config.encoder.partition(":")
    if config.encoder in ENCODERS:
        return ENCODERS[config.encoder](config)
    if not colon:
        hint = nearest(config.encoder, [*ENCODERS, "majority"], choices=True)
        raise UserError(f"--encoder {config.encoder}: no such encoder; {hint}; or module:name, for your own")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise UserError(f"--encoder {config.encoder}: {module} is Python's own and has no encoders; {_OWN}")
    if (here := str(Path.cwd())) not in sys.path:  # where `python -m` would look, too
        sys.path.insert(0, here)
    try:
        encoder = getattr(importlib.import_module(module), attribute)(config)
    except Exception as error:  # of anybody's code
        raise UserError(f"--encoder {config.encoder}: {error or type(error).__name__}; {_OWN}") from None
    if not isinstance(encoder, nn.Module) or not isinstance(getattr(encoder, "size", None), int):
        raise UserError(f"--encoder {config.encoder}: not an encoder; {_OWN}")
    return encoder


def check_trust(run: Path, stored: Iterable[str], named: Sequence[str]) -> None:
    """Refuse encoders of somebody's own that only the folder names: a folder is data and runs no code."""
    for name in stored:
        if ":" in name and name not in named:
            raise UserError(f"{run}: {name:.60} is code outside it; if you trust it, name it: --encoder {name:.60}")
