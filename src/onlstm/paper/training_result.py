"""The content of a language model's result: what `onlstm train` writes and the pages read. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass

from onlstm.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Split:
    """A part of a text."""

    lines: int = 0
    words: int = 0
    tokens: int
    unknown: int = 0
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a model was trained on."""

    name: str = ""
    profile: str
    vocabulary: int
    train: Split
    valid: Split
    test: Split | None = None


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """How training went; perplexities are those of the best epoch's weights."""

    valid_perplexity: float
    test_perplexity: float | None = None
    best_epoch: int
    epochs: int
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """An epoch, as seen during training."""

    epoch: int
    step: int = 0
    train_loss: float
    valid_loss: float = 0.0
    valid_perplexity: float
    best_epoch: int = 0
    averaging: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A learning rate that was tried beforehand."""

    lr: float
    epochs: int
    valid_perplexity: float


@dataclass(frozen=True, kw_only=True)
class Content:
    """A training that is finished."""

    recipe: Recipe
    data: Text
    parameters: int
    processes: int = 1
    numbers: Numbers
    curve: Sequence[Epoch]
    grid: Sequence[Trial] = ()
