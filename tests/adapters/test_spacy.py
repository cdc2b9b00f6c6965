"""The spaCy component: trees of spaCy's tokens, the attributes that benepar's users know, storage and processes."""

import pickle
import subprocess
import sys
import warnings

import pytest

from onlstm import Parser, Tree
from onlstm.draw import latex, svg, text
from onlstm.errors import UserError
from onlstm.lm.score import score

spacy = pytest.importorskip("spacy", minversion="3.8", reason="needs the extra spacy", exc_type=ImportError)
adapter = pytest.importorskip("onlstm.adapters.spacy")
from spacy.tokens import Doc, DocBin, Span  # noqa: E402

RAW = 'The cat that the dogs chased, she said, was "tired" (very). Most of the people knew him! Yes. ...'


def pipeline(sentences=True, **config):
    nlp = spacy.blank("en")
    if sentences:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe("onlstm", config=config)
    return nlp


@pytest.fixture(scope="module")
def grammar():
    return pipeline()


@pytest.fixture(scope="module")
def network():
    return pipeline(model="en-small")


def strings(doc):
    return [sentence._.parse_string for sentence in doc.sents]


@pytest.mark.parametrize("name", ["en", "en-small"])
def test_the_trees_are_those_of_the_parser(name):
    nlp = pipeline(model=name)
    words = ["the", "cat", "that", "the", "dogs", "chased", "was", "tired"]
    tree = nlp(Doc(nlp.vocab, words))[:]._.tree
    parse = Parser.load(name).parse(words)
    assert tree.unlabelled() == parse.tree.unlabelled()
    assert tree.confidence == parse.confidence


def test_what_the_tokenizer_drops_is_in_the_smallest_constituent_around_it(network):
    doc = network("The cat, which I saw, sat. \n Dogs bark ... Yes. ?!")
    for sentence in doc.sents:
        words = [token for token in sentence if token._.distances is not None]
        assert sentence._.tree.words == tuple("_" if token.is_space else token.text for token in sentence)
        for place in set(sentence) - set(words):
            parent = doc[place.i : place.i + 1]._.parent
            around = [c for c in sentence._.constituents if c.start <= place.i < c.end and len(c) > 1]
            assert parent is None or tuple(parent) == tuple(min(around, key=len))
    assert [token.text for token in doc if token._.distances is None and not token.is_space] == [*",,.", "...", *".?!"]


def test_constituents_children_and_parents_are_one_tree(grammar):
    doc = grammar(RAW)
    for sentence in doc.sents:
        spans = list(sentence._.constituents)
        assert spans[0] == sentence
        assert sentence._.parent is None
        assert spans == sorted(spans, key=lambda span: (span.start, -span.end))
        assert [span for span in spans if len(span) == 1] == [doc[t.i : t.i + 1] for t in sentence]
        for span in spans:
            children = list(span._.children)
            assert [token for child in children for token in child] == (list(span) if len(span) > 1 else [])
            assert all(child._.parent == span for child in children)
            assert span._.parse_string == str(span._.tree)


def test_labels_and_confidence(grammar, network):
    sentence = next(grammar(RAW).sents)
    for span in sentence._.constituents:
        assert len(span._.labels) == (len(span) > 1)
        assert 0 <= span._.confidence <= 1
    assert sentence._.parse_string.startswith("(N")
    assert Tree.from_brackets(sentence._.parse_string, labelled=True) == sentence._.tree
    assert next(grammar(RAW).sents)[0]._.distances is None
    assert next(grammar(RAW).sents)[0]._.surprisal is None
    sentence = next(network(RAW).sents)
    assert sentence._.labels == ()
    assert sentence._.confidence is None


def test_surprisal_is_that_of_the_words_that_were_read(network):
    doc = network("The cat, which I saw, sat.")
    expected = score(network.get_pipe("onlstm").parser.model, [["The", "cat", "which", "I", "saw", "sat"]])[0]
    assert [t._.surprisal for t in doc if t._.surprisal is not None] == pytest.approx(expected.surprisal)
    assert [t.text for t in doc if t._.surprisal is None] == [",", ",", "."]


def test_other_spans_and_other_documents_raise(grammar):
    doc = grammar("The cat sat.")
    with pytest.raises(adapter.NotAConstituentError, match="not a constituent: 'cat sat'"):
        _ = doc[1:3]._.labels
    with pytest.raises(UserError, match="no trees of its tokens"):
        _ = grammar.make_doc("The cat sat.")[:]._.parse_string
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[:2])
    with pytest.raises(UserError, match="no trees of its tokens"):
        _ = doc[:]._.parse_string


