"""The language model: its size, its regularisers by definition, its softmaxes against plain ones, its folder."""

import dataclasses
import json
import math
import shutil

import pytest
import torch
from torch.nn import functional as F

from onlstm.errors import UserError
from onlstm.kernels import build
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel
from onlstm.lm.softmax import word_log_probs
from onlstm.text.tokenizer import Tokenizer
from onlstm.train.precision import round_products

NO_DROPOUT = dict.fromkeys(
    ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_dropout"), 0.0
)
WORDS = ["<unk>", "<eos>", *(f"w{k}" for k in range(28))]
HEADS = {
    "tied": {},
    "untied": {"tied": False},
    "adaptive": {"tied": False, "softmax": "adaptive"},
    "mos": {"mos": 3, "dropout_mos": 0.0},
}


def small(**more):
    settings = {"vocab_size": 30, "embedding_size": 12, "hidden_size": 20, "chunk_size": 4} | NO_DROPOUT | more
    torch.manual_seed(0)
    return LanguageModel(LMConfig(**settings), Tokenizer.of_words(WORDS)).double()


def some_ids(steps=9, batch=3):
    return torch.randint(30, (steps, batch), generator=torch.Generator().manual_seed(1))


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_the_papers_size():
    assert count(LanguageModel(LMConfig(vocab_size=10_000))) == 25_232_180
    assert LMConfig(vocab_size=10_000).sizes == (1150, 1150, 400)


def test_initial_weights_are_the_originals():
    model = LanguageModel(LMConfig(vocab_size=2000))
    assert 0.099 < model.embedding.weight.abs().max() <= 0.1
    assert not model.decoder.bias.any()
    assert model.decoder.weight is model.embedding.weight
    for layer, fan_in in zip(model.layers, (400, 1150, 1150), strict=True):
        assert 0.99 < layer.weight_ih_l0.abs().max() * math.sqrt(fan_in) <= 1


@pytest.mark.parametrize("rnn", ["onlstm", "lstm"])
@pytest.mark.parametrize("head", HEADS)
def test_loss_and_gradients_are_those_of_the_logits(rnn, head):
    model = small(rnn=rnn, **HEADS[head])
    ids = some_ids()
    step = model.loss(ids[:-1], ids[1:], None)
    step.nll.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    output = model(ids[:-1])
    plain = F.cross_entropy(output.logits.flatten(0, 1), ids[1:].flatten())
    plain.backward()
    assert step.nll.item() == pytest.approx(plain.item(), abs=1e-12)
    for name, p in model.named_parameters():
        assert torch.allclose(found[name], p.grad, atol=1e-12), name
    assert torch.allclose(output.logits.log_softmax(-1).exp().sum(-1), torch.ones(8, 3).double())
    assert step.activation.item() == pytest.approx(output.hidden.square().mean().item())
    assert step.slowness.item() == pytest.approx((output.hidden[1:] - output.hidden[:-1]).square().mean().item())


def test_many_rows_are_sliced_without_a_trace(monkeypatch):
    from onlstm.lm import softmax

    model, ids = small(), some_ids(40, 5)
    whole = model.loss(ids[:-1], ids[1:], None).nll
    whole_grad = torch.autograd.grad(whole, model.embedding.weight)[0]
    monkeypatch.setattr(softmax, "_LOGITS_AT_ONCE", 7 * 30)
    sliced = model.loss(ids[:-1], ids[1:], None).nll
    assert sliced.item() == pytest.approx(whole.item(), abs=1e-13)
    assert torch.allclose(torch.autograd.grad(sliced, model.embedding.weight)[0], whole_grad, atol=1e-14)


NARROW = pytest.mark.skipif(not build.has_bfloat16(), reason="this processor does not multiply in bfloat16")


@pytest.mark.parametrize(
    "options",
    [{"softmax": "bfloat16"}, pytest.param({}, marks=NARROW), pytest.param({"rnn": "lstm"}, marks=NARROW)],
    ids=["softmax", "onlstm", "lstm"],
)
def test_bfloat16_rounds_the_training_loss_and_nothing_else(options):
    softmax = options.get("softmax", "full")
    full, narrow, ids = small(**options | {"softmax": "full"}).float(), small(**options).float(), some_ids(40, 5)
    if softmax == "full":
        round_products(narrow)
    losses = [model.loss(ids[:-1], ids[1:], None).nll for model in (full, narrow)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-3)
    for name, expected, found in zip(
        [name for name, _ in full.named_parameters()],
        *(torch.autograd.grad(loss, model.parameters()) for loss, model in zip(losses, (full, narrow), strict=True)),
        strict=True,
    ):
        difference = (expected - found).norm() / expected.norm()
        assert 0 < difference < 0.02, (name, difference)
    full.eval(), narrow.eval()
    assert torch.equal(full(ids).logits, narrow(ids).logits)
    h = torch.randn(5, 12)
    assert torch.equal(full.head.log_probs(h), narrow.head.log_probs(h))


