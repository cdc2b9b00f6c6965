"""Copies, pickles, torch.compile, torch.export, torch.jit and torch.func take the layer as they take nn.LSTM."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
from torch.nn.utils.rnn import pack_sequence
from torch.testing import assert_close

from onlstm import ONLSTM, ONLSTMCell
from small_layers import both, layer, words


@both
def test_second_derivatives(backend):
    leaves = [words(3, 2, 5).requires_grad_(), words(1, 2, 12).requires_grad_(), words(1, 2, 12).requires_grad_()]
    ours = layer(backend)

    def outputs(x, h, c):
        output, (h_n, c_n), distances = ours.scan(x, (h, c))
        return output, h_n, c_n, *distances

    assert torch.autograd.gradcheck(outputs, leaves)
    assert torch.autograd.gradgradcheck(outputs, leaves, fast_mode=True)


@both
def test_functional_call_uses_the_weights_it_is_given(backend):
    ours, other, x = layer(backend), layer(backend), words(4, 2, 5)
    result = torch.func.functional_call(ours, dict(other.named_parameters()), (x,))
    assert_close(result[0], other(x)[0])


@both
def test_copies_and_pickles(backend):
    ours, x = layer(backend, num_layers=2, weight_dropout=0.1).eval(), words(4, 2, 5)
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert_close(twin(x)[0], ours(x)[0])
        with torch.no_grad():
            twin.weight_hh_l0.zero_()
        assert not torch.equal(twin(x)[0], ours(x)[0])
        assert repr(twin) == repr(ours)
    moved = copy.deepcopy(ours).to(torch.float32)
    assert moved(x.float())[0].dtype == torch.float32


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["fused", pytest.param("eager", marks=pytest.mark.slow)])
def test_compiles_without_a_graph_break(backend):
    torch._dynamo.reset()
    ours, x = layer(backend, num_layers=2, bidirectional=True), words(3, 2, 5)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x), ours(x))
    scan = torch.compile(ours.scan, fullgraph=True, backend="aot_eager")
    assert_close(tuple(scan(x)), tuple(ours.scan(x)))
    compiled(x)[0].sum().backward()
    gradient = ours.weight_hh_l0.grad.clone()
    ours.zero_grad()
    ours(x)[0].sum().backward()
    assert_close(gradient, ours.weight_hh_l0.grad)


@pytest.mark.slow  # twenty seconds of g++; the other backends see the same graph
@pytest.mark.filterwarnings("ignore")
def test_compiles_with_the_default_backend_and_any_strides():
    torch._dynamo.reset()
    ours, x = layer("fused"), words(4, 3, 5).transpose(0, 1)
    state = words(12, 4, 1).transpose(0, 2), words(12, 4, 1).transpose(0, 2)
    assert_close(torch.compile(ours, fullgraph=True)(x, state), ours(x, state))


@pytest.mark.filterwarnings("ignore")
@both
def test_exports(backend):
    ours, x = layer(backend, num_layers=2).eval(), words(3, 2, 5)
    program = torch.export.export(ours, (x,))
    assert_close(program.module()(x), ours(x))


@pytest.mark.filterwarnings("ignore")
def test_exports_with_any_length_and_batch():
    ours = layer("fused").eval()
    free = {0: torch.export.Dim("T", min=1, max=99), 1: torch.export.Dim("B", min=2, max=99)}
    program = torch.export.export(ours, (words(3, 4, 5),), dynamic_shapes={"input": free})
    x = words(9, 7, 5)
    assert_close(program.module()(x), ours(x))


@pytest.mark.filterwarnings("ignore")
@both
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_compiles_packed_sequences(backend, enforce_sorted):
    torch._dynamo.reset()
    ours, other = layer(backend, num_layers=2), words(6, 5)
    scan = torch.compile(ours.scan, fullgraph=True, backend="aot_eager")
    for lengths in ((5, 3, 3), (6, 4, 1)):
        packed = pack_sequence([other[:length] for length in lengths], enforce_sorted)
        (output, state, distances), (expected, states, d) = scan(packed), ours.scan(packed)
        assert_close((output.data, state, tuple(distances)), (expected.data, states, tuple(d)))
        assert_close(tuple(output)[1:], tuple(expected)[1:])
    output.data.sum().backward()
    assert ours.weight_hh_l0.grad.abs().sum() > 0


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # which torch.func itself calls
@both
def test_transforms_of_torch_func(backend):
    ours, x, eager = layer(backend), words(3, 2, 5), layer("eager")
    weights = dict(ours.named_parameters())

    def loss(weights, x):
        return functional_call(ours, weights, (x,))[0].square().sum()

    loss(weights, x).backward()
    gradients = grad(loss)(weights, x)
    assert_close(gradients, {name: p.grad for name, p in weights.items()})
    singles = vmap(grad(loss), in_dims=(None, 1))(weights, x)
    assert_close({name: each.sum(0) for name, each in singles.items()}, gradients)
    eager.load_state_dict(ours.state_dict())
    assert_close(jacrev(lambda x: ours(x)[0])(x), torch.autograd.functional.jacobian(lambda x: eager(x)[0], x))
    expected = torch.autograd.functional.hessian(lambda x: eager(x)[0].square().sum(), x)
    assert_close(hessian(loss, argnums=1)(weights, x), expected)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@both
def test_forward_mode_derivatives(backend):
    ours, x, direction = layer(backend), words(3, 2, 5), words(3, 2, 5)
    output, tangent = jvp(lambda x: ours(x)[0], (x,), (direction,))
    assert_close(output, ours(x)[0])
    assert_close(tangent, (ours(x + 1e-6 * direction)[0] - ours(x - 1e-6 * direction)[0]) / 2e-6)
    with forward_ad.dual_level():
        dual = ours(forward_ad.make_dual(x, direction))[0]
        assert_close(forward_ad.unpack_dual(dual).tangent, tangent)


@pytest.mark.filterwarnings("ignore")
@both
@pytest.mark.parametrize("training", [True, False])
def test_traces_with_and_without_gradients(backend, training):
    ours, x = layer(backend, num_layers=2, bidirectional=True), words(3, 2, 5)
    with torch.set_grad_enabled(training):
        traced = torch.jit.trace(ours, (x,))
    longer = words(7, 4, 5)
    assert_close(traced(longer), ours(longer))
    traced(longer)[0].sum().backward()
    gradient = ours.weight_hh_l0.grad.clone()
    ours.zero_grad()
    ours(longer)[0].sum().backward()
    assert_close(gradient, ours.weight_hh_l0.grad)


@pytest.mark.parametrize("weights_only", [True, False])
def test_torch_loads_a_pickled_layer(weights_only):
    file = io.BytesIO()
    torch.save([layer(), ONLSTMCell(5, 12)], file)
    file.seek(0)
    assert repr(torch.load(file, weights_only=weights_only)) == repr([layer(), ONLSTMCell(5, 12)])


@pytest.mark.parametrize("batch_first", [False, True])
def test_helpers_of_nn_lstm(batch_first):
    ours = layer(batch_first=batch_first, num_layers=2, bidirectional=True)
    stock = nn.LSTM(5, 12, batch_first=batch_first, num_layers=2, bidirectional=True)
    x, state, order = words(3, 2, 5), (words(4, 2, 12), words(4, 2, 12)), torch.tensor([1, 0])
    assert ours.get_expected_cell_size(x, None) == stock.get_expected_cell_size(x, None)
    assert ours.get_expected_cell_size(x, torch.tensor([7])) == stock.get_expected_cell_size(x, torch.tensor([7]))
    assert_close(ours.permute_hidden(state, order), stock.permute_hidden(state, order))
    assert ours.permute_hidden(state, None) is state
    for bad in (state[0], state[1][:3]), (state[0][..., 1:], state[1]), state:
        errors = []
        for net in (ours, stock.double()):
            try:
                errors.append(net.check_forward_args(x, bad, None))
            except RuntimeError as error:
                errors.append(str(error))
        assert errors[0] == errors[1]


def test_arguments_have_the_places_of_nn_lstm():
    places = 5, 12, 2, True, False, 0.0, True, 0, "cpu", torch.float64
    ours, stock = ONLSTM(*places), nn.LSTM(*places)
    assert list(ours.state_dict()) == list(stock.state_dict())
    assert ours.weight_hh_l1.dtype == torch.float64
    with pytest.raises(ValueError, match="ONLSTM has no proj_size"):
        ONLSTM(5, 12, 1, True, False, 0.0, False, 4)
    for name in ("input_size", "proj_size", "device", "chunk_size", "backend"):
        assert f"{name}: " in ONLSTM.__init__.__doc__


@pytest.mark.parametrize(("hidden_size", "chunk_size"), [(1150, 10), (400, 10), (12, 6), (10, 5), (13, 1), (2, 1)])
def test_chunk_size_has_a_default(hidden_size, chunk_size):
    assert ONLSTM(4, hidden_size, device="meta").chunk_size == chunk_size
    assert ONLSTMCell(4, hidden_size, device="meta").chunk_size == chunk_size


@pytest.mark.filterwarnings("ignore")
def test_cell_compiles_and_exports():
    torch._dynamo.reset()
    ours, x = ONLSTMCell(5, 12, chunk_size=3), torch.randn(3, 5)
    assert_close(torch.compile(ours, fullgraph=True, backend="aot_eager")(x), ours(x))
    assert_close(torch.export.export(ours, (x,)).module()(x), ours(x))
    assert_close(torch.func.functional_call(ours, dict(ours.named_parameters()), (x,)), ours(x))
