"""Trees of a language model: the distances of its layers, decoded. Each word has the distance at its own step."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from onlstm.draw import Diagram
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import Layers, layer_numbers
from onlstm.parser.parse import Parse, Sentence
from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.tree import Tree

Gates = Literal["forget", "input", "lstm", "own"]
"""Those of the ON-LSTM's master gates, of an LSTM, or of any other network."""


class DistanceParser:
    """What a `Parser` does with a language model."""

    def __init__(
        self, model: LanguageModel, layer: Layers | None, decoder: Decoder, gates: Gates | None, words_at_once: int
    ) -> None:
        rnn = model.config.rnn
        gates = gates or ("forget" if rnn == "onlstm" else "lstm" if rnn == "lstm" else "own")
        for option, choice, choices in (("decoder", decoder, get_args(Decoder)), ("gates", gates, get_args(Gates))):
            if choice not in choices:
                raise UserError(f"{option} {choice!r}: there are {', '.join(choices)}")
        if rnn == "lstm" and gates != "lstm":
            raise UserError(f"gates {gates}: a model with LSTM layers has no master gates; for its own there is lstm")
        if rnn not in ("onlstm", "lstm") and gates != "own":
            raise UserError(f"gates {gates}: a model with rnn {rnn} has no master gates; for its own there is own")
        if rnn == "onlstm" and gates in ("lstm", "own"):
            layers = "LSTM layers" if gates == "lstm" else "other layers"
            raise UserError(f"gates {gates}: only for models with {layers}; an ON-LSTM has forget and input")
        model.config.require_distances()
        self.model, self.layers = model, layer_numbers(layer, model.config)
        self.decoder, self.gates, self.words_at_once = decoder, gates, words_at_once

    def check(self, sentence: Sentence) -> None:
        """Raise a `UserError` if the sentence cannot be read; here, all can."""

    def parses(self, sentences: list[Sentence]) -> Iterator[Parse]:
        """Yield the parse of each sentence, in order."""
        depth, chosen = self.layers[-1], torch.tensor(self.layers) - 1
        for sentence, layers in zip(sentences, self.distances(sentences, depth), strict=True):
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
                unknown=self.model.tokenizer.unknown(sentence.ids),
            )

    def distances(
        self, sentences: list[Sentence], depth: int, on_progress: Callable[[int], object] = lambda done: None
    ) -> list[Tensor]:
        """Return the distances (depth, n) of the first `depth` layers for each sentence of n words."""
        done = sum(not sentence.ids for sentence in sentences)
        parts: list[list[Tensor]] = [[] for _ in sentences]
        ids = [sentence.ids for sentence in sentences]
        for batch in self.model.read(ids, layers=depth, distances=True, tokens_at_once=self.words_at_once):
            assert batch.distances
            for k, part in batch.split(batch.distances.input if self.gates == "input" else batch.distances.forget):
                parts[k].append(part)
                done += len(parts[k]) == 1
            on_progress(done)
        return [torch.cat(part, 1) if part else torch.empty(depth, 0) for part in parts]

    def diagram(self, sentence: Sentence, gold: Tree | None, places: Sequence[int], words: Sequence[str]) -> Diagram:
        """Return the tree, the distances and, for a single layer, the master gates of the words at `places`."""
        (parse,) = self.parses([sentence])
        assert parse.distances is not None
        distances = [parse.distances[i] for i in places]
        gates = None
        if self.gates in ("forget", "input") and len(self.layers) == 1:
            layers, count = self.layers[0], len(sentence.ids)
            (batch,) = self.model.read([sentence.ids], layers=layers, master_gates=True, tokens_at_once=count)
            gates = getattr(batch.master_gates[-1], self.gates)[places, 0].T.tolist()
        tree = tree_from_distances(distances, words, self.decoder)
        return Diagram(tree=tree, gold=gold, distances=distances, gates=gates)