@pytest.mark.parametrize("head", HEADS)
def test_word_log_probs_are_rows_of_log_probs(head):
    model, h, words = small(**HEADS[head]), torch.randn(50, 12).double(), some_ids(50, 1)[:, 0]
    if head in ("untied", "adaptive", "mos"):
        h = torch.randn(50, 20).double()
    expected = model.head.log_probs(h).gather(1, words[:, None])[:, 0]
    assert torch.allclose(word_log_probs(model.head, h, words), expected, atol=1e-12)


@pytest.mark.parametrize("rnn", ["onlstm", "lstm"])
def test_state_carried_over_windows_equals_one_window(rnn):
    model, ids = small(rnn=rnn).eval(), some_ids(12)
    whole = model(ids)
    first = model(ids[:5])
    second = model(ids[5:], first.state)
    assert torch.allclose(torch.cat((first.logits, second.logits)), whole.logits, atol=1e-12)
    for (h, c), (h_whole, c_whole) in zip(second.state, whole.state, strict=True):
        assert torch.allclose(h, h_whole, atol=1e-12)
        assert torch.allclose(c, c_whole, atol=1e-12)
    if rnn == "lstm":
        assert whole.distances is None
    else:
        assert whole.distances.forget.shape == (3, 12, 3)


def test_one_word_windows_have_no_slowness():
    step = small().loss(some_ids(1), some_ids(1), None)
    assert step.slowness.item() == 0


def test_fewer_layers_give_the_same_first_distances():
    model, ids = small().eval(), some_ids()
    some = model.encode(ids, layers=2)
    assert torch.equal(some.distances.forget, model(ids).distances.forget[:2])
    assert len(some.state) == 2


def test_the_last_word_gets_a_gradient_as_an_input():
    """Unlike with the original's `padding_idx=-1`, which current torch reads as the last row."""
    for padding_idx, learns in ((-1, False), (None, True)):
        table = torch.randn(5, 3, requires_grad=True)
        F.embedding(torch.tensor([1, 4]), table, padding_idx).sum().backward()
        assert bool(table.grad[-1].abs().sum()) is learns
    table = torch.randn(5, 3, requires_grad=True)
    Masks(torch.Generator()).embed(table, torch.tensor([[1], [4]]), 0.0).sum().backward()
    assert table.grad[-1].abs().sum() > 0


def test_dropout_is_locked_over_time_and_drops_whole_words():
    masks = Masks(torch.Generator().manual_seed(0))
    x = masks.locked(torch.ones(50, 4, 100), 0.4)
    assert torch.equal(x, x[:1].expand_as(x))
    assert x.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert 0.5 < (x[0] > 0).double().mean() < 0.7
    table, ids = torch.ones(200, 6), torch.arange(200).repeat(2, 1)
    rows = masks.embed(table, ids, 0.3)
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows.amin(-1), rows.amax(-1))
    assert 0.6 < (rows[0, :, 0] > 0).double().mean() < 0.8


def test_a_part_of_the_batch_sees_its_columns_of_the_same_masks():
    ids = some_ids(6, 4)
    drop = {"dropout_embedding": 0.2, "dropout_input": 0.3, "dropout_hidden": 0.3, "dropout_output": 0.4}
    model = small(**drop, weight_dropout=0.5)
    model.config = dataclasses.replace(model.config, dropout_output=0.0)  # so that `hidden` is all there is to compare
    whole = model.encode(ids, None, Masks(torch.Generator().manual_seed(3))).hidden
    part = model.encode(ids[:, 2:], None, Masks(torch.Generator().manual_seed(3), 4, 2)).hidden
    assert torch.allclose(part, whole[:, 2:], atol=1e-14)


