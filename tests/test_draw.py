"""Pictures: valid and complete whatever the words are, one axis for all, great depth; the command draw."""

import gzip
import json
import math
import random
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm import draw
from onlstm.draw.item import columns, ems, right_to_left
from onlstm.errors import UserError
from onlstm.trees import Tree, tree_from_distances
from onlstm.trees.baselines import balanced, left, random_tree, right
from onlstm.trees.f1 import score

SHARED = Path(__file__).parents[2] / "shared"
NAMESPACE = "{http://www.w3.org/2000/svg}"
TREE = Tree.from_brackets("((the (old man)) (saw him))")
GOLD = Tree.from_brackets("(S (NP (DT the) (JJ old) (NN man)) (VP (VBD saw) (NP him)))")
SPECIAL = r"100% R&D a_b #1 {x} ~ ^ \ \\ $5 [ ] [a,b] x=y , = `` -- << | @"
HEBREW = ["הכלב", "הגדול", "רדף", "אחרי", "החתול"]
words = st.lists(st.from_regex(r"[^ \t\n\r\f\v]{1,4}", fullmatch=True), min_size=1, max_size=9)


def texts(picture, size="15"):
    """(x, y, text) of the words, in the order of the sentence."""
    root = ET.fromstring(picture)
    group = next(g for g in root.iter(f"{NAMESPACE}g") if g.get("font-size") == size)
    return [(float(t.get("x")), float(t.get("y")), t.text) for t in group]


def paths(picture, colour):
    """The d of the paths with this stroke, and whether dashed."""
    found = re.findall(rf'stroke="{colour}"[^>]*><path ([^>]*)d="([^"]*)"', picture)
    return [("dasharray" in style, d) for style, d in found]


@settings(deadline=None)
@given(words, st.randoms(use_true_random=False))
def test_any_words_give_valid_xml_and_all_of_them(sentence, rng):
    tree = random_tree(sentence, rng)
    distances = [rng.random() for _ in sentence]
    found = draw.svg(
        tree, gold=right(sentence), distances=distances, gates=[distances, distances], title="a < b & \x00"
    )
    shown = ["".join(char if char.isprintable() else "?" for char in text) for *_, text in texts(found)]
    assert [len(word) for word in shown] == [len(word) for word in sentence]
    ET.fromstring(found)
    page = draw.html([draw.Item(tree=tree, gold=tree, distances=distances)], title="<script>")
    assert "<script>" not in page
    draw.latex(tree)
    assert all("\x1b" not in line and "\n" not in line for line in tree.lines(40))


def test_words_bars_and_gates_stand_on_one_axis():
    distances = [0.9, 0.2, 0.5, 0.7, 0.1]
    found = draw.svg(TREE, distances=distances, gates=[[0.0] * 5, [1.0] * 5])
    places = [x for x, _, _ in texts(found)]
    bars = re.findall(r'<path d="M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)', found)
    middles = [(float(x0) + float(x1)) / 2 for x0, _, x1, _ in bars]
    heights = [float(y0) - float(y1) for _, y0, _, y1 in bars]
    assert middles == pytest.approx(places, abs=0.11)
    assert heights == pytest.approx([height * heights[0] / 0.9 for height in distances], abs=0.11)
    low, high = (re.search(rf'fill-opacity="{shade}" d="([^"]*)"', found)[1] for shade in ("0.06", "1"))
    cells = [float(x) for x in re.findall(r"M([\d.]+)", high)]
    assert all(start < place for start, place in zip(cells, places, strict=True))
    assert all(place < start for start, place in zip(cells[1:], places[:-1], strict=True))
    top = [float(y) for y in re.findall(r"V([\d.]+)", high)]
    bottom = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)", low)]
    assert max(top) < min(bottom), "high-ranking neurons, the last rows, are on top"


def test_each_node_spans_its_first_and_last_child():
    found = draw.svg(TREE)
    at = {text: x for x, _, text in texts(found)}
    (dashed, path), *none = paths(found, "#1e293b")
    assert not dashed
    assert not none
    brackets = [[float(x) for x in re.findall(r"[ML]([\d.]+)", "M" + part)] for part in path.split("M")[1:]]
    ends = {(min(xs), max(xs)) for xs in brackets}
    old_man, saw_him = (at["old"] + at["man"]) / 2, (at["saw"] + at["him"]) / 2
    the_man = (at["the"] + old_man) / 2
    wanted = {(at["old"], at["man"]), (at["the"], old_man), (at["saw"], at["him"]), (the_man, saw_him)}
    for got, expected in zip(sorted(ends), sorted(wanted), strict=True):
        assert got == pytest.approx(expected, abs=0.2)


