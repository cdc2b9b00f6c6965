"""A language model and the same one in eager mode, for benchmarks that hold a fast way against the plain one."""

from typing import Any

import torch

from onlstm.layer import ONLSTM
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.text.tokenizer import Tokenizer


def twins(tokenizer: Tokenizer, **sizes: Any) -> tuple[LanguageModel, LanguageModel]:
    """Return two models with the same random weights, fused and eager; without `sizes`, of the paper's size."""
    torch.manual_seed(0)
    config = LMConfig(vocab_size=len(tokenizer), **sizes)
    fused, eager = (LanguageModel(config, tokenizer).eval() for _ in range(2))
    eager.load_state_dict(fused.state_dict())
    for layer in eager.layers:
        assert isinstance(layer, ONLSTM)
        layer.backend = "eager"
    return fused, eager