def test_batches_long_sentences_and_empty_documents(grammar, network):
    texts = ["", "Yes", RAW, "!", "the old dog saw " * 75]
    for nlp in (grammar, network):
        docs = list(nlp.pipe(texts, batch_size=2))
        assert [strings(doc) for doc in docs[1:4]] == [strings(nlp(text)) for text in texts[1:4]]
        assert len(docs[4]) == 300
        assert len(list(docs[4][:]._.constituents)) == 300 + 299
        assert list(docs[0].sents) == []


def test_merged_tokens_with_a_blank_are_one_word(grammar):
    doc = Doc(grammar.vocab, ["New York", "sleeps"], sent_starts=[True, False])
    assert grammar(doc)[:]._.tree.words == ("New_York", "sleeps")


def test_documents_and_pipelines_are_stored(network, tmp_path):
    doc = network(RAW)
    surprisal = doc[1]._.surprisal
    copies = [Doc(network.vocab).from_bytes(doc.to_bytes()), pickle.loads(pickle.dumps(doc))]
    copies += DocBin(docs=[doc], store_user_data=True).get_docs(network.vocab)
    for copy in copies:
        assert strings(copy) == strings(doc)
        assert (copy[1]._.distances, copy[1]._.surprisal) == (doc[1]._.distances, surprisal)
    network.to_disk(tmp_path / "pipeline")
    again = spacy.load(tmp_path / "pipeline")
    assert again.get_pipe("onlstm").run == "en-small"
    assert strings(again(RAW)) == strings(doc)
    assert strings(pickle.loads(pickle.dumps(network.get_pipe("onlstm")))(doc)) == strings(doc)


@pytest.mark.slow
def test_two_processes(grammar):
    texts = [f"{RAW} The dog saw {k} cats." for k in range(20)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks in a process with threads
        docs = list(grammar.pipe(texts, n_process=2, batch_size=5))
    assert [strings(doc) for doc in docs] == [strings(grammar(text)) for text in texts]


def test_a_constituent_is_drawn(grammar):
    sentence = next(grammar("The cat sat. Dogs bark.").sents)
    assert svg(sentence) == svg(sentence._.tree) == svg([sentence])
    assert "forest" in latex(sentence)
    assert list(text(sentence)) == list(sentence._.tree.lines())


def test_bad_input_is_one_line():
    with pytest.raises(UserError, match=r'^onlstm: the document has no sentence boundaries; nlp.add_pipe\("sentenc'):
        pipeline(sentences=False)("The cat sat.")
    with pytest.raises(UserError, match="nowhere"):
        pipeline(model="nowhere")
    with pytest.raises(UserError, match="layer '9'"):
        pipeline(model="en-small", layer=9)
    nlp, errors = pipeline(sentences=False), []
    nlp.set_error_handler(lambda name, component, docs, error: errors.append(str(error)))
    assert list(nlp.pipe(["The cat sat.", "It ran."])) == []
    assert len(errors) == 1


def test_another_language_is_warned_of_once():
    nlp = pipeline()
    german = "Der alte Hund des Nachbarn bellte gestern Abend lange, weil niemand ihm sein Futter gegeben hatte. " * 5
    with pytest.warns(UserWarning, match="of the words are unknown to the model en: do not trust") as caught:
        list(nlp.pipe([german, german], batch_size=1))
    assert len(caught) == 1


def test_spacy_finds_the_component_and_attributes_of_others_stay():
    code = (
        "import spacy; from spacy.tokens import Span; Span.set_extension('labels', getter=lambda span: 'theirs')\n"
        "nlp = spacy.blank('en'); nlp.add_pipe('sentencizer'); nlp.add_pipe('onlstm')\n"
        "span = nlp('The cat sat.')[:]; print(span._.labels, span._.tree.words)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout == "theirs ('The', 'cat', 'sat', '.')\n", result.stderr
    assert "span._.labels stay those of another package; onlstm's trees are span._.tree" in result.stderr


def test_the_attributes_have_not_changed():
    assert all(map(Span.has_extension, ["parse_string", "constituents", "labels", "parent", "children", "confidence"]))
