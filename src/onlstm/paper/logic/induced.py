"""Trees of formulas: how well those that an encoder induces match the brackets of the formulas.

An encoder reads the brackets as tokens; scored are the trees over the variables and operators alone, as in Shen et al.
2019 (Ordered Memory). F1 is the mean over formulas of three words or more, the whole formula not counted.
"""

import random
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from onlstm.layer import ONLSTM
from onlstm.paper.logic.content import LENGTHS, Induced
from onlstm.paper.logic.embedded import TreeEncoder
from onlstm.paper.logic.encoders import Recurrent
from onlstm.paper.logic.formulas import VOCABULARY, Pair, operators
from onlstm.trees import Tree, baselines, tree_from_distances
from onlstm.trees.decode import Decoder
from onlstm.trees.f1 import score
from onlstm.trees.restrict import restricted

_EACH = 100
"""Formulas of each length."""
_AT_ONCE = 128
_DECODERS: tuple[Decoder, ...] = ("paper", "unbiased")


def sample(pairs: Iterable[Pair]) -> list[str]:
    """Return distinct formulas of three words or more, longest first; of each number of operators a random few.

    The order of the pairs does not matter: those with the smallest checksums are taken.
    """
    groups: dict[int, list[str]] = {}
    distinct = {text for pair in pairs for text in (pair.left, pair.right) if len(_words(text)) > 2}
    for text in sorted(distinct, key=lambda text: (zlib.crc32(text.encode()), text)):
        groups.setdefault(_length(text), []).append(text)
    chosen = (text for group in groups.values() for text in group[:_EACH])
    return sorted(chosen, key=lambda text: (-len(text.split()), text))


def gold(text: str) -> Tree:
    """Return the tree of a formula's brackets.

    >>> print(gold("( ( not a ) ( and b ) )"))
    ( ( not a ) ( and b ) )
    """
    words: list[str] = []
    begun: list[int] = []
    spans = []
    for token in text.split():
        if token == "(":
            begun.append(len(words))
        elif token == ")":
            spans.append((begun.pop(), len(words)))
        else:
            words.append(token)
    return Tree.from_spans(words, spans)


def without_encoder(texts: Sequence[str]) -> list[Induced]:
    """Return the scores of left-branching, right-branching and random trees."""
    rng = random.Random(0)
    words = [[token for _, token in _words(text)] for text in texts]
    return [
        _scored(texts, [baselines.left(row) for row in words], "left"),
        _scored(texts, [baselines.right(row) for row in words], "right"),
        _scored(texts, [baselines.random_tree(row, rng) for row in words], "random"),
    ]


@torch.no_grad()
def of_encoder(encoder: nn.Module, texts: Sequence[str]) -> list[Induced]:
    """Return the scores of the trees of an encoder in evaluation mode, longest formula first; none if it has no trees.

    An ON-LSTM has trees of each layer and decoder, from its forget distances; a `TreeEncoder` has its own.
    """
    ids = [torch.tensor([VOCABULARY.index(token) for token in text.split()]) for text in texts]
    batches = [ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE)]
    if isinstance(encoder, TreeEncoder):
        heights = [row for batch in batches for row in encoder.heights(batch)]
        # Of equal heights the last is the split: what is at a height is composed with the next token that is put there.
        distances = [[float(height * len(row) + k) for k, height in enumerate(row)] for row in heights]
        return [_scored(texts, _trees(texts, distances, "unbiased"), "own")]
    if not isinstance(encoder, Recurrent) or not isinstance(encoder.rnn, ONLSTM):
        return []
    layers: list[list[list[float]]] = [[] for _ in range(encoder.rnn.num_layers)]
    for batch in batches:
        grid = encoder.rnn.scan(
            pack_sequence([encoder.embedding(row.to(encoder.device)) for row in batch])
        ).distances.forget
        for layer, rows in zip(layers, grid.tolist(), strict=True):
            layer += [[step[k] for step in rows[: len(row)]] for k, row in enumerate(batch)]
    return [
        _scored(texts, _trees(texts, layer, decoder), decoder, k)
        for k, layer in enumerate(layers, 1)
        for decoder in _DECODERS
    ]


def _trees(texts: Sequence[str], distances: Sequence[Sequence[float]], decoder: Decoder) -> list[Tree]:
    """Return the trees over the words of formulas, from the distances of all tokens."""
    trees = []
    for text, row in zip(texts, distances, strict=True):
        whole = tree_from_distances(row, text.split(), decoder)
        trees.append(restricted(whole, [place for place, _ in _words(text)]))
    return trees


def _scored(texts: Sequence[str], trees: Sequence[Tree], decoder: str, layer: int | None = None) -> Induced:
    scores = np.array(score([gold(text) for text in texts], trees).per_sentence, float)
    lengths = np.array([_length(text) for text in texts])
    parts = {str(n): scores[lengths == n] for n in LENGTHS}
    by_length = {n: float(part.mean()) if len(part) else None for n, part in parts.items()}
    f1 = float(scores.mean()) if len(scores) else None
    return Induced(layer=layer, decoder=decoder, f1=f1, by_length=by_length, n=len(scores))


def _words(text: str) -> list[tuple[int, str]]:
    """Return the variables and operators, and their places among the tokens."""
    return [(place, token) for place, token in enumerate(text.split()) if token not in "()"]


def _length(text: str) -> int:
    return min(12, operators(text))
