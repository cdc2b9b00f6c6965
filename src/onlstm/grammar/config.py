"""The size of a grammar. No torch here: the command line reads its help from it."""

from dataclasses import dataclass

from onlstm.errors import at_least


@dataclass(frozen=True, kw_only=True)
class GrammarConfig:
    """The size of a `Grammar`."""

    vocab_size: int = 0
    """Number of words, including `<unk>` and `<eos>`; a `Grammar` needs some."""
    nonterminals: int = 128
    """Symbols of constituents."""
    preterminals: int = 256
    """Symbols of single words."""
    size: int = 128
    """Size of the vectors of symbols and words."""

    def __post_init__(self) -> None:
        at_least(self, "grammar.", vocab_size=0, nonterminals=1, preterminals=1, size=1)
