"""ONLSTM and ONLSTMCell as drop-ins: shapes, names, layouts, errors and habits of nn.LSTM and nn.LSTMCell."""

import copy
import pickle
import warnings
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.testing import assert_close

from onlstm import ONLSTM, ONLSTMCell

both = pytest.mark.parametrize("backend", ["eager", "fused"])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def layer(backend="auto", **options):
    return ONLSTM(5, 12, **{"chunk_size": 3, "dtype": torch.float64, "backend": backend} | options)


def words(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@both
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("shape", [(7, 4, 5), (1, 1, 5), (7, 0, 5), (7, 5)], ids=str)
def test_shapes_are_those_of_nn_lstm(shape, num_layers, bidirectional, batch_first, backend):
    options = {"num_layers": num_layers, "bidirectional": bidirectional, "batch_first": batch_first}
    x = words(*(shape if len(shape) == 2 or not batch_first else (shape[1], shape[0], shape[2])))
    stock, ours = nn.LSTM(5, 12, dtype=torch.float64, **options), layer(backend, **options)
    expected, states = stock(x)
    output, (h_n, c_n) = ours(x)
    assert (output.shape, h_n.shape, c_n.shape) == (expected.shape, states[0].shape, states[1].shape)
    again, _ = ours(x, (torch.zeros_like(h_n), torch.zeros_like(c_n)))
    assert_close(output, again)
    distances, gates = ours.scan(x).distances, ours.gates(x)
    runs = num_layers * (1 + bidirectional)
    assert distances.forget.shape == distances.input.shape == (runs, *shape[:-1])
    assert gates.forget.shape == gates.input.shape == (runs, *shape[:-1], 4)
    assert_close(distances.forget, 1 - gates.forget.mean(-1))
    assert_close(distances.input, gates.input.mean(-1))


@pytest.mark.parametrize("bias", [False, True])
def test_parameters_have_the_names_of_nn_lstm(bias):
    options = {"num_layers": 2, "bidirectional": True, "bias": bias}
    stock, ours = nn.LSTM(5, 12, **options), layer(**options)
    assert list(ours.state_dict()) == list(stock.state_dict())
    assert [len(names) for names in ours.all_weights] == [len(names) for names in stock.all_weights]
    assert ours.weight_ih_l0.shape == (2 * 4 + 4 * 12, 5)
    assert ours.weight_ih_l1_reverse.shape == (56, 24)


def test_the_papers_stack_has_the_papers_size():
    sizes = (400, 1150, 1150, 400)
    stack = [ONLSTM(a, b, chunk_size=10, device="meta") for a, b in pairwise(sizes)]
    assert sum(p.numel() for part in stack for p in part.parameters()) == 21_222_180


def test_weights_start_like_the_originals():
    big = ONLSTM(400, 1150, chunk_size=10)
    for name, bound in (("weight_ih_l0", 400**-0.5), ("bias_ih_l0", 400**-0.5), ("weight_hh_l0", 1150**-0.5)):
        extreme = getattr(big, name).abs().max().item()
        assert 0.99 * bound < extreme <= bound


@both
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_is_padded(bidirectional, backend):
    ours = layer(backend, num_layers=2, bidirectional=bidirectional)
    lengths = [3, 6, 1, 6]
    x, state = words(6, 4, 5), (words(2 + 2 * bidirectional, 4, 12), words(2 + 2 * bidirectional, 4, 12))
    packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    output, (h_n, c_n), distances = ours.scan(packed, state)
    assert isinstance(output, PackedSequence)
    output, _ = pad_packed_sequence(output)
    for k, length in enumerate(lengths):
        own = tuple(each[:, [k]] for each in state)
        alone, (h_1, c_1), d_1 = ours.scan(x[:length, [k]], own)
        assert_close(output[:length, [k]], alone)
        assert_close(h_n[:, [k]], h_1)
        assert_close(c_n[:, [k]], c_1)
        assert_close(distances.forget[:, :length, [k]], d_1.forget)
        assert (distances.input[:, length:, k] == 0).all()


@both
def test_packed_gradients_are_those_of_single_sequences(backend):
    ours = layer(backend)
    sequences = [words(length, 5) for length in (4, 2, 5)]
    h_n = ours(pack_sequence(sequences, enforce_sorted=False))[1][0]
    h_n.square().sum().backward()
    together = [p.grad.clone() for p in ours.parameters()]
    ours.zero_grad()
    sum(ours(each)[1][0].square().sum() for each in sequences).backward()
    for gradient, parameter in zip(together, ours.parameters(), strict=True):
        assert_close(gradient, parameter.grad)


@both
def test_bidirectional_is_two_runs(backend):
    ours, x = layer(backend, bidirectional=True), words(6, 3, 5)
    runs = [layer(backend) for _ in "fb"]
    for run, suffix in zip(runs, ("", "_reverse"), strict=True):
        run.load_state_dict({name: getattr(ours, name + suffix) for name in run.state_dict()})
    output, (h_n, _), distances = ours.scan(x)
    there, (h_there, _), d_there = runs[0].scan(x)
    back, (h_back, _), d_back = runs[1].scan(x.flip(0))
    assert_close(output, torch.cat((there, back.flip(0)), -1))
    assert_close(h_n, torch.cat((h_there, h_back)))
    assert_close(distances.forget, torch.cat((d_there.forget, d_back.forget.flip(1))))


@both
def test_chunks_chained_through_the_state_are_the_whole(backend):
    ours, x = layer(backend, num_layers=2), words(11, 3, 5)
    whole, last, distances = ours.scan(x)
    parts, state, d = [], None, []
    for part in x.split(4):
        output, state, each = ours.scan(part, state)
        parts.append(output)
        d.append(each.forget)
    assert_close(torch.cat(parts), whole)
    assert_close(state, last)
    assert_close(torch.cat(d, 1), distances.forget)


def test_backends_agree_and_share_weights():
    eager, fused = layer("eager", num_layers=2, bidirectional=True), layer("fused", num_layers=2, bidirectional=True)
    fused.load_state_dict(eager.state_dict())
    x = words(9, 4, 5)
    results = []
    for ours in (eager, fused):
        output, (h_n, c_n), distances = ours.scan(x)
        (
            output.sum() + h_n.square().sum() + c_n.sum() + distances.forget.square().sum() + distances.input.sum()
        ).backward()
        results.append([output, h_n, c_n, *distances, *(p.grad for p in ours.parameters())])
    assert_close(*results)


@both
def test_batch_first_is_a_transpose(backend):
    ours, x = layer(backend), words(6, 3, 5)
    flipped = layer(backend, batch_first=True)
    flipped.load_state_dict(ours.state_dict())
    assert_close(flipped(x.transpose(0, 1))[0].transpose(0, 1), ours(x)[0])
    assert_close(flipped.scan(x.transpose(0, 1)).distances, ours.scan(x).distances)


@both
def test_dropout_acts_between_layers_in_training_only(backend):
    ours, x = layer(backend, num_layers=2, dropout=1.0), words(6, 3, 5)
    assert_close(ours(x)[0][:, 0], ours(torch.zeros_like(x))[0][:, 0])
    ours.eval()
    assert (ours(x)[0] - ours(torch.zeros_like(x))[0]).abs().max() > 1e-3


@both
@pytest.mark.parametrize("scale", ["inverted", "original"])
def test_weight_dropout(scale, backend):
    ours, x = layer(backend, weight_dropout=0.4, weight_dropout_scale=scale), words(6, 3, 5)
    plain = layer(backend)
    weights = ours.state_dict()
    mask = torch.rand_like(ours.weight_hh_l0) >= 0.4
    kept = weights["weight_hh_l0"] * mask / (0.6 if scale == "inverted" else 1)
    plain.load_state_dict(weights | {"weight_hh_l0": kept})
    assert_close(ours(x, weight_mask=[mask])[0], plain(x)[0])
    first, second = ours(x)[0], ours(x)[0]
    assert not torch.equal(first, second)
    ours.eval()
    plain.load_state_dict(weights | {"weight_hh_l0": weights["weight_hh_l0"] * (1 if scale == "inverted" else 0.6)})
    assert_close(ours(x)[0], plain(x)[0])
    with pytest.raises(ValueError, match="weight_mask is for training"):
        ours(x, weight_mask=[mask])


def test_random_weight_masks_drop_the_right_share():
    ours = layer(weight_dropout=0.3)
    dropped = ours._drop_connect(torch.ones(400, 500), None)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (dropped == 0).double().mean().item() == pytest.approx(0.3, abs=0.01)


@both
def test_the_last_chunk_is_dead_unless_freed(backend):
    x = words(8, 3, 5)
    assert layer(backend)(x)[0][..., -3:].abs().max() < 1e-14
    free = layer(backend, free_last_chunk=True)
    assert free.weight_hh_l0.shape == (2 * 5 + 4 * 12, 12)
    assert free(x)[0][..., -3:].abs().min() > 1e-6
    assert free.gates(x).forget.shape == (1, 8, 3, 4)


@both
def test_half_precision_is_summed_in_float32(backend):
    double, x = layer(backend, num_layers=2), words(9, 4, 5)
    half = copy.deepcopy(double).bfloat16()
    expected, _, distances = double.scan(x)
    output, (h_half, c_half), half_distances = half.scan(x.bfloat16())
    assert output.dtype == h_half.dtype == c_half.dtype == torch.bfloat16
    assert half_distances.forget.dtype == torch.float32
    assert_close(output.double(), expected, atol=0.02, rtol=0)
    assert_close(half_distances.forget.double(), distances.forget, atol=0.01, rtol=0)
    output.sum().backward()
    assert half.weight_hh_l0.grad.dtype == torch.bfloat16
    assert half.weight_hh_l0.grad.isfinite().all()


@both
def test_autocast_is_that_of_nn_lstm(backend):
    ours, stock, x = layer(backend, dtype=None), nn.LSTM(5, 12), words(6, 3, 5).float()
    exact = ours(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, (h_n, c_n) = stock(x)
        output, state = ours(x)
        chained, _ = ours(x, (torch.zeros(1, 3, 12), torch.zeros(1, 3, 12)))
    assert output.dtype == expected.dtype == torch.bfloat16
    assert [each.dtype for each in state] == [h_n.dtype, c_n.dtype]
    assert_close(output.float(), exact, atol=0.02, rtol=0)
    assert_close(chained, output)
    output.sum().backward()
    assert ours.weight_hh_l0.grad.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(backend)(words(6, 3, 5))[0].dtype == torch.float64
        assert ONLSTMCell(5, 12, chunk_size=3, backend=backend)(x[0])[1].dtype == nn.LSTMCell(5, 12)(x[0])[1].dtype
        with pytest.raises(ValueError, match=r"RNN input dtype \(torch.int64\) does not match"):
            ours(x.long())


def test_second_derivatives_of_eager():
    leaves = [words(3, 2, 5).requires_grad_(), words(1, 2, 12).requires_grad_(), words(1, 2, 12).requires_grad_()]
    ours = layer("eager")

    def outputs(x, h, c):
        output, (h_n, c_n), distances = ours.scan(x, (h, c))
        return output, h_n, c_n, *distances

    assert torch.autograd.gradcheck(outputs, leaves)
    assert torch.autograd.gradgradcheck(outputs, leaves, fast_mode=True)


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


@both
def test_functional_call_uses_the_weights_it_is_given(backend):
    ours, other, x = layer(backend), layer(backend), words(4, 2, 5)
    result = torch.func.functional_call(ours, dict(other.named_parameters()), (x,))
    assert_close(result[0], other(x)[0])


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


# Errors: the type and the words of nn.LSTM


def message(call):
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call()
    return type(caught.value), str(caught.value)


STATE = torch.zeros(1, 3, 12)
BAD_CALLS = {
    "rank 4": lambda net: net(torch.randn(2, 3, 4, 5)),
    "rank 1": lambda net: net(torch.randn(5)),
    "features": lambda net: net(torch.randn(7, 3, 6)),
    "integers": lambda net: net(torch.ones(7, 3, 5, dtype=torch.long)),
    "dtype": lambda net: net(torch.randn(7, 3, 5).double()),
    "state rank": lambda net: net(torch.randn(7, 3, 5), (STATE[0], STATE[0])),
    "state rank unbatched": lambda net: net(torch.randn(7, 5), (STATE, STATE)),
    "h size": lambda net: net(torch.randn(7, 3, 5), (STATE[:, :2], STATE)),
    "c size": lambda net: net(torch.randn(7, 3, 5), (STATE, STATE[..., :3])),
    "state size unbatched": lambda net: net(torch.randn(7, 5), (STATE[0, :, :3], STATE[0, :, :3])),
    "no steps": lambda net: net(torch.randn(0, 3, 5)),
    "no steps unbatched": lambda net: net(torch.randn(0, 5)),
    "device": lambda net: net(torch.randn(7, 3, 5, device="meta")),
}


@both
@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
def test_errors_speak_like_nn_lstm(call, backend):
    ours, stock = layer(backend, dtype=None), nn.LSTM(5, 12)
    kind, text = message(lambda: call(stock))
    our_kind, our_text = message(lambda: call(ours))
    assert our_kind is kind
    assert our_text.replace("ONLSTM", "LSTM") == text


def test_states_of_another_type_or_place_are_named():
    ours, x = layer(dtype=None), torch.randn(7, 3, 5)
    with pytest.raises(RuntimeError, match="Input and hidden tensors are not the same dtype"):
        ours(x, (STATE.double(), STATE.double()))
    with pytest.raises(RuntimeError, match="Input and hidden tensors are not at the same device"):
        ours(x, (STATE.to("meta"), STATE.to("meta")))
    packed = pack_sequence([x[:4, 0], x[:2, 0]])
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 2, 12\), got \[1, 3, 12\]"):
        ours(packed, (STATE, STATE))


BAD_OPTIONS = {
    "input_size": {"input_size": 0},
    "hidden_size": {"hidden_size": 0},
    "hidden_size type": {"hidden_size": 1.5},
    "num_layers": {"num_layers": 0},
    "dropout": {"dropout": 2},
    "bias": {"bias": 1},
    "batch_first": {"batch_first": "yes"},
}


@pytest.mark.parametrize("options", BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused_like_nn_lstm(options):
    options = {"input_size": 5, "hidden_size": 12} | options
    assert message(lambda: ONLSTM(**options, chunk_size=3)) == message(lambda: nn.LSTM(**options))


def test_dropout_with_one_layer_warns_like_nn_lstm():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nn.LSTM(5, 12, dropout=0.1)
        ONLSTM(5, 12, dropout=0.1, chunk_size=3)
    assert str(caught[0].message) == str(caught[1].message)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hidden_size": 1150, "chunk_size": 12}, "1150 is not a multiple of chunk_size 12; nearest that work: 10, 23"),
        (
            {"hidden_size": 12, "chunk_size": 12},
            "leaves a single chunk, which can never be written; nearest that work: 6",
        ),
        ({"hidden_size": 12, "chunk_size": 24}, "nearest that work: 6"),
        ({"hidden_size": 12, "chunk_size": 0}, "nearest that work: 1"),
        ({"hidden_size": 1, "chunk_size": 1}, "take a larger hidden_size"),
        ({"weight_dropout": 1.0}, r"range \[0, 1\), got 1.0"),
        ({"weight_dropout_scale": "none"}, "'inverted' or 'original', got 'none'"),
        ({"backend": "cuda"}, "'auto', 'eager' or 'fused', got 'cuda'"),
        ({"proj_size": 4}, "ONLSTM has no proj_size"),
    ],
)
def test_our_own_options_are_checked_in_words(options, text):
    with pytest.raises(ValueError, match=text):
        ONLSTM(**{"input_size": 5, "hidden_size": 12, "chunk_size": 3} | options)


