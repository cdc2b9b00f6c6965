"""From formulas to vectors: the recurrent encoders of the paper, a Tree-LSTM along the brackets, and anybody's own.

An encoder is a module with an attribute `size` (D) whose `forward` takes distinct formulas, longest first, each a
tensor of places in `VOCABULARY`, and returns their vectors (B, D). A class or function that makes one from a
`ModelConfig` joins the table by its address: `onlstm logic --encoder onlstm mine:MeanOfWords`, with mine.py

    class MeanOfWords(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.size = config.hidden_size
            self.embedding = torch.nn.Embedding(config.vocab_size, self.size)

        def forward(self, formulas):
            return torch.stack([self.embedding(ids).mean(0) for ids in formulas])
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from onlstm.errors import UserError
from onlstm.layer import ONLSTM
from onlstm.settings import at_least, nearest
from onlstm.tasks.logic.formulas import VOCABULARY

State = tuple[Tensor, Tensor]
_CUTS = (3, 6)
"""Where a batch of the published pairs branches most: there is a fifth less to compute than without."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of a classifier of pairs; the defaults are the paper's."""

    encoder: str = "onlstm"
    """A name in `ENCODERS`, or the address `module:name` of what makes an encoder."""
    embedding_size: int = 128
    """Of a token."""
    hidden_size: int = 400
    """Of a layer, and of the classifier's hidden layer."""
    num_layers: int = 1
    """Recurrent layers."""
    chunk_size: int = 10
    """Neurons of an ON-LSTM that share a master gate."""
    free_last_chunk: bool = False
    """Let the ON-LSTM write its last chunk, which in the paper's cell stays zero."""
    dropout: float = 0.2
    """On embeddings, between layers and in the classifier."""
    weight_dropout: float = 0.0
    """Drop-connect on the recurrent weights of an ON-LSTM."""

    @property
    def vocab_size(self) -> int:
        """Tokens that a formula may have."""
        return len(VOCABULARY)

    def __post_init__(self) -> None:
        at_least(self, "model.", embedding_size=1, hidden_size=1, num_layers=1, chunk_size=1)
        for name in ("dropout", "weight_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"model.{name} {getattr(self, name)}: from 0 to less than 1 is needed")


class Recurrent(nn.Module):
    """The last hidden state of an ON-LSTM or LSTM; nothing is padded, and equal beginnings are computed once.

    Formulas are read up to each of `_CUTS` in turn, those that are still equal there as one (and with one dropout).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.size = config.hidden_size
        self.embedding = _embedding(config)
        self.dropout = nn.Dropout(config.dropout)
        sizes = config.embedding_size, config.hidden_size, config.num_layers
        between = config.dropout if config.num_layers > 1 else 0.0
        self.rnn: nn.RNNBase
        if config.encoder == "lstm":
            self.rnn = nn.LSTM(*sizes, dropout=between)
            return
        try:
            self.rnn = ONLSTM(
                *sizes,
                dropout=between,
                chunk_size=config.chunk_size,
                weight_dropout=config.weight_dropout,
                free_last_chunk=config.free_last_chunk,
            )
        except ValueError as error:
            raise UserError(f"model.chunk_size: {error}") from None

    def forward(self, formulas: Sequence[Tensor]) -> Tensor:
        texts = [tuple(ids.tolist()) for ids in formulas]
        longest, done, ended = len(texts[0]), 0, 0
        rows: dict[tuple[int, ...], int] = {}  # of beginnings, as long as what is done
        state: State | None = None
        last: list[Tensor] = []
        place: dict[tuple[int, ...], int] = {}  # of whole formulas in `last`
        for cut in (*(cut for cut in _CUTS if cut < longest), longest):
            begun = list(dict.fromkeys(text[:cut] for text in texts if len(text) > done))
            if state:
                parents = torch.tensor([rows[text[:done]] for text in begun])
                state = state[0].index_select(1, parents), state[1].index_select(1, parents)
            packed = _packed([text[done:] for text in begun])
            words = self.dropout(self.embedding(packed.data))
            _, state = self.rnn(PackedSequence(words, packed.batch_sizes), state)
            rows, done = {text: k for k, text in enumerate(begun)}, cut
            place |= {text: k + ended for text, k in rows.items()}
            ended += len(rows)
            last.append(state[0][-1])
        return torch.cat(last).index_select(0, torch.tensor([place[text] for text in texts]))


def _packed(texts: Sequence[Sequence[int]]) -> PackedSequence:
    """Return texts, longest first, packed."""
    steps = [[text[t] for text in texts if len(text) > t] for t in range(len(texts[0]))]
    return PackedSequence(torch.tensor([id for step in steps for id in step]), torch.tensor(list(map(len, steps))))


class TreeLSTM(nn.Module):
    """The binary Tree-LSTM of Tai et al. 2015, composing along the brackets it is given: an upper bound.

    All nodes at the same depth are computed together, the deepest first, so a level needs the one below it only.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.size = config.hidden_size
        self.embedding = _embedding(config)
        self.dropout = nn.Dropout(config.dropout)
        self.leaf = nn.Linear(config.embedding_size, 3 * self.size)
        self.compose = nn.Linear(2 * self.size, 5 * self.size)

    def forward(self, formulas: Sequence[Tensor]) -> Tensor:
        levels = _levels(formulas)
        tokens = torch.tensor([token for level in levels for token in level.leaves])
        i, o, u = self.leaf(self.dropout(self.embedding(tokens))).chunk(3, -1)
        c = i.sigmoid() * u.tanh()
        leaves = torch.cat([o.sigmoid() * c.tanh(), c], -1).split([len(level.leaves) for level in levels])
        nodes: Tensor = leaves[-1]  # of one depth, from left to right: h and c side by side
        for level, words in zip(levels[-2::-1], leaves[-2::-1], strict=True):
            nodes = torch.cat([self._parents(nodes), words]).index_select(0, torch.tensor(level.places()))
        return nodes[:, : self.size]

    def _parents(self, nodes: Tensor) -> Tensor:
        """Return the states over each two nodes that stand side by side."""
        (h_l, c_l), (h_r, c_r) = (each.chunk(2, -1) for each in (nodes[::2], nodes[1::2]))
        i, f_l, f_r, o, u = self.compose(torch.cat([h_l, h_r], -1)).chunk(5, -1)
        c = i.sigmoid() * u.tanh() + (f_l + 1).sigmoid() * c_l + (f_r + 1).sigmoid() * c_r  # 1: remember, at first
        return torch.cat([o.sigmoid() * c.tanh(), c], -1)


class _Level:
    """The nodes at one depth, over all formulas."""

    def __init__(self) -> None:
        self.inner = 0
        """How many have children."""
        self.leaves: list[int] = []
        """Tokens of the others."""
        self.nodes: list[int] = []
        """From left to right: the k-th with children as k, the k-th leaf as ~k."""

    def places(self) -> list[int]:
        """Return each node's place when the leaves stand behind the others."""
        return [k if k >= 0 else self.inner + ~k for k in self.nodes]


def _levels(formulas: Sequence[Tensor]) -> list[_Level]:
    """Return the nodes of all formulas by depth; the two children of a node stand side by side in theirs."""
    opening, closing = VOCABULARY.index("("), VOCABULARY.index(")")
    levels = [_Level()]
    depth = 0
    for ids in formulas:
        for token in ids.tolist():
            if token == closing:
                depth -= 1
                continue
            level = levels[depth]
            if token == opening:
                level.nodes.append(level.inner)
                level.inner += 1
                depth += 1
                if depth == len(levels):
                    levels.append(_Level())
            else:
                level.nodes.append(~len(level.leaves))
                level.leaves.append(token)
    return levels


ENCODERS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "onlstm": Recurrent,
    "lstm": Recurrent,
    "tree-lstm": TreeLSTM,
}
"""What makes an encoder, by name."""


