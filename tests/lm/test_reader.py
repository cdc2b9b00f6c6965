"""Reading sentences in batches: every layer's output, distances and gates are those of the sentence read alone."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import random_model
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.reader import layer_numbers
from onlstm.text.tokenizer import Tokenizer

WORDS = [f"w{k}" for k in range(8)]
model = partial(random_model, Tokenizer.of_words(WORDS), torch.float64, chunk_size=2)
MODELS = {rnn: model(rnn=rnn) for rnn in ("onlstm", "lstm")}
close = partial(torch.testing.assert_close, rtol=0, atol=1e-12)


def alone(model, ids, layers):
    """Hidden states, distances and master gates of the words of a sentence, read after `<eos>` in one go."""
    with torch.no_grad():
        steps = torch.tensor([model.tokenizer.eos_id, *ids])[:, None]
        encoded = model.encode(steps, layers=layers, distances=True, master_gates=True)
    gates = [gate[1:, 0] for pair in encoded.master_gates for gate in pair]
    return encoded.hidden[1:, 0], [kind[:, 1:, 0] for kind in encoded.distances], gates


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 7), max_size=12), max_size=10),
    st.integers(1, 60),
    st.sampled_from([1, 2, None]),
    st.sampled_from(sorted(MODELS)),
)
def test_batches_are_the_sentences_read_alone(sentences, tokens_at_once, layers, rnn):
    small, words_read = MODELS[rnn], [0] * len(sentences)
    options = {"layers": layers, "distances": True, "master_gates": True, "tokens_at_once": tokens_at_once}
    for batch in small.read(sentences, **options):
        assert batch.hidden[..., 0].numel() <= tokens_at_once
        assert batch.real.sum() == sum(batch.lengths)
        for column, (k, length) in enumerate(zip(batch.sentences, batch.lengths, strict=True)):
            window = slice(words_read[k], words_read[k] + length)
            words_read[k] += length
            following = [*sentences[k], small.tokenizer.eos_id][window.start + 1 : window.stop + 1]
            assert batch.following[:length, column].tolist() == following
            hidden, distances, gates = alone(small, sentences[k], layers)
            close(batch.hidden[:length, column], hidden[window])
            for values, expected in zip(batch.distances, distances, strict=True):
                close(dict(batch.split(values))[k], expected[:, window])
            found = [gate for pair in batch.master_gates for gate in pair]
            assert len(found) == (0 if rnn == "lstm" else 2 * (layers or 2))
            for values, expected in zip(found, gates, strict=True):
                close(values[:length, column], expected[window])
    assert words_read == [len(ids) for ids in sentences]


def test_only_what_is_asked_for_is_there():
    (batch,) = MODELS["onlstm"].read([[1, 2], [3]])
    assert (batch.sentences, batch.lengths, batch.distances, batch.master_gates) == ([0, 1], [2, 1], None, ())
    assert not batch.hidden.requires_grad


def test_distances_that_are_not_finite_are_an_error():
    broken = model()
    torch.nn.init.constant_(broken.layers[0].weight_ih_l0, torch.nan)
    assert list(broken.read([[1, 2]]))
    with pytest.raises(UserError, match=r"^the model's distances are not finite"):
        list(broken.read([[1, 2]], distances=True))


def test_a_model_without_a_tokenizer_cannot_read():
    bare = model()
    bare.tokenizer = None
    with pytest.raises(UserError, match="no tokenizer"):
        next(bare.read([[1]]))


def test_layers_have_names_and_numbers():
    stacks = [LMConfig(num_layers=count) for count in (1, 2, 3, 4)]
    assert [layer_numbers("middle", config) for config in stacks] == [(1,), (2,), (2,), (3,)]
    assert layer_numbers(["last", 1, "1"], stacks[2]) == (1, 3)
    assert [layer_numbers(None, LMConfig(parse_layer=layer)) for layer in (0, 1)] == [(2,), (1,)]
    with pytest.raises(UserError, match=r"^layer '4': there are 1, 2, 3, middle, last, or several of them$"):
        layer_numbers("1,4", stacks[2])