def test_right_to_left_words_run_from_the_right_and_the_tree_is_mirrored():
    places = [x for x, _, _ in texts(draw.svg(right(HEBREW)))]
    assert places == sorted(places, reverse=True)
    picture = draw.svg(right(HEBREW * 12), distances=[0.5] * 60)
    xs, ys, _ = zip(*texts(picture), strict=True)
    assert len(set(xs)) == 1
    assert list(ys) == sorted(ys)
    assert 'direction="rtl"' in picture
    assert right_to_left(["أ", "b", "ج"])
    assert not right_to_left(["a", "1", "ج", "b"])
    assert r"[{{\fontHebrew \leftwards{החתול}}}]" in draw.latex(right(HEBREW)).split("forest} words")[1][:60]


@pytest.mark.parametrize("make", [left, right, balanced])
def test_80_words_stay_on_a_page(make):
    sentence = [f"word{k}" for k in range(80)]
    for gates in (None, [[0.5] * 80] * 115):
        root = ET.fromstring(draw.svg(make(sentence), distances=[0.5] * 80, gates=gates))
        assert float(root.get("width")) < 1000
        assert float(root.get("height")) < 80 * 22 + 60
    across = ET.fromstring(draw.svg(make(sentence), direction="across"))
    assert float(across.get("height")) < 640


def test_differing_brackets_are_dashed_on_either_side():
    found = draw.svg(TREE, gold=Tree.from_brackets("((the old) (man (saw him)))"))
    wrong, missed = paths(found, "#c2410c"), paths(found, "#0369a1")
    assert [(dashed, d.count("Q")) for dashed, d in wrong] == [(True, 4)], "the old man, old man"
    assert [(dashed, d.count("Q")) for dashed, d in missed] == [(True, 4)], "the old, man saw him"
    assert not paths(draw.svg(TREE, gold=TREE), "#c2410c")
    plain = draw.figure([draw.Item(tree=TREE, gold=GOLD, mark=False)])
    assert not paths(plain, "#c2410c")
    lines = draw.latex(draw.Item(tree=TREE, gold=GOLD))
    assert lines.count(", only here ") == 1
    assert lines.count(", missed ") == 0


@settings(deadline=None)
@given(st.integers(1, 12), st.randoms(use_true_random=False))
def test_f1_is_that_of_the_rule_on_lstm(n, rng):
    sentence = list(map(str, range(n)))
    tree, gold = random_tree(sentence, rng), tree_from_distances([rng.randint(0, 2) for _ in range(n)], sentence)
    assert draw.f1(tree, gold) == pytest.approx(score([gold], [tree]).per_sentence[0], abs=1e-3)


def test_what_does_not_fit_is_refused():
    for wrong in ({"distances": [1.0]}, {"distances": [math.nan] * 5}, {"gates": [[0.5] * 4]}, {"gold": right("ab")}):
        with pytest.raises(UserError, match=r"words"):
            draw.svg(TREE, **wrong)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("cat", 3),
        ("e\u0301", 1),
        ("我们", 4),
        ("ｶﾅ", 2),
        ("한", 2),
        ("\u1112\u1161\u11ab", 2),
        ("👩‍🚀", 2),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        *[("❤️‍🔥", 2), ("👨‍👩‍👧‍👦x", 3), ("שָׁ", 1), ("می‌خواهم", 7), ("1️⃣", 2), ("", 0)],
    ],
)
def test_columns(text, width):
    assert columns(text) == width
    assert bool(ems(text)) == bool(width)


@settings(deadline=None)
@given(words, st.integers(20, 60), st.randoms(use_true_random=False))
def test_no_line_is_wider_than_asked_and_no_word_is_lost(sentence, width, rng):
    sentence = [word.replace("▸", "x") for word in sentence * 6]
    lines = list(draw.text(random_tree(sentence, rng), width))
    assert max(map(columns, lines)) <= width
    assert len([line for line in lines if "▸" not in line]) == len(sentence)


