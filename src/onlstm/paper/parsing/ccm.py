"""CCM and DMV+CCM of a treebank's own tags: the rows of the paper's Table 2 for sentences of at most ten words."""

from collections.abc import Callable

from onlstm.errors import UserError
from onlstm.grammar.ccm import CCM, Corpus
from onlstm.grammar.dmv import DMVCCM
from onlstm.paper.parsing.rows import SUBSETS, Forest
from onlstm.trees import baselines
from onlstm.trees.tree import Tree
from onlstm.trees.treebank import Treebank

SUBSET = "len<=10"
STEPS = {"ccm": 40, "dmv+ccm": 10}
"""Iterations of EM."""


def tag_forests(bank: Treebank, say: Callable[[str], None]) -> list[Forest]:
    """Return the trees of CCM and DMV+CCM, both learnt from the tags of the sentences that are scored.

    Longer sentences have right-branching trees, which are not to be scored.
    """
    short = [k for k, tree in enumerate(bank.trees) if len(tree.words) <= SUBSETS[SUBSET]]
    tags = [bank.tags[k] for k in short]
    if len({tag for sentence in tags for tag in sentence}) < 2:
        raise UserError("--ccm: the treebank has no parts of speech in its sentences of at most ten words")
    corpus, forests = Corpus(tags), []
    for system, model in (("ccm", CCM(corpus)), ("dmv+ccm", DMVCCM(corpus))):
        say(f"Learning {system} from the tags of {len(short):,} sentences …")
        for _ in range(STEPS[system]):
            model.step()
        spans = dict(zip(short, model.trees(), strict=True))
        trees = [
            Tree.from_spans(tree.words, spans[k]) if k in spans else baselines.right(tree.words)
            for k, tree in enumerate(bank.trees)
        ]
        forests.append(Forest(system=system, trees=trees))
    return forests
