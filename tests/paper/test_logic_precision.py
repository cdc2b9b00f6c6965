"""Logic in bfloat16: gradients are nearly those of float64, evaluation stays in float32, and float32 is as it was."""

import copy
import weakref

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from onlstm.kernels import build
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import ModelConfig, TrainConfig
from onlstm.paper.logic.embedded import hidden, parents
from onlstm.paper.logic.encoders import ENCODERS
from onlstm.paper.logic.generate import generate
from onlstm.paper.logic.linear import Linear, Repeated, linear
from onlstm.paper.logic.rrnet import Stacks
from onlstm.paper.logic.training import ClassifierTraining
from onlstm.train.precision import round_products

BFLOAT16 = pytest.mark.skipif(not build.has_bfloat16(), reason="this processor does not multiply in bfloat16")
PROBLEMS = Problems.of([pair for n, pairs in generate(600, seed=3).items() for pair in pairs[:8] if n <= 6])
BATCH = PROBLEMS.batch(np.arange(len(PROBLEMS)))
SIZES = {"ordered-memory": {"embedding_size": 200, "hidden_size": 200}}


def one_step(encoder, numbers):
    """Return what a token makes of RRNet's states and stacks, a third of the formulas with each action."""
    stacks = Stacks(numbers(99, 2, 400), torch.ones(99, dtype=torch.long))
    h, c, stacks = encoder.layers().step(
        numbers(99, 128), numbers(99, 400), numbers(99, 400), stacks, torch.arange(99) % 3
    )
    return torch.cat([h, c, stacks.content.flatten(1)], -1)


def composed(layer, numbers, **bias):
    """Return parents of given nodes, the product of their gates known before."""
    left, right = numbers(2, 100, 800)
    with torch.no_grad():
        gates = layer(hidden(left, right))
    return parents(left, right, Repeated(layer)(hidden(left, right), gates), **bias)[0]


GIVEN = {
    "gumbel-tree-lstm": lambda encoder, numbers: composed(encoder.compose, numbers, forget=1),
    "rrnet": one_step,
    "rl-spinn": lambda encoder, numbers: composed(encoder.gates, numbers),
}
"""Rounding may change the trees that encoders choose, so of these a composition of given nodes."""


def classifier(encoder):
    torch.manual_seed(0)
    return Classifier(ModelConfig(encoder=encoder, dropout=0.0, **SIZES.get(encoder, {})))


def gradient(name, encoder):
    """Return the gradient of a random function of the states, as one vector in float64."""
    dtype, random = encoder.embedding.weight.dtype, torch.Generator().manual_seed(0)
    if name in GIVEN:
        states = GIVEN[name](encoder, lambda *shape: torch.randn(shape, generator=random).tanh().to(dtype))
    else:
        states = encoder(BATCH.formulas)
    weights = torch.randn(states.shape, generator=random).to(dtype)
    parts = torch.autograd.grad((states * weights).sum(), encoder.parameters(), materialize_grads=True)
    return torch.cat([part.flatten() for part in parts]).double()


@BFLOAT16
@pytest.mark.parametrize("name", ENCODERS)
def test_gradients_are_nearly_those_of_float64(name):
    narrow = classifier(name).encoder
    exact = gradient(name, copy.deepcopy(narrow).double())
    round_products(narrow)
    assert 1e-4 < (gradient(name, narrow) - exact).norm() / exact.norm() < 0.01


@BFLOAT16
def test_a_product_rounds_its_factors_and_those_of_its_gradients():
    x, weight, bias = torch.randn(60, 80, requires_grad=True), torch.randn(40, 80, requires_grad=True), torch.randn(40)
    d = torch.randn(60, 40)
    y = linear(x, weight, bias, narrow=True)
    d_x, d_weight = torch.autograd.grad(y, (x, weight), d)
    x, weight, d = (factor.detach().bfloat16().double() for factor in (x, weight, d))
    for found, exact in ((y - bias, x @ weight.T), (d_x, d @ weight), (d_weight, d.T @ x)):
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)  # sums are not rounded
        assert found.dtype == torch.float32


@BFLOAT16
@pytest.mark.parametrize("name", ENCODERS)
def test_evaluation_stays_in_float32(name):
    full = Classifier(ModelConfig(encoder=name, embedding_size=8, hidden_size=12, chunk_size=4))
    narrow = copy.deepcopy(full)
    round_products(narrow)
    assert torch.equal(full.logits(PROBLEMS), narrow.logits(PROBLEMS))


@pytest.mark.parametrize("name", ENCODERS)
def test_float32_rounds_nothing(name, tmp_path):
    config = ModelConfig(encoder=name, embedding_size=8, hidden_size=12, chunk_size=4)
    model = ClassifierTraining(Classifier(config), PROBLEMS, PROBLEMS, TrainConfig(), tmp_path).model
    assert not any(getattr(part, "narrow", False) for part in model.modules())


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 2e-6), (torch.float64, 1e-15)])
def test_a_linear_layer_is_torchs(dtype, off):
    layer, x, d = (
        Linear(80, 40).to(dtype),
        torch.randn(60, 3, 80, dtype=dtype, requires_grad=True),
        torch.randn(60, 3, 40),
    )
    own, plain = layer(x), F.linear(x, layer.weight, layer.bias)
    gradients = (torch.autograd.grad(y, (x, *layer.parameters()), d.to(dtype)) for y in (own, plain))
    for found, expected in ((own, plain), *zip(*gradients, strict=True)):
        assert found.shape == expected.shape
        assert (found - expected).norm() <= off * expected.norm()


def test_a_repeated_layer_is_the_layer():
    layer, inputs = Linear(7, 5).double(), [torch.randn(n, 7).double().requires_grad_() for n in (3, 1, 6)]

    def chained(apply):
        """Return a function of the layer's products, of which one has another's in its input."""
        a, b, c = inputs
        first = apply(a)
        second = apply(torch.cat([first.sum(0, keepdim=True).tanh(), b[:, :2]], 1))
        value = (first.sin().sum() + 2 * second.cos().sum() + 3 * apply(c).sin().sum()).exp()
        return value, *torch.autograd.grad(value, (*inputs, *layer.parameters()))

    repeated = Repeated(layer)
    for found, expected in zip(chained(repeated), chained(layer), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    with torch.no_grad():
        product = layer(inputs[0])
    (found,) = torch.autograd.grad(repeated(inputs[0], product).sin().sum(), layer.weight)
    (expected,) = torch.autograd.grad(layer(inputs[0]).sin().sum(), layer.weight)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)  # and nothing is left of the pass before


@pytest.mark.parametrize("narrow", [False, pytest.param(True, marks=BFLOAT16)])
def test_a_layer_that_reads_nothing_learns_nothing(narrow):
    """As when no formula of a batch takes an action of RRNet's; memory that is not written reads as NaN."""
    layer = Linear(5, 3)
    layer.narrow = narrow
    torch.use_deterministic_algorithms(True)
    try:
        for apply in (layer, Repeated(layer)):
            gradients = torch.autograd.grad(apply(torch.empty(0, 5)).sum(), layer.parameters())
            assert not any(gradient.any() for gradient in gradients)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_repeated_layer_is_freed_with_its_graph():
    """A cycle through autograd's nodes is invisible to Python's garbage collector."""
    repeated = Repeated(Linear(4, 4))
    uses = weakref.ref(repeated._uses)
    value = repeated(repeated(torch.ones(2, 4))).sum()
    value.backward()
    del repeated, value
    assert uses() is None
