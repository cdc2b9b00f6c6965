"""Trees in spaCy (`pip install 'onlstm[spacy]'`): the pipeline component `onlstm`, which spaCy finds by itself.

    nlp.add_pipe("onlstm", config={"model": "en"})  # after a component that sets sentence boundaries

spaCy's tokens are what is parsed. Those that the model's tokenizer drops, such as punctuation, belong to the smallest
constituent that spans them; at either end of a sentence, that is the sentence. The attributes are those of benepar,
for sentences and the constituents in them: `span._.parse_string`, `constituents`, `labels`, `parent`, `children`; and
besides `span._.tree`, `span._.confidence` (grammars), `token._.distances`, `token._.surprisal` (language models).

A parsed `Doc` carries plain lists, so it can be stored, and sent to other processes: they only import this module.
"""

# mypy: allow-subclassing-any, allow-untyped-calls, allow-untyped-decorators, disable-error-code="import-not-found"
# spaCy may be missing

import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from onlstm.adapters.spacy_attributes import NotAConstituentError, load, preorder, register, sentences_of, without_space
from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.reader import tokenizer_of
from onlstm.parser import Parse, Parser

__all__ = ["NotAConstituentError", "OnlstmParser", "create"]

_MANY_UNKNOWN, _ENOUGH_WORDS = 0.3, 50
"""From this share of unknown words on, counted over as many words at least, there is a warning."""


class OnlstmParser(Pipe):
    """The component; `create` describes its settings."""

    def __init__(
        self, name: str, model: str, layer: int | str | None = None, decoder: Any = None, device: str = "auto"
    ) -> None:
        self.name, self.run, self.device = name, model, device
        network = load(model, device)
        self.parser = Parser(network, layer=layer, decoder=decoder, labels=isinstance(network, Grammar))
        self._known: dict[str, str] = {}
        self._words = self._unknown = 0
        self._warned, self._process = False, os.getpid()

    def __call__(self, doc: Doc) -> Doc:
        """Return the document with its trees."""
        self._parse([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Yield documents with their trees, in order; the sentences of a batch are read together."""
        for docs in minibatch(stream, size=batch_size):
            try:
                self._parse(docs)
            except UserError as error:
                self.get_error_handler()(self.name, self, docs, error)
            else:
                yield from docs

    def _parse(self, docs: list[Doc]) -> None:
        if os.getpid() != self._process:  # forked: threads of the parent are not there, and waiting for them never ends
            torch.set_num_threads(1)
            self._process = os.getpid()
        sentences = [sentence for doc in docs for sentence in sentences_of(doc)]
        tokens = [[(token.i, self._word(token.text)) for token in sentence] for sentence in sentences]
        kept = [[place for place, word in row if word] for row in tokens]
        words = [[word for _, word in row if word] for row in tokens]
        blank: dict[str, Any] = {"model": self.run, "device": self.device, "surprisal": None}
        records = {id(doc): blank | {"nodes": [], "distances": [None] * len(doc)} for doc in docs}
        for sentence, places, parse in zip(sentences, kept, self.parser.parse_lines(words), strict=True):
            record = records[id(sentence.doc)]
            record["nodes"] += _nodes(sentence, places, parse)
            for place, distance in zip(places, parse.distances or (), strict=False):
                record["distances"][place] = distance
            self._words, self._unknown = self._words + len(places), self._unknown + parse.unknown
        for doc in docs:
            doc._.onlstm = records[id(doc)]
        self._warn()

    def _word(self, token: str) -> str:
        """Return spaCy's token as a tree has it; nothing if the model's tokenizer does not take it for a word."""
        if token not in self._known:
            is_word = tokenizer_of(self.parser.model).rules.piece_words(token)
            self._known[token] = without_space(token) if is_word else ""
        return self._known[token]

    def _warn(self) -> None:
        if not self._warned and self._words >= _ENOUGH_WORDS and self._unknown >= _MANY_UNKNOWN * self._words:
            share = f"{self._unknown / self._words:.0%} of the words are unknown to the model {self.run}"
            warnings.warn(f"{share}: do not trust these trees; is it the right language?", stacklevel=2)
            self._warned = True


@Language.factory(
    "onlstm",
    default_config={"model": "en", "layer": None, "decoder": None, "device": "auto"},
    requires=["token.is_sent_start"],
    assigns=["doc._.onlstm"],
)
def create(
    nlp: Language, name: str, model: str, layer: int | str | None, decoder: str | None, device: str
) -> OnlstmParser:
    """Return the component.

    Args:
        model: a run's folder or a bundled model: the grammar "en" (labels, confidence) or the language model "en-small"
            (distances, surprisal).
        layer: as in `Parser`, for language models.
        decoder: as in `Parser`.
        device: as in `Parser.load`; several processes (`n_process`) cannot share a GPU, name "cpu" for them.
    """
    return OnlstmParser(name, model, layer, decoder, device)


def _nodes(sentence: Span, places: list[int], parse: Parse) -> list[tuple[int, int, str, float | None]]:
    """Return the nodes of a parsed sentence and of its tokens; `places` are those of its words."""
    sure = 1.0 if parse.confidence is not None else None
    spans = {(i, i + 1): ("", sure) for i in range(sentence.start, sentence.end)}
    spans.setdefault((sentence.start, sentence.end), ("", sure))
    confidence = dict(zip(parse.tree.spans(), parse.confidence or (), strict=False)) if parse.tree else {}
    for start, end, label in parse.tree.nodes if parse.tree else ():
        whole = end - start == len(places) > 1
        span = (sentence.start, sentence.end) if whole else (places[start], places[end - 1] + 1)
        spans[span] = label or "", confidence.get((start, end), sure)
    return sorted(((*span, *facts) for span, facts in spans.items()), key=preorder)


register()
