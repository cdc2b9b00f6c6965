"""Rows in which a mask hides words: a language model reads the others as if they stood alone."""

import pytest
import torch

from helpers import random_model
from onlstm.adapters import padding
from onlstm.errors import UserError
from onlstm.lm.dropout import Masks
from onlstm.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.of_words([f"w{k}" for k in range(20)])
REAL = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 1, 0, 1], [0, 0, 0, 0, 0]]).bool()
KINDS = {
    "onlstm": {},
    "lstm": {"rnn": "lstm"},
    "prpn": {"rnn": "prpn", "slots": 3, "lookback": 2},
    "pointer": {"pointer": 3},
}


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_words_are_not_read(kind):
    lm = random_model(TOKENIZER, torch.float64, **KINDS[kind])
    ids = torch.randint(20, (4, 5), generator=torch.Generator().manual_seed(0))
    start = lm.encode(ids[:, :2].T).state  # not where a text starts
    rows = padding.read(lm, ids, lm.embedding(ids), REAL, start, Masks)
    for k, real in enumerate(REAL[:3]):
        before = padding.unflat(padding.flat(start)[k : k + 1], lm.start(1))
        alone = lm.encode(ids[k, real][:, None], before)
        torch.testing.assert_close(rows.hidden[k, real], alone.hidden[:, 0])
        torch.testing.assert_close(rows.state[k], padding.flat(alone.state)[0])
        for output, expected in zip(rows.outputs, alone.outputs, strict=True):
            torch.testing.assert_close(output[k, real], expected[:, 0])
    torch.testing.assert_close(rows.state[3], padding.flat(start)[3])  # where nothing is read
    torch.testing.assert_close(rows.hidden[1, 2:], rows.hidden[1, 1].expand(3, -1))
    whole, same = (padding.read(lm, ids, lm.embedding(ids), real, start, Masks) for real in (None, REAL | True))
    torch.testing.assert_close(whole.hidden.transpose(0, 1), lm.encode(ids.T, start).hidden)
    torch.testing.assert_close(same, whole)


def test_a_mask_may_go_further_back_and_must_leave_something():
    lm, ids = random_model(TOKENIZER), torch.zeros(4, 2, dtype=torch.long)
    assert padding.visible(REAL, 4, 2).tolist() == REAL[:, 3:].tolist()
    with pytest.raises(UserError, match="nothing to read"):
        padding.read(lm, ids, lm.embedding(ids), ids.bool(), lm.start(4), Masks)
    with pytest.raises(UserError, match=r"attention_mask \(4, 1\): \(4, 2\) is needed"):
        padding.visible(REAL[:, :1], 4, 2)


@pytest.mark.parametrize("kind", ["onlstm", "lstm"])
def test_layers_run_hooks_and_read_parametrized_weights(kind):
    lm, ids = random_model(TOKENIZER, **KINDS[kind]), torch.randint(20, (5, 3))
    before, outputs = lm.encode(ids), []
    lm.layers[0].register_forward_hook(lambda _, args, reading: outputs.append(reading.output))
    torch.nn.utils.parametrize.register_parametrization(lm.layers[0], "weight_hh_l0", torch.nn.Tanh())
    after = lm.encode(ids)
    assert outputs[0] is after.outputs[0]
    assert not torch.allclose(after.hidden, before.hidden)
