"""The size of a grammar. No torch here: the command line reads its help from it."""

from dataclasses import dataclass

from onlstm.errors import at_least, at_most

_MOST = 1_000_000


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
        sizes = ("nonterminals", "preterminals", "size")
        at_most(**{f"grammar.{name}": (getattr(self, name), _MOST) for name in sizes})

    @property
    def least_bytes(self) -> int:
        """The memory of the weights and of the rules that are made of them, in float32."""
        symbols = self.nonterminals + self.preterminals
        weights = (symbols + self.vocab_size) * self.size + 20 * self.size**2
        return 4 * (weights + 2 * self.nonterminals * symbols + self.vocab_size * self.preterminals)
