"""The page and the library agree: tokens, distances, surprisals, trees, and what a person takes away."""

import json
import random

import pytest
import torch
from nasty import lines

from onlstm import Grammar, LanguageModel, Parser, Tree
from onlstm.draw import Diagram, latex
from onlstm.playground import export
from onlstm.text.rules import PROFILES
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees import f1
from onlstm.trees.average import vote
from onlstm.trees.decode import tree_from_distances

pytestmark = pytest.mark.browser

SENTENCES = [
    *("", "One", "… !!! —", "xyzzy plugh qwfp", "The cat that the dogs chased was tired."),
    *("Die Katze, die die Hunde jagten, war müde.", "Le chat que les chiens ont poursuivi était fatigué."),
    *("El gato que los perros persiguieron estaba cansado.", "Кошка, за которой гнались собаки, устала."),
    " ".join(["the old man by the river said that it was 5 % of $ 3.2 million"] * 14)[:1200],
]


@pytest.fixture(scope="module")
def network():
    return LanguageModel.load("en-small")


@pytest.fixture(scope="module")
def parsers(network):
    return {
        **{decoder: Parser(network, decoder=decoder) for decoder in ("paper", "unbiased")},
        "mbr": Parser(Grammar.load("en"), labels=True),
    }


def random_sentences(network, count):
    draw = random.Random(1)
    return [" ".join(draw.choices(network.tokenizer.vocabulary[:3000], k=draw.randint(2, 25))) for _ in range(count)]


def check_sentences(page, network, parsers, sentences):
    """Compare what the page and the library say of sentences; return the largest differences."""
    largest = {"distances": 0.0, "surprisals": 0.0, "probabilities": 0.0, "trees": 0}
    for text in sentences:
        said = page.evaluate(
            """async (text) => {
              const { treeFromDistances, vote, brackets } = await use("tree.js");
              const { surprisal, eos, distances, tokens } = await read(models.network, text);
              const words = tokens.map((token) => token.text), d = distances.forget;
              const decoded = (layer, decoder) => brackets(treeFromDistances(layer, words, decoder));
              const both = ["paper", "unbiased"].map((decoder) => [decoder, words.length && decoded(d[1], decoder)]);
              const voted = words.length && brackets(vote(d.map((x) => treeFromDistances(x, words, "paper"))).tree);
              const { spans } = await read(models.grammar, text);
              return { surprisal, eos, distances, trees: Object.fromEntries(both), voted, spans, words };
            }""",
            text,
        )
        ids = [token.id for token in network.tokenizer.tokens(text)][:250]
        (score,) = network.score([said["words"]]) if len(ids) == 250 else network.score([text])
        gaps = [abs(a - b) for a, b in zip(said["surprisal"], score.surprisal, strict=True)]
        largest["surprisals"] = max(largest["surprisals"], abs(said["eos"] - score.eos), *gaps)
        if not ids:
            continue
        batch = next(iter(network.read([ids], distances=True)))
        for kind in ("forget", "input"):
            ours = getattr(batch.distances, kind)[:, :, 0]
            largest["distances"] = max(
                largest["distances"], float((torch.tensor(said["distances"][kind]) - ours).abs().max())
            )
        check_trees(said, batch.distances.forget[:, :, 0], parsers, largest)
    return largest


def check_trees(said, distances, parsers, largest):
    """Trees are the same wherever no two distances of a sentence are within 1e-4."""
    words = [word.replace("(", "-LRB-").replace(")", "-RRB-") for word in said["words"]]
    clear = [bool((layer.sort().values.diff() > 1e-4).all()) for layer in distances]
    if clear[1]:
        largest["trees"] += 1
        for decoder, brackets in said["trees"].items():
            assert brackets == str(tree_from_distances(distances[1].tolist(), words, decoder))
    if all(clear):
        assert said["voted"] == str(vote([tree_from_distances(layer.tolist(), words) for layer in distances]))
    if len(words) < 2:
        return
    parse = parsers["mbr"].parse(said["words"])
    spans = sorted((span["start"], span["end"], span["label"], span["probability"]) for span in said["spans"])
    inner = [span for span in spans if span[1] - span[0] < len(words)]
    assert tuple(span[:2] for span in inner) == parse.tree.spans()
    assert tuple(span[2] for span in inner) == parse.labels
    gaps = [abs(span[3] - sure) for span, sure in zip(inner, parse.confidence, strict=True)]
    largest["probabilities"] = max([largest["probabilities"], *gaps])


def check_within_bounds(largest):
    assert largest["distances"] < 1e-4
    assert largest["surprisals"] < 1e-3
    assert largest["probabilities"] < 1e-3


def test_numbers_are_those_of_the_library(modules, network, parsers):
    check_within_bounds(check_sentences(modules, network, parsers, SENTENCES + random_sentences(network, 20)))


