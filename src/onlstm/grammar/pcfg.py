"""A simple probabilistic context-free grammar with neural parameters (SN-PCFG, Liu et al. 2023).

    A  nonterminal: derives two words or more        S → A      P(A | root)
    P  preterminal: derives one word                 A → B C    left(B | A) right(C | A), B and C of either kind
    w  word                                          P → w      emission(w | P)

Symbols and words are vectors; each distribution is a softmax over inner products with what a small network makes of
the conditioning symbol. Children are independent given their parent: that makes a sentence of n words cost n³N + n²N²
instead of n³N³, and hundreds of symbols affordable.
"""

import os
from collections.abc import Iterator, Sequence, Sized
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onlstm import folder as store
from onlstm import memory
from onlstm.errors import UserError
from onlstm.grammar.config import GrammarConfig
from onlstm.kernels.chart import Posteriors, Rules, log_likelihood, posteriors, viterbi
from onlstm.models import locate
from onlstm.text.tokenizer import Tokenizer


class Grammar(nn.Module):
    """A grammar over the words of a tokenizer.

    >>> grammar = Grammar(GrammarConfig(vocab_size=10, nonterminals=3, preterminals=4, size=8))
    >>> total, log_z = grammar(torch.tensor([[2, 3, 4], [5, 2, 3]]))
    >>> log_z.shape, bool(log_z.sum() == total)
    (torch.Size([2]), True)
    """

    def __init__(self, config: GrammarConfig, tokenizer: Tokenizer | None = None) -> None:
        super().__init__()
        if config.vocab_size < 1:
            raise UserError(f"grammar.vocab_size {config.vocab_size}: at least 1 word is needed")
        if torch.get_default_device().type == "cpu":
            memory.check(config.least_bytes, "grammar", "choose smaller sizes")
        self.config, self.tokenizer = config, tokenizer
        self.symbols = nn.Parameter(_normal(0.5, config.nonterminals + config.preterminals, config.size))
        self.words = nn.Parameter(_normal(0.3, config.vocab_size, config.size))
        self.start = nn.Parameter(_normal(0.5, 1, config.size))
        self.root, self.left, self.right, self.emission = (_network(config.size) for _ in range(4))

    def rules(self) -> Rules:
        """Return the log-probabilities of all rules but the emissions."""
        parents = self.symbols[: self.config.nonterminals]
        return Rules(
            root=(self.root(self.start) @ parents.T)[0].log_softmax(-1),
            left=(self.left(parents) @ self.symbols.T).log_softmax(-1),
            right=(self.right(parents) @ self.symbols.T).log_softmax(-1),
        )

    def emissions(self) -> Tensor:
        """Return the log-probability of each word given each preterminal, (V, P)."""
        return (self._preterminals() @ self.words.T).log_softmax(-1).T

    def _preterminals(self) -> Tensor:
        preterminals: Tensor = self.emission(self.symbols[self.config.nonterminals :])
        return preterminals

    def forward(self, ids: Tensor, scores: Tensor | None = None, *, narrow: bool = False) -> tuple[Tensor, Tensor]:
        """Return the sum of the sentences' log-probabilities, to take the gradient of, and each of them (B).

        Args:
            ids: (B, n), sentences of two words or more.
            scores: (B, n + 1, n + 1), a score for each span, see `onlstm.kernels.chart.inside`.
            narrow: round the factors of products to bfloat16, to train faster, where `has_bfloat16()`.
        """
        some: Any = _Emission.apply
        emission = some(self.words, self._preterminals(), ids) if narrow else self.emissions()[ids]
        return log_likelihood(self.rules(), emission, scores, narrow=narrow)

    @torch.no_grad()
    def read(self, sentences: Sequence[Sequence[int]], *, best: bool = False) -> Iterator[tuple[int, Posteriors]]:
        """Yield, in no particular order, the index of each sentence of two words or more and its posteriors (B = 1).

        Sentences of equal length are read together. With `best`, the spans and labels are those of the likeliest tree
        (Viterbi), which is slower.
        """
        rules, emissions, longest = self.rules(), self.emissions(), self.longest
        for batch in batches(sentences, 32):
            ids = torch.tensor([list(sentences[k]) for k in batch])
            if ids.shape[1] > longest:
                what = f"sentence {batch[0] + 1} has {ids.shape[1]:,} words"
                raise UserError(f"{what}: this machine's memory is enough for {longest:,}")
            chart = viterbi(rules, emissions[ids]) if best else posteriors(rules, emissions[ids])
            for row, k in enumerate(batch):
                yield k, Posteriors(*(part[row : row + 1] for part in chart))

    def symbol(self, number: int) -> str:
        """Return the name of a symbol, numbered nonterminals first: N17 of a nonterminal, T5 of a preterminal."""
        preterminal = number - self.config.nonterminals
        return f"N{number}" if preterminal < 0 else f"T{preterminal}"

    @property
    def longest(self) -> int:
        """How many words a sentence may have for its chart to fit in half of the machine's memory."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return int((memory / 12 / self.config.nonterminals) ** 0.5)

    @classmethod
    def load(cls, folder: str | Path) -> "Grammar":
        """Return the grammar of a run folder, or of that name in the box, in evaluation mode, with its tokenizer."""
        folder = locate(folder)
        stored = store.load(folder, "grammar")
        try:
            config = GrammarConfig(**stored.config)
        except (TypeError, UserError) as error:
            raise UserError(f"{folder / store.CONFIG}: {error}") from None
        words = len(stored.tokenizer)
        if words != config.vocab_size:
            raise UserError(f"{folder / store.TOKENIZER}: {words} words, but the grammar has {config.vocab_size}")
        with torch.device("meta"):  # takes no memory before the sizes are known to be those of the weights
            grammar = cls(config, stored.tokenizer)
        store.fill(grammar, stored.tensors, folder)
        memory.check(config.least_bytes, str(folder), "use a machine with more of it")  # for the rules
        return grammar.eval()

    def save(self, folder: str | Path, *, half: bool = False, **facts: str) -> None:
        """Write the grammar's folder; with `half`, its weights in half precision. Facts go into config.json."""
        if self.tokenizer is None:
            raise UserError("a grammar without a tokenizer cannot be saved")
        store.save_description(Path(folder), "grammar", self.config, self.tokenizer, **facts)
        store.save_weights(Path(folder), self.state_dict(), half=half)


