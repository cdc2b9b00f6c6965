"""What inspect counts, against the plain definitions; and its warnings, on layers that are made sick in known ways."""

import json
import math
import random
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from helpers import onlstm, random_model
from onlstm import inspect as inspection
from onlstm.errors import UserError
from onlstm.inspect import BINS, inspect
from onlstm.lm.model import LanguageModel
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer
from onlstm.trees import baselines as branching
from onlstm.trees.decode import tree_from_distances
from onlstm.trees.f1 import score, tied

WORDS = ["the", "a", "cat", "dog", "saw", "slept", "that", "old", "'s", "N"]
CHOOSE = random.Random(1)
LINES = [" ".join(CHOOSE.choices(WORDS, k=n)) for n in (5, 1, 12, 2, 3, 30, 8, 8, 4)] + ["", "  "]
model = partial(random_model, Tokenizer.of_words(WORDS), torch.float64, spread=1.5, num_layers=3, chunk_size=2)


def forget_rows(layer):
    """The rows of a layer's parameters that make its master forget gate."""
    chunks = layer.hidden_size // layer.chunk_size
    return slice(chunks, 2 * chunks)


def one(found, layer, gate="forget"):
    (spread,) = [each for each in found.spreads if (each.layer, each.gate) == (layer, gate)]
    return spread


def plainly(made, gate, layer):
    """Distances of each line with words."""
    kind = "lstm" if made.config.rnn == "lstm" else gate
    found = [Parser(made, layer=layer, gates=kind).parse(line).distances for line in LINES]
    return [np.array(d) for d in found if d]


@pytest.mark.parametrize("options", [{}, {"free_last_chunk": True}, {"num_layers": 1, "tied": False}])
def test_spreads_are_the_plain_definitions(options):
    made = model(**options)
    found = inspect(made, LINES)
    assert (found.sentences, found.words, found.more, found.cut) == (9, 73, False, 0)
    assert len(found.spreads) == 2 * made.config.num_layers
    for spread in found.spreads:
        each = plainly(made, spread.gate, spread.layer)
        every, inner = np.concatenate(each), [d[1:] - d[1:].mean() for d in each if len(d) > 2]
        chunks = made.config.sizes[spread.layer - 1] // 2
        place = every / (1 if "free_last_chunk" in options else 1 - 1 / chunks)
        assert spread.mean == pytest.approx(every.mean())
        assert spread.deviation == pytest.approx(every.std())
        assert (spread.low, spread.high) == pytest.approx((every.min(), every.max()))
        assert spread.inside == pytest.approx(np.concatenate(inner).std())
        assert spread.inner == sum(map(len, inner))
        assert spread.ties == pytest.approx(tied(d.tolist() for d in each))
        assert spread.stuck == pytest.approx(100 * ((place < 0.01) | (place > 0.99)).mean())
        assert spread.histogram == tuple(np.histogram(every, BINS, (0, 1))[0])
        long = [d for d in each if len(d) > 2]
        for side, make in ((spread.right, branching.right), (spread.left, branching.left)):
            for decoder, f1 in side.items():
                trees = [tree_from_distances(d, decoder=decoder) for d in long]
                assert f1 == pytest.approx(score([make(tree.words) for tree in trees], trees).f1, abs=1e-4)


@pytest.mark.parametrize("free", [False, True])
def test_updates_are_the_mean_of_the_gates_and_fall_with_rank(free):
    made = model(free_last_chunk=free)
    found = inspect(made, LINES)
    totals = [0.0, 0.0, 0.0]
    for line in filter(str.strip, LINES):
        x = made.embedding(torch.tensor([made.tokenizer.eos_id, *made.tokenizer.ids(line.split())])[:, None])
        for k, layer in enumerate(made.layers):
            forget, input = (gate[0, 1:, 0] for gate in layer.gates(x))
            totals[k] = totals[k] + (1 - forget * (1 - input)).sum(0).detach().numpy()
            x = layer.scan(x).output
    for total, frequency in zip(totals, found.updates, strict=True):
        assert frequency == pytest.approx(total / found.words, abs=1e-9)
        assert list(frequency) == sorted(frequency, reverse=True)
        assert (frequency[-1] > 0.001) is free


def test_pictures_hold_the_gates_of_the_sentence():
    made = model()
    found = inspect(made, LINES, layer="1,last", sentence=3)
    assert found.shown == tuple(LINES[2].split())
    assert [picture.layer for picture in found.pictures] == [1, 3]
    for picture in found.pictures:
        assert picture.distances == pytest.approx(plainly(made, "forget", picture.layer)[2])
        assert [np.mean(row) for row in picture.erased] == pytest.approx(picture.distances)
        assert [np.mean(row) for row in picture.written] == pytest.approx(plainly(made, "input", picture.layer)[2])
        for row in (*picture.erased, *picture.written):
            assert list(row) == sorted(row, reverse=True)
            assert len(row) == made.config.sizes[picture.layer - 1] // 2


