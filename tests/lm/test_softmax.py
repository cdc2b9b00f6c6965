"""The losses of the softmaxes, which take their gradients slice by slice, against their definitions under autograd."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from onlstm.lm import softmax
from onlstm.lm.cells.augmented import AugmentedSoftmax
from onlstm.lm.cells.pointer import PointerSoftmax, pack, unpack
from onlstm.lm.cells.window import products, sums
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.softmax import FullSoftmax, MixtureSoftmax

T, B, H, V, L = 5, 3, 6, 40, 4


def full(head, h, words):
    nll = F.cross_entropy(F.linear(h, head.weight, head.bias).flatten(0, 1), words.flatten())
    return nll, nll


def mixture(head, h, words):
    nll = F.nll_loss(head.log_probs(h.flatten(0, 1)), words.flatten())
    return nll, nll


def pointer(head, h, words):
    nll = F.nll_loss(head.log_probs(h.flatten(0, 1)), words.flatten())
    _, g, a, read = unpack(h, L)
    return nll, nll - (g + (a * (read == words[..., None])).sum(-1)).log().mean()


def augmented(head, h, words):
    logits, vectors = F.linear(h, head.weight, head.bias).flatten(0, 1), head.weight.detach()
    like = (vectors[words.flatten()] @ vectors.T / head.temperature).softmax(-1)
    model = (logits / head.temperature).softmax(-1)
    nll = F.cross_entropy(logits, words.flatten())
    return nll, nll + head.alpha * (like * (like / model).log()).sum(-1).mean()


def states_of(definition):
    """Return states, for the pointer with its window beside them: some of its words are the right ones."""
    h, words = torch.randn(T, B, H), torch.randint(V, (T, B))
    if definition is pointer:
        shares = torch.randn(T, B, L + 1).softmax(-1)
        read = torch.where(torch.rand(T, B, L) < 0.3, words[..., None], torch.randint(V, (T, B, L)))
        h = pack(h, shares[..., -1], shares[..., :-1], read)
    return h.double().requires_grad_(), words


CONFIG = LMConfig(vocab_size=V, rnn="variational", embedding_size=H, hidden_size=H, num_layers=1)
HEADS = {
    full: lambda: FullSoftmax(H, V),
    mixture: lambda: MixtureSoftmax(H, 4, V, 3, 0.0),
    pointer: lambda: PointerSoftmax(LMConfig(**vars(CONFIG) | {"pointer": L, "tied": False})),
    augmented: lambda: AugmentedSoftmax(
        LMConfig(**vars(CONFIG) | {"augmented": 0.7, "augmented_temperature": 2.0, "tied": True})
    ),
}


@pytest.mark.parametrize("at_once", [1 << 22, 7 * V], ids=["whole", "slices"])
@pytest.mark.parametrize("definition", HEADS, ids=lambda definition: definition.__name__)
def test_losses_and_every_gradient_are_those_of_the_definition(monkeypatch, definition, at_once):
    monkeypatch.setattr(softmax, "_LOGITS_AT_ONCE", at_once)
    torch.manual_seed(0)
    head = HEADS[definition]().double()
    h, words = states_of(definition)
    inputs = [h, *head.parameters()]
    nll, objective = head.losses(h, words, Masks())
    expected_nll, expected = definition(head, h, words)
    assert_close((nll, objective), (expected_nll, expected), rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(3 * objective, inputs)  # times 3: a loss is not always the last thing
    for gradient, by_autograd in zip(gradients, torch.autograd.grad(3 * expected, inputs), strict=True):
        assert_close(gradient, by_autograd, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("definition", [mixture, pointer, augmented], ids=lambda definition: definition.__name__)
def test_a_step_in_float32_is_near_that_in_float64(definition):
    torch.manual_seed(0)
    head = HEADS[definition]()
    h, words = states_of(definition)
    narrow = h.detach().float().requires_grad_()
    found = torch.autograd.grad(head.losses(narrow, words, Masks()).objective, [narrow, *head.parameters()])
    head.double()
    expected = torch.autograd.grad(definition(head, h, words)[1], [h, *head.parameters()])
    for gradient, exact in zip(found, expected, strict=True):
        assert_close(gradient.double(), exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("definition", [mixture, pointer, augmented], ids=lambda definition: definition.__name__)
def test_training_in_bfloat16_does_not_round_them(definition):
    torch.manual_seed(0)
    head = HEADS[definition]()
    h, words = states_of(definition)
    exact = head.losses(h.float(), words, Masks()).objective
    head.narrow = True
    assert torch.equal(head.losses(h.float(), words, Masks()).objective, exact)


def test_a_word_that_nothing_predicts_has_a_finite_loss_and_gradient():
    """A pointer that leaves nothing to the softmax, and does not point to the word."""
    head = HEADS[pointer]()
    shares = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]])
    h = pack(torch.randn(1, 1, H), torch.zeros(1, 1), shares, torch.full((1, 1, L), 3)).requires_grad_()
    nll, objective = head.losses(h, torch.tensor([[5]]), Masks())
    gradients = torch.autograd.grad(objective, [h, *head.parameters()])
    assert 60 < nll.item() < 100
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("steps", [1, 3, 4, 5, 11])
def test_products_and_sums_of_a_window(steps):
    torch.manual_seed(0)
    q, states = torch.randn(steps, B, H), torch.randn(steps + L - 1, B, H)
    windows = states.unfold(0, L, 1)  # (T, B, H, L)
    weights = products(q, states)
    assert_close(weights, torch.einsum("tbh,tbhl->tbl", q, windows))
    assert_close(sums(weights, states), torch.einsum("tbl,tbhl->tbh", weights, windows))
