"""The compositions of Ordered Memory: the C++ kernel against the definition, values and every gradient."""

import weakref

import pytest
import torch
from torch.autograd import gradcheck

from onlstm.kernels import build, composition
from onlstm.kernels.composition import Pass, Weights
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.ordered_memory import OrderedMemory
from onlstm.train.precision import round_products

pytestmark = pytest.mark.skipif(not build.load("composition"), reason="the C++ kernel could not be built")
BFLOAT16 = pytest.mark.skipif(not build.has_bfloat16("composition"), reason="this processor has no bfloat16")
SHAPES = [(1, 1, 1), (1, 4, 3), (5, 1, 7), (6, 3, 16), (43, 2, 33), (100, 5, 20)]
"""Formulas, slots, neurons; a product keeps 42 rows in the cache."""
ROWS = 1000
"""At most so many slots of formulas in a pass."""


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Memory that a kernel takes and does not write reads as NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def encoder(D, dtype=torch.double, p=0.0, scale=1.0):
    torch.manual_seed(0)
    module = OrderedMemory(ModelConfig(encoder="ordered-memory", embedding_size=3, hidden_size=D, dropout=p)).double()
    with torch.no_grad():
        for parameter in [*module.cell.parameters(), *module.norm.parameters()]:
            parameter.uniform_(-scale, scale)
    return module.to(dtype)


def inputs(R, n, D, dtype=torch.double):
    x, M, up = (2 * torch.rand(shape, dtype=torch.double) - 1 for shape in ((R, D), (R, n, D), (R, n)))
    return [part.to(dtype).requires_grad_() for part in (x, M, up.abs())]


def weights(module):
    """In the order of `Weights`."""
    return [*module.cell.parameters(), *module.norm.parameters()]