def test_the_layer_that_the_folder_names_is_drawn():
    assert inspect(model(parse_layer=3), LINES).pictures[0].layer == 3
    assert inspect(model(), LINES).pictures[0].layer == 2


def test_an_lstm_has_distances_but_no_master_gates():
    made = model(rnn="lstm")
    found = inspect(made, LINES)
    assert found.updates == ()
    assert found.pictures[0].erased == ()
    for k in (1, 2, 3):
        assert one(found, k).mean == pytest.approx(np.concatenate(plainly(made, "forget", k)).mean())


def test_a_healthy_model_has_no_problems():
    assert [spread.problems for spread in inspect(model(), LINES).spreads] == [()] * 6


def test_a_dead_layer_is_flat_tied_and_one_way():
    made = model()
    with torch.no_grad():
        for parameter in made.layers[1].parameters():
            parameter[forget_rows(made.layers[1])] = 0
    found = inspect(made, LINES)
    dead = one(found, 2)
    assert dead.problems == ("flat", "tied", "one-way")
    assert (dead.inside, dead.right) == (pytest.approx(0, abs=1e-12), {"paper": 100, "unbiased": 100})
    assert [one(found, 1).problems, one(found, 2, "input").problems, one(found, 3).problems] == [(), (), ()]


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("end", [0, -1])
def test_a_layer_stuck_at_either_end_is_saturated(end, free):
    made = model(free_last_chunk=free)
    layer = made.layers[2]
    K = 4 + free
    with torch.no_grad():
        layer.bias_ih_l0[K : 2 * K][end] = 60  # all of the softmax on the first or the last split point
    found = one(inspect(made, LINES), 3)
    assert "saturated" in found.problems
    assert found.stuck > 95
    assert found.mean == pytest.approx(0 if end == 0 else 1 if free else 0.75, abs=0.01)


def test_a_layer_that_jumps_from_end_to_end_is_saturated_but_not_flat():
    made = model()
    layer, rows = made.layers[0], forget_rows(made.layers[0])
    with torch.no_grad():
        layer.weight_ih_l0[rows.start] *= 100
        layer.weight_ih_l0[rows.stop - 1] = -layer.weight_ih_l0[rows.start]
    found = one(inspect(made, LINES), 1)
    assert "saturated" in found.problems
    assert "flat" not in found.problems
    assert found.inside > 0.2


def test_weights_near_their_start_make_flat_layers_without_ties():
    for spread in inspect(model(spread=0.05), LINES).spreads:
        assert "flat" in spread.problems
        assert not {"tied", "saturated"} & set(spread.problems)


def test_a_layer_that_sees_the_word_alone_is_tied():
    made = model()
    with torch.no_grad():
        made.layers[0].weight_hh_l0.zero_()
    found = inspect(made, LINES)
    assert one(found, 1).problems == ("tied",)
    assert one(found, 3).problems == ()


def test_distances_that_only_fall_are_one_way():
    spread = one(inspect(model(), LINES), 1)
    change = {"right": {"paper": 99.0, "unbiased": 96.0}}
    assert inspection.Spread(**vars(spread) | change).problems == ("one-way",)
    change = {"right": {"paper": 99.0, "unbiased": 94.0}, "left": {"paper": 94.0, "unbiased": 99.0}}
    assert inspection.Spread(**vars(spread) | change).problems == ()


def test_a_short_sentence_is_no_reason_to_condemn_a_layer():
    found = inspect(model(spread=0.05), ["the old cat"])
    assert all(spread.problems == () for spread in found.spreads)
    assert one(inspect(model(), ["cat", "a dog"]), 1).inner == 0
    assert all(math.isnan(f1) for f1 in one(inspect(model(), ["cat", "a dog"]), 1).right.values())


def test_long_lines_are_cut_and_counted(monkeypatch):
    monkeypatch.setattr(inspection, "LONGEST", 10)
    made = model()
    found = inspect(made, LINES)
    assert (found.cut, found.words) == (2, 73 - 2 - 20)
    shortened = inspect(made, [" ".join(line.split()[:10]) for line in LINES])
    assert found.spreads == shortened.spreads
    monkeypatch.setattr(inspection, "SHOWN", 4)
    assert inspect(made, LINES).shown == tuple(LINES[0].split()[:4])


def test_no_more_sentences_are_read_than_asked_for():
    def lines():
        yield from LINES[:4]
        yield "the cat"  # to see that there is more
        raise AssertionError("read too far")

    found = inspect(model(), lines(), limit=4)
    assert (found.sentences, found.more) == (4, True)
    assert not inspect(model(), LINES[:4], limit=4).more


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ([], {}, "no words"),
        (["", " "], {}, "no words"),
        (LINES, {"sentence": 10}, "sentence 10: choose one of 1 to 9"),
        (LINES, {"sentence": 0}, "sentence 0"),
        (LINES, {"limit": 0}, "limit 0"),
        (LINES, {"layer": 4}, "layer '4'"),
    ],
)
def test_mistakes_are_named(lines, options, message):
    with pytest.raises(UserError, match=message):
        inspect(model(), lines, **options)


