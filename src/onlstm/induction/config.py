"""The numbers of an induction, all in one place. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from onlstm.errors import UserError, at_least, at_most, check_seed
from onlstm.grammar.config import GrammarConfig
from onlstm.lm.config import LMConfig
from onlstm.recipe import Recipe, read
from onlstm.text.config import TextConfig
from onlstm.train.config import GrammarTrainConfig, TrainConfig

Member = Literal["plain", "tilted"]
"""A grammar of a round: without a teacher, or tilted towards what was voted before."""


_MOST = 1000
"""Of language models, and of rounds."""


@dataclass(frozen=True, kw_only=True)
class InductionText(TextConfig):
    """How text becomes words; grammars have smaller vocabularies than language models."""

    vocab_size: int | None = 10_000
    """Keep this many words, the most frequent ones; null: all."""
    min_count: int = 2
    """Keep words that occur at least this often."""
    endings: int = 300
    """Tell unknown words apart by so many endings, the most frequent ones; 0: all are one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "text.", endings=0)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much training a kind of model gets."""

    weight: float
    """Its share of the time, relative to others."""
    least_epochs: int
    """Rather less text than fewer epochs."""
    most_epochs: int


def _quick() -> Recipe:
    return Recipe.of(read("quick"))


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What is trained, and how the time is divided."""

    shortest: int = 2
    longest: int = 30
    """Words of the sentences that grammars are trained on."""
    least_sentences: int = 500
    held_out: int = 1000
    """Sentences, at most, that likelihood and agreement are measured on."""
    model: LMConfig = field(default_factory=lambda: replace(_quick().model, softmax="bfloat16"))
    train: TrainConfig = field(default_factory=lambda: replace(_quick().train, checkpoint_minutes=1, log_steps=50))
    grammar: GrammarConfig = field(default_factory=GrammarConfig)
    grammar_train: GrammarTrainConfig = field(default_factory=GrammarTrainConfig)
    round: tuple[Member, ...] = ("plain", "tilted", "tilted")
    """The grammars of a round."""
    efforts: Mapping[str, Effort] = field(
        default_factory=lambda: {
            "language-model": Effort(weight=1.0, least_epochs=2, most_epochs=12),
            "plain": Effort(weight=1.5, least_epochs=3, most_epochs=40),
            "tilted": Effort(weight=1.0, least_epochs=3, most_epochs=40),
            "final": Effort(weight=1.5, least_epochs=3, most_epochs=40),
        }
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an induction was asked for: the same settings and speeds make the same plan."""

    teachers: tuple[str, ...] = ()
    """Folders of language models; none: train some."""
    seeds: int = 5
    """Language models to train."""
    rounds: int = 2
    """Rounds of grammars before the final one."""
    minutes: float = 60.0
    """Time to plan for."""
    seed: int = 0
    """Seed of everything."""
    text: InductionText = field(default_factory=InductionText)
    numbers: Numbers = field(default_factory=Numbers)

    def __post_init__(self) -> None:
        at_least(self, "", seeds=1, rounds=1)
        at_most(seeds=(self.seeds, _MOST), rounds=(self.rounds, _MOST))
        check_seed(self.seed)
        if not 0 < self.minutes < 1e6:
            raise UserError(f"minutes {self.minutes:g}: a number above 0 is needed")
