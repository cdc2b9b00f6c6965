"""Trees over some of their words: against the definition by sets of leaves."""

from hypothesis import given
from hypothesis import strategies as st

from onlstm.trees import baselines
from onlstm.trees.restrict import restricted
from onlstm.trees.tree import Tree


@given(st.integers(1, 12), st.randoms(use_true_random=False), st.data())
def test_spans_are_those_of_the_leaves_that_stay(n, rng, data):
    full = baselines.random_tree([f"w{i}" for i in range(n)], rng)
    sure = [rng.random() for _ in full.spans()]
    full = Tree.from_spans(full.words, full.spans(), sure)
    positions = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    kept = restricted(full, positions)
    assert kept.words == tuple(full.words[i] for i in positions)
    best = {}
    for (start, end), value in zip(full.spans(), sure, strict=True):
        leaves = tuple(k for k, i in enumerate(positions) if start <= i < end)
        if 1 < len(leaves) < len(positions):
            best[leaves[0], leaves[-1] + 1] = max(value, best.get((leaves[0], leaves[-1] + 1), 0))
    assert kept.spans() == tuple(sorted(best))
    assert kept.confidence == tuple(best[span] for span in kept.spans())
    assert len({node[:2] for node in kept.nodes}) == len(kept.nodes)


def test_labels_words_and_trees_without_confidence():
    tree = Tree.from_brackets("(S (NP it) (VP (V cost) (QP $ (N 10 million))))", labelled=True)
    assert str(restricted(tree, [0, 1, 3, 4])) == "(S (NP it) (VP (V cost) (QP 10 million)))"
    assert str(restricted(tree, [0, 2], ["It", "#"])) == "(S (NP It) (VP #))"
    assert str(restricted(tree, [3])) == "(S 10)"
    assert restricted(tree, [0]).confidence is None
    assert restricted(tree, range(5)) is tree
