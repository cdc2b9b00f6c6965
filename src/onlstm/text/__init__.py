"""Text to ids: `Tokenizer` with its profiles, and corpora that are memory-mapped. numpy and tokenizers, no torch."""

from onlstm.text.corpus import Corpus, encode_text, load, prepare
from onlstm.text.sources import read_lines
from onlstm.text.tokenizer import EOS, PROFILES, UNK, Token, Tokenizer

__all__ = ["EOS", "PROFILES", "UNK", "Corpus", "Token", "Tokenizer", "encode_text", "load", "prepare", "read_lines"]
