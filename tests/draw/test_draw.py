"""Diagrams: valid and complete whatever the words are, one axis for all, great depth."""

import math
import random
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from onlstm import draw
from onlstm.draw import Diagram, Line
from onlstm.draw.diagram import ems, right_to_left
from onlstm.errors import UserError
from onlstm.trees import Tree, tree_from_distances
from onlstm.trees.baselines import balanced, left, random_tree, right
from onlstm.trees.f1 import score

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
        Diagram(tree=tree, gold=right(sentence), distances=distances, gates=[distances] * 2, title="a < b & \x00")
    )
    shown = ["".join(char if char.isprintable() else "?" for char in text) for *_, text in texts(found)]
    assert [len(word) for word in shown] == [len(word) for word in sentence]
    ET.fromstring(found)
    page = draw.html([Diagram(tree=tree, gold=tree, distances=distances)], title="<script>")
    assert "<script>" not in page
    draw.latex(tree)
    assert all("\x1b" not in line and "\n" not in line for line in tree.lines(40))


def test_words_bars_and_gates_stand_on_one_axis():
    distances = [0.9, 0.2, 0.5, 0.7, 0.1]
    found = draw.svg(Diagram(tree=TREE, distances=distances, gates=[[0.0] * 5, [1.0] * 5]))
    places = [x for x, _, _ in texts(found)]
    bars = re.findall(r'<path d="M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)[^>]*><title>', found)
    middles = [(float(x0) + float(x1)) / 2 for x0, _, x1, _ in bars]
    heights = [float(y0) - float(y1) for _, y0, _, y1 in bars]
    assert middles == pytest.approx(places, abs=0.11)
    assert heights == pytest.approx([height * heights[0] / 0.9 for height in distances], abs=0.11)
    low, high = (re.search(rf'fill-opacity="{shade}" d="([^"]*)"', found)[1] for shade in ("0.06", "1.00"))
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
    brackets = [[float(x) for x in re.findall(r"[MHQ]([\d.]+)", "M" + part)] for part in path.split("M")[1:]]
    ends = {(min(xs), max(xs)) for xs in brackets}
    old_man, saw_him = (at["old"] + at["man"]) / 2, (at["saw"] + at["him"]) / 2
    the_man = (at["the"] + old_man) / 2
    wanted = {(at["old"], at["man"]), (at["the"], old_man), (at["saw"], at["him"]), (the_man, saw_him)}
    for got, expected in zip(sorted(ends), sorted(wanted), strict=True):
        assert got == pytest.approx(expected, abs=0.2)


def test_right_to_left_words_run_from_the_right_and_the_tree_is_mirrored():
    places = [x for x, _, _ in texts(draw.svg(right(HEBREW)))]
    assert places == sorted(places, reverse=True)
    picture = draw.svg(Diagram(tree=right(HEBREW * 12), distances=[0.5] * 60))
    xs, ys, _ = zip(*texts(picture), strict=True)
    assert len(set(xs)) == 1
    assert list(ys) == sorted(ys)
    assert 'direction="rtl"' in picture
    assert right_to_left(["أ", "b", "ج"])
    assert not right_to_left(["a", "1", "ج", "b"])
    assert r"[{\leftwards{החתול}}]" in draw.latex(right(HEBREW)).split("forest} words")[1][:60]


@pytest.mark.parametrize("make", [left, right, balanced])
def test_80_words_stay_on_a_page(make):
    sentence = [f"word{k}" for k in range(80)]
    for gates in (None, [[0.5] * 80] * 115):
        root = ET.fromstring(draw.svg(Diagram(tree=make(sentence), distances=[0.5] * 80, gates=gates)))
        assert float(root.get("width")) < 1000
        assert float(root.get("height")) < 80 * 22 + 60


def test_differing_brackets_are_dashed_on_either_side():
    found = draw.svg(Diagram(tree=TREE, gold=Tree.from_brackets("((the old) (man (saw him)))")))
    wrong, missed = paths(found, "#c2410c"), paths(found, "#0369a1")
    assert [(dashed, d.count("Q")) for dashed, d in wrong] == [(True, 4)], "the old man, old man"
    assert [(dashed, d.count("Q")) for dashed, d in missed] == [(True, 4)], "the old, man saw him"
    assert not paths(draw.svg(Diagram(tree=TREE, gold=TREE)), "#c2410c")
    plain = draw.svg(Diagram(tree=TREE, gold=GOLD, mark=False))
    assert not paths(plain, "#c2410c")
    lines = draw.latex(Diagram(tree=TREE, gold=GOLD))
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
            Diagram(tree=TREE, **wrong)


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
def test_widths_of_scripts_and_emoji(text, width):
    assert cell_len(text) == width
    assert bool(ems(text)) == bool(width)


