"""Inside and outside: every tree of a sentence at once, under a probabilistic grammar in Chomsky normal form.

Nonterminals derive spans of two words or more, preterminals derive single words. Rules come as a table, or as a product
of factors; all of them, and the emissions, are log-probabilities. The gradient of log Z with respect to them is their
expected number of uses, and with respect to the score of a span, its posterior: so one backward pass is the outside
algorithm. `inside` is the definition, under autograd, in any precision and for any rules; simple grammars have a C++
kernel, chart.cpp.

    P(A→BC) = rule[A,B,C]                              a table: small grammars
    P(A→BC) = Σ_r head[A,r] left[r,B] right[r,C]       TN-PCFG (Yang et al. 2021)
    P(A→BC) = left[A,B] right[A,C]                     Simple PCFG (Liu et al. 2023): r is A itself
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onlstm.kernels import build

Total = Callable[[Tensor, int], Tensor]
"""How derivations add up: `torch.logsumexp` for all of them, `best` for the best one."""


def best(x: Tensor, dim: int) -> Tensor:
    """Return the maximum along a dimension; its gradient goes to one of the maxima."""
    return x.max(dim).values


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Log-probabilities of a grammar's rules; symbols are numbered nonterminals first, then preterminals.

    Any of them may have a first dimension for the sentences of a batch.
    """

    root: Tensor
    """(N): the symbol of the whole sentence."""
    left: Tensor | None = None
    right: Tensor | None = None
    """(R, N + T): the left and the right child, independent given r."""
    head: Tensor | None = None
    """(N, R): r given the parent; None: r is the parent."""
    rule: Tensor | None = None
    """(N, N + T, N + T): both children given the parent; then there is none of the others."""


class Posteriors(NamedTuple):
    """What a grammar says about a batch of sentences of n words."""

    log_z: Tensor
    """(B): log-probability of each sentence, with its spans' scores if there are any."""
    spans: Tensor
    """(B, n + 1, n + 1): probability that [i, j) is a constituent, of two words or more."""
    labels: Tensor
    """(B, n + 1, n + 1): the likeliest symbol of each span; for single words, a preterminal from 0; else -1."""


def inside(
    rules: Rules, emission: Tensor, scores: Tensor | None = None, total: Total = torch.logsumexp, taps: Any = None
) -> Tensor:
    """Return log Z (B) of sentences of equal length, Z = Σ over all trees of P(tree, words) e^(its spans' scores).

    Args:
        emission: (B, n, T), log-probability of each word given each preterminal.
        scores: (B, n + 1, n + 1), a score for each span of two words or more, which tilts the distribution of trees.
        taps: zeros by width, (B, n - width + 1, symbols) each, added to the chart: their gradients are posteriors.
    """
    (_, n, _), N = emission.shape, rules.root.shape[-1]
    chart = {1: emission if taps is None else emission + taps[1]}
    sides: dict[int, tuple[Tensor, Tensor]] = {}
    for width in range(2, n + 1):
        if rules.rule is None:
            assert rules.left is not None
            assert rules.right is not None
            symbols = slice(N, None) if width == 2 else slice(0, N)
            narrower = chart[width - 1]
            left, right = (_product(narrower, side[..., symbols], total) for side in (rules.left, rules.right))
            sides[width - 1] = left, right
            lefts = [sides[k][0][:, : n - width + 1] for k in range(1, width)]
            rights = [sides[width - k][1][:, k : k + n - width + 1] for k in range(1, width)]
            parents = total(torch.stack(lefts) + torch.stack(rights), 0)
            parents = parents if rules.head is None else _product(parents, rules.head, total)
        else:
            parents = _table_parents(rules.rule, chart, n, width, N, total)
        if scores is not None:
            parents = parents + scores.diagonal(width, -2, -1)[..., None]
        chart[width] = parents if taps is None else parents + taps[width]
    return total(chart[n][:, 0] + rules.root, -1)


def _product(x: Tensor, table: Tensor, total: Total) -> Tensor:
    """Return (B, p, R), the total over symbols S of x (B, p, S) + table (..., R, S)."""
    if total is not torch.logsumexp:
        return total(x[..., None, :] + table[..., None, :, :], -1)
    top = x.amax(-1, keepdim=True).detach()
    return ((x - top).exp() @ table.exp().mT).log() + top


