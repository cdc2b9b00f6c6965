"""Every encoder without given trees learns a small set of pairs."""

from collections import Counter

import numpy as np
import pytest
import torch

from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.formulas import Pair


@pytest.mark.parametrize(
    ("encoder", "lr", "steps", "accuracy"),
    [
        ("gumbel-tree-lstm", 1e-2, 150, 0.75),
        ("ordered-memory", 5e-3, 60, 0.95),
        ("rrnet", 1e-2, 150, 0.95),
        ("rl-spinn", 1e-2, 100, 0.95),
    ],
)
def test_it_learns_all_pairs_of_some_short_formulas(encoder, lr, steps, accuracy):
    compound = [f"( {x} ( {word} {y} ) )" for x, y in ("ab", "ba") for word in ("and", "or")]
    texts = ["a", "( not a )", "( not b )", *compound]
    pairs = [Pair(Pair("", x, y).truth, x, y) for x in texts for y in texts]
    problems = Problems.of(pairs)
    batch = problems.batch(np.arange(len(pairs)))
    torch.manual_seed(0)
    model = Classifier(ModelConfig(encoder=encoder, embedding_size=16, hidden_size=32, slots=3, dropout=0.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        model.losses(batch)[1].mean().backward()
        optimizer.step()
    majority = max(Counter(pair.relation for pair in pairs).values()) / len(pairs)
    assert majority < 0.5
    assert model.right(problems).mean() > accuracy
