"""Trees of a grammar: the probability of each span given the words, decoded, with induced labels.

The tree of minimum Bayes risk ("mbr") has the largest sum of its spans' probabilities: of all binary trees, the one
that is expected to share most spans with the right one. "viterbi" is the single likeliest tree.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from onlstm.draw import Diagram
from onlstm.errors import UserError, one_of
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.reader import tokenizer_of
from onlstm.parser.parse import GrammarDecoder, Parse, Sentence
from onlstm.trees.average import best_trees
from onlstm.trees.restrict import restricted
from onlstm.trees.tree import Tree

_CELLS = 1 << 22
"""Of the charts that are decoded at once."""


class _Chart(NamedTuple):
    """What a grammar says of a sentence of n words; arrays are (n + 1, n + 1)."""

    sentence: int
    marginals: NDArray[np.float32]
    scores: NDArray[np.float32]
    """Whose sum the tree maximises."""
    symbols: NDArray[np.int64]


class _Labelled(NamedTuple):
    tree: Tree | None
    labels: tuple[str, ...]


class GrammarParser:
    """What a `Parser` does with a grammar; of `members`, too, it asks for trees, to count their votes."""

    layers = ()
    gates = None

    def __init__(self, model: Grammar, decoder: GrammarDecoder, labels: bool, members: Sequence[Grammar]) -> None:
        one_of("decoder", decoder, get_args(GrammarDecoder))
        self.model, self.decoder, self.labels, self.longest = model, decoder, labels, model.longest
        self.members = [GrammarParser(member, decoder, False, ()) for member in members]

    def check(self, sentence: Sentence) -> None:
        """Raise a `UserError` if the sentence's chart does not fit in memory."""
        if (n := len(sentence.words)) > self.longest:
            size = f"this machine's memory is enough for {self.longest:,}"
            raise UserError(f"sentence {sentence.id + 1} has {n:,} words: {size}; split it")

    def parses(self, sentences: list[Sentence]) -> Iterator[Parse]:
        """Yield the parse of each sentence, in order."""
        tokenizer = tokenizer_of(self.model)
        trees, *others = (parser._trees(sentences) for parser in (self, *self.members))
        for sentence, (tree, labels), *theirs in zip(sentences, trees, *others, strict=True):
            voters = [set(other.spans()) if other else set() for other, _ in theirs]
            spans = tree.spans() if tree and voters else ()
            yield Parse(
                id=sentence.id,
                text=sentence.text,
                words=sentence.words,
                offsets=sentence.offsets,
                distances=None,
                tree=tree,
                layer=None,
                decoder=self.decoder,
                unknown=tokenizer.unknown(sentence.ids),
                labels=labels,
                confidence=tree.confidence if tree else (),
                votes=tuple(sum(span in voter for voter in voters) / len(voters) for span in spans) if voters else None,
            )

    def diagram(self, sentence: Sentence, gold: Tree | None, places: Sequence[int], words: Sequence[str]) -> Diagram:
        """Return the tree over the words at `places`."""
        (parse,) = self.parses([sentence])
        assert parse.tree
        return Diagram(tree=restricted(parse.tree, places, words), gold=gold)

    def _trees(self, sentences: list[Sentence]) -> list[_Labelled]:
        """Return the tree of each sentence, None without words, and the label of each of its spans."""
        trees = [_Labelled(Tree(words=s.words, nodes=(), confidence=()) if s.words else None, ()) for s in sentences]
        for charts in _groups(self._charts([sentence.ids for sentence in sentences])):
            marginals = np.stack([chart.marginals for chart in charts])
            symbols = np.stack([chart.symbols for chart in charts])
            spans = best_trees(np.stack([chart.scores for chart in charts]))
            cells = np.arange(len(charts))[:, None], spans[..., 0], spans[..., 1]
            sure, labels = marginals[cells].clip(0, 1).tolist(), symbols[cells].tolist()
            for b, chart in enumerate(charts):
                names = tuple(f"N{label}" for label in labels[b])
                nodes = spans[b].tolist()
                if self.labels:
                    nodes = [(*span, name) for span, name in zip(nodes, names, strict=True)]
                    nodes.append((0, len(chart.symbols) - 1, f"N{chart.symbols[0, -1]}"))
                    nodes += [(i, i + 1, f"T{tag}") for i, tag in enumerate(chart.symbols.diagonal(1).tolist())]
                words = sentences[chart.sentence].words
                trees[chart.sentence] = _Labelled(Tree.from_spans(words, nodes, sure[b]), names)
        return trees

    def _charts(self, ids: list[list[int]]) -> Iterator[_Chart]:
        """Yield the charts of the sentences of two words or more, those of equal length one after the other."""
        likeliest = self.model.read(ids, best=True) if self.decoder == "viterbi" else None
        for k, posteriors in self.model.read(ids):
            marginals, symbols = posteriors.spans[0].numpy(), posteriors.labels[0].numpy()
            if not np.isfinite(marginals).all():
                raise UserError("the grammar's probabilities are not finite: its weights are damaged; did it diverge?")
            scores = marginals
            if likeliest:
                _, best = next(likeliest)
                scores, symbols = best.spans[0].numpy(), best.labels[0].numpy()
            yield _Chart(k, marginals, scores, symbols)


def _groups(charts: Iterator[_Chart]) -> Iterator[list[_Chart]]:
    """Yield charts of one size, as many as are decoded at once."""
    group: list[_Chart] = []
    for chart in charts:
        if group and (chart.symbols.shape != group[0].symbols.shape or len(group) * chart.symbols.size >= _CELLS):
            yield group
            group = []
        group.append(chart)
    if group:
        yield group
