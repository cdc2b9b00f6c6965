"""The settings of `onlstm logic`. No torch here: the command line reads its help from it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from onlstm.errors import UserError, at_least, at_most, check_seed
from onlstm.lm.config import MOST_LAYERS, MOST_NEURONS
from onlstm.paper.logic.formulas import VOCABULARY
from onlstm.train.config import FitConfig

_MOST_PAIRS, _MOST_SEEDS, _MOST_NOISE = 10_000_000, 1000, 1000
"""Pairs that fit in memory, and seeds and noise that anybody could mean."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where pairs come from."""

    path: str | None = None
    """Folder or archive with files train0 …, test0 …; None: they are generated."""
    pairs: int = 500_000
    """How many to generate, before duplicates are removed and some are held out for the test."""
    max_train_ops: int = 6
    """Operators of the longest pairs to train on."""

    def __post_init__(self) -> None:
        at_least(self, "", max_train_ops=1, pairs=1)
        at_most(pairs=(self.pairs, _MOST_PAIRS))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of a classifier of pairs; the defaults are the paper's."""

    encoder: Annotated[str, Parameter(show=False)] = "onlstm"
    """Comes from --encoder."""
    embedding_size: int = 128
    """Size of the token embeddings."""
    hidden_size: int = 400
    """Neurons of a layer, and of the classifier's hidden layer."""
    num_layers: int = 1
    """Recurrent layers."""
    chunk_size: int = 10
    """Neurons of an ON-LSTM that share an entry of the master gates."""
    free_last_chunk: bool = False
    """Let the ON-LSTM write its last chunk, which in the paper's cell stays zero."""
    slots: int = 12
    """Memory slots of Ordered Memory in training; tests have twice as many."""
    dropout: float = 0.2
    """Dropout of embeddings, between layers, in Ordered Memory's cell and in the classifier."""
    dropout_embedding: float | None = None
    """Dropout of embeddings alone (default: that of the rest)."""
    dropout_classifier: float | None = None
    """Dropout in the classifier alone (default: that of the rest)."""
    attention_noise: float = 0.0
    """Deviation of the noise on the scores of Ordered Memory's attention in training, so that it learns to decide."""
    weight_dropout: float = 0.0
    """Drop-connect on the recurrent weights of an ON-LSTM or LSTM."""

    @property
    def vocab_size(self) -> int:
        """Tokens that a formula may have."""
        return len(VOCABULARY)

    def dropout_of(self, part: Literal["embedding", "classifier"]) -> float:
        """Return the dropout of a part that may have its own."""
        own: float | None = getattr(self, f"dropout_{part}")
        return self.dropout if own is None else own

    @property
    def least_bytes(self) -> int:
        """The memory of the weights: that of the gates of the paper's encoders, in float32; 0 for others."""
        recurrent = {"onlstm": self.num_layers, "lstm": self.num_layers}
        others = {"tree-lstm": 1, "ordered-memory": 6, "gumbel-tree-lstm": 2, "rrnet": 4, "rl-spinn": 2}
        layers = (recurrent | others).get(self.encoder, 0)
        return 16 * layers * self.hidden_size * self.hidden_size

    def __post_init__(self) -> None:
        at_least(
            self, "model.", embedding_size=1, hidden_size=1, num_layers=1, chunk_size=1, slots=1, attention_noise=0
        )
        most = {"embedding_size": MOST_NEURONS, "hidden_size": MOST_NEURONS, "num_layers": MOST_LAYERS}
        most |= {"slots": MOST_NEURONS, "attention_noise": _MOST_NOISE}
        at_most(**{f"model.{name}": (getattr(self, name), limit) for name, limit in most.items()})
        for name in ("dropout", "dropout_embedding", "dropout_classifier", "weight_dropout"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise UserError(f"model.{name} {getattr(self, name)}: from 0 to less than 1 is needed")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(FitConfig):
    """How to train a classifier; the defaults are the authors'."""

    epochs: int = 50
    batch_size: int = 128
    lr: float = 1e-3
    schedule: Literal["plateau", "constant", "cosine", "one-cycle"] = "plateau"
    patience: int = 2
    """Epochs without improvement after which plateau halves the learning rate."""
    warmup: float = 0.02
    clip: float = 1.0
    checkpoint_minutes: float = 5.0
    rename: bool = False
    """Swap the names of the variables at random, batch by batch: what holds of a and b holds of c and d."""
    growing_epochs: int = 0
    """Epochs, the first ones, in which pairs grow from two operators to all: cheaper, and simple things first."""
    average_epochs: int = 1
    """Validate and keep the mean of the weights at the ends of this many epochs, the last ones; 1: no mean."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: round the factors of products (encoder and classifier), to train faster; tests stay in float32."""
    beta1: float = 0.9
    """Adam's memory of gradients."""
    eps: float = 1e-9
    """Adam's smallest divisor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "train.", patience=0, eps=0, growing_epochs=0, average_epochs=1)
        if not 0 <= self.beta1 < 1:
            raise UserError(f"train.beta1 {self.beta1}: from 0 to less than 1 is needed")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to train, and on which pairs; the docstrings of the fields are the help of the command."""

    data: Path | None = None
    """Folder or archive with files train0 … test12 (default: pairs are generated)."""
    encoder: tuple[str, ...] | None = None
    """Default: onlstm lstm tree-lstm majority. Also ordered-memory gumbel-tree-lstm rrnet rl-spinn, or module:name."""
    seeds: int | None = None
    """Seeds per encoder (default: 3)."""
    seed: int = 0
    """The first seed."""
    max_train_ops: int = Source.max_train_ops
    """Train on formulas of at most this many operators."""
    pairs: int = Source.pairs
    """Pairs to generate without --data."""
    epochs: int | None = None
    """Passes over the pairs (default: 50)."""
    out: Path = Path("runs/logic")
    """Run folder, with a subfolder for each encoder and seed."""
    resume: bool = False
    """Continue the run in --out, with its settings."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.seeds is not None:
            at_least(self, "", seeds=1)
            at_most(seeds=(self.seeds, _MOST_SEEDS))


@dataclass(frozen=True, kw_only=True)
class Request(Options):
    """All that `onlstm logic` was asked for; to continue a run, settings that have their default are the run's."""

    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    typed: frozenset[str] = frozenset()
    """Names of options: their settings count although they have their default."""
    command: str = ""
    """As the user typed it, for result.json."""
    device: str = "auto"
    """Where to train, see `onlstm.device.find`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None:
            object.__setattr__(self, "train", replace(self.train, epochs=self.epochs))

    @property
    def source(self) -> Source:
        """Where the pairs come from."""
        path = str(self.data.resolve()) if self.data else None
        return Source(path=path, pairs=self.pairs, max_train_ops=self.max_train_ops)
