"""A parser with a grammar: against all binary trees of short sentences, whatever the batch; its labels, its folder."""

import json
from functools import cache

import pytest
import torch

from helpers import random_grammar
from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar
from onlstm.parser import Parse, Parser
from onlstm.parser import marginals as module
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees.restrict import restricted
from onlstm.trees.tree import Tree

WORDS = ["the", "a", "cat", "dog", "saw", "slept", "that", "old", "'s", "N"]
SENTENCES = [["the", "cat", "slept"], [], ["dog"], ["the", "old", "Zebra", "saw"] * 2, ["a", "dog"], ["a", "cat"] * 3]


def grammar(profile="pretokenized", seed=0, words=WORDS) -> Grammar:
    return random_grammar(Tokenizer.of_words(words, profile), seed=seed)


SMALL = grammar()


@cache
def binary(start: int, end: int) -> tuple[frozenset[tuple[int, int]], ...]:
    """The spans, of two words or more, of every binary tree."""
    if end - start == 1:
        return (frozenset(),)
    own = frozenset({(start, end)})
    splits = ((a, b) for k in range(start + 1, end) for a in binary(start, k) for b in binary(k, end))
    return tuple(own | a | b for a, b in splits)


def posteriors(words, best=False):
    [(_, found)] = SMALL.read([SMALL.tokenizer.ids(words)], best=best)
    return found


@pytest.mark.parametrize("decoder", ["mbr", "viterbi"])
def test_the_tree_is_the_best_of_all_binary_trees(decoder):
    parses = Parser(SMALL, decoder=decoder).parse(SENTENCES)
    assert [parse.id for parse in parses] == list(range(len(SENTENCES)))
    for words, parse in zip(SENTENCES, parses, strict=True):
        assert (parse.words, parse.distances, parse.layer, parse.decoder) == (tuple(words), None, None, decoder)
        if len(words) < 2:
            assert parse.tree == (Tree(words=tuple(words), nodes=()) if words else None)
            assert (parse.labels, parse.confidence, parse.votes) == ((), (), None)
            continue
        marginals, chart = posteriors(words).spans[0], posteriors(words, best=decoder == "viterbi")
        totals = {tree: sum(float(chart.spans[0, i, j]) for i, j in tree) for tree in binary(0, len(words))}
        assert set(parse.tree.spans()) | {(0, len(words))} == max(totals, key=totals.get)
        assert parse.tree.confidence == parse.confidence
        assert parse.confidence == pytest.approx([float(marginals[i, j]) for i, j in parse.tree.spans()], abs=1e-5)
        assert list(parse.labels) == [f"N{int(chart.labels[0, i, j])}" for i, j in parse.tree.spans()]
    assert parses[3].unknown == 2


def test_probabilities_of_spans_add_up_to_a_binary_tree():
    words = SENTENCES[5]
    marginals = posteriors(words).spans[0]
    assert float(marginals[0, len(words)]) == pytest.approx(1, abs=1e-5)
    assert float(marginals.sum()) - float(marginals.diagonal(1).sum()) == pytest.approx(len(words) - 1, abs=1e-4)


def test_labels_are_on_the_trees_only_if_asked_for():
    plain, labelled = (Parser(SMALL, labels=labels).parse(SENTENCES) for labels in (False, True))
    for words, parse, other in zip(SENTENCES, plain, labelled, strict=True):
        if len(words) < 2:
            assert parse == other
            continue
        labels = posteriors(words).labels[0]
        assert all(node.label is None for node in parse.tree.nodes)
        assert other.tree.unlabelled() == parse.tree
        assert other.tree.confidence == parse.tree.confidence
        assert (other.labels, other.confidence) == (parse.labels, parse.confidence)
        for i, j, label in other.tree.nodes:
            assert label == ("T" if j - i == 1 else "N") + str(int(labels[i, j]))
        assert Tree.from_brackets(other.tree.brackets(), labelled=True) == other.tree
        assert len(other.tree.nodes) == 2 * len(words) - 1


def test_json_has_what_a_grammar_knows():
    parse = Parser(SMALL).parse(SENTENCES[5])
    record = json.loads(parse.to_json())
    assert (record["distances"], record["layer"], record["decoder"]) == (None, None, "mbr")
    assert len(record["spans"]) == len(record["labels"]) == len(record["confidence"]) == 4
    assert "votes" not in record
    assert Tree.from_json(parse.to_json()) == parse.tree
    assert Tree.from_json(parse.to_json()).confidence == parse.confidence


def test_batches_do_not_matter(monkeypatch):
    many = [words * k for k in (1, 2, 3) for words in SENTENCES] * 3
    whole = Parser(SMALL).parse(many)
    monkeypatch.setattr(module, "_CELLS", 40)
    split = Parser(SMALL).parse(many)
    alone = [Parser(SMALL).parse(words) if words else Parser(SMALL).parse([[]])[0] for words in many]
    for trees in (split, alone):
        assert [parse.tree for parse in trees] == [parse.tree for parse in whole]
        assert [parse.labels for parse in trees] == [parse.labels for parse in whole]


