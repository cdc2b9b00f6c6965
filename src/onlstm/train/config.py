"""How models are trained: settings, checked. No torch here."""

import math
from dataclasses import dataclass
from typing import Literal

from onlstm.errors import UserError, at_least


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """What `onlstm.train.fit` itself has to know."""

    epochs: int = 1000
    """Passes over the training data."""
    last_epoch: float = 1.0
    """Share of the last pass that is made: for a training that is to take a given time."""
    batch_size: int = 20
    """Columns of text, or pairs of formulas, in a step (over all processes)."""
    lr: float = 30.0
    """Learning rate."""
    schedule: Literal["constant", "plateau", "cosine", "one-cycle", "trapezoid"] = "constant"
    """Of the learning rate: plateau lowers it when validation stalls; cosine, one-cycle and trapezoid end at zero."""
    warmup: float = 0.1
    """Share of the training in which cosine, one-cycle and trapezoid rise."""
    decay: float = 1.0
    """Factor of the learning rate after each epoch from decay_epoch on."""
    decay_epoch: int = 0
    """Epochs before the learning rate begins to decay."""
    clip: float = 0.25
    """Largest global norm of the gradient; 0: no limit."""
    weight_decay: float = 1.2e-6
    """Weight decay, of all weights."""
    checkpoint_minutes: float = 10.0
    """Time between two checkpoints within an epoch."""
    log_steps: int = 200
    """Steps between two records of progress."""

    @property
    def passes(self) -> float:
        """Passes in all, the last as far as it is made."""
        return self.epochs - 1 + self.last_epoch

    def __post_init__(self) -> None:
        limits = {"epochs": 1, "batch_size": 1, "log_steps": 1, "clip": 0, "weight_decay": 0, "checkpoint_minutes": 0}
        limits["decay_epoch"] = 0
        at_least(self, "train.", **limits)
        if not 0 < self.lr < math.inf:
            raise UserError(f"train.lr {self.lr}: a number above 0 is needed")
        for name in ("decay", "last_epoch"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"train.{name} {getattr(self, name)}: above 0 and at most 1 is needed")
        if not 0 <= self.warmup < 1:
            raise UserError(f"train.warmup {self.warmup}: from 0 to less than 1 is needed")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(FitConfig):
    """How to train a language model; the defaults are the paper's for the Penn Treebank."""

    bptt: int = 70
    """Words that gradients reach back; with vary_bptt, the mean length of a window."""
    vary_bptt: bool = True
    """Draw each window's length, from N(bptt, 5) or (1 in 20) N(bptt/2, 5), and scale the learning rate with it."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """The optimizer."""
    beta1: float = 0.9
    """Of AdamW: share of the old gradient in the mean that a step follows."""
    beta2: float = 0.99
    """Of AdamW: the same for the mean of squares that a step is divided by."""
    alpha: float = 2.0
    """Weight of the mean square of the last layer's output (AR)."""
    beta: float = 1.0
    """Weight of the mean square of its change over time (TAR)."""
    averaging: Literal["none", "nt-asgd", "asgd-compat"] = "nt-asgd"
    """Average the weights once validation stalls; asgd-compat uses torch.optim.ASGD, as the original code does."""
    patience: int = 5
    """Epochs without improvement that start the averaging."""
    finetune_epoch: int = 500
    """Epoch after which averaging starts again; 0: never."""
    precision: Literal["float32", "bfloat16", "float64"] = "float32"
    """bfloat16: round the factors of products (softmax, ON-LSTM, LSTM), to save time; float64: to compare digits."""
    valid_batch_size: int = 10
    """Columns of the validation text."""
    keep_epochs: bool = False
    """Keep the model of every epoch, in epochs/N of the run's folder, not only the best."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "train.", bptt=1, valid_batch_size=1, alpha=0, beta=0, patience=0, finetune_epoch=0)
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"train.{name} {getattr(self, name)}: from 0 to less than 1 is needed")
        if self.averaging != "none" and self.optimizer != "sgd":
            raise UserError(f"train.averaging {self.averaging}: works with optimizer: sgd only; set averaging: none")


@dataclass(frozen=True, kw_only=True)
class GrammarTrainConfig(FitConfig):
    """How to train a grammar."""

    epochs: int = 5
    """Passes over the sentences."""
    batch_size: int = 32
    """Sentences in a step, all of the same length."""
    lr: float = 2e-3
    """Learning rate."""
    schedule: Literal["constant", "plateau", "cosine", "one-cycle", "trapezoid"] = "trapezoid"
    """Of the learning rate."""
    warmup: float = 0.04
    """Share of the training in which it rises."""
    clip: float = 3.0
    """Largest global norm of the gradient; 0: no limit."""
    weight_decay: float = 0.0
    """Weight decay, of all weights."""
    checkpoint_minutes: float = 1.0
    """Time between two checkpoints within an epoch."""
    tilt: float = 2.0
    """How strongly the teacher's spans count at first: the score of a span that all its trees have."""
    tilt_hold: float = 0.3
    """Share of the training in which the tilt stays."""
    tilt_end: float = 1.2
    """Share of the training at which the tilt, falling along a straight line, would be zero."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """bfloat16: round the factors of products, where the processor can multiply them; sums stay in float32."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "train.", tilt=0, tilt_hold=0)
        if self.tilt_end <= self.tilt_hold:
            raise UserError(f"train.tilt_end {self.tilt_end}: more than tilt_hold, {self.tilt_hold}, is needed")

    def tilt_at(self, done: float) -> float:
        """Return the tilt when the share `done` of the training is done."""
        return self.tilt * min(1.0, max(0.0, (self.tilt_end - done) / (self.tilt_end - self.tilt_hold)))
