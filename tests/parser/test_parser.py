"""The parser: against the whole model run on one sentence, whatever the batch, the window, the layers or the input."""

import json
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from onlstm import draw
from onlstm.errors import UserError
from onlstm.lm import reader
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.parser import Parse, Parser
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees.decode import tree_from_distances

WORDS = ["the", "a", "cat", "dog", "saw", "slept", "that", "old", "'s", "N"]
SENTENCES = [["the", "cat", "slept"], [], ["dog"], ["the", "old", "Zebra", "saw"] * 9, ["a", "dog"], ["a", "cat"] * 4]


def model(profile="pretokenized", **options):
    """A model in float64, where no rounding can turn a tree."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.of_words(WORDS, profile)
    config = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 12, "chunk_size": 2}
    made = LanguageModel(LMConfig(**config | options), tokenizer).double()
    with torch.no_grad():
        for p in made.parameters():
            p.uniform_(-1.5, 1.5)  # distances far from each other
    return made.eval()


def plainly(model, words, kind="forget", closed=False):
    """Distances (L, n) by running the whole model over `<eos>` and the whole sentence."""
    eos = model.tokenizer.eos_id
    ids = [eos, *model.tokenizer.ids(words), *[eos] * closed]
    with torch.no_grad():
        found = getattr(model(torch.tensor(ids)[:, None]).distances, kind)[:, :, 0]
    return found[:, 1 : 1 + len(words)]


def near(distances):
    return pytest.approx(distances.tolist(), abs=1e-12)


@pytest.mark.parametrize("kind", ["forget", "input"])
@pytest.mark.parametrize("decoder", ["paper", "unbiased"])
def test_parse_is_the_plain_model_and_its_decoder(kind, decoder):
    small = model()
    parser = Parser(small, decoder=decoder, gates=kind)
    for k, (words, found) in enumerate(zip(SENTENCES, parser.parse(SENTENCES), strict=True)):
        assert (found.id, found.words, found.layer, found.decoder) == (k, tuple(words), 2, decoder)
        assert found.distances == near(plainly(small, words, kind)[1])
        assert found.distances == near(plainly(small, words, kind, closed=True)[1])
        assert found.tree == (tree_from_distances(found.distances, words, decoder) if words else None)


def test_the_distances_and_trees_are_not_all_alike():
    small = model()
    rows = [*plainly(small, SENTENCES[3]), *plainly(small, SENTENCES[3], "input")]
    assert all((a - b).abs().max() > 0.01 for i, a in enumerate(rows) for b in rows[:i])
    assert len({Parser(small, layer=k).parse(SENTENCES[3]).tree for k in (1, 2, 3)}) == 3
    assert Parser(small).parse(SENTENCES[3]).tree != Parser(small, decoder="unbiased").parse(SENTENCES[3]).tree


sentence = st.lists(st.sampled_from([*WORDS, "nobody"]), max_size=12)
SMALL = model()


@settings(max_examples=30, deadline=None)
@given(st.lists(sentence, max_size=12), st.integers(1, 80))
def test_batched_is_one_by_one_in_order(sentences, words_at_once):
    together = Parser(SMALL, words_at_once=words_at_once).parse(sentences)
    alone = [Parser(SMALL).parse([each])[0] for each in sentences]
    assert [each.id for each in together] == list(range(len(sentences)))
    for one, other in zip(alone, together, strict=True):
        assert (one.words, one.text, one.offsets, one.tree) == (other.words, other.text, other.offsets, other.tree)
        assert one.distances == pytest.approx(other.distances, abs=1e-12)


def test_single_precision_is_as_good():
    small = model().float()
    for words, found in zip(SENTENCES, Parser(small, words_at_once=20).parse(SENTENCES), strict=True):
        assert found.distances == pytest.approx(plainly(small, words)[1].tolist(), abs=1e-6)


def test_no_more_words_are_computed_at_once_than_allowed(monkeypatch):
    small, seen = model(), []
    encode = small.encode
    monkeypatch.setattr(small, "encode", lambda ids, *a, **o: (seen.append(ids.numel()), encode(ids, *a, **o))[1])
    long = ["the", "old", "dog"] * 100
    found = Parser(small, words_at_once=64).parse([*SENTENCES, long])
    assert max(seen) <= 64
    assert sum(seen) < 2 * sum(map(len, [*SENTENCES, long]))
    assert found[-1].distances == near(plainly(small, long)[1])


def test_layers_are_averaged():
    small = model()
    each = [Parser(small, layer=k).parse(SENTENCES[3]).distances for k in (1, 2, 3)]
    for layers in ([1, 3], "1,3", ("last", "1"), [3, 1, 1, "last"], " 1 , last"):
        found = Parser(small, layer=layers).parse(SENTENCES[3])
        assert found.layer == (1, 3)
        assert found.distances == pytest.approx([(a + b) / 2 for a, b in zip(each[0], each[2], strict=True)])
        assert found.tree == tree_from_distances(found.distances, found.words)


@pytest.mark.parametrize(
    ("layer", "count", "number"),
    [(None, 1, 1), (None, 2, 2), (None, 3, 2), (None, 4, 3), ("middle", 3, 2), ("last", 3, 3), ("1", 3, 1), (3, 3, 3)],
)
def test_layers_by_name_and_number(layer, count, number):
    small = model(num_layers=count)
    found = Parser(small, layer=layer).parse(SENTENCES[3])
    assert found.layer == number
    assert found.distances == near(plainly(small, SENTENCES[3])[number - 1])


def test_only_the_layers_that_are_needed_are_computed():
    small = model()
    expected = Parser(small).parse(SENTENCES[3])
    small.layers[2] = small.decoder = nn.Identity()  # neither reads words nor has a softmax
    assert Parser(small, layer=[1, 2]).parse(SENTENCES[3]).layer == (1, 2)
    assert Parser(small).parse(SENTENCES[3]) == expected
    with pytest.raises(AttributeError):
        Parser(small, layer=3).parse(SENTENCES[3])


def test_the_models_mode_does_not_matter_and_stays():
    small = model()
    expected = Parser(small).parse(SENTENCES)
    small.train()
    assert Parser(small).parse(SENTENCES) == expected
    assert all(module.training for module in small.modules())


@pytest.mark.parametrize("profile", ["ptb-en", "generic"])
def test_raw_text_keeps_surface_forms_and_offsets(profile):
    text = "  “The OLD dog, that saw a Zébra, slept.” "
    parser = Parser(model(profile))
    found = parser.parse(text)
    assert found.words == ("The", "OLD", "dog", "that", "saw", "a", "Zébra", "slept")
    assert [found.text[i:j] for i, j in found.offsets] == list(found.words)
    assert (found.text, found.tree.words) == (text, found.words)
    read = parser.parse(["the", "old", "dog", "that", "saw", "a", "<unk>", "slept"])
    assert found.distances == pytest.approx(read.distances)


def test_raw_pieces_of_words_have_offsets():
    found = Parser(model("ptb-en")).parse("The cat's dog saw 1,000 cats")
    assert found.words == ("The", "cat", "'s", "dog", "saw", "1,000", "cats")
    assert [found.text[i:j] for i, j in found.offsets] == list(found.words)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1), max_size=8))
@settings(max_examples=30, deadline=None)
def test_offsets_of_tokenised_sentences_are_into_the_joined_words(words):
    (found,) = Parser(SMALL).parse([words])
    assert found.text == " ".join(words)
    assert [found.text[i:j] for i, j in found.offsets] == words == list(found.words)


def test_each_kind_of_input_has_its_kind_of_result():
    parser = Parser(model("generic"))
    raw, one, (first, second) = parser.parse("The cat"), parser.parse(["the", "cat"]), parser.parse([["a"], ("a", "N")])
    assert (raw.id, one.id, first.id, second.id) == (0, 0, 0, 1)
    assert (raw.words, one.words, second.words) == (("The", "cat"), ("the", "cat"), ("a", "N"))
    assert parser.parse(("the", "cat")) == one
    assert parser.parse([]) == []


def test_without_words_there_is_no_tree():
    parser = Parser(model("generic"))
    for found in (parser.parse(""), parser.parse(" … "), *parser.parse([[]])):
        assert (found.words, found.offsets, found.distances, found.tree) == ((), (), (), None)
        assert json.loads(found.to_json())["spans"] == []
    single = parser.parse("Cat!")
    assert (single.tree.words, single.tree.nodes, len(single.distances)) == (("Cat",), (), 1)


def test_words_that_the_model_does_not_know_are_counted():
    parser = Parser(model("generic"))
    assert [parser.parse(text).unknown for text in ("", "Old cat!", "old zebu, gnu cat")] == [0, 0, 2]
    assert [each.unknown for each in parser.parse([["old", "gnu"], ["gnu", "gnu"]])] == [1, 2]
    assert "unknown" not in parser.parse("gnu").to_json()


def test_json_has_the_keys_of_the_contract():
    found = Parser(model("generic"), layer="1,2").parse("“Der” Hund schläft,\u2028old cat!")
    line = found.to_json()
    row = json.loads(line)
    assert list(row) == ["id", "text", "words", "offsets", "distances", "spans", "layer", "decoder"]
    assert "\n" not in line
    assert "schläft" in line
    assert (row["text"], row["words"], row["layer"], row["decoder"]) == (found.text, [*found.words], [1, 2], "paper")
    assert [tuple(pair) for pair in row["offsets"]] == list(found.offsets)
    assert row["distances"] == list(found.distances)
    assert row["spans"] == [list(span) for span in found.tree.spans()]
    assert len(row["spans"]) == len(found.words) - 2  # binary, the whole left out


def test_lines_are_parsed_like_sentences_and_streamed(monkeypatch):
    monkeypatch.setattr(reader, "CHUNK_SENTENCES", 3)
    parser, asked = Parser(model("generic")), []
    lines = ["The cat slept.\n", "\n", "A dog\r\n", "the old cat saw the dog\n", "a"]
    found = list(parser.parse_lines(lines))
    assert [(each.id, each.text) for each in found] == list(enumerate(line.strip() for line in lines))
    for each, line in zip(found, lines, strict=True):
        alone = parser.parse(line.strip())
        assert (each.words, each.offsets, each.tree) == (alone.words, alone.offsets, alone.tree)
        assert each.distances == pytest.approx(alone.distances, abs=1e-12)

    def endless():
        while True:
            asked.append(lines[len(asked) % 5])
            yield asked[-1]

    assert [each.id for each in islice(parser.parse_lines(endless()), 4)] == [0, 1, 2, 3]
    assert len(asked) == 6
    monkeypatch.setattr(reader, "CHUNK_WORDS", 2)
    asked.clear()
    next(parser.parse_lines(endless()))
    assert len(asked) == 1
    assert list(parser.parse_lines([])) == []


def test_a_bad_line_is_named_or_left_out():
    parser, errors = Parser(model("generic")), []
    lines = ["the cat", b"caf\xe9".decode("utf-8", "surrogateescape"), "a dog"]
    found = parser.parse_lines(lines)
    assert next(found).words == ("the", "cat")
    with pytest.raises(UserError, match=r"^line 2: the text is not UTF-8$"):
        next(found)
    assert [each.id for each in parser.parse_lines(lines, errors.append)] == [0, 2]
    assert [str(error) for error in errors] == ["line 2: the text is not UTF-8"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 4}, r"^layer '4': there are 1, 2, 3, middle, last, or several of them$"),
        ({"layer": 0}, "^layer '0': there are 1"),
        ({"layer": "first"}, "^layer 'first': there are 1"),
        ({"layer": "1,"}, "^layer '': there are 1"),
        ({"layer": []}, "^layer '': there are 1"),
        ({"layer": [1, 9]}, "^layer '9': there are 1"),
        ({"layer": 1.5}, "^layer '1.5': there are 1"),
        ({"decoder": "best"}, r"^decoder 'best': there are paper, unbiased$"),
        ({"gates": "output"}, r"^gates 'output': there are forget, input, lstm, own$"),
        ({"words_at_once": 0}, r"^words_at_once 0: at least 1 is needed$"),
    ],
)
def test_mistakes_in_options_are_named(options, message):
    with pytest.raises(UserError, match=message):
        Parser(model(), **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (["the old cat slept", "a dog"], "^sentence 1, word 1: 'the old cat slept' is not a word.*parse_text$"),
        ([["the"], ["a", ""]], "^sentence 2, word 2: '' is not a word"),
        ([["the"], "cat"], "^sentence 2: a list of words is needed, not 'cat'$"),
        ([["the", 3]], "^sentence 1: a list of words is needed"),
        ([3], "^sentence 1: a list of words is needed, not 3$"),
        (3, "^text: a string, a list of words or a list of such lists is needed, not 3$"),
        (["a", "caf\udce9"], "^sentence 1: the text is not UTF-8$"),
        ("caf\udce9", "^line 1: the text is not UTF-8$"),
    ],
)
def test_mistakes_in_texts_are_named(text, message):
    with pytest.raises(UserError, match=message):
        Parser(SMALL).parse(text)


def test_a_string_is_not_lines():
    with pytest.raises(UserError, match=r"^lines: an iterable of lines is needed"):
        Parser(SMALL).parse_lines("the cat")


def test_models_without_distances_or_words_are_refused():
    with pytest.raises(UserError, match=r"^gates forget: a model with LSTM layers has no master gates; .* lstm"):
        Parser(model(rnn="lstm"), gates="forget")
    assert Parser(model(rnn="lstm")).gates == "lstm"
    with pytest.raises(UserError, match=r"^gates lstm: only for models with LSTM layers"):
        Parser(model(), gates="lstm")
    bare = model()
    bare.tokenizer = None
    with pytest.raises(UserError, match="no tokenizer"):
        Parser(bare)
    broken = model()
    nn.init.constant_(broken.layers[0].weight_ih_l0, torch.nan)
    with pytest.raises(UserError, match=r"^the model's distances are not finite"):
        Parser(broken).parse(["the", "cat"])


def test_a_run_is_loaded_with_options(tmp_path):
    small = model("generic")
    small.save(tmp_path / "run")
    parser = Parser.load(tmp_path / "run", layer="last", decoder="unbiased", gates="input")
    text = "The old cat saw that dog."
    assert parser.parse(text) == Parser(small, layer=3, decoder="unbiased", gates="input").parse(text)
    assert isinstance(parser.parse(text), Parse)
    with pytest.raises(UserError, match="no such model folder"):
        Parser.load(tmp_path / "none")


@pytest.mark.parametrize("scale", ["inverted", "original"])
def test_an_lstm_parses_with_its_own_forget_gates(scale):
    """Against the equations, step by step: d_t = 1 - mean_j f_tj, drop-connect scaled as in evaluation."""
    small = model(rnn="lstm", weight_dropout=0.4, weight_dropout_scale=scale)
    words = ["the", "old", "cat", "saw", "Zebra", "slept"]
    x = small.embedding(torch.tensor([small.tokenizer.eos_id, *small.tokenizer.ids(words)]))
    expected = []
    for layer in small.layers:
        h, c, out, d = torch.zeros(layer.hidden_size).double(), torch.zeros(layer.hidden_size).double(), [], []
        keep = 0.6 if scale == "original" else 1
        for now in x:
            gates = layer.weight_ih_l0 @ now + layer.bias_ih_l0 + keep * layer.weight_hh_l0 @ h + layer.bias_hh_l0
            i, f, g, o = gates.chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
            d.append(1 - f.sigmoid().mean().item())
        expected.append(d[1:])
        x = torch.stack(out)
    parser = Parser(small, gates="lstm", words_at_once=4)
    [found] = parser.distances([words])
    for layer, d in zip(found, expected, strict=True):
        assert layer == pytest.approx(d, abs=1e-12)
    assert parser.parse(words).distances == found[1]


@settings(max_examples=20, deadline=None)
@given(st.lists(sentence, max_size=8))
def test_distances_of_all_layers_are_those_of_each(sentences):
    found = list(Parser(SMALL, words_at_once=20).distances(iter(sentences)))
    for layer in (1, 2, 3):
        each = Parser(SMALL, layer=layer, words_at_once=20).parse(sentences)
        assert [layers[layer - 1] for layers in found] == [pytest.approx(one.distances, abs=1e-12) for one in each]


def test_the_layer_is_the_one_recorded_in_the_folder(tmp_path):
    model(parse_layer=3).save(tmp_path / "run")
    assert Parser.load(tmp_path / "run").layers == (3,)
    assert Parser.load(tmp_path / "run", layer="middle").layers == (2,)
    with pytest.raises(UserError, match=r"^model.parse_layer 4: the layers are 1 to 3; 0: the middle$"):
        model(parse_layer=4)


def test_a_list_of_raw_sentences_has_a_way_of_its_own():
    parser, sentences = Parser(SMALL), ["The old cat slept.", "", "A dog!"]
    assert parser.parse_text(sentences) == list(parser.parse_lines(sentences))
    assert parser.parse_text(iter(sentences[:1])) == [parser.parse(sentences[0])]
    with pytest.raises(UserError, match="not a string; for one there is parse"):
        parser.parse_text("the cat")


def test_notebooks_draw_a_parse():
    parse = Parser(SMALL).parse("the old cat slept")
    assert parse._repr_svg_() == draw.svg(draw.Diagram(tree=parse.tree, distances=parse.distances))
    assert parse._repr_svg_() in parse._repr_html_()
    empty = Parser(SMALL).parse("")
    assert (empty._repr_svg_(), empty._repr_html_()) == (None, None)
