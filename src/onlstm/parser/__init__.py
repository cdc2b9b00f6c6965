"""From sentences to trees: `Parser` asks a language model or a grammar, in batches, order kept.

A language model's trees are decoded from its distances (`distances`), a grammar's from the probabilities of spans
(`marginals`). Everything downstream of a `Parse` is plain Python.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast, overload

import torch

from onlstm import folder
from onlstm.device import check_grammar
from onlstm.draw import Diagram
from onlstm.errors import UserError, at_least_one
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import Layers, chunks, tokenizer_of
from onlstm.models import locate
from onlstm.parser.distances import DistanceParser, Gates
from onlstm.parser.marginals import GrammarParser
from onlstm.parser.parse import GrammarDecoder, Parse, Sentence, raw, tokenised
from onlstm.trees.decode import Decoder
from onlstm.trees.tree import Tree

__all__ = ["Gates", "GrammarDecoder", "Parse", "Parser", "Words"]

Words = list[str] | tuple[str, ...]
"""One tokenised sentence."""


class Parser:
    """Finds the trees of sentences with a language model, by its distances, or with a grammar.

    Args:
        layer: of a language model, the layer to read: a number from 1, "middle" (the second of three, as in the paper)
            or "last"; or several, in a list or as "1,2", for the average of their distances. By default the one that
            the model's configuration names, else the middle one.
        decoder: of a language model "paper" (the default) or "unbiased", see `onlstm.trees.tree_from_distances`; of a
            grammar "mbr" (the default: the spans that are likeliest, all trees considered) or "viterbi" (the likeliest
            tree, slower).
        gates: of a language model, which gates the distances are read from: the master "forget" gates, as in the paper
            (the default), the master "input" gates or, for a model with LSTM layers (there the default), "lstm": 1 -
            the mean of its forget gate (Dyer et al. 2019).
        labels: whether a grammar's trees have its symbols as labels: N17 over constituents, T5 over words.
        members: grammars over the same words, of whose trees `Parse.votes` counts the spans.
        words_at_once: bounds the memory of a language model, also for a single long sentence; it changes nothing but
            speed.

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
        model: LanguageModel | Grammar,
        *,
        layer: Layers | None = None,
        decoder: Decoder | GrammarDecoder | None = None,
        gates: Gates | None = None,
        labels: bool = False,
        members: Sequence[Grammar] = (),
        words_at_once: int = 2048,
    ) -> None:
        at_least_one(words_at_once=words_at_once)
        self.model, self._tokenizer = model, tokenizer_of(model)
        self._parser: DistanceParser | GrammarParser
        if isinstance(model, Grammar):
            for option, value in (("layer", layer), ("gates", gates)):
                if value is not None:
                    raise UserError(f"{option} {value}: a grammar has none; only a language model has")
            for member in members:
                if tokenizer_of(member).vocabulary != self._tokenizer.vocabulary:
                    raise UserError("members: a grammar over other words; all of them need the same vocabulary")
            self._parser = GrammarParser(model, cast(GrammarDecoder, decoder or "mbr"), labels, members)
        else:
            if labels or members:
                raise UserError(f"{'labels' if labels else 'members'}: a language model has none; only a grammar has")
            choice = cast(Decoder, decoder or "paper")
            self._parser = DistanceParser(model, layer, choice, gates, words_at_once)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers, from 1, whose distances make the trees; none for a grammar."""
        return self._parser.layers

    @property
    def decoder(self) -> Decoder | GrammarDecoder:
        """What makes trees of distances or probabilities."""
        return self._parser.decoder

    @property
    def gates(self) -> Gates | None:
        """Which gates the distances are read from; None for a grammar."""
        return self._parser.gates

    @classmethod
    def load(
        cls, run: str | Path, *, votes: bool = False, device: str | torch.device = "auto", **options: Any
    ) -> "Parser":
        """Return a parser with the model of a run folder, or of a bundled one such as "en-small".

        Args:
            votes: whether the grammars in the run's folder `members` are the members, if it has such a folder.
            device: where a language model runs, see `onlstm.device.find`; grammars run on the CPU alone.
            options: those of `Parser`.
        """
        if folder.kind_of(Path(run)) == "model":
            return cls(LanguageModel.load(run, device=device), **options)
        check_grammar(device, run)
        if votes:
            paths = sorted(path.parent for path in locate(run).glob(f"members/*/{folder.CONFIG}"))
            options["members"] = [Grammar.load(path) for path in paths]
        return cls(Grammar.load(run), **options)

    @overload
    def parse(self, text: str | Words) -> Parse: ...
    @overload
    def parse(self, text: Sequence[list[str]] | Sequence[tuple[str, ...]]) -> list[Parse]: ...
    def parse(self, text: Any) -> Parse | list[Parse]:
        """Return the parse of one sentence, or a list with that of each of several, in order.

        Args:
            text: a string is the raw text of one sentence, a list of strings one tokenised sentence, and a list of
                such lists many. An empty list holds no sentences; one without words is "" or [[]]. For a list of raw
                sentences there is `parse_text`.
        """
        if isinstance(text, str):
            return next(self._parser.parses([self._raw(text)]))
        if not isinstance(text, list | tuple):
            raise UserError(f"text: a string, a list of words or a list of such lists is needed, not {text!r:.40}")
        if text and all(isinstance(word, str) for word in text):
            return next(self._parser.parses([self._tokenised(text)]))
        return list(self._parser.parses([self._tokenised(words, k) for k, words in enumerate(text)]))

    def parse_text(self, sentences: Iterable[str]) -> list[Parse]:
        """Return the parses of raw sentences, in order.

        >>> from onlstm.lm.config import LMConfig
        >>> from onlstm.text.tokenizer import Tokenizer
        >>> config = LMConfig(vocab_size=4, embedding_size=4, hidden_size=8, chunk_size=2)
        >>> parser = Parser(LanguageModel(config, Tokenizer.of_words(["dogs", "bark"], "generic")))
        >>> [parse.words for parse in parser.parse_text(["Dogs bark.", "Bark, dogs!"])]
        [('Dogs', 'bark'), ('Bark', 'dogs')]
        """
        if isinstance(sentences, str):
            raise UserError("sentences: an iterable of strings is needed, not a string; for one there is parse")
        return list(self.parse_lines(sentences))

    def parse_lines(
        self, lines: Iterable[str | Words], on_error: Callable[[UserError], None] | None = None, first: int = 0
    ) -> Iterator[Parse]:
        """Return an iterator over the parses of lines, in order; a thousand are in memory at a time.

        A line is a string of raw text, or a list of words.

        Ids are line numbers, from `first` on. A line that cannot be read raises a `UserError` after the parses of the
        lines before it; or, if `on_error` is given, it is left out after a call with the error.
        """
        if isinstance(lines, str):
            raise UserError("lines: an iterable of lines is needed, not a string; for one sentence there is parse")
        chunked = chunks(self._readable(lines, on_error, first), _word_count)
        return (parse for chunk in chunked for parse in self._parser.parses(chunk))

    def distances(
        self, sentences: Iterable[Sequence[str]], on_progress: Callable[[int], object] = lambda done: None
    ) -> Iterator[tuple[tuple[float, ...], ...]]:
        """Return an iterator over tokenised sentences that gives, for each, one tuple of distances per layer.

        All layers of the model come from one pass, whichever the parser makes its trees of. `on_progress` is called
        with the number of sentences that have been read.

        >>> from onlstm.lm.config import LMConfig
        >>> from onlstm.text.tokenizer import Tokenizer
        >>> config = LMConfig(vocab_size=4, embedding_size=4, hidden_size=8, chunk_size=2)
        >>> parser = Parser(LanguageModel(config, Tokenizer.of_words(["dogs", "bark"])))
        >>> [[len(layer) for layer in layers] for layers in parser.distances([["dogs", "bark"], ["dogs"]])]
        [[2, 2, 2], [1, 1, 1]]
        """
        if isinstance(self._parser, GrammarParser):
            raise UserError("a grammar has no distances; only a language model has")
        depth, past = self._parser.model.config.distance_layers, 0

        def report(done: int) -> None:
            on_progress(past + done)

        tokenised = (self._tokenised(words, k) for k, words in enumerate(sentences))
        for chunk in chunks(tokenised, _word_count, scale=10):
            for layers in self._parser.distances(chunk, depth, report):
                yield tuple(map(tuple, layers.tolist()))
            past += len(chunk)

    def diagram(
        self, text: str | Words, gold: Tree | None = None, positions: Sequence[int] | None = None
    ) -> Diagram | None:
        """Return what to draw of a sentence: tree, distances and, for a single layer, master gates; None without words.

        Args:
            gold: the correct tree, to draw beside.
            positions: which of the words are drawn: those of the gold tree, if the model reads more.
        """
        sentence = self._raw(text) if isinstance(text, str) else self._tokenised(text)
        places = list(range(len(sentence.words)) if positions is None else positions)
        if not places:
            return None
        words = gold.words if gold and positions is not None else [sentence.words[i] for i in places]
        return self._parser.diagram(sentence, gold, places, words)

    def _raw(self, text: str, id: int = 0) -> Sentence:
        sentence = raw(self._tokenizer, text, id)
        self._parser.check(sentence)
        return sentence

    def _tokenised(self, words: Any, id: int = 0) -> Sentence:
        sentence = tokenised(self._tokenizer, words, id)
        self._parser.check(sentence)
        return sentence

    def _readable(
        self, lines: Iterable[str | Words], on_error: Callable[[UserError], None] | None, first: int
    ) -> Iterator[Sentence]:
        for k, line in enumerate(lines, first):
            try:
                yield self._raw(line.rstrip("\r\n"), k) if isinstance(line, str) else self._tokenised(line, k)
            except UserError as error:
                if on_error is None:
                    raise
                on_error(error)


def _word_count(sentence: Sentence) -> int:
    return len(sentence.ids)
