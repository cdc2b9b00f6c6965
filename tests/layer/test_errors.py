"""Errors and warnings have the type and the words of nn.LSTM and nn.LSTMCell."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from onlstm import ONLSTM, ONLSTMCell
from small_layers import both, layer, words


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
