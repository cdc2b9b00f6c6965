"""Grammars: what is drawn is what the rules say, and a mistake is named with its line."""

import random
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.paper.demo.grammar import Grammar
from onlstm.trees import baselines as branching
from onlstm.trees.f1 import score

AGREEING = """
[n] = sg pl
S -> NP[n] VP[n]   # one rule for each number
NP[sg] -> the cat | kim
NP[pl] -> the cats
VP[n] -> V[n] | V[n] NP[m]
[m] = sg pl
V[sg] -> sees
V[pl] -> see
"""


def draws(grammar, count=500, seed=0):
    return list(grammar.trees(count, random.Random(seed)))


def derives(grammar, symbol, words):
    """Whether the symbol derives the words: the definition, by trying every split."""

    @cache
    def one(symbol, i, j):
        return any(several(rule.parts, i, j) for rule in grammar.rules[symbol])

    @cache
    def several(parts, i, j):
        if len(parts) > j - i:
            return False
        (text, is_word), *rest = parts
        if not rest:
            return words[i] == text and j == i + 1 if is_word else one(text, i, j)
        ends = (i + 1,) if is_word else range(i + 1, j - len(rest) + 1)
        return any(several(parts[:1], i, k) and several(tuple(rest), k, j) for k in ends)

    return one(symbol, 0, len(words))


@pytest.fixture(scope="module")
def english():
    return Grammar.load()


def test_a_finite_grammar_writes_all_its_sentences_and_no_others():
    subjects = {"sg": ["(NP the cat)", "kim"], "pl": ["(NP the cats)"]}
    verbs = {"sg": "sees", "pl": "see"}
    objects = [*subjects["sg"], *subjects["pl"]]
    wanted = {f"(S {subject} {verbs[n]})" for n in verbs for subject in subjects[n]}
    wanted |= {f"(S {subject} (VP {verbs[n]} {other}))" for n in verbs for subject in subjects[n] for other in objects}
    assert {str(tree) for tree in draws(Grammar.of_text(AGREEING))} == wanted


def test_weights_are_kept_and_values_that_are_free_share_one():
    text = "S -> a 3 | b | T[x] 4\n[x] = p q\nT[p] -> c\nT[q] -> d"
    counts = Counter(tree.words[0] for tree in draws(Grammar.of_text(text), 8000))
    for word, share in {"a": 3, "b": 1, "c": 2, "d": 2}.items():
        assert counts[word] == pytest.approx(1000 * share, rel=0.1)


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=25)
def test_english_sentences_and_each_of_their_nodes_derive_from_the_rules(seed):
    grammar = Grammar.load()
    (tree,) = draws(grammar, 1, seed)
    assert len(tree.words) <= grammar.longest
    assert derives(grammar, next(iter(grammar.rules)), tree.words)
    for start, end, label in tree.nodes:
        assert end - start > 1
        symbols = [symbol for symbol in grammar.rules if symbol.split("[")[0] == label]
        assert any(derives(grammar, symbol, tree.words[start:end]) for symbol in symbols)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("the child sleeps", "the child sleep"),
        ("the children near the house sleep", "the children near the house sleeps"),
        ("the children who kim visits sleep", "the children who kim visit sleep"),
        ("a king who helps the queens laughs", "a king who help the queens laughs"),
        ("the queen 's pictures burn", "the queen 's pictures burns"),
        ("kim says that these cars break", "kim says that these cars breaks"),
        ("she sings and visits lee", "she sings and visit lee"),
        ("we sing but lee sleeps now", "we sing but lee sleep now"),
        ("kim and lee often sing tonight", "kim and lee often sings tonight"),
        ("the book bores the king", "the king bores the book"),
        ("every house falls", "every houses fall"),
    ],
)
def test_english_has_agreement_over_all_that_may_stand_between(english, good, bad):
    assert derives(english, next(iter(english.rules)), tuple(good.split()))
    assert not derives(english, next(iter(english.rules)), tuple(bad.split()))


def test_english_is_small_and_does_not_simply_branch(english):
    assert 90 <= len(english.words) <= 110
    gold = list({tree.words: tree for tree in draws(english, 2000)}.values())
    trees = {
        make.__name__: score(gold, [make(tree.words) for tree in gold]).f1 for make in (branching.right, branching.left)
    }
    assert 25 <= trees["right"] <= 45
    assert trees["left"] <= 40
    assert {"S", "SBAR", "NP", "VP", "PP", "RC", "DBar"} <= {node.label for tree in gold for node in tree.nodes}


def test_a_seed_is_a_corpus(english):
    assert draws(english, 50, 3) == draws(english, 50, 3) != draws(english, 50, 4)


def test_a_circle_of_unary_rules_ends():
    trees = draws(Grammar.of_text("S -> A | a b\nA -> S"))
    assert {tree.unlabelled().brackets() for tree in trees} == {"( a b )"}


def test_unary_rules_and_hidden_symbols_leave_no_odd_spans():
    grammar = Grammar.of_text("S -> _X | NP\n_X -> A B\nA -> a a\nB -> b\nNP[all] -> c c\nNP -> NP[all]")
    assert {str(tree) for tree in draws(grammar)} == {"(S (A a a) b)", "(S (NP c c))"}