def outputs(compose, module, *calls):
    """Return what calls of `compose` return, and every gradient of a function of that."""
    returned = [part for parts in calls for part in compose(*parts)]
    value = sum((k * part.sin()).sum() for k, part in enumerate(returned, 1))
    return *(part.detach() for part in returned), *torch.autograd.grad(
        value, [*(part for parts in calls for part in parts), *weights(module)]
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("R", "n", "D"), SHAPES)
def test_values_and_every_gradient(R, n, D, threads):
    module = encoder(D)
    calls = inputs(R, n, D), inputs(max(1, R // 2), n + 1, D)
    expected = outputs(module.compose, module, *calls)
    torch.set_num_threads(threads)
    try:
        found = outputs(module.fused(ROWS), module, *calls)
    finally:
        torch.set_num_threads(1)
    for own, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(own, plain, rtol=0, atol=1e-11)


def test_float32_is_nearly_float64():
    exact, parts = encoder(33), inputs(43, 5, 33)
    narrow = encoder(33, torch.float32)
    rounded = [part.detach().float().requires_grad_() for part in parts]
    found, expected = outputs(narrow.fused(ROWS), narrow, rounded), outputs(exact.compose, exact, parts)
    for own, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(own.double(), plain, rtol=1e-5, atol=1e-5 * float(plain.abs().max()))


@BFLOAT16
@pytest.mark.parametrize(("R", "n", "D"), [(1, 1, 33), (43, 3, 32), (100, 5, 21)])
def test_bfloat16_is_no_farther_off_than_the_definition_with_rounded_factors(R, n, D):
    module, parts = encoder(D, torch.float32, scale=0.2), inputs(R, n, D, torch.float32)
    exact = outputs(module.compose, module, parts)
    round_products(module)
    for own, plain, right in zip(
        *(outputs(way, module, parts) for way in (module.fused(ROWS), module.compose)), exact, strict=True
    ):
        assert own.dtype == torch.float32
        off, plainly = (float((x - right).norm() / right.norm()) for x in (own, plain))
        assert 1e-5 < off < 1.2 * plainly + 2**-9


@pytest.mark.parametrize("p", [0.1, 0.6])
def test_gradients_with_dropout_are_those_of_the_same_masks(p):
    module, parts = encoder(3, p=p), inputs(2, 2, 3)

    def composed(x, M, up, *values):
        torch.manual_seed(3)
        return Pass(Weights(*values), module.norm.eps, p, ROWS)(x, M, up)

    assert gradcheck(composed, (*parts, *weights(module)))


def identity(D):
    """Weights whose hidden layer is the input, and whose u is its first number."""
    w_2 = torch.zeros(4 * D, 4 * D)
    w_2[3 * D :, 0] = 1
    return Weights(torch.eye(4 * D, 2 * D), torch.zeros(4 * D), w_2, torch.zeros(4 * D), torch.ones(D), torch.zeros(D))


def test_dropout_is_drawn_anew_for_every_number_and_scaled():
    D, R, n, p = 2, 4000, 3, 0.4
    cell = torch.classes.onlstm_composition.Cell(*identity(D), 1e-5, p, False)
    x, M, up = torch.ones(R, D), torch.zeros(R, n, D), torch.zeros(R, n)

    def u(seed):
        gates = cell.forward(x, M, up, seed, [torch.empty(n * R, width * D) for width in (2, 4)])[1]
        return gates[:, 3 * D].view(n, R)

    first, second = u(7), u(8)
    assert sorted(set(first.flatten().tolist())) == pytest.approx([0, 1 / 0.36])
    assert (first > 0).double().mean(1).tolist() == pytest.approx([0.36] * n, abs=0.03)
    assert abs(torch.corrcoef(torch.cat([first, second]))).fill_diagonal_(0).max() < 0.06, "slots and seeds"
    assert torch.equal(u(7), first)
    assert torch.equal(u(None), torch.ones(n, R))


def test_dropout_has_no_patterns_along_a_row():
    D, R, p = 64, 500, 0.5
    weights = identity(D)._replace(w_1=torch.cat([torch.eye(2 * D), torch.eye(2 * D)]))
    cell = torch.classes.onlstm_composition.Cell(*weights, 1e-5, p, False)
    input, hidden = torch.empty(R, 2 * D), torch.empty(R, 4 * D)
    cell.forward(torch.ones(R, D), torch.ones(R, 1, D), torch.zeros(R, 1), 5, [input, hidden])
    kept = torch.cat([input, hidden[:, 2 * D :]], 1) > 0  # the second half: dropped before either layer
    share = torch.cat([torch.full((2 * D,), 0.5), torch.full((2 * D,), 0.25)])
    assert float((kept.double().mean(0) - share).abs().max()) < 0.09  # four deviations
    off = torch.corrcoef(kept[:, : 2 * D].double().T).fill_diagonal_(0).abs()
    assert float(off.max()) < 0.25  # of 16,256 pairs of columns
    assert float(off.mean()) == pytest.approx((2 / torch.pi / R) ** 0.5, rel=0.05)


def test_a_pass_is_freed_with_its_graph():
    """A cycle through autograd's nodes is invisible to Python's garbage collector."""
    module, parts = encoder(4), inputs(3, 2, 4)
    calls = module.fused(ROWS)
    cell = weakref.ref(calls._cell)
    value = torch.stack([part.sum() for part in calls(*parts)]).sum()
    value.backward()
    del calls, value
    assert cell() is None


@pytest.mark.parametrize("D", [3, 16])
def test_calls_that_nothing_depends_on_have_no_share_in_gradients(D):
    module, calls = encoder(D), [inputs(5, n, D) for n in (1, 2, 3)]

    def gradients(compose, used):
        value = sum([[part.sin().sum() for part in compose(*parts)][1] for parts in calls][k] for k in used)
        return torch.autograd.grad(value, weights(module))

    for used in ((0, 2), (1,)):
        for own, plain in zip(*(gradients(way, used) for way in (module.fused(ROWS), module.compose)), strict=True):
            torch.testing.assert_close(own, plain, rtol=0, atol=1e-11)


def test_a_graph_can_be_gone_through_twice():
    module, parts = encoder(7), inputs(9, 3, 7)
    value = sum(part.sin().sum() for part in module.fused(ROWS)(*parts))
    first, second = (torch.autograd.grad(value, weights(module), retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_without_gradients_nothing_is_saved_and_values_are_the_same(p):
    module, parts = encoder(20, p=p), inputs(50, 3, 20)
    calls = module.fused(ROWS)
    torch.manual_seed(2)
    with_gradients = calls(*parts)
    torch.manual_seed(2)
    with torch.no_grad():
        lean = module.fused(ROWS)
        without = lean(*(part.detach() for part in parts))
    assert all(map(torch.equal, without, with_gradients))
    assert (calls._cell.calls, lean._cell.calls) == (1, 0)
    _, *saved = calls._cell.kernel.forward(*(part.detach() for part in parts), None, [])
    assert max(tensor.numel() for tensor in saved) <= 50


def test_threads_change_no_value():
    module, parts = encoder(20, torch.float32, p=0.3), inputs(100, 3, 20, torch.float32)
    values = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(4)
        values.append(module.fused(ROWS)(*parts))
    torch.set_num_threads(1)
    assert all(map(torch.equal, *values))


def test_what_does_not_fit_is_refused():
    module, (x, M, up) = encoder(6), [part.detach() for part in inputs(5, 2, 6)]
    calls = module.fused(ROWS)
    for wrong, name in (((x[:, :4], M, up), "x"), ((x, M[..., :4], up), "x|M"), ((x, M, up[:, :1]), "up")):
        with pytest.raises(RuntimeError, match=rf"({name}): a contiguous tensor of size .* and type .* is needed"):
            calls(*wrong)
    with pytest.raises(RuntimeError, match="x: a contiguous tensor"):
        calls(x.float(), M, up)
    with pytest.raises(RuntimeError, match="w_2: a contiguous tensor"):
        Pass(Weights(*weights(module))._replace(w_2=torch.zeros(3, 3).double()), 1e-5, 0.0, ROWS)
    with pytest.raises(RuntimeError, match="input: room for 10 rows of 12 factors is needed"):
        module.fused(0)(x.requires_grad_(), M, up)


def test_other_devices_and_types_have_the_definition():
    assert composition.fused(torch.zeros(1))
    assert not composition.fused(torch.zeros(1, dtype=torch.bfloat16))
    assert not composition.fused(torch.zeros(1, device="meta"))
