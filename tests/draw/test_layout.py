"""Where things stand in pictures and pages: labels, the words of two trees, sides, legends."""

import re
import xml.etree.ElementTree as ET

import pytest

from onlstm import draw
from onlstm.draw import Diagram, Line
from onlstm.draw.diagram import ems
from onlstm.draw.svg import panels
from onlstm.trees import Tree
from onlstm.trees.baselines import left, right

NAMESPACE = "{http://www.w3.org/2000/svg}"
HEBREW = ["הכלב", "הגדול", "רדף", "אחרי", "החתול"]
LABELLED = {
    "neighbours": "(S (NOUNPHRASE-SBJ a b) (VERBPHRASE-LONG c d) (X (PREPPHRASE-DIR e f) (NOUNPHRASE-OBJ g h)))",
    "over one word": "(ROOT-OF-ALL (SENTENCE-MAIN (NOUNPHRASE-SBJ (PRONOUN-NOM I)) (VERBPHRASE (VERB-PAST am))))",
    "to the left": "(A-VERY-LONG-ROOT-LABEL a (B b (C c (A-LONG-LABEL-INSIDE d e))))",
    "to the right": "(A-VERY-LONG-ROOT-LABEL (B (C (A-LONG-LABEL-INSIDE a b) c) d) e)",
    "wide script": "(主語と述語からなる文 (名詞句の主語 我) (動詞句の述語 去 了))",
}


def translated(element):
    match = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", ""))
    return (float(match[1]), float(match[2])) if match else (0.0, 0.0)


def placed(picture, size):
    """(x, y, text) of the texts of this size on the picture's own axes, panel by panel."""
    texts = []

    def walk(element, x, y):
        dx, dy = translated(element)
        for child in element:
            if child.tag == f"{NAMESPACE}text" and element.get("font-size") == size:
                texts.append((x + dx + float(child.get("x")), y + dy + float(child.get("y")), child.text))
            walk(child, x + dx, y + dy)

    walk(ET.fromstring(picture), 0, 0)
    return texts


@pytest.mark.parametrize("brackets", LABELLED.values(), ids=LABELLED)
@pytest.mark.parametrize("copies", [1, 9])
def test_labels_neither_touch_nor_are_cut(brackets, copies):
    tree = Tree.from_brackets(brackets if copies == 1 else f"(A-LABEL-OVER-EVERYTHING {' '.join([brackets] * copies)})")
    picture = draw.svg(tree)
    width, labels = float(ET.fromstring(picture).get("width")), placed(picture, "11")
    assert len(labels) == sum(1 for node in tree.nodes if node.label)
    boxes = [(y, x - ems(text) * 5.5, x + ems(text) * 5.5) for x, y, text in labels]
    assert all(start >= 0 and end <= width for _, start, end in boxes)
    for k, (y, start, end) in enumerate(boxes):
        assert not [b for b in boxes[:k] if abs(b[0] - y) < 11 and b[1] < end and start < b[2]]


def test_words_without_long_labels_stand_as_close_as_before():
    narrow, wide = (panels(Diagram(tree=Tree.from_brackets(text)))[0] for text in ("(S (NP a b) c)", "((a b) c)"))
    assert narrow.edges == wide.edges


def test_two_trees_have_their_words_on_one_line_and_no_gap_above():
    words = ["the", "old", "man", "saw", "him", "there", "at", "once"]
    flat = Tree.from_brackets(f"(S {' '.join(words)})")
    for tree, gold in ((right(words), flat), (flat, left(words)), (right(["a"]), Tree.from_brackets("(NP (DT a))"))):
        picture = draw.svg(Diagram(tree=tree, gold=gold, distances=[0.5] * len(words[: len(tree.words)])))
        assert len({y for _, y, _ in placed(picture, "15")}) == 1
        model, correct = panels(Diagram(tree=tree, gold=gold))
        assert model.top == correct.top == 20
        assert model.depth == correct.depth


def test_a_page_draws_both_trees_to_one_scale():
    words = [f"word{k}" for k in range(9)]
    page = draw.html(Diagram(tree=right(words), gold=left(words), distances=[0.5] * 9, gates=[[0.5] * 9]))
    growths, bases = zip(*re.findall(r"flex:([\d.]+) 1 ([\d.]+)px", page), strict=True)
    ratios = {round(float(grow) / float(base), 1) for grow, base in zip(growths, bases, strict=True)}
    assert len(growths) == 2
    assert ratios == {1.5}, "what grows in proportion to where it starts keeps its proportion"
    assert "background-attachment: local" in page, "shadows where there is more to scroll to"


def test_right_to_left_pictures_stand_below_their_heading():
    page = draw.html([right(HEBREW), right(["a", "b"])])
    assert re.findall(r'<div class="(pair[^"]*)"', page) == ["pair rtl", "pair"]
    assert re.search(r"\.rtl \{ direction: rtl; \}", page)
    assert re.search(r"\.scroll svg \{[^}]*direction: ltr", page), "texts in a picture name their own side"


def test_headings_have_the_number_given():
    tree = right(["a", "b"])
    page = draw.html([Diagram(tree=tree, number=3), Diagram(tree=tree, number=6), Diagram(tree=tree)])
    assert re.findall(r"<h2 dir=auto>(\d)\.", page) == ["3", "6", "3"]


def test_the_legend_shows_what_it_speaks_of():
    tree = right(["a", "b", "c"])
    full = draw.html(Diagram(tree=tree, gold=left(tree.words), distances=[0.5] * 3, gates=[[0.5] * 3]))
    legend = full.split("<section>")[1]
    assert legend.count('class="swatch"') == 4
    for colour in ("dashed #c2410c", "dashed #0369a1", "#94a3b8", "#2b5c94"):
        assert colour in legend
    assert 'class="swatch"' not in draw.html(tree)


def test_a_chart_has_a_title_and_a_legend_by_group():
    lines = [Line(name="A", values=[1, 2], group="ours"), Line(name="B", values=[2, 2], group="ours")]
    lines += [Line(name="A", values=[3, 1], group="published", like="A"), Line(name="C", values=[2, 3], like="")]
    root = ET.fromstring(draw.curve(lines, title="By <length>"))
    texts = [text.text for text in root.iter(f"{NAMESPACE}text")]
    assert root.find(f"{NAMESPACE}title").text == "By <length>"
    assert "By <length>" in texts
    assert [text for text in texts if text in ("ours", "published", "A", "B", "C")] == [
        *["ours", "A", "B", "published", "A"],
        "C",
    ]
    entries = [g for g in root.iter(f"{NAMESPACE}g") if g.find(f"{NAMESPACE}line") is not None and g.get("transform")]
    starts = {translated(g)[0] for g in entries}
    ends = [float(x) for path in root.iter(f"{NAMESPACE}path") for x in re.findall(r"[ML]([\d.]+)", path.get("d"))]
    assert max(ends) < min(starts), "the legend is clear of the plot"


def test_a_legend_has_room_for_the_headings_of_its_groups():
    heading = "a heading longer than any line's name"
    root = ET.fromstring(draw.curve([Line(name="A", values=[1, 2], group=heading)]))
    (text,) = (text for text in root.iter(f"{NAMESPACE}text") if text.text == heading)
    assert float(text.get("x")) + ems(heading) * float(text.get("font-size")) < float(root.get("width"))
