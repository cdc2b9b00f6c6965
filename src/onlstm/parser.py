"""From sentences to trees: `Parser` reads the distances of a language model and decodes them, order kept.

Each word has the distance at its own step of `LanguageModel.read`, which computes only as many layers as are needed.
Everything downstream of a `Parse` is plain Python.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, overload

import torch
from torch import Tensor

from onlstm.draw import Diagram
from onlstm.errors import UserError, at_least_one
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import Layers, check_utf8, chunks, layer_numbers, tokenizer_of
from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.tree import Tree

Gates = Literal["forget", "input", "lstm"]
Words = list[str] | tuple[str, ...]
"""One tokenised sentence."""

_WORD = re.compile(r"\S+", re.ASCII)  # what a `Tree` takes for a word


@dataclass(frozen=True, kw_only=True, slots=True)
class Parse:
    """A sentence, its distances and its tree."""

    id: int
    """Its place among the sentences or lines given, from 0."""
    text: str
    """Raw text as it was given; of tokenised sentences, the words joined by blanks."""
    words: tuple[str, ...]
    """As they stand in the text; with most tokenizers, punctuation is no word."""
    offsets: tuple[tuple[int, int], ...]
    """One (start, end) per word: `text[start:end]` is the word."""
    distances: tuple[float, ...]
    """One per word: how high the boundary before it is."""
    tree: Tree | None
    """None for a sentence without words, as an empty line or one of punctuation alone."""
    layer: int | tuple[int, ...]
    """The layer, from 1, that the distances are of; several, if they are an average."""
    decoder: Decoder
    """What made the tree of the distances."""
    unknown: int
    """How many of the words the model does not know."""

    def to_json(self) -> str:
        """Return one line of JSON; its `spans` are longer than a word and not the whole sentence, sorted."""
        record = {name: getattr(self, name) for name in ("id", "text", "words", "offsets", "distances")}
        record["spans"] = self.tree.spans() if self.tree else ()
        return json.dumps(record | {"layer": self.layer, "decoder": self.decoder}, ensure_ascii=False)


class Parser:
    """Finds the trees of sentences with the distances of a language model.

    Args:
        layer: the layer to read: a number from 1, "middle" (the second of three, as in the paper) or "last"; or
            several, in a list or as "1,2", for the average of their distances. By default the one that the model's
            configuration names, else the middle one.
        decoder: "paper" or "unbiased", see `onlstm.trees.tree_from_distances`.
        gates: which gates the distances are read from: the master "forget" gates, as in the paper, the master
            "input" gates or, for a model with LSTM layers, "lstm": 1 - the mean of its forget gate (Dyer et al. 2019).
        words_at_once: bounds the memory, also for a single long sentence; it changes nothing but speed.

    >>> from onlstm.lm.config import LMConfig
    >>> from onlstm.text.tokenizer import Tokenizer
    >>> config = LMConfig(vocab_size=5, embedding_size=4, hidden_size=8, chunk_size=2)
    >>> parser = Parser(LanguageModel(config, Tokenizer.of_words(["dogs", "bark", "loudly"], "generic")))
    >>> parse = parser.parse("Dogs bark.")
    >>> parse.words, parse.offsets, parse.layer, str(parse.tree)
    (('Dogs', 'bark'), ((0, 4), (5, 9)), 2, '( Dogs bark )')
    >>> [parse.id for parse in parser.parse([["dogs", "bark"], ["dogs", "bark", "loudly"]])]
    [0, 1]
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        layer: Layers | None = None,
        decoder: Decoder = "paper",
        gates: Gates = "forget",
        words_at_once: int = 2048,
    ) -> None:
        for option, choice, choices in (("decoder", decoder, get_args(Decoder)), ("gates", gates, get_args(Gates))):
            if choice not in choices:
                raise UserError(f"{option} {choice!r}: there are {', '.join(choices)}")
        if model.config.rnn == "lstm" and gates != "lstm":
            raise UserError(f"gates {gates}: a model with LSTM layers has no master gates; for its own there is lstm")
        if model.config.rnn != "lstm" and gates == "lstm":
            raise UserError("gates lstm: only for models with LSTM layers; an ON-LSTM has forget and input")
        at_least_one(words_at_once=words_at_once)
        self.model, self.layers = model, layer_numbers(layer, model.config)
        self.decoder, self.gates, self.words_at_once = decoder, gates, words_at_once
        self._tokenizer = tokenizer_of(model)

    @classmethod
    def load(cls, run: str | Path, **options: Any) -> "Parser":
        """Return a parser with the model of a run folder, or "en-small"; the options are those of `Parser`."""
        return cls(LanguageModel.load(run), **options)

    @overload
    def parse(self, text: str | Words) -> Parse: ...
    @overload
    def parse(self, text: Sequence[list[str]] | Sequence[tuple[str, ...]]) -> list[Parse]: ...
    def parse(self, text: Any) -> Parse | list[Parse]:
        """Return the parse of one sentence, or a list with that of each of several, in order.

        Args:
            text: a string is the raw text of one sentence, a list of strings one tokenised sentence, and a list of
                such lists many. An empty list holds no sentences; one without words is "" or [[]].
        """
        if isinstance(text, str):
            return next(self._parses([_raw(self._tokenizer, text)]))
        if not isinstance(text, list | tuple):
            raise UserError(f"text: a string, a list of words or a list of such lists is needed, not {text!r:.40}")
        if text and all(isinstance(word, str) for word in text):
            return next(self._parses([_tokenised(self._tokenizer, text)]))
        return list(self._parses([_tokenised(self._tokenizer, words, k) for k, words in enumerate(text)]))

    def parse_lines(self, lines: Iterable[str], on_error: Callable[[UserError], None] | None = None) -> Iterator[Parse]:
        """Return an iterator over the parses of lines of raw text, in order; some thousand are in memory at a time.

        Ids are line numbers from 0. A line that cannot be read raises a `UserError` after the parses of the lines
        before it; or, if `on_error` is given, it is left out after a call with the error.
        """
        if isinstance(lines, str):
            raise UserError("lines: an iterable of lines is needed, not a string; for one sentence there is parse")
        chunked = chunks(_readable(self._tokenizer, lines, on_error), _word_count)
        return (parse for chunk in chunked for parse in self._parses(chunk))

    def distances(self, sentences: Iterable[Sequence[str]]) -> Iterator[tuple[tuple[float, ...], ...]]:
        """Return an iterator over tokenised sentences that gives, for each, one tuple of distances per layer.

        All layers of the model come from one pass, whichever the parser makes its trees of.

        >>> from onlstm.lm.config import LMConfig
        >>> from onlstm.text.tokenizer import Tokenizer
        >>> config = LMConfig(vocab_size=4, embedding_size=4, hidden_size=8, chunk_size=2)
        >>> parser = Parser(LanguageModel(config, Tokenizer.of_words(["dogs", "bark"])))
        >>> [[len(layer) for layer in layers] for layers in parser.distances([["dogs", "bark"], ["dogs"]])]
        [[2, 2, 2], [1, 1, 1]]
        """
        tokenised = (_tokenised(self._tokenizer, words, k) for k, words in enumerate(sentences))
        for chunk in chunks(tokenised, _word_count):
            for layers in self._distances(chunk, self.model.config.num_layers):
                yield tuple(map(tuple, layers.tolist()))

    def diagram(
        self, text: str | Words, gold: Tree | None = None, positions: Sequence[int] | None = None
    ) -> Diagram | None:
        """Return what to draw of a sentence: tree, distances and, for a single layer, master gates; None without words.

        Args:
            gold: the correct tree, to draw beside.
            positions: which of the words are drawn: those of the gold tree, if the model reads more.
        """
        sentence = _raw(self._tokenizer, text) if isinstance(text, str) else _tokenised(self._tokenizer, text)
        places = list(range(len(sentence.words)) if positions is None else positions)
        if not places:
            return None
        (parse,) = self._parses([sentence])
        distances, words = [parse.distances[i] for i in places], [parse.words[i] for i in places]
        tree = tree_from_distances(distances, gold.words if gold and positions is not None else words, self.decoder)
        gates = None
        if self.gates != "lstm" and len(self.layers) == 1:
            layers, count = self.layers[0], len(sentence.ids)
            (batch,) = self.model.read([sentence.ids], layers=layers, master_gates=True, tokens_at_once=count)
            gates = getattr(batch.master_gates[-1], self.gates)[places, 0].T.tolist()
        return Diagram(tree=tree, gold=gold, distances=distances, gates=gates)

    def _parses(self, sentences: "list[_Sentence]") -> Iterator[Parse]:
        depth, chosen = self.layers[-1], torch.tensor(self.layers) - 1
        for sentence, layers in zip(sentences, self._distances(sentences, depth), strict=True):
            d = tuple(layers[chosen].mean(0).tolist())
            yield Parse(
                id=sentence.id,
                text=sentence.text,
                words=sentence.words,
                offsets=sentence.offsets,
                distances=d,
                tree=tree_from_distances(d, sentence.words, self.decoder) if d else None,
                layer=self.layers if len(self.layers) > 1 else depth,
                decoder=self.decoder,
                unknown=sentence.ids.count(self._tokenizer.unk_id),
            )

    def _distances(self, sentences: "list[_Sentence]", depth: int) -> list[Tensor]:
        """Return the distances (depth, n) of the first `depth` layers for each sentence of n words."""
        parts: list[list[Tensor]] = [[] for _ in sentences]
        ids = [sentence.ids for sentence in sentences]
        for batch in self.model.read(ids, layers=depth, distances=True, tokens_at_once=self.words_at_once):
            assert batch.distances
            for k, part in batch.split(batch.distances.input if self.gates == "input" else batch.distances.forget):
                parts[k].append(part)
        return [torch.cat(part, 1) if part else torch.empty(depth, 0) for part in parts]


