"""How text becomes words: settings. No torch here."""

from dataclasses import dataclass
from typing import Literal

from onlstm.errors import at_least


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes words."""

    profile: Literal["auto", "ptb-en", "generic", "pretokenized"] = "auto"
    """Rules of tokenisation; auto looks at the text and reports its choice."""
    vocab_size: int | None = None
    """Keep this many words, the most frequent ones; null: all."""
    min_count: int = 1
    """Keep words that occur at least this often."""
    punctuation: bool = False
    """Punctuation marks are words; with the profile generic."""
    keep: str = ""
    """Words, separated by spaces, to keep however rare they are."""

    def __post_init__(self) -> None:
        at_least(self, "text.", min_count=1, **({} if self.vocab_size is None else {"vocab_size": 3}))
