"""Inside and outside: enumeration of all trees, golden values of four kinds of grammar, gradcheck, the C++ kernel."""

import math
from functools import cache

import pytest
import torch

from golden_files import GOLDEN, load_golden
from onlstm.kernels import build, chart
from onlstm.kernels.chart import Rules, inside, log_likelihood, posteriors, viterbi

NAMES = sorted(path.stem for path in (GOLDEN / "pcfg").glob("*.npz"))


def simple(N=3, P=4, dtype=torch.float64, seed=0, contrast=2.0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return (contrast * torch.randn(*shape, generator=generator, dtype=torch.float64)).log_softmax(-1)

    return Rules(root=draw(N).to(dtype), left=draw(N, N + P).to(dtype), right=draw(N, N + P).to(dtype))


def sentences(B, n, P, dtype=torch.float64, seed=0):
    """Emissions and scores of sentences."""
    generator = torch.Generator().manual_seed(seed)
    emission = 3 * torch.randn(B, n, P, generator=generator, dtype=torch.float64) - 8
    return emission.to(dtype), 2 * torch.rand(B, n + 1, n + 1, generator=generator, dtype=torch.float64).to(dtype)


def table(rules):
    """The same grammar as a table of all its rules."""
    return Rules(root=rules.root, rule=rules.left[:, :, None] + rules.right[:, None, :])


# ------------------------------------------------------------------------------------------------------- enumeration


@cache
def all_trees(i, j):
    """Every binary tree over [i, j), as a tuple of the spans of two words or more."""
    if j - i == 1:
        return ((),)
    return tuple(
        ((i, j), *left, *right) for k in range(i + 1, j) for left in all_trees(i, k) for right in all_trees(k, j)
    )


def tree_score(spans, rule, root, emission, scores, total):
    """The log of the total, over all labels, of the probability of one tree and the words, with the spans' scores."""
    N = len(root)
    starts = {(i, j): sorted(k for a, k in spans if a == i and k < j) for i, j in spans}

    def labels(i, j):
        low = torch.full((rule.shape[-1],), -math.inf, dtype=rule.dtype)
        if j - i == 1:
            low[N:] = emission[i]
            return low
        k = starts[i, j][-1] if starts[i, j] else i + 1
        pairs = rule + labels(i, k)[:, None] + labels(k, j)[None, :]
        low[:N] = total(pairs.flatten(1), 1) + scores[i, j]
        return low

    return total((labels(0, len(emission))[:N] + root), 0)


@pytest.mark.parametrize("tilted", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_all_trees_counted_one_by_one(n, tilted):
    rules = simple()
    emission, scores = sentences(2, n, 4)
    scores = scores if tilted else torch.zeros_like(scores)
    trees = all_trees(0, n)
    assert len(trees) == math.comb(2 * n - 2, n - 1) // n  # Catalan
    for b in range(2):
        for total, read in ((torch.logsumexp, posteriors), (chart.best, viterbi)):
            logs = torch.stack(
                [tree_score(tree, table(rules).rule, rules.root, emission[b], scores[b], total) for tree in trees]
            )
            result = read(rules, emission[b : b + 1], scores[b : b + 1])
            assert result.log_z.item() == pytest.approx(total(logs, 0).item(), abs=1e-12)
            weights = logs.softmax(0) if read is posteriors else torch.eye(len(trees))[logs.argmax()]
            expected = torch.zeros(n + 1, n + 1, dtype=torch.float64)
            for tree, weight in zip(trees, weights, strict=True):
                for i, j in tree:
                    expected[i, j] += weight
            torch.testing.assert_close(result.spans[0].triu(2), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tilted", [False, True])
def test_factors_and_their_table_are_the_same_grammar(tilted):
    rules = simple(4, 5)
    emission, scores = sentences(3, 7, 5)
    scores = scores if tilted else None
    head = torch.full((4, 4), -1e30, dtype=torch.float64).fill_diagonal_(0)
    headed = Rules(root=rules.root, left=rules.left, right=rules.right, head=head)
    for same in (table(rules), headed):
        torch.testing.assert_close(inside(rules, emission, scores), inside(same, emission, scores), rtol=0, atol=1e-12)
        for part, other in zip(posteriors(rules, emission, scores), posteriors(same, emission, scores), strict=True):
            torch.testing.assert_close(part, other, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------------ golden values


@pytest.mark.parametrize("name", NAMES)
def test_golden(name):
    golden = load_golden(f"pcfg/{name}.npz")
    dims = {"root": 1, "rule": 3, "emission": 2, "left": 2, "right": 2, "head": 2}
    tables = {key: golden[key].requires_grad_() for key in dims if key in golden}
    total = torch.zeros((), dtype=torch.float64)
    ends = golden["lengths"].cumsum(0).tolist()
    for k, words in enumerate(golden["words"].tensor_split(ends[:-1])):
        own = {
            key: value if value.dim() == dims[key] else value[min(k, len(value) - 1)] for key, value in tables.items()
        }
        emission = own.pop("emission")[:, words].T[None]
        rules = Rules(**own | {side: own[side].T for side in ("left", "right") if side in own})
        total = total + inside(rules, emission).sum()
        result = posteriors(rules, emission)
        assert result.log_z.item() == pytest.approx(golden["logZ"][k].item(), abs=1e-10)
        expected = golden[f"marginal.{k}"].triu(2)
        torch.testing.assert_close(result.spans[0].triu(2), expected, rtol=0, atol=1e-10)
        if "viterbi_score" in golden:
            tree = viterbi(rules, emission)
            assert tree.log_z.item() == pytest.approx(golden["viterbi_score"][k].item(), abs=1e-10)
            assert tree.spans[0].triu(2).sum() == len(words) - 1
    mean = total / len(ends)
    for key, gradient in zip(tables, torch.autograd.grad(mean, list(tables.values())), strict=True):
        torch.testing.assert_close(gradient, golden[f"grad_{key}"], rtol=0, atol=1e-10)


# -------------------------------------------------------------------------------------------------------- the kernel


@pytest.fixture
def kernel():
    assert build.load("chart"), "the C++ kernel did not build here"


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setitem(build._loaded, "chart", False)


@pytest.fixture
def poisoned_memory():
    """Memory that a kernel takes and does not write reads as NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


SHAPES = [(1, 1, 1, 2), (2, 3, 1, 3), (3, 4, 5, 2), (5, 7, 3, 6), (16, 33, 17, 9), (33, 20, 40, 12), (64, 64, 3, 40)]


@pytest.mark.usefixtures("kernel", "poisoned_memory")
@pytest.mark.parametrize("tilted", [False, True])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 3e-5)])
@pytest.mark.parametrize(("N", "P", "B", "n"), SHAPES)
def test_the_kernel_computes_values_and_every_gradient_of_the_reference(N, P, B, n, dtype, atol, tilted):
    rules = simple(N, P, dtype)
    emission, scores = sentences(B, n, P, dtype)
    scores = scores if tilted else None
    exact_scores = scores.double() if tilted else None
    exact = [x.double().requires_grad_() for x in (rules.root, rules.left, rules.right, emission)]
    log_z = inside(Rules(root=exact[0], left=exact[1], right=exact[2]), exact[3], exact_scores)
    expected = torch.autograd.grad(log_z.sum(), exact)
    fused = [x.clone().requires_grad_() for x in (rules.root, rules.left, rules.right, emission)]
    total, each = log_likelihood(Rules(root=fused[0], left=fused[1], right=fused[2]), fused[3], scores)
    torch.testing.assert_close(each.double(), log_z.detach(), rtol=0, atol=atol)
    assert total.item() == pytest.approx(each.sum().item(), rel=1e-6)
    for gradient, reference in zip(torch.autograd.grad(2 * total, fused), expected, strict=True):
        torch.testing.assert_close(
            gradient.double() / 2, reference, rtol=1e-4 if dtype == torch.float32 else 0, atol=atol
        )
    result = posteriors(rules, emission, scores)
    detached = Rules(root=exact[0].detach(), left=exact[1].detach(), right=exact[2].detach())
    reference = chart._differentiated(detached, exact[3].detach(), exact_scores, torch.logsumexp)
    torch.testing.assert_close(result.spans.double(), reference.spans, rtol=0, atol=atol)
    assert torch.equal(result.labels, reference.labels)


@pytest.mark.skipif(not chart.has_bfloat16(), reason="this processor does not multiply in bfloat16")
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize(("N", "P", "B", "n"), SHAPES)
def test_bfloat16_is_off_by_its_rounding(N, P, B, n):
    """Rounding a factor is an error of 2^-9 at most; a posterior is a ratio of sums of products of them."""
    rules, (emission, scores) = simple(N, P, torch.float32), sentences(B, n, P, torch.float32)
    leaves = [x.clone().requires_grad_() for x in (rules.root, rules.left, rules.right, emission)]
    results = []
    for narrow in (False, True):
        own = Rules(root=leaves[0], left=leaves[1], right=leaves[2])
        total, log_z = log_likelihood(own, leaves[3], scores, narrow=narrow)
        results.append((log_z, *torch.autograd.grad(total, leaves)))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=0, atol=2 * n * 2**-9)
    for rounded, exact in zip(results[1][1:], results[0][1:], strict=True):
        assert (rounded - exact).norm() <= 0.01 * exact.norm()


@pytest.mark.usefixtures("no_kernel")
def test_without_the_kernel_the_reference_serves():
    rules, (emission, scores) = simple(4, 5), sentences(2, 5, 5)
    left = rules.left.clone().requires_grad_()
    total, _ = log_likelihood(Rules(root=rules.root, left=left, right=rules.right), emission, scores)
    (gradient,) = torch.autograd.grad(total, left)
    assert gradient.sum().item() == pytest.approx(2 * 4)  # n - 1 rules are used in each sentence


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("tilted", [False, True])
def test_gradcheck(tilted):
    emission, scores = sentences(2, 4, 3)
    rules = simple(2, 3)

    def likelihood(root, left, right, emission):
        return log_likelihood(Rules(root=root, left=left, right=right), emission, scores if tilted else None)[0]

    leaves = [x.clone().requires_grad_() for x in (rules.root, rules.left, rules.right, emission)]
    assert torch.autograd.gradcheck(likelihood, leaves)


@pytest.mark.usefixtures("kernel")
def test_the_number_of_threads_changes_no_digit():
    rules, (emission, scores) = simple(40, 30, torch.float32), sentences(50, 15, 30, torch.float32)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        left = rules.left.clone().requires_grad_()
        total, log_z = log_likelihood(Rules(root=rules.root, left=left, right=rules.right), emission, scores)
        results.append((log_z, torch.autograd.grad(total, left)[0]))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.usefixtures("kernel")
def test_improbable_words_and_certain_rules_stay_finite():
    """Probabilities far beyond what float32 holds, as e^-3000 of a sentence, and rules of exactly 0 and 1."""
    rules = simple(8, 8, torch.float32, contrast=200.0)
    emission, _ = sentences(2, 30, 8, torch.float32)
    emission = emission - 100
    left = rules.left.clone().requires_grad_()
    total, log_z = log_likelihood(Rules(root=rules.root, left=left, right=rules.right), emission)
    exact = inside(
        Rules(root=rules.root.double(), left=rules.left.double(), right=rules.right.double()), emission.double()
    )
    torch.testing.assert_close(log_z.double(), exact, rtol=1e-4, atol=0)
    assert torch.autograd.grad(total, left)[0].isfinite().all()
