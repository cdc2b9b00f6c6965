"""Some formulas, and what the tests of encoders do with them."""

import torch
from torch.autograd import grad, gradcheck
from torch.func import functional_call

from onlstm.paper.logic.classifier import Batch
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.encoders import build
from onlstm.paper.logic.formulas import VOCABULARY

TEXTS = ["( ( ( not a ) ( or b ) ) ( and ( not c ) ) )", "( b ( and ( not b ) ) )", "( not a )", "f"]


def ids(text):
    return torch.tensor([VOCABULARY.index(token) for token in text.split()])


def random_encoder(name, seed, D, scale):
    """Return an encoder with random weights, larger than those it starts with."""
    torch.manual_seed(seed)
    module = build(ModelConfig(encoder=name, embedding_size=4, hidden_size=D, dropout=0.0)).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-scale, scale)
    return module


def policy_alone_learns_from_its_choices(module, formulas):
    rest = [p for name, p in module.named_parameters() if not name.startswith("policy")]
    log_p = module.sample(formulas)[1].sum()
    others = grad(log_p, rest, allow_unused=True, retain_graph=True)
    return all(g is None for g in others) and all(g is not None for g in grad(log_p, [*module.policy.parameters()]))


def estimates_have_the_mean(model, batch, expected, n=6000):
    """Return whether the mean of n estimates for a batch of one pair is the gradient of its expected loss."""
    policy = [*model.encoder.policy.parameters()]
    exact = grad(expected, policy)
    formulas = [formula for formula in batch.formulas for _ in range(n)]
    torch.manual_seed(0)
    model.encoder.baseline.fill_(-expected.detach())  # changes the noise, not the mean
    losses = model.losses(Batch(formulas, torch.arange(2 * n).view(2, n), batch.labels.repeat(n)))[1]
    limit = 0.1 * max(float(g.abs().max()) for g in exact)
    estimate = grad(losses.mean(), policy)
    return all((found - wanted).abs().max() < limit for found, wanted in zip(estimate, exact, strict=True))


def gradients_are_derivatives(module):
    """Return whether the gradients of the vectors are those of finite differences, for every parameter."""
    names, weights = zip(*module.named_parameters(), strict=True)
    texts = [ids(text) for text in TEXTS[1:]]

    def vectors(*values):
        return functional_call(module, dict(zip(names, values, strict=True)), (texts,))

    return gradcheck(vectors, weights, fast_mode=True)
