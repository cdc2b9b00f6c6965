"""What every encoder of formulas begins with: embeddings of the tokens, and dropout."""

import torch
from torch import Tensor, nn

from onlstm.paper.logic.config import ModelConfig

CPU = torch.device("cpu")


class Dropout(nn.Dropout):
    """`nn.Dropout`, whose mask is drawn in half the time."""

    def forward(self, input: Tensor) -> Tensor:
        return input * ((torch.rand_like(input) >= self.p) / (1 - self.p)) if self.training and self.p else input


class Encoder(nn.Module):
    """The embeddings of the tokens, and dropout. Formulas come on the CPU, wherever the encoder is."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.size = config.hidden_size
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.dropout = Dropout(config.dropout)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.embedding.weight.device