def test_a_model_that_diverged_is_refused():
    made = model()
    with torch.no_grad():
        made.layers[1].bias_ih_l0.fill_(math.nan)
    with pytest.raises(UserError, match="not finite"):
        inspect(made, LINES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    model().save(folder / "good")
    dead = model()
    with torch.no_grad():
        for parameter in dead.layers[1].parameters():
            parameter[forget_rows(dead.layers[1])] = 0
    dead.save(folder / "dead")
    model(rnn="lstm").save(folder / "lstm")
    (folder / "text.txt").write_text("\n".join(LINES))
    return folder


command = partial(onlstm, "inspect")


def test_the_command_reads_a_file_a_pipe_or_a_sentence(runs):
    code, from_file, _ = command(runs / "good", runs / "text.txt")
    assert code == 0
    assert "No layer is saturated, flat, tied or one-way." in from_file
    assert "WARNING" not in from_file
    assert "9 sentences, 73 words" in from_file
    assert command(runs / "good", "-", input="\n".join(LINES))[1] == from_file
    code, sentence, _ = command(runs / "good", "the old cat slept")
    assert (code, "1 sentence, 4 words" in sentence, "Too little text" in sentence) == (0, True, True)
    assert sentence.count(" slept\n") == 1
    code, long, _ = command(runs / "good", "the old cat " * 200)
    assert (code, "600 words" in long) == (0, True)


def test_one_word_has_no_numbers_for_what_cannot_be_counted(runs, tmp_path):
    code, out, err = command(runs / "good", "cat", "--out", tmp_path / "a.SVG")
    assert (code, err, "nan" in out) == (0, f"{tmp_path}/a.SVG written\n", False)
    assert "1 sentence, 1 word\n" in out
    row = next(line for line in out.splitlines() if line.startswith("    1  forget"))
    assert row.split()[-4:] == ["–"] * 4
    assert (tmp_path / "a.SVG").read_text().startswith("<svg")


def test_the_command_warns_and_says_what_to_do(runs):
    _, out, _ = command(runs / "dead", runs / "text.txt")
    warnings = [line for line in out.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 3
    assert all(line.startswith("WARNING: layer 2, forget gate is ") for line in warnings)
    best = max((1, 3), key=lambda k: one(inspect(LanguageModel.load(runs / "dead"), LINES), k).inside)
    assert f"What to do: parse with layer {best}" in out
    assert "--model.free-last-chunk" in out


def test_an_lstm_run_says_that_it_has_no_master_gates(runs):
    code, out, _ = command(runs / "lstm", runs / "text.txt")
    assert (code, "no master gates" in out) == (0, True)


def test_json_is_one_object_with_all_numbers(runs):
    code, out, err = command(runs / "dead", runs / "text.txt", "--json", "--max", 6)
    found = json.loads(out)
    assert (code, "--max reads more" in err) == (0, True)
    assert {"command", "version", "argv", "seed", "seconds", "run", "model"} <= set(found)
    assert {"sentences", "words", "cut", "more"} <= set(found)
    assert {"spreads", "updates", "shown", "pictures", "warnings", "advice", "out"} <= set(found)
    assert [each["problem"] for each in found["warnings"]] == ["flat", "tied", "one-way"]
    assert len(found["spreads"][0]["histogram"]) == BINS


@pytest.mark.parametrize("run", ["good", "lstm"])
def test_pictures_are_written(runs, tmp_path, run):
    svg, page = tmp_path / "a.svg", tmp_path / "a.html"
    assert command(runs / run, runs / "text.txt", "--out", svg, "--sentence", 3)[0] == 0
    words = [each.text for each in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert set(LINES[2].split()) <= set(words)
    assert command(runs / run, runs / "text.txt", "--out", page, "--layer", "1,2,3")[0] == 0
    assert page.read_text().count("<svg") == 3


def test_inspect_and_draw_show_the_gates_the_same_way(runs, tmp_path):
    pictures = [tmp_path / "inspect.svg", tmp_path / "draw.svg"]
    assert command(runs / "good", LINES[2], "--layer", "2", "--out", pictures[0])[0] == 0
    assert onlstm("draw", runs / "good", LINES[2], "--layer", "2", "--out", pictures[1])[0] == 0
    heat, drawn = (picture.read_text().split('shape-rendering="crispEdges"')[1] for picture in pictures)
    assert heat.strip() == drawn.strip()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["good", "nothing.txt"], "nothing.txt: no such file"),
        (["nowhere", "the old cat"], "nowhere"),
        (["good", "the old cat", "--out", "a.png"], ".html or .svg"),
        (["good", "the old cat", "--out", "no-such-folder/a.svg"], "no-such-folder"),
        (["good", "the old cat", "--sentence", "2"], "sentence 2"),
        (["good", "the old cat", "--max", "0"], "--max 0: at least 1"),
        (["good", "the \udcff cat"], "not UTF-8"),
        (["good", "the old cat", "--layer", "x"], "layer 'x'"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(runs, args, message):
    code, out, err = command(runs / args[0], *args[1:])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
