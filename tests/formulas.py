"""Some formulas, and what the tests of encoders do with them."""

import torch
from torch.autograd import gradcheck
from torch.func import functional_call

from onlstm.paper.logic.formulas import VOCABULARY

TEXTS = ["( ( ( not a ) ( or b ) ) ( and ( not c ) ) )", "( b ( and ( not b ) ) )", "( not a )", "f"]


def ids(text):
    return torch.tensor([VOCABULARY.index(token) for token in text.split()])


def gradients_are_derivatives(module):
    """Return whether the gradients of the vectors are those of finite differences, for every parameter."""
    names, weights = zip(*module.named_parameters(), strict=True)
    texts = [ids(text) for text in TEXTS[1:]]

    def vectors(*values):
        return functional_call(module, dict(zip(names, values, strict=True)), (texts,))

    return gradcheck(vectors, weights, fast_mode=True)