def build(config: ModelConfig) -> nn.Module:
    """Return the encoder that the configuration names.

    >>> encoder = build(ModelConfig(encoder="tree-lstm", hidden_size=6))
    >>> encoder([torch.tensor([VOCABULARY.index(token) for token in "( not a )".split()])]).shape
    torch.Size([1, 6])
    """
    name, colon, attribute = config.encoder.partition(":")
    if config.encoder in ENCODERS:
        return ENCODERS[config.encoder](config)
    if not colon:
        hint = nearest(config.encoder, [*ENCODERS, "majority"])
        raise UserError(f"--encoder {config.encoder}: no such encoder; {hint} Or module:name, for your own.")
    here = os.getcwd()  # where `python -m` would look, too  # noqa: PTH109
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        encoder = getattr(importlib.import_module(name), attribute)(config)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"--encoder {config.encoder}: {error}") from None
    if not isinstance(encoder, nn.Module) or not isinstance(getattr(encoder, "size", None), int):
        raise UserError(f"--encoder {config.encoder}: it should make a torch.nn.Module with a whole number `size`")
    return encoder


def _embedding(config: ModelConfig) -> nn.Embedding:
    found = nn.Embedding(config.vocab_size, config.embedding_size)
    nn.init.uniform_(found.weight, -0.1, 0.1)
    return found
