"""A sentence before it is parsed, `Sentence`, and after it, `Parse`; and how raw text and lists of words become one."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from onlstm.draw import Diagram, svg
from onlstm.errors import UserError
from onlstm.lm.reader import check_utf8
from onlstm.text import conllu
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees.decode import Decoder
from onlstm.trees.tree import Tree

GrammarDecoder = Literal["mbr", "viterbi"]
_WORD = re.compile(r"\S+", re.ASCII)  # what a `Tree` takes for a word


@dataclass(frozen=True, kw_only=True, slots=True)
class Parse:
    """A sentence and its tree, with the distances or the probabilities that made it."""

    id: int
    """Its place among the sentences or lines given, from 0."""
    text: str
    """Raw text as it was given; of tokenised sentences, the words joined by blanks."""
    words: tuple[str, ...]
    """As they stand in the text; with most tokenizers, punctuation is no word."""
    offsets: tuple[tuple[int, int], ...]
    """One (start, end) per word: `text[start:end]` is the word."""
    distances: tuple[float, ...] | None
    """One per word: how high the boundary before it is; None for a grammar, which has none."""
    tree: Tree | None
    """None for a sentence without words, as an empty line or one of punctuation alone."""
    layer: int | tuple[int, ...] | None
    """The layer, from 1, that the distances are of; several, if they are an average; None for a grammar."""
    decoder: Decoder | GrammarDecoder
    """What made the tree of the distances, or of a grammar's probabilities."""
    unknown: int
    """How many of the words the model does not know."""
    labels: tuple[str, ...] | None = None
    """A grammar's symbol for each of `tree.spans()`: N17; None for a language model."""
    confidence: tuple[float, ...] | None = None
    """The probability, given the words, that each of `tree.spans()` is a constituent; None for a language model."""
    votes: tuple[float, ...] | None = None
    """For each of `tree.spans()`, the share of the members' trees that have it; None if members were not asked."""

    def to_json(self) -> str:
        """Return one line of JSON, the `record`."""
        return json.dumps(self.record(), ensure_ascii=False)

    def record(self) -> dict[str, object]:
        """Return plain data; its `spans` are longer than a word and not the whole sentence, sorted.

        `labels`, `confidence` and `votes` are there if they are not None.
        """
        record = {name: getattr(self, name) for name in ("id", "text", "words", "offsets", "distances")}
        record["spans"] = self.tree.spans() if self.tree else ()
        record |= {"layer": self.layer, "decoder": self.decoder}
        facts = {name: getattr(self, name) for name in ("labels", "confidence", "votes")}
        return record | {name: fact for name, fact in facts.items() if fact is not None}

    def to_conllu(self, rows: Sequence[str] = ()) -> str:
        """Return comments and columns of CoNLL-U with the tree in a comment, `# parse = …`; no empty line ends them.

        Args:
            rows: comments and columns to keep, of a sentence that was read from CoNLL-U; by default the columns hold
                the words and else `_`.
        """
        tree = str(self.tree) if self.tree else ""
        return conllu.with_parse(rows or conllu.rows_of(self.words, self.text, str(self.id + 1)), tree)

    def diagram(self) -> Diagram | None:
        """Return what to draw: the tree and the distances; None without words."""
        sure = self.confidence is not None
        return Diagram(tree=self.tree, distances=self.distances, sure=sure) if self.tree else None

    def _repr_svg_(self) -> str | None:
        """Return the picture that notebooks show; None without words."""
        diagram = self.diagram()
        return svg(diagram) if diagram else None

    def _repr_html_(self) -> str | None:
        """Return the same for notebooks that prefer HTML; a wide tree scrolls."""
        picture = self._repr_svg_()
        return f'<div style="overflow-x:auto">{picture}</div>' if picture else None


class Sentence(NamedTuple):
    """A sentence as a model reads it."""

    id: int
    text: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    ids: list[int]


def raw(tokenizer: Tokenizer, text: str, id: int = 0) -> Sentence:
    """Return the sentence of raw text."""
    check_utf8(text, f"line {id + 1}: ")
    tokens = tokenizer.tokens(text)
    offsets = tuple((token.start, token.end) for token in tokens)
    return Sentence(id, text, tuple(token.text for token in tokens), offsets, [token.id for token in tokens])


def tokenised(tokenizer: Tokenizer, words: Any, id: int = 0) -> Sentence:
    """Return the sentence of a list of words, checked."""
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise UserError(f"sentence {id + 1}: a list of words is needed, not {words!r:.40}")
    offsets, end = [], -1
    for i, word in enumerate(words):
        if not _WORD.fullmatch(word):
            raise UserError(
                f"sentence {id + 1}, word {i + 1}: {word!r:.40} is not a word, it is empty or contains whitespace; "
                "raw text goes as a string to parse, a list of raw sentences to parse_text"
            )
        offsets.append((end + 1, end := end + 1 + len(word)))
    text = " ".join(words)
    check_utf8(text, f"sentence {id + 1}: ")
    return Sentence(id, text, tuple(words), tuple(offsets), tokenizer.ids(words))
