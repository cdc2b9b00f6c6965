"""ONLSTM and ONLSTMCell as drop-ins: shapes, names, layouts and habits of nn.LSTM and nn.LSTMCell."""

import copy
import pickle
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.testing import assert_close

from onlstm import ONLSTM, ONLSTMCell
from small_layers import both, layer, words


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
        try:
            expected, (h_n, c_n) = stock(x)
        except RuntimeError:  # it has no bfloat16 on some processors; what it has on others
            expected = h_n = c_n = x.bfloat16()
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