def test_chunk_size_is_a_whole_number():
    with pytest.raises(TypeError, match="chunk_size should be of type int, got: float"):
        ONLSTM(5, 12, chunk_size=3.0)


def test_a_weight_mask_has_the_weights_shape():
    with pytest.raises(ValueError, match=r"1 tensors of size \(56, 12\)"):
        layer(weight_dropout=0.5)(words(3, 2, 5), weight_mask=[torch.ones(3, 3)])


# The cell


@both
def test_cell_is_one_step_of_the_layer(backend):
    ours, x = layer(backend), words(6, 3, 5)
    one = ONLSTMCell(5, 12, dtype=torch.float64, chunk_size=3, backend=backend)
    one.load_state_dict({name.removesuffix("_l0"): value for name, value in ours.state_dict().items()})
    state = None
    for t, h in enumerate(ours(x)[0]):
        state = one(x[t], state)
        assert_close(state[0], h)
    assert_close(one(x[0, 0], (state[0][0], state[1][0]))[0], one(x[0], state)[0][0])


@both
def test_cell_shapes_are_those_of_nn_lstmcell(backend):
    for bias in (False, True):
        stock, ours = nn.LSTMCell(5, 12, bias), ONLSTMCell(5, 12, bias, chunk_size=3, backend=backend)
        assert list(ours.state_dict()) == list(stock.state_dict())
        for shape in ((5,), (3, 5), (0, 5)):
            assert [x.shape for x in ours(torch.randn(shape))] == [x.shape for x in stock(torch.randn(shape))]
    twin = pickle.loads(pickle.dumps(ours))
    assert_close(twin(torch.ones(5)), copy.deepcopy(ours)(torch.ones(5)))


