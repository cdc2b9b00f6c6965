"""What `onlstm evaluate` can be asked for; the docstrings of the fields are its help. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onlstm.trees.treebank import Split

Decoding = Literal["paper", "unbiased", "vote", "mbr", "viterbi"]
Gates = Literal["forget", "input", "lstm", "own"]
Mapping = Literal["aligned", "original"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to evaluate."""

    rule: tuple[str, ...] = ("on-lstm",)
    """How F1 is counted: on-lstm (default), kim2019, kim2019-corpus, evalb, evalb-onlstm, punct, or all."""
    layers: tuple[str, ...] = ()
    """1, 2, middle, last, or 1,2 for an average (default: every layer)."""
    decoder: tuple[Decoding, ...] = ("paper", "unbiased", "vote")
    """How distances become trees: paper, unbiased, vote (default: all three); a grammar's probabilities: mbr (default),
    viterbi."""
    gates: Gates | None = None
    """Which gates to read: forget (default), input, lstm (an LSTM's own forget gates), own (of other networks)."""
    mapping: Mapping = "aligned"
    """How words are looked up: as the model's text has them (default), or as the original code does."""
    profile: str = "auto"
    """Kind of treebank: a name or a YAML file (default: by its content)."""
    split: Split = "all"
    """Part of the Wall Street Journal."""
    max_len: int | None = None
    """Leave longer sentences out."""
    trees: Path | None = None
    """Brackets, or parses in JSON, to score as well."""
    other_words: bool = False
    """The words of --trees may differ from the treebank's, if there are as many."""
    ccm: bool = False
    """Score CCM and DMV+CCM as well, learnt from the tags of the treebank's sentences of at most 10 words."""
    dev: Path | None = None
    """Treebank to choose the headline's layer and decoder on, and what a grammar's labels stand for."""
    words: Path | None = None
    """Write the treebank's sentences here, for other parsers."""
    out: Path | None = None
    """Save the result here, for `onlstm report`: results/NAME.json."""
    strict: bool = False
    """Stop at the first defect of the treebank."""
    allow_skipped: bool = False
    """Score the rest of a treebank of which more than half cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Request(Options):
    """What to evaluate, and how."""

    runs: Sequence[Path]
    treebank: Path
    command: str = ""
    """As the user typed it, for the result file."""
    device: str = "auto"
    """Where language models run, see `onlstm.device.find`."""
