"""A text and a model that train in a second, for the tests of training."""

import random

import numpy as np
import torch

from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.text.tokenizer import Tokenizer
from onlstm.train.config import TrainConfig

WORDS = ["<unk>", "<eos>", "the", "a", "cat", "dog", "bird", "sees", "hears", "of", "and", "old", "small", "who"]
DROPOUT = {
    "dropout_embedding": 0.1,
    "dropout_input": 0.2,
    "dropout_hidden": 0.2,
    "dropout_output": 0.2,
    "weight_dropout": 0.3,
}
FAST = {"batch_size": 4, "bptt": 12, "valid_batch_size": 2, "lr": 5.0, "epochs": 4, "finetune_epoch": 0}


def sentences(count: int, seed: int = 0) -> list[str]:
    """Invented sentences of noun phrases and verbs."""
    rng = random.Random(seed)

    def noun_phrase(depth: int = 0) -> list[str]:
        words = [rng.choice(["the", "a"]), *rng.choices(["old", "small"], k=rng.randrange(2))]
        words.append(rng.choice(["cat", "dog", "bird"]))
        if depth < 2 and rng.random() < 0.3:
            words += ["of", *noun_phrase(depth + 1)]
        return words

    return [" ".join([*noun_phrase(), rng.choice(["sees", "hears"]), *noun_phrase()]) for _ in range(count)]


def ids(count: int, seed: int = 0) -> np.ndarray:
    known = {word: k for k, word in enumerate(WORDS)}
    return np.array([known[word] for line in sentences(count, seed) for word in [*line.split(), "<eos>"]], np.uint16)


def model(seed: int = 0, **more) -> LanguageModel:
    torch.manual_seed(seed)
    config = LMConfig(vocab_size=len(WORDS), embedding_size=8, hidden_size=12, chunk_size=4, **(DROPOUT | more))
    return LanguageModel(config, Tokenizer.of_words(WORDS)).double()


def config(**more) -> TrainConfig:
    return TrainConfig(**(FAST | more))