def test_sections_hold_the_tree():
    tree = right([f"w{k}" for k in range(80)])
    lines = list(tree.lines(80))
    heads = [k for k, line in enumerate(lines) if line.startswith("▸")]
    assert [lines[k] for k in heads] == ["▸1", "▸2"]
    assert [lines[k - 1].split()[-1] for k in heads] == ["▸1", "▸2"]
    assert [line.split()[-1] for line in lines if "▸" not in line] == list(tree.words)
    assert list(tree.lines(500)) == list(tree.lines())
    assert next(Tree.from_brackets("(SUPERLONGLABEL (X a) b)").lines(20)) == "SUPE… ┬─ X a"


def test_great_depth_is_drawn_in_time():
    n = 20_000
    tree = right(list(map(str, range(n))))
    started = time.perf_counter()
    assert sum(1 for line in tree.lines(80) if "▸" not in line) == n
    assert len(ET.fromstring(draw.svg(tree))) > 1
    assert draw.latex(tree).count("[{}") == n - 1
    assert time.perf_counter() - started < 10


def test_latex_escapes_what_tex_would_take():
    sentence = SPECIAL.split()
    found = draw.latex(right(sentence)).split("words below ")[1]
    for part in (
        r"100\%",
        r"R\&D",
        r"a\_b",
        r"\#1",
        r"\{x\}",
        r"\textbackslash{}",
        r"\$5",
        "{[}",
        "{]}",
        "{,{}}",
        "-{}-{}",
    ):
        assert part in found
    assert "pdflatex" in draw.latex(TREE)
    assert "lualatex" in draw.latex(right(["привет", "мир"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ("pdflatex", [*SPECIAL.split(), "naïve", "Čapek", "Łódź", "“q”", "€"]),
        ("pdflatex", [f"word{k}" for k in range(80)]),
        ("lualatex", [*HEBREW, "(x)", "привет"]),
    ],
)
def test_latex_compiles(engine, sentence, tmp_path):
    if not shutil.which(engine):
        pytest.skip(f"{engine} is not installed")
    (tmp_path / "tree.tex").write_text(draw.latex(draw.Item(tree=right(sentence), gold=left(sentence))))
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "tree.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "tree.pdf").stat().st_size > 1000


def test_the_page_needs_nothing_else_and_tells_f1():
    page = draw.html([draw.Item(tree=TREE, gold=GOLD, distances=[0.1] * 5, gates=[[0.5] * 5])] * 2, title="Owls")
    assert page.count("<svg ") == 4
    assert page.count("model · F1 80.0") == 4  # in the picture and in its title
    assert "mean F1 80.0" in page
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert draw.page("t", [("a<b", "<p>x</p>")]).count("a&lt;b") == 1


def test_curve_has_a_line_a_series_gaps_and_a_marker():
    nan = math.nan
    found = draw.curve(
        {"a": [1, 2, nan, 4], "b <": [3.0]}, bands={"a": [(0, 1), (1, 3), (nan, nan), (3, 5)]}, marker=(2.5, "end")
    )
    root = ET.fromstring(found)
    lines = [path.get("d") for path in root.iter(f"{NAMESPACE}path")]
    assert [line.count("M") for line in lines] == [2, 1]
    assert len(list(root.iter(f"{NAMESPACE}polygon"))) == 1
    assert {"a", "b <", "end", "1", "4"} <= {text.text for text in root.iter(f"{NAMESPACE}text")}
    ET.fromstring(draw.curve({}))
    ET.fromstring(draw.curve({"flat": [2.0, 2.0]}, y_range=(0, 1)))
    with pytest.raises(UserError, match="series 'a': 2 values but 1 places"):
        draw.curve({"a": [1, 2]}, x=[1])
    with pytest.raises(UserError, match="band 'c'"):
        draw.curve({"a": [1, 2]}, bands={"c": []})


def test_a_faint_line_has_the_colour_of_its_namesake():
    rows = {"ours": [1, 2], "other": [2, 3], "theirs": [3, 4], "strangers": [4, 5]}
    found = ET.fromstring(draw.curve(rows, faint={"theirs": "ours", "strangers": ""}))
    looks = [path.attrib for path in found.iter("{http://www.w3.org/2000/svg}path")]
    assert [look["stroke-width"] for look in looks] == ["2.5", "2.5", "1", "1"]
    colours = [look["stroke"] for look in looks]
    assert colours[2] == colours[0]
    assert len(set(colours)) == 3
    assert looks[2]["stroke-dasharray"] == looks[0]["stroke-dasharray"]
    for wrong in ({"theirs": "nobody"}, {"nobody": ""}, {"theirs": "strangers", "strangers": ""}):
        with pytest.raises(UserError, match="names of series are needed"):
            draw.curve(rows, faint=wrong)


def test_notebooks_show_the_picture():
    assert TREE._repr_svg_() == draw.svg(TREE)


# The command.


@pytest.fixture
def command(capsys, monkeypatch):
    """Run the command in this process; returns its exit code, stdout and stderr."""
    import onlstm.cli.pictures  # noqa: F401
    from onlstm.cli.main import main

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["onlstm", "draw", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    import torch

    from onlstm.lm.config import LMConfig
    from onlstm.lm.model import LanguageModel
    from onlstm.text.tokenizer import Tokenizer

    torch.manual_seed(0)
    config = LMConfig(vocab_size=8, embedding_size=6, hidden_size=12, chunk_size=2)
    folder = tmp_path_factory.mktemp("run")
    tokenizer = Tokenizer.of_words(["the", "old", "man", "saw", "him", "owls"], "generic")
    LanguageModel(config, tokenizer).save(folder)
    return folder


def test_brackets_are_drawn_without_torch(tmp_path):
    code = "import sys, onlstm.cli.pictures\nfrom onlstm.cli.main import main\nmain()\nsys.exit('torch' in sys.modules)"
    out = tmp_path / "owl.svg"
    arguments = [sys.executable, "-c", code, "draw", "-", "--out", str(out)]
    done = subprocess.run(arguments, input="(a\n(b c))\n( d e )\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [text for *_, text in texts(out.read_text())] == ["a", "b", "c"]
    assert ET.fromstring(out.read_text()).tag == f"{NAMESPACE}svg"


@pytest.mark.parametrize(
    ("kind", "start"), [("tree", "S ┬─ NP"), ("svg", "<svg "), ("html", "<!DOCTYPE html>"), ("latex", "% Compile with")]
)
def test_every_format_is_printed(kind, start, command):
    code, out, err = command(GOLD, "--format", kind)
    assert (code, err) == (0, "")
    assert out.startswith(start)


def test_parses_in_json_and_gold_beside(tmp_path, command):
    record = {"id": 0, "words": TREE.words, "spans": TREE.spans(), "distances": [0.5] * 5, "layer": 2}
    parses, gold = tmp_path / "parses.jsonl", tmp_path / "gold.mrg"
    parses.write_text(json.dumps(record) + "\n" + json.dumps({"words": [], "spans": []}) + "\n")
    gold.write_text("( (S (NP (DT the) (JJ old) (NN man)) (, ,) (VP (VBD saw) (NP (PRP him))) (. .)) )\n")
    _, page, _ = command(parses, "--gold", gold, "--format", "html")
    assert page.count("<svg ") == 2
    assert "model · F1 80.0" in page
    assert "distance" in page
    _, plain, _ = command(parses, "--gold", gold, "--format", "svg", "--plain")
    assert "distance" not in plain
    assert not paths(plain, "#c2410c")
    assert command(parses, "--gold", gold)[1].startswith("model, F1 80.0\n┬─┬─ the\n")


def test_a_run_parses_text_and_treebanks(run, tmp_path, command):
    from onlstm.cli.pictures import _gates
    from onlstm.parser import Parser

    _, picture, _ = command(run, "the old man saw him", "--format", "svg")
    assert [word for *_, word in texts(picture)] == ["the", "old", "man", "saw", "him"]
    assert "master gate" in picture
    bank = tmp_path / "bank.mrg"
    bank.write_text("( (S (NP (NNS owls)) (VP (VBD saw) (NP (PRP him))) (. .)) )\n" * 3)
    out = tmp_path / "figure.tex"
    _, _, err = command(run, "--gold", bank, "--select", "3,1-2", "--max", "2", "--plain", "--out", out)
    assert "the first 2 of 3 sentences; --max draws more" in err
    assert out.read_text().count(r"\begin{forest}") == 4
    assert out.read_text().count("{VP}") == 2
    for layer in (1, 2, 3):
        parser = Parser.load(run, layer=layer)
        found = parser.parse("the old man saw him")
        gates = _gates(parser, "the old man saw him")
        assert len(gates) == (3 if layer == 3 else 6)
        means = [1 - sum(column) / len(column) for column in zip(*gates, strict=True)]
        assert means == pytest.approx(found.distances, abs=1e-5), "d = 1 - the mean of the master forget gate"


def test_words_are_found_whole(tmp_path, command):
    file = tmp_path / "trees.txt"
    file.write_text("( starters ( state-of-the-art art-work ) )\n( Modern ( Art sells ) )\n( the art )\n")
    for words, starts in (("art", ["Modern", "the"]), ("modern  ART", ["Modern"]), ("starters", ["starters"])):
        code, out, _ = command(file, "--find", words)
        assert (code, [block.split("─ ")[1].split()[0] for block in out.split("\n\n")]) == (0, starts)
    assert "in none of 3" in command(file, "--find", "modern sells")[2]


def test_marks_at_a_word_of_raw_text_do_not_hide_it(run, command):
    for words in ("saw", "owls", "man saw", "him, owls", "him owls"):
        assert command(run, "The old “man” saw him, owls.", "--find", words)[0] == 0
    assert command(run, "The old man saw him.", "--find", "ma")[0] == 2


def test_a_run_parses_a_single_word_and_packed_treebanks(run, tmp_path, command):
    code, out, err = command(run, "owls")
    assert (code, out.split(), err) == (0, ["owls"], "")
    for name in ("owls.txt", "no/owls", "owls.mrg"):
        assert command(run, name)[2] == f"onlstm: {name}: no such file; check the name\n"
    plain, packed = tmp_path / "a.mrg", tmp_path / "a.mrg.gz"
    plain.write_text("( (S (NP (NNS owls)) (VP (VBD saw) (NP (PRP him))) (. .)) )\n")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert command(run, "--gold", packed) == command(run, "--gold", plain)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], "draw: one thing to draw, or a run folder and a text, not 0"),
        (["(a (b c)"], 'the brackets:1: unclosed "("'),
        (["no-such-file"], 'no-such-file: no such file; brackets begin with "("'),
        (["(a b)", "(c d)"], "(a b) is not a run folder"),
        (["(a b)", "--gold", "(a b c)"], "the gold tree has 3 words, the other one 2"),
        (["(a b)", "--gold", "(a b) (c d)"], "--gold (a b) (c d): 2 trees for 1 sentences"),
        (["(a b)", "--select", "2"], "--select 2: the sentences are 1 to 1"),
        (["(a b)", "--select", "x"], "--select x: numbers and ranges are needed"),
        (["(a b)", "--find", "owl"], "--find 'owl': in none of 1 sentences"),
        (["(a b)", "--max", "0"], "--max 0: at least 1 is needed"),
        (["(a b)", "--out", "no/such/a.svg"], "--out no/such/a.svg: the folder no/such does not exist"),
        (["(a b)", "--out", "a.pdf"], "--out a.pdf: the name ends in .svg, "),
        (['{"words": ["a", "b"], "spans": [], "distances": [1]}'], "the brackets:1: distances: one finite number"),
        (['{"words": [3, 4], "spans": []}'], "the brackets:1: not a tree in JSON"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(args, line, command):
    code, out, err = command(*args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"onlstm: {line}")


@pytest.mark.data
def test_the_gold_trees_of_the_sample_are_drawn(tmp_path, command):
    bank = SHARED / "data" / "wsj-sample" / "wsj-sample-nltk-layout.zip"
    if not bank.exists():
        pytest.skip("the WSJ sample is not here")
    out = tmp_path / "bank.svg"
    code, _, err = command(bank, "--select", "1,40-45", "--out", out)
    assert code == 0, err
    assert len(ET.fromstring(out.read_text()).findall(f"{NAMESPACE}g")) == 7


def test_trees_of_all_kinds_keep_their_brackets_in_latex():
    rng = random.Random(1)
    for n in (1, 2, 5, 30):
        found = draw.latex(random_tree(["w"] * n, rng)).split("words below ")[1]
        assert found.count("[") == found.count("]") == max(1, 2 * n - 1)