@settings(deadline=None)
@given(words, st.integers(20, 60), st.randoms(use_true_random=False))
def test_no_line_is_wider_than_asked_and_no_word_is_lost(sentence, width, rng):
    sentence = [word.replace("▸", "x") for word in sentence * 6]
    lines = list(draw.text(random_tree(sentence, rng), width))
    assert max(map(cell_len, lines)) <= width
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
    started = time.process_time()
    assert sum(1 for line in tree.lines(80) if "▸" not in line) == n
    assert len(ET.fromstring(draw.svg(tree))) > 1
    assert draw.latex(tree).count("[{}") == n - 1
    assert time.process_time() - started < 10


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
    assert "Script=Arabic" in draw.latex(right(["مرحبا", "بالعالم"]))


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
    (tmp_path / "tree.tex").write_text(draw.latex(Diagram(tree=right(sentence), gold=left(sentence))))
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "tree.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "tree.pdf").stat().st_size > 1000


def test_the_page_needs_nothing_else_and_tells_f1():
    page = draw.html([Diagram(tree=TREE, gold=GOLD, distances=[0.1] * 5, gates=[[0.5] * 5])] * 2, title="Owls")
    assert page.count("<svg ") == 4
    assert page.count("model · F1 80.0") == 4  # in the picture and in its title
    assert "mean F1 80.0" in page
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert draw.page("t", [("a<b", "<p>x</p>")]).count("a&lt;b") == 1


def test_curve_has_a_path_a_line_gaps_and_a_marker():
    nan = math.nan
    line = Line(name="a", values=[1, 2, nan, 4], band=[(0, 1), (1, 3), (nan, nan), (3, 5)])
    root = ET.fromstring(draw.curve([line, Line(name="b <", values=[3.0])], marker=(2.5, "end")))
    lines = [path.get("d") for path in root.iter(f"{NAMESPACE}path")]
    assert [line.count("M") for line in lines] == [2, 1]
    assert len(list(root.iter(f"{NAMESPACE}polygon"))) == 1
    assert {"a", "b <", "end", "1", "4"} <= {text.text for text in root.iter(f"{NAMESPACE}text")}
    ET.fromstring(draw.curve([]))
    ET.fromstring(draw.curve([Line(name="flat", values=[2.0, 2.0])]))


def test_a_thin_line_has_the_colour_of_its_namesake():
    thin = {"theirs": "ours", "strangers": ""}
    rows = {"ours": [1, 2], "other": [2, 3], "theirs": [3, 4], "strangers": [4, 5]}
    lines = [Line(name=name, values=values, like=thin.get(name)) for name, values in rows.items()]
    looks = [path.attrib for path in ET.fromstring(draw.curve(lines)).iter(f"{NAMESPACE}path")]
    assert [look["stroke-width"] for look in looks] == ["2.5", "2.5", "1", "1"]
    colours = [look["stroke"] for look in looks]
    assert colours[2] == colours[0]
    assert len(set(colours)) == 3
    assert looks[2]["stroke-dasharray"] == looks[0]["stroke-dasharray"]


def test_eight_lines_have_eight_colours():
    lines = [Line(name=name, values=[1.0, 2.0]) for name in "abcdefgh"]
    paths = ET.fromstring(draw.curve(lines)).iter(f"{NAMESPACE}path")
    assert len({path.attrib["stroke"] for path in paths}) == 8


def test_notebooks_show_the_picture():
    assert TREE._repr_svg_() == draw.svg(TREE)


def test_trees_of_all_kinds_keep_their_brackets_in_latex():
    rng = random.Random(1)
    for n in (1, 2, 5, 30):
        found = draw.latex(random_tree(["w"] * n, rng)).split("words below ")[1]
        assert found.count("[") == found.count("]") == max(1, 2 * n - 1)