class _Sentence(NamedTuple):
    """A sentence as the model reads it."""

    id: int
    text: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    ids: list[int]


def _word_count(sentence: _Sentence) -> int:
    return len(sentence.ids)


def _readable(
    tokenizer: Any, lines: Iterable[str], on_error: Callable[[UserError], None] | None
) -> Iterator[_Sentence]:
    for k, line in enumerate(lines):
        try:
            yield _raw(tokenizer, line.rstrip("\r\n"), k)
        except UserError as error:
            if on_error is None:
                raise
            on_error(error)


def _raw(tokenizer: Any, text: str, id: int = 0) -> _Sentence:
    check_utf8(text, f"line {id + 1}: ")
    tokens = tokenizer.tokens(text)
    offsets = tuple((token.start, token.end) for token in tokens)
    return _Sentence(id, text, tuple(token.text for token in tokens), offsets, [token.id for token in tokens])


def _tokenised(tokenizer: Any, words: Any, id: int = 0) -> _Sentence:
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise UserError(f"sentence {id + 1}: a list of words is needed, not {words!r:.40}")
    offsets, end = [], -1
    for i, word in enumerate(words):
        if not _WORD.fullmatch(word):
            raise UserError(
                f"sentence {id + 1}, word {i + 1}: {word!r:.40} is not a word, it is empty or contains whitespace; "
                "raw text goes as a string to parse, or line by line to parse_lines"
            )
        offsets.append((end + 1, end := end + 1 + len(word)))
    text = " ".join(words)
    check_utf8(text, f"sentence {id + 1}: ")
    return _Sentence(id, text, tuple(words), tuple(offsets), tokenizer.ids(words))