@pytest.mark.slow
@pytest.mark.data
def test_numbers_of_five_hundred_sentences(modules, network, parsers, shared):
    from onlstm.trees.treebank import read_treebank

    bank = read_treebank(shared / "data" / "wsj-sample" / "wsj-sample-nltk-layout.zip")
    treebank = [" ".join(tree.words) for tree in bank.trees[::10][:250]]
    sentences = SENTENCES + treebank + random_sentences(network, 500 - len(SENTENCES) - len(treebank))
    check_within_bounds(check_sentences(modules, network, parsers, sentences))


@pytest.mark.parametrize("profile", [*PROFILES, "generic, with punctuation"])
def test_tokens_of_nasty_lines(modules, profile):
    name, _, punctuation = profile.partition(", ")
    words = ["<unk>", "<eos>", "the", "a", "n't", "N", "'s", "é", "한", "戦", "5", "1,000"]
    words += ["<unk> -e", "<unk> -é", "<unk> -ing", "<unk> -ng", "<unk> -s", "<unk> -한"]
    tokenizer = Tokenizer.of_words(words, name, punctuation=bool(punctuation))
    texts = lines(2000)
    tokens = modules.evaluate(
        """async ([rules, vocabulary, lines]) => {
          const { Tokenizer } = await use("tokenizer.js");
          const tokenizer = new Tokenizer(rules, vocabulary);
          return lines.map((line) => tokenizer.tokens(line).map(({ text, start, end, id }) => [text, start, end, id]));
        }""",
        [export._rules(tokenizer, "run"), tokenizer.vocabulary, texts],
    )
    for text, found in zip(texts, tokens, strict=True):
        assert [list(token) for token in tokenizer.tokens(text)] == found, ascii(text)


def test_one_more_word_computes_one_word(modules):
    computed = modules.evaluate(
        """async () => {
          const texts = ["the cat sat", "the cat sat on", "the cat sat on", "the cat", "a cat"];
          const counts = [];
          for (const text of texts) counts.push((await read(models.network, text)).computed);
          return counts;
        }"""
    )
    assert computed == [3, 1, 0, 0, 2]


@pytest.mark.parametrize(
    "text", ["(S (NP the cat) (VP sat (PP on it)))", "((the cat) (sat (on it)))", "( ( Mr. -LRB- 5 % ) & _ )", "word"]
)
def test_brackets_latex_and_f1(modules, text):
    tree, right = Tree.from_brackets(text), None
    right = Tree.from_spans(tree.words, [(i, len(tree.words)) for i in range(len(tree.words) - 1)])
    written, scored, tex = modules.evaluate(
        """async ([text, other]) => {
          const { readBrackets, makeTree, brackets, f1 } = await use("tree.js");
          const { latex } = await use("takeaway.js");
          const read = (text) => (text.startsWith("(") ? readBrackets(text) : makeTree([text], []));
          const tree = read(text);
          return [brackets(tree), f1(tree, read(other)), latex([{ tree }])];
        }""",
        [text, str(right)],
    )
    assert written == str(tree)
    assert scored == pytest.approx(f1.score([right], [tree]).f1, abs=1e-4)
    assert tex == latex(tree)


def test_latex_of_other_scripts_and_of_two_trees(modules):
    for words in ("הילדה קראה ספר", "猫 は 魚", "बच्चा सो गया", "Ŧeſt naïve “q”"):
        tree, gold = (Tree.from_spans(words.split(), [span]) for span in ((0, 2), (1, 3)))
        tex = modules.evaluate(
            """async (words) => {
              const { makeTree } = await use("tree.js");
              const { latex } = await use("takeaway.js");
              const view = (start, end) => ({
                tree: makeTree(words, [{ start, end }]), marked: new Set([`${start},${end}`]),
              });
              return latex([view(0, 2), view(1, 3)]);
            }""",
            words.split(),
        )
        assert tex == latex(Diagram(tree=tree, gold=gold))


def test_json_is_that_of_the_command(modules, parsers):
    text = "The cat’s “dogs” chased 5% of 😀 it."
    records = modules.evaluate(
        """async (text) => {
          const { json } = await use("takeaway.js");
          const { viewOf } = await use("view.js");
          const chosen = { layer: "", decoder: "unbiased", lines: "margin", gates: "forget", heat: "auto" };
          const facts = { network: { kind: "model", layers: 3, layer: 2 }, grammar: { kind: "grammar" } };
          return Promise.all(Object.keys(models).map(async (name) => {
            const result = await read(models[name], text);
            return json(viewOf(facts[name], result, chosen), result);
          }));
        }""",
        text,
    )
    for record, parser in zip(records, (parsers["unbiased"], parsers["mbr"]), strict=True):
        ours, theirs = json.loads(record), json.loads(parser.parse(text).to_json())
        assert list(ours) == list(theirs)
        for key in ("distances", "confidence"):
            assert ours.pop(key, None) == pytest.approx(theirs.pop(key, None), abs=1e-4)
        assert ours == theirs