@pytest.mark.parametrize("rnn", ["onlstm", "lstm"])
@pytest.mark.parametrize("scale", ["inverted", "original"])
def test_weight_drop_scales_training_or_evaluation(rnn, scale):
    p, ids = 0.5, some_ids(4)
    model = small(rnn=rnn, weight_dropout=p, weight_dropout_scale=scale)
    drawn = Masks(torch.Generator().manual_seed(5))
    masks = [drawn.kept(tuple(layer.weight_hh_l0.shape), p, layer.weight_hh_l0) for layer in model.layers]
    trained = model.loss(ids[:-1], ids[1:], None, Masks(torch.Generator().manual_seed(5))).nll
    evaluated = model.eval().loss(ids[:-1], ids[1:], None).nll
    plain = small(rnn=rnn)
    for part, factor in (("train", masks), ("eval", [torch.ones(1)] * 3)):
        plain.load_state_dict(model.state_dict())
        up = 1 / (1 - p) if scale == "inverted" and part == "train" else 1
        down = 1 - p if scale == "original" and part == "eval" else 1
        with torch.no_grad():
            for layer, mask in zip(plain.layers, factor, strict=True):
                layer.weight_hh_l0.mul_(mask * up * down)
        expected = plain.loss(ids[:-1], ids[1:], None).nll
        found = trained if part == "train" else evaluated
        assert found.item() == pytest.approx(expected.item(), abs=1e-12), part


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 1150, "chunk_size": 12}, "layers of 1150, 1150, 12 neurons .* nearest that work: 2$"),
        ({"hidden_size": (20, 24), "chunk_size": 4}, "last layer has 24 neurons, the embedding 12"),
        ({"softmax": "adaptive", "chunk_size": 4, "hidden_size": 20}, "not with tied embeddings"),
        ({"softmax": "bfloat16", "mos": 2, "chunk_size": 4, "hidden_size": 20}, "not with mos"),
        ({"dropout_input": 1.0}, "model.dropout_input 1.0: a number from 0"),
        ({"num_layers": 0}, "model.num_layers 0: at least 1"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(UserError, match=message):
        LMConfig(**({"vocab_size": 30, "embedding_size": 12} | settings))


@pytest.mark.parametrize("head", HEADS)
def test_a_saved_model_comes_back(tmp_path, head):
    model = small(**HEADS[head]).eval()
    model.save(tmp_path / "m")
    again = LanguageModel.load(tmp_path / "m")
    assert again.config == model.config
    assert again.tokenizer.vocabulary == WORDS
    assert not again.training
    assert torch.equal(again(some_ids()).logits, model(some_ids()).logits)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]


def damaged(kind, folder):
    weights = folder / "model.safetensors"
    if kind == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif kind == "flipped":
        data = bytearray(weights.read_bytes())
        data[-7] ^= 1
        weights.write_bytes(data)
    elif kind == "no weights":
        weights.unlink()
    elif kind == "foreign":
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "pytorch_model.bin").write_bytes(b"x")
    elif kind == "empty":
        shutil.rmtree(folder)
        folder.mkdir()
    elif kind == "gone":
        shutil.rmtree(folder)
    elif kind == "not json":
        (folder / "config.json").write_text("{")
    elif kind == "other words":
        Tokenizer.of_words(list(reversed(WORDS))).save(folder / "tokenizer.json")
    else:
        config = json.loads((folder / "config.json").read_text())
        changes = {"other size": {"embedding_size": 20}, "other cell": {"rnn": "gru"}, "odd": {"weight_dropout": "x"}}
        changes["unknown"] = {"hidden_siz": 3}
        change = {key: {"model": config["model"] | value} for key, value in changes.items()}
        change |= {
            "future": {"format_version": 9},
            "no model": {"model": None},
            "profile": {"tokenizer": {"profile": "ptb-en"}},
        }
        (folder / "config.json").write_text(json.dumps(config | change[kind]))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncated", "model.safetensors: truncated or not a safetensors file"),
        ("flipped", "model.safetensors: damaged: its SHA-256"),
        ("no weights", "model.safetensors: missing"),
        ("foreign", "not a model folder: no config.json .there is pytorch_model.bin"),
        ("empty", "no config.json .there is nothing"),
        ("gone", "no such model folder"),
        ("not json", "config.json: damaged"),
        ("future", "format 9; this onlstm reads 1"),
        ("other words", "tokenizer.json: not the file"),
        ("other size", "does not fit config.json"),
        ("other cell", "config.json: model: rnn: onlstm, lstm, variational, rhn, .*, nested is needed, not .gru"),
        ("odd", "config.json: model: weight_dropout: a number is needed, not .x"),
        ("unknown", "config.json: model: hidden_siz: no such setting; did you mean hidden_size"),
        ("profile", "tokenizer.json: not the file"),
        ("no model", "config.json: model: a mapping is needed, not null"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(tmp_path, kind, message):
    small().save(tmp_path / "m")
    damaged(kind, tmp_path / "m")
    with pytest.raises(UserError, match=message) as caught:
        LanguageModel.load(tmp_path / "m")
    assert "\n" not in str(caught.value)
