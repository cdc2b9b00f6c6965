"""What a grammar has learnt: its rules, and its preterminals with their words, by their use in a text if there is one.

The expected uses are exact for a parent with one of its children, and for a preterminal with a word: they are the
gradient of the likelihood. Those of a whole rule A → B C are estimated as if the children were independent in the text,
as they are in the grammar.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from onlstm.errors import UserError, at_least_one
from onlstm.grammar.pcfg import Grammar, batches
from onlstm.kernels.chart import Rules, log_likelihood


@dataclass(frozen=True, kw_only=True)
class Production:
    """parent → left right."""

    parent: str
    left: str
    right: str
    probability: float
    """Given the parent."""
    uses: float | None
    """Expected in the text; None without one."""


@dataclass(frozen=True, kw_only=True)
class Preterminal:
    """A symbol of single words."""

    name: str
    uses: float | None
    """Expected in the text; None without one."""
    words: tuple[tuple[str, float], ...]
    """The likeliest words and their probability; with a text, the most frequent ones and their share of the uses."""


@dataclass(frozen=True, kw_only=True)
class GrammarInspection:
    """What `inspect_grammar` returns."""

    sentences: int
    """Lines of two words or more that were read."""
    words: int
    more: bool
    """Whether there was more text than the limit allowed."""
    nats_per_word: float | None
    """Of the text: -log P(sentence), for each word."""
    rules: tuple[Production, ...]
    """By use in the text, or by probability."""
    preterminals: tuple[Preterminal, ...]
    """By use in the text, or by the probability of their likeliest words."""


def inspect_grammar(
    grammar: Grammar,
    lines: Iterable[str] = (),
    *,
    rules: int = 30,
    words: int = 8,
    limit: int = 2000,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> GrammarInspection:
    """Return the rules and preterminals of a grammar, by their use in lines of raw text if there are any.

    Args:
        rules: how many.
        words: how many of each preterminal.
        limit: read this many sentences at most.
        on_progress: called with the number of sentences read and of all.
    """
    at_least_one(rules=rules, words=words, limit=limit)
    tokenizer, longest = grammar.tokenizer, grammar.longest
    if tokenizer is None:
        raise UserError("the grammar has no tokenizer: load it from its folder, or set grammar.tokenizer")
    tokenised = ([token.id for token in tokenizer.tokens(line)] for line in lines)
    readable = (ids for ids in tokenised if 1 < len(ids) <= longest)
    text = list(islice(readable, min(limit, sys.maxsize)))
    counts = _Counts(grammar)
    done = 0
    for batch in batches(text, 32):
        counts.add([text[k] for k in batch])
        on_progress(done := done + len(batch), len(text))
    read = sum(map(len, text))
    if text and not torch.isfinite(counts.left).all():
        raise UserError("the grammar's probabilities are not finite: its weights are damaged; did it diverge?")
    return GrammarInspection(
        sentences=len(text),
        words=read,
        more=next(readable, None) is not None,
        nats_per_word=counts.nats / read if text else None,
        rules=_rules(grammar, counts if text else None, rules),
        preterminals=_preterminals(grammar, counts if text else None, words, tokenizer.vocabulary),
    )


class _Counts:
    """Expected uses in a text."""

    def __init__(self, grammar: Grammar) -> None:
        with torch.no_grad():
            found = grammar.rules()
            self._emissions = grammar.emissions()
        assert found.left is not None
        assert found.right is not None
        self._rules = [part.clone().requires_grad_() for part in (found.root, found.left, found.right)]
        self.left, self.right = torch.zeros_like(found.left), torch.zeros_like(found.right)
        self.words, self.nats = torch.zeros_like(self._emissions), 0.0

    def add(self, sentences: Sequence[Sequence[int]]) -> None:
        """Count in sentences of equal length."""
        ids = torch.tensor([list(sentence) for sentence in sentences])
        root, left, right = self._rules
        emission = self._emissions[ids].requires_grad_()
        total, _ = log_likelihood(Rules(root=root, left=left, right=right), emission)
        uses = torch.autograd.grad(total, (left, right, emission))
        self.left += uses[0]
        self.right += uses[1]
        self.words.index_add_(0, ids.flatten(), uses[2].flatten(0, 1))
        self.nats -= float(total.detach())


@torch.no_grad()
def _rules(grammar: Grammar, counts: _Counts | None, size: int) -> tuple[Production, ...]:
    """Return the rules that are used most, or are likeliest; of each parent and side, only the first 20 children."""
    found = grammar.rules()
    assert found.left is not None
    assert found.right is not None
    left, right = found.left.exp(), found.right.exp()
    parents = left.new_ones(len(left)) if counts is None else counts.left.sum(1)
    sides = (left, right) if counts is None else (_shares(counts.left), _shares(counts.right))
    most = min(20, left.shape[1])
    (p, b), (q, c) = (side.topk(most) for side in sides)
    scores = parents[:, None, None] * p[:, :, None] * q[:, None, :]
    uses, places = scores.flatten().topk(min(size, scores.numel()))
    rows = []
    for use, place in zip(uses.tolist(), places.tolist(), strict=True):
        a, i, j = place // most**2, place // most % most, place % most
        first, second = int(b[a, i]), int(c[a, j])
        rows.append(
            Production(
                parent=f"N{a}",
                left=grammar.symbol(first),
                right=grammar.symbol(second),
                probability=float(left[a, first] * right[a, second]),
                uses=None if counts is None else use,
            )
        )
    return tuple(rows)


@torch.no_grad()
def _preterminals(
    grammar: Grammar, counts: _Counts | None, size: int, vocabulary: Sequence[str]
) -> tuple[Preterminal, ...]:
    shares = (grammar.emissions().exp() if counts is None else _shares(counts.words.T).T).T
    values, ids = shares.topk(min(size, shares.shape[1]))
    weights = (values if counts is None else counts.words.T).sum(1)
    rows = []
    for k in weights.argsort(descending=True).tolist():
        pairs = zip(ids[k].tolist(), values[k].tolist(), strict=True)
        likeliest = tuple((vocabulary[id], share) for id, share in pairs if share > 0)
        rows.append(Preterminal(name=f"T{k}", uses=None if counts is None else float(weights[k]), words=likeliest))
    return tuple(rows)


def _shares(counts: Tensor) -> Tensor:
    return counts / counts.sum(1, keepdim=True).clamp(min=1e-30)