def test_lines_and_raw_text(tmp_path):
    grammar("generic").save(tmp_path / "run")
    parser = Parser.load(tmp_path / "run")
    lines = ["The old cat slept.\n", "\n", "Dog!\n", "That dog's cat saw the cat.\n"]
    parses = list(parser.parse_lines(lines))
    assert [str(parse.tree or "") for parse in parses] == [str(parser.parse(line.strip()).tree or "") for line in lines]
    assert parses[0].words == ("The", "old", "cat", "slept")
    assert [parses[0].text[i:j] for i, j in parses[0].offsets] == list(parses[0].words)


def test_the_folder_keeps_the_trees(tmp_path):
    SMALL.save(tmp_path / "run")
    parser = Parser.load(tmp_path / "run", decoder="viterbi", labels=True)
    assert (parser.layers, parser.gates, parser.decoder) == ((), None, "viterbi")
    assert parser.parse(SENTENCES) == Parser(SMALL, decoder="viterbi", labels=True).parse(SENTENCES)


def test_members_vote(tmp_path):
    members = [grammar(seed=seed) for seed in (1, 2, 3)]
    SMALL.save(tmp_path / "run")
    assert Parser.load(tmp_path / "run", votes=True).parse(SENTENCES[5]).votes is None
    for k, member in enumerate(members):
        member.save(tmp_path / "run" / "members" / str(k))
    parses = Parser.load(tmp_path / "run", votes=True).parse(SENTENCES)
    theirs = [Parser(member).parse(SENTENCES) for member in members]
    for k, parse in enumerate(parses):
        spans = parse.tree.spans() if parse.tree else ()
        voters = [other[k].tree.spans() if other[k].tree else () for other in theirs]
        assert parse.votes == tuple(sum(span in voter for voter in voters) / 3 for span in spans)
    assert any(0 < vote < 1 for parse in parses for vote in parse.votes)
    assert Parser.load(tmp_path / "run").parse(SENTENCES[5]).votes is None
    with pytest.raises(UserError, match=r"^members: a grammar over other words"):
        Parser(SMALL, members=[grammar(words=WORDS[1:])])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 2}, r"^layer 2: a grammar has none; only a language model has$"),
        ({"gates": "forget"}, r"^gates forget: a grammar has none; only a language model has$"),
        ({"decoder": "paper"}, r"^decoder paper: there are mbr, viterbi$"),
        ({"words_at_once": 0}, r"^words_at_once 0: at least 1 is needed$"),
    ],
)
def test_options_of_a_language_model_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        Parser(SMALL, **options)


def test_what_only_one_kind_of_model_has(tmp_path):
    with pytest.raises(UserError, match=r"^a grammar has no distances"):
        next(Parser(SMALL).distances([["the", "cat"]]))
    with pytest.raises(UserError, match=r"^labels: a language model has none"):
        Parser.load("en-small", labels=True)
    bare = grammar()
    bare.tokenizer = None
    with pytest.raises(UserError, match="no tokenizer"):
        Parser(bare)


def test_broken_weights_are_refused():
    broken = grammar()
    with torch.no_grad():
        broken.words.fill_(torch.nan)
    with pytest.raises(UserError, match=r"^the grammar's probabilities are not finite"):
        Parser(broken).parse(["the", "cat", "slept"])


def test_too_long_a_sentence_is_refused_after_those_before_it(monkeypatch):
    monkeypatch.setattr(Grammar, "longest", 5)
    parser = Parser(SMALL)
    parses = parser.parse_lines(["the cat", "the dog slept", "the cat " * 3, "a dog"])
    assert [next(parses).id, next(parses).id] == [0, 1]
    with pytest.raises(UserError, match=r"^sentence 3 has 6 words: this machine's memory is enough for 5; split it$"):
        next(parses)
    errors = []
    assert [parse.id for parse in parser.parse_lines(["the cat " * 3, "a dog"], errors.append)] == [1]
    assert len(errors) == 1
    with pytest.raises(UserError, match="memory"):
        list(SMALL.read([[2] * 6]))


def test_a_long_sentence_parses():
    parse = Parser(SMALL).parse(["the", "cat", "saw", "a", "dog"] * 60)
    assert isinstance(parse, Parse)
    assert len(parse.tree.spans()) == 298


def test_diagrams_of_some_of_the_words():
    words = ["the", "old", "cat", "saw", "a", "dog"]
    diagram = Parser(SMALL).diagram(words)
    tree = Parser(SMALL).parse(words).tree
    assert (diagram.tree, diagram.distances, diagram.gates) == (tree, None, None)
    gold = Tree.from_brackets("((The Cat) (saw dog))")
    some = Parser(SMALL).diagram(words, gold, [0, 2, 3, 5])
    assert some.tree == restricted(tree, [0, 2, 3, 5], gold.words)
    assert Parser(SMALL).diagram("") is None