BAD_CELL_CALLS = {
    "rank": lambda net: net(torch.randn(2, 3, 5)),
    "features": lambda net: net(torch.randn(3, 6)),
    "batch": lambda net: net(torch.randn(3, 5), (torch.zeros(2, 12), torch.zeros(2, 12))),
    "hidden rank": lambda net: net(torch.randn(3, 5), (torch.zeros(12), torch.zeros(12))),
    "hidden": lambda net: net(torch.randn(3, 5), (torch.zeros(3, 11), torch.zeros(3, 11))),
}


@pytest.mark.parametrize("call", BAD_CELL_CALLS.values(), ids=BAD_CELL_CALLS)
def test_cell_errors_speak_like_nn_lstmcell(call):
    kind, text = message(lambda: call(nn.LSTMCell(5, 12)))
    our_kind, our_text = message(lambda: call(ONLSTMCell(5, 12, chunk_size=3)))
    assert our_kind is kind
    assert our_text.replace("ONLSTM", "LSTM") == text


@pytest.mark.filterwarnings("ignore")
def test_cell_compiles_and_exports():
    torch._dynamo.reset()
    ours, x = ONLSTMCell(5, 12, chunk_size=3), torch.randn(3, 5)
    assert_close(torch.compile(ours, fullgraph=True, backend="aot_eager")(x), ours(x))
    assert_close(torch.export.export(ours, (x,)).module()(x), ours(x))
    assert_close(torch.func.functional_call(ours, dict(ours.named_parameters()), (x,)), ours(x))