def batches(sentences: Sequence[Sized], size: int) -> Iterator[list[int]]:
    """Yield the indices of sentences of equal length, two words or more, at most `size` at a time, shortest first."""
    lengths = [len(sentence) for sentence in sentences]
    order = sorted((k for k, n in enumerate(lengths) if n > 1), key=lengths.__getitem__)
    for _, group in groupby(order, key=lengths.__getitem__):
        members = list(group)
        yield from (members[k : k + size] for k in range(0, len(members), size))


class _Emission(torch.autograd.Function):
    """The log-probabilities of some words, (B, n, P); the table of all words is never normalised as a whole."""

    @staticmethod
    def forward(ctx: Any, words: Tensor, preterminals: Tensor, ids: Tensor) -> Tensor:
        words, preterminals = words.bfloat16(), preterminals.bfloat16()
        logits = words @ preterminals.T
        top = logits.amax(0).float()
        weights = (logits.float() - top).exp_()  # proportional to the probabilities, (V, P)
        total = weights.sum(0)
        ctx.save_for_backward(words, preterminals, ids, weights, total)
        return logits[ids].float() - (top + total.log())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        words, preterminals, ids, weights, total = ctx.saved_tensors
        d = weights.mul_(-gradient.sum((0, 1)) / total).index_add_(0, ids.flatten(), gradient.flatten(0, 1)).bfloat16()
        return (d @ preterminals).float(), (d.T @ words).float(), None


class _Residual(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.second(self.first(x).relu()).relu()
        return x + change


def _normal(deviation: float, *sizes: int) -> Tensor:
    """Return normally distributed numbers; none on the device "meta", where torch would load its compiler for them."""
    numbers = torch.empty(*sizes)
    return numbers if numbers.is_meta else deviation * numbers.normal_()


def _network(size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, size), _Residual(size), _Residual(size))
