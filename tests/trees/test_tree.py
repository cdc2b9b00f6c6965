"""Tree: brackets, spans, JSON, drawings and NLTK, against short recursive definitions; errors; great depth."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.trees import Node, Tree, TreebankError, read_brackets

# A nested tree, for the oracles: a word, or (label or None, [nested, …]).
letters = st.text("abxyABXY09.,()-'é我\u00a0", min_size=1, max_size=3)
labels = st.sampled_from(["S", "NP", "NP-SBJ", "PRP$", "-NONE-", ".", "''", None])
nested = st.recursive(letters, lambda children: st.tuples(labels, st.lists(children, min_size=1, max_size=4)))
rooted = st.tuples(labels, st.lists(nested, min_size=1, max_size=4))
GOLD = "( (S (NP-SBJ (PRP We)) (VP (VBD saw) (NP (DT a) (JJ grey) (NN owl))) (. .)) )"


def written(tree):
    if isinstance(tree, str):
        return tree.replace("(", "-LRB-").replace(")", "-RRB-")
    label, children = tree
    inside = " ".join(map(written, children))
    return f"({label} {inside})" if label else f"( {inside} )"


def flat(tree, start=0):
    """The words and the nodes in preorder."""
    if isinstance(tree, str):
        return [tree], []
    words, below = [], []
    for child in tree[1]:
        more, nodes = flat(child, start + len(words))
        words += more
        below += nodes
    return words, [(start, start + len(words), tree[0]), *below]


def drawn(tree):
    """The lines of the drawing."""
    if isinstance(tree, str):
        return [tree]
    label, children = tree
    if len(children) == 1:
        if label is None:
            return drawn(children[0])
        first, *rest = drawn(children[0])
        return [f"{label} {first}"] + [" " * (len(label) + 1) + line for line in rest]
    head = f"{label} " if label else ""
    lines = []
    for k, child in enumerate(children):
        last = k == len(children) - 1
        first, *rest = drawn(child)
        space = "" if first.startswith("┬") else " "
        lines.append(
            (head if k == 0 else " " * len(head)) + ("┬─" if k == 0 else "└─" if last else "├─") + space + first
        )
        lines += [" " * len(head) + ("  " if last else "│ ") + space + line for line in rest]
    return lines


def of(tree):
    words, nodes = flat(tree)
    return Tree.from_spans(words, nodes)


@settings(deadline=None)
@given(rooted)
def test_brackets_are_written_and_read_as_the_recursive_definition_says(tree):
    assert of(tree).brackets() == str(of(tree)) == written(tree)
    assert Tree.from_brackets(written(tree)) == of(tree)
    assert Tree.from_brackets(written(tree).replace(" ", " \n\t "), labelled=True) == of(tree)


@settings(deadline=None)
@given(rooted)
def test_the_drawing_is_that_of_the_recursive_definition(tree):
    assert list(of(tree).lines()) == drawn(tree)


@settings(deadline=None)
@given(rooted, st.randoms())
def test_spans_json_and_hash_do_not_depend_on_the_order_given(tree, random):
    words, nodes = flat(tree)
    whole = (0, len(words))
    assert of(tree).nodes == tuple(nodes)
    assert of(tree).spans() == tuple(sorted({(i, j) for i, j, _ in nodes if j - i > 1 and (i, j) != whole}))
    assert Tree.from_json(of(tree).to_json()) == of(tree)
    if len({node[:2] for node in nodes}) == len(nodes):
        random.shuffle(nodes)
        again = Tree.from_spans(words, nodes)
        assert again == of(tree)
        assert hash(again) == hash(of(tree))


def test_gold_tree_keeps_tags_unary_chains_and_the_outer_bracket():
    tree = Tree.from_brackets(GOLD)
    assert tree.brackets() == GOLD
    assert tree.words == ("We", "saw", "a", "grey", "owl", ".")
    assert tree.nodes[:4] == ((0, 6, None), (0, 6, "S"), (0, 1, "NP-SBJ"), (0, 1, "PRP"))
    assert tree.nodes[0] == Node(0, 6)
    assert tree.spans() == ((1, 5), (2, 5))
    assert tree.unlabelled().brackets() == "( We ( saw ( a grey owl ) ) . )"
    assert json.loads(tree.to_json())["spans"] == [[1, 5], [2, 5]]
    with pytest.raises(AttributeError):
        tree.words = ()


def test_json_of_a_binary_tree_is_words_and_spans_and_other_keys_do_not_matter():
    tree = Tree.from_brackets("((a b) (c d))")
    assert tree.to_json() == '{"words": ["a", "b", "c", "d"], "spans": [[0, 2], [2, 4]]}'
    assert (
        Tree.from_json('{"id": 7, "words": ["a", "b", "c", "d"], "distances": [], "spans": [[2, 4], [0, 2]]}') == tree
    )


def test_confidence_goes_with_the_spans_through_json_and_changes_neither_equality_nor_brackets():
    plain = Tree.from_brackets("(S (NP a b) (VP c d))")
    tree = Tree.from_spans(plain.words, plain.nodes, [1, 0.25])
    assert tree.confidence == (1.0, 0.25)
    assert (tree, hash(tree), str(tree)) == (plain, hash(plain), str(plain))
    assert json.loads(tree.to_json())["confidence"] == [1.0, 0.25]
    assert Tree.from_json(tree.to_json()).confidence == tree.unlabelled().confidence == (1.0, 0.25)
    assert plain.confidence is Tree.from_json(plain.to_json()).confidence is None
    assert Tree.from_json(Tree.from_spans("ab", [], []).to_json()).confidence == ()


@pytest.mark.parametrize(
    ("confidence", "message"),
    [([], "0 numbers of confidence for 1 spans"), ([1.5], "confidence 1.5 is not"), ([float("nan")], "confidence nan")],
)
def test_bad_confidence_is_refused(confidence, message):
    with pytest.raises(ValueError, match=message):
        Tree.from_spans("abc", [(0, 2)], confidence)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(the (black cat))", "the black cat"),
        ("((I saw) it)", "I saw it"),
        ("(Ann (saw (him run)))", "Ann saw him run"),
        ("((我 爱) 你)", "我 爱 你"),
        ("(0 (1 2))", "0 1 2"),
        ("(NP the cat)", "the cat"),
        ("(S(NP(PRP$ my)(NN cat))(VP(VBD sat)))", "my cat sat"),
        ("(SENT (NP (Det the) (NC cat)) (VPinf (VN sit)))", "the cat sit"),
        ("( NP the cat )", "NP the cat"),
        ("word", "word"),
        ("  -LRB-\n", "("),
        ("( :--RRB- \u00a0 )", ":-) \u00a0"),
    ],
)
def test_labels_are_told_from_words(text, words):
    assert Tree.from_brackets(text).words == tuple(words.split(" "))


def test_labelled_settles_what_brackets_leave_open():
    text = "(np (d the) (n cat))"
    assert Tree.from_brackets(text).words == ("np", "d", "the", "n", "cat")
    assert Tree.from_brackets(text, labelled=True).nodes == ((0, 2, "np"), (0, 1, "d"), (1, 2, "n"))
    assert Tree.from_brackets("(I do)", labelled=False).words == ("I", "do")


def test_many_trees_are_read_over_lines_and_a_lone_word_is_one():
    trees = list(read_brackets("(S (A a)\n   (B b))\n\nword\r\n( c d ) ( e\nf )\n"))
    assert [tree.brackets() for tree in trees] == ["(S (A a) (B b))", "word", "( c d )", "( e f )"]
    assert list(read_brackets(" \n")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a (b c)", r'^line 1, column 1: unclosed "\("$'),
        ("( a b )\n( c\n  ( d e )", r'^line 2, column 1: unclosed "\("$'),
        ("( a b ) )", r'^line 1, column 9: "\)" without "\("$'),
        ("( a ( ) )", r"^line 1, column 5: empty brackets$"),
        ("(S (NP ) (VP go))", r"^line 1, column 4: empty brackets$"),
        ("( a b )\nc d", r"^line 2, column 1: 'c' stands outside the brackets$"),
        ("( a b ) c", r"^line 1, column 9: 'c' stands outside the brackets$"),
        ("a ( b c )", r"^line 1, column 1: 'a' stands outside the brackets$"),
        ("( a b ) ( c d )", r"^expected one tree, found 2 in "),
        (" ", r"^expected one tree, found 0 in ''"),
    ],
)
def test_bad_brackets_name_the_place(text, message):
    with pytest.raises(TreebankError, match=message) as caught:
        Tree.from_brackets(text)
    assert isinstance(caught.value, UserError)


def test_bad_brackets_in_a_file_name_file_and_line():
    trees = read_brackets("( a b )\n( c", source="owls.mrg")
    assert next(trees).words == ("a", "b")
    with pytest.raises(TreebankError, match=r'^owls.mrg:2: unclosed "\("$'):
        next(trees)


@pytest.mark.parametrize(
    ("words", "spans", "message"),
    [
        ([], [], "at least one word"),
        (["a", "b c"], [], "word 1 is 'b c'"),
        (["a", ""], [], "word 1 is ''"),
        (["a", "b", "c"], [(0, 2), (1, 3)], r"spans \(0, 2\) and \(1, 3\) cross"),
        (["a", "b"], [(1, 3)], r"span \(1, 3\) is not one of 0 <= start < end <= 2"),
        (["a", "b"], [(1, 1)], r"span \(1, 1\)"),
        (["a", "b"], [(-1, 1)], r"span \(-1, 1\)"),
        (["a", "b"], [(0, 1, "N P")], "label 'N P'"),
    ],
)
def test_what_is_no_tree_is_refused(words, spans, message):
    with pytest.raises(ValueError, match=message):
        Tree.from_spans(words, spans)
    with pytest.raises(TreebankError, match=f"not a tree in JSON: .*{message}"):
        Tree.from_json(json.dumps({"words": words, "spans": spans}))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", "null", '"words"', "{}", '{"words": ["a"]}', '{"spans": []}', "[" * 100_000),
        '{"words": "ab", "spans": []}',
        '{"words": ["a", 1], "spans": []}',
        '{"words": ["a", "b"], "spans": [0]}',
        '{"words": ["a", "b"], "spans": [[0, 1.5]]}',
        '{"words": ["a", "b", "c"], "spans": [[0, 2]], "confidence": 1}',
        '{"words": ["a", "b", "c"], "spans": [[0, 2]], "confidence": [null]}',
    ],
    ids=lambda text: text[:40],
)
def test_bad_json_is_a_users_error(text):
    with pytest.raises(TreebankError, match="JSON"):
        Tree.from_json(text)


def test_a_whole_sentence_node_is_added_once():
    assert Tree.from_spans(["a"], []).nodes == ()
    assert Tree.from_spans("ab", []) == Tree.from_spans("ab", [(0, 2)])
    assert Tree.from_spans("ab", [(0, 2, "NP")]).nodes == ((0, 2, "NP"),)
    assert Tree.from_spans(["a"], []).brackets() == "a"
    assert list(Tree.from_spans(["a"], []).lines()) == ["a"]


@pytest.mark.slow
def test_a_tree_200_000_deep_is_written_and_read():
    n = 200_000
    tree = Tree.from_spans(map(str, range(n)), [(0, end) for end in range(2, n + 1)])
    text = tree.brackets()
    assert text.startswith("( " * (n - 1) + "0 1 ) 2 )")
    again = Tree.from_brackets(text)
    assert again == tree
    assert hash(again) == hash(tree)
    assert Tree.from_json(tree.to_json()) == tree


def test_a_unary_chain_20_000_long_survives():
    tree = Tree.from_spans(["a"], [(0, 1, f"L{k}") for k in range(20_000)])
    assert Tree.from_brackets(tree.brackets()) == tree
    assert next(tree.lines()) == " ".join(f"L{k}" for k in range(20_000)) + " a"


def test_nltk_gets_the_same_tree():
    nltk_tree = pytest.importorskip("nltk.tree").Tree
    tree = Tree.from_brackets(GOLD)
    assert tree.to_nltk() == nltk_tree.fromstring(GOLD)
    assert Tree.from_spans(["a"], []).to_nltk() == nltk_tree("", ["a"])
    pairs = Tree.from_brackets("((a b) (c d))").to_nltk()
    assert pairs == nltk_tree("", [nltk_tree("", ["a", "b"]), nltk_tree("", ["c", "d"])])
    n = 5_000
    assert len(Tree.from_spans(map(str, range(n)), [(k, n) for k in range(n - 1)]).to_nltk()) == 2


def test_without_nltk_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk.tree", None)
    with pytest.raises(UserError, match=r"pip install onlstm\[nltk\]"):
        Tree.from_brackets("(a b)").to_nltk()


def test_trees_load_neither_torch_nor_numpy_nor_nltk():
    code = "import sys, onlstm.trees; sys.exit(bool({'torch', 'numpy', 'nltk'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