def test_the_first_symbol_may_have_features():
    grammar = Grammar.of_text(
        "S[n] -> N[n] V[n]\n[n] = sg pl\nN[sg] -> dog\nN[pl] -> dogs\nV[sg] -> runs\nV[pl] -> run"
    )
    assert {tree.words for tree in draws(grammar)} == {("dog", "runs"), ("dogs", "run")}


def test_other_ways_of_writing():
    text = """\ufeff# as NLTK has it, or with lines of their own
    S → NP VP [1.0]
    NP -> 'the' N [0.5] | "Kim" [0.5]
    N -> 'Hund' | "it's"
       | '3'
    VP -> schläft | 走 .
    """
    words = Grammar.of_text(text.removeprefix("\ufeff")).words
    assert words == sorted(["the", "Kim", "Hund", "it's", "3", "schläft", "走", "."])


def test_quotes_and_arrows_in_quotes_are_words():
    words = ["'", "''", "'s", '"', "->", "dogs'", "o'clock", "→"]
    text = """S → "'" "''" 's '"' '->' dogs' o'clock "→" """
    assert Grammar.of_text(text).words == sorted(words)


def test_a_file_is_read(tmp_path):
    file = tmp_path / "g.txt"
    file.write_bytes("\ufeffS -> a b\r\n | c\r\n".encode())
    assert Grammar.load(file).words == ["a", "b", "c"]
    file.write_bytes(b"S -> \xff")
    for path, message in [
        (file, "not UTF-8"),
        (tmp_path, "Is a directory"),
        (tmp_path / "x", "No such"),
    ]:
        with pytest.raises(UserError, match=message):
            Grammar.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "g: there are no rules"),
        ("# nothing\n\n", "g: there are no rules"),
        ("\nS NP VP", "g:2: S NP VP is not a rule"),
        ("S -> a\nS NP -> a", "g:2: S NP -> a is not a rule"),
        ("[n] =", "g:1: [n] = is not a rule"),
        ("| a", "g:1: | a is not a rule"),
        ("S -> NP VP\nNP -> he", "g:1: VP has no rules; add some"),
        ("S -> N[sg]\nN[pl] -> cats", "g:1: N[sg] has no rules; there are rules for N[pl]"),
        ("[n] = sg pl\nS -> N[n] V[n]\nN[n] -> sheep", "g:2: V[sg] has no rules; add some"),
        ("S -> a N\nN[pl] -> cats", "g:1: N has no rules; there are rules for N[pl]"),
        ("S -> a | | b", "g:1: an alternative is empty"),
        ("S -> a\n |", "g:2: an alternative is empty"),
        ("S -> 3", "g:1: an alternative is empty"),
        ("S -> a 0", "g:1: the weight 0 is not a number above 0"),
        ("S -> a\nS -> b -1", "g:2: the weight -1 is not a number above 0"),
        ("S -> a [x]", "g:1: the weight [x] is not a number above 0"),
        ("S -> a 1/3", "g:1: the weight 1/3 is not a number above 0"),
        ("S -> a 1e999", "g:1: the weight 1e999 is not a number above 0"),
        ("S -> a 3 b", "g:1: 'b' after a weight"),
        ("S -> 'of course'", "g:1: 'of course' is more than a word"),
        ("S -> <eos>", "g:1: <eos> cannot be a word"),
        ("S -> n[", "g:1: n[ has no rules"),
        ('S -> "a', 'g:1: "a cannot be a word; put words in quotes'),
        ('S -> a N\nN -> "dog | "cat"', 'g:2: "dog cannot be a word; put words in quotes'),
        ('S -> a\n | dog" 3', 'g:2: dog" cannot be a word; put words in quotes'),
        ('S -> "a"b', 'g:1: "a"b cannot be a word; put words in quotes'),
        ('S -> "a"b"', 'g:1: "a"b" cannot be a word; put words in quotes'),
        ("S -> \"a'", "g:1: \"a' cannot be a word; put words in quotes"),
        ('S -> "" "x"', 'g:1: "" cannot be a word'),
        ("S -> x ''", "g:1: '' cannot be a word"),
        ('S -> "', 'g:1: " cannot be a word; put words in quotes'),
        ("S -> a b → c", "g:1: → cannot be a word; put words in quotes, and each rule on a line of its own"),
        ("S -> a\nS → a->b", "g:2: a->b cannot be a word"),
        ("S -> a\n | b -> c", "g:2: -> cannot be a word"),
        ("S -> a\nX -> b Y\nY -> c", "g:2: no sentence has a X"),
        ("S -> S a", "g:1: S would never end; add an alternative of words alone"),
        ("S -> a NP\nNP -> NP PP\nPP -> in NP", "g:1: S, NP, PP would never end"),
    ],
)
def test_a_mistake_is_named_with_its_line(text, message):
    with pytest.raises(UserError) as error:
        Grammar.of_text(text, "g")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_grammar_that_grows_without_end_says_so():
    grammar = Grammar.of_text("S -> S S S 1000 | a b")
    with pytest.raises(UserError, match="have at most 20 words: give smaller weights"):
        draws(grammar, 20_000)


def test_longer_sentences_are_allowed_where_all_are_long():
    grammar = Grammar.of_text(f"S -> {'a ' * 30} | S b")
    assert {len(tree.words) for tree in draws(grammar)} > {30, 31}