def _table_parents(rule: Tensor, chart: dict[int, Tensor], n: int, width: int, N: int, total: Total) -> Tensor:
    """Return (B, n - width + 1, N): every split of every span, every pair of children."""
    splits = []
    for k in range(1, width):
        b, c = (slice(N, None) if w == 1 else slice(0, N) for w in (k, width - k))
        left, right = chart[k][:, : n - width + 1, :, None], chart[width - k][:, k : k + n - width + 1, None, :]
        pairs = (left + right)[..., None, :, :] + rule[..., None, :, b, c]
        splits.append(total(pairs.flatten(-2), -1))
    return total(torch.stack(splits), 0)


def posteriors(rules: Rules, emission: Tensor, scores: Tensor | None = None) -> Posteriors:
    """Return log Z, span posteriors and labels; of a simple grammar on a CPU, by the C++ kernel."""
    if _fused(rules, emission):
        return _chart(rules, emission, scores, labels=True)[0]
    return _differentiated(rules, emission, scores, torch.logsumexp)


def viterbi(rules: Rules, emission: Tensor, scores: Tensor | None = None) -> Posteriors:
    """Return the log-probability of the best tree, and its spans (1, all others 0) and labels."""
    return _differentiated(rules, emission, scores, best)


def _differentiated(rules: Rules, emission: Tensor, scores: Tensor | None, total: Total) -> Posteriors:
    (B, n, T), N = emission.shape, rules.root.shape[-1]
    with torch.enable_grad():
        taps = {1: emission.new_zeros(B, n, T).requires_grad_()}
        taps |= {width: emission.new_zeros(B, n - width + 1, N).requires_grad_() for width in range(2, n + 1)}
        log_z = inside(rules, emission.detach(), scores, total, taps)
        gradients = torch.autograd.grad(log_z.sum(), list(taps.values()))
    spans, labels = emission.new_zeros(B, n + 1, n + 1), torch.full((B, n + 1, n + 1), -1)
    for width, gradient in enumerate(gradients, start=1):
        spans.diagonal(width, 1, 2)[:] = gradient.sum(-1)
        labels.diagonal(width, 1, 2)[:] = gradient.argmax(-1)
    return Posteriors(log_z.detach(), spans, labels)


def _fused(rules: Rules, emission: Tensor) -> bool:
    """Return whether the C++ kernel can do it."""
    simple = rules.left is not None and rules.left.dim() == 2 and rules.head is None
    return simple and emission.device.type == "cpu" and emission.shape[1] > 1 and build.load("chart")


def has_bfloat16() -> bool:
    """Return whether the C++ kernel can multiply in bfloat16 here, twice as fast."""
    return build.has_bfloat16("chart")


def _chart(
    rules: Rules, emission: Tensor, scores: Any, *, labels: bool = False, counts: bool = False, narrow: bool = False
) -> tuple[Posteriors, tuple[Tensor, ...]]:
    """Return the posteriors, and the expected uses of rules and emissions.

    Those are shaped as root, left, right and emission are, the first three summed over the sentences.
    """
    assert rules.left is not None
    assert rules.right is not None
    N = rules.root.shape[-1]
    root, sides = rules.root.exp(), torch.cat((rules.left, rules.right)).exp()
    scores = None if scores is None else scores.contiguous()
    log_z, spans, names, d_root, d_sides, words = torch.ops.onlstm_chart.chart(
        root, sides, emission.contiguous(), scores, counts, labels, narrow
    )
    d_sides *= sides
    return Posteriors(log_z, spans, names), (d_root, d_sides[:N], d_sides[N:], words) if counts else ()


class _LogLikelihood(torch.autograd.Function):
    """The sum of log Z over a batch, by the C++ kernel, whose gradient is known as soon as its value."""

    @staticmethod
    def forward(
        ctx: Any, root: Tensor, left: Tensor, right: Tensor, emission: Tensor, scores: Any, narrow: bool
    ) -> Any:
        rules = Rules(root=root, left=left, right=right)
        chart, counts = _chart(rules, emission, scores, counts=True, narrow=narrow)
        ctx.save_for_backward(*counts)
        ctx.mark_non_differentiable(chart.log_z)
        return chart.log_z.sum(), chart.log_z

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
        return *(gradient * count for count in ctx.saved_tensors), None, None


def log_likelihood(
    rules: Rules, emission: Tensor, scores: Tensor | None = None, *, narrow: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the sum of log Z over the sentences, to take the gradient of, and log Z (B) of each.

    That is `inside`; of a simple grammar on a CPU it is computed, with its gradient, by the C++ kernel. There, `narrow`
    rounds the factors of its products to bfloat16.
    """
    if _fused(rules, emission):
        likelihood: Any = _LogLikelihood.apply
        total, log_z = likelihood(rules.root, rules.left, rules.right, emission, scores, narrow)
        return total, log_z
    log_z = inside(rules, emission, scores)
    return log_z.sum(), log_z.detach()
