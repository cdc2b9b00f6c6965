"""A run to evaluate: which trees its language model, or its grammar, makes of what it reads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from onlstm.folder import kind_of
from onlstm.grammar.config import GrammarConfig
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import layer_numbers
from onlstm.paper.parsing.alignment import Reading
from onlstm.paper.parsing.content import Layers
from onlstm.paper.parsing.request import Decoding, Options, Request
from onlstm.paper.parsing.rows import Forest, OnProgress, forests, grammar_forest
from onlstm.parser import GrammarDecoder, Parser


class Watch(NamedTuple):
    """Who follows an evaluation: lines to show, and the share that is done of what the last of them announced."""

    say: Callable[[str], None] = lambda line: None
    progress: OnProgress = lambda share: None


class System(NamedTuple):
    """A model to evaluate."""

    path: Path | None
    """None: untrained."""
    parsers: Sequence[Parser]
    """Of a language model one, of a grammar one for each decoder."""
    layers: list[Layers]
    """Those that were asked for, each once; none: every one, or a grammar."""

    @classmethod
    def load(cls, request: Request, path: Path) -> "System":
        """Return the language model or the grammar of a run."""
        if kind_of(path) == "model":
            return cls.of(request, LanguageModel.load(path, device=request.device), path)
        grammar = Grammar.load(path)
        asked: list[GrammarDecoder] = [name for name in request.decoder if name == "mbr" or name == "viterbi"]
        return cls(path, [Parser(grammar, decoder=decoder, labels=True) for decoder in asked or ["mbr"]], [])

    @classmethod
    def of(cls, request: Request, model: LanguageModel, path: Path | None = None) -> "System":
        """Return a language model with the layers and gates that were asked for."""
        asked = [layer_numbers(layers, model.config) for layers in request.layers]
        layers: list[Layers] = list(dict.fromkeys(layer if len(layer) > 1 else layer[0] for layer in asked))
        return cls(path, [Parser(model, gates=request.gates)], layers)

    @property
    def model(self) -> LanguageModel | Grammar:
        """What makes the trees."""
        return self.parsers[0].model

    @property
    def system(self) -> str:
        """As rows name it."""
        if isinstance(self.model, Grammar):
            return "grammar"
        rnn = self.model.config.rnn
        return "untrained" if not self.path else "lstm-gates" if rnn == "lstm" else rnn

    @property
    def headline(self) -> tuple[Layers, str]:
        """The layer to report unless others were asked for, and how it was chosen."""
        if isinstance(self.model.config, GrammarConfig):
            return None, "a grammar has no layers to choose from"
        if len(self.layers) == 1:
            return self.layers[0], "the layer that was asked for"
        if self.model.config.parse_layer:
            return self.model.config.parse_layer, "the layer that the model folder names"
        return self.model.config.distance_layers // 2 + 1, "the middle layer, as in the paper"

    def forests(self, reads: Sequence[Reading], request: Request, watch: Watch) -> list[Forest]:
        """Return the model's trees; untrained, its layers do not vote."""
        watch.say(f"Parsing {len(reads):,} sentences with {self.path or 'an untrained model'} …")
        run = str(self.path) if self.path else None
        if isinstance(self.model, Grammar):
            return [grammar_forest(parser, reads, run, watch.progress) for parser in self.parsers]
        ways = [name for name in decoders(request) if self.path or name != "vote"] or ["paper"]
        options: Any = {"system": self.system, "layers": self.layers, "decoders": ways}
        return forests(self.parsers[0], reads, run=run, on_progress=watch.progress, **options)

    def reported(self, trees: Sequence[Forest]) -> Forest:
        """Return the set of the model's trees that would be reported if it were alone."""
        layer, _ = self.headline
        return next((forest for forest in trees if forest.layer == layer), trees[0])


def decoders(request: Request) -> Sequence[Decoding]:
    """Return how language models' distances become trees."""
    return [name for name in request.decoder if name not in get_args(GrammarDecoder)] or Options.decoder
