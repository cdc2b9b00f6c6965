"""TigerXML and Alpino's XML: order, secondary edges, gaps under each rule, punctuation, broken files, entities."""

import zipfile
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.trees import TreebankError
from onlstm.trees.treebank import load_profile, read_treebank
from onlstm.trees.treebank.graphs import read_xml
from onlstm.trees.treebank.sentence import Defect

TIGER, ALPINO = load_profile("tiger"), load_profile("alpino")

# The owl has she , they say , never seen .  The NP's head is marked, the VP's is its last word.
OWL = """
<s id="s1">
 <graph root="s1_503" discontinuous="true">
  <terminals>
   <t id="s1_0" word="&lt;p&gt;" pos="--"/>
   <t id="s1_1" word="Die" pos="ART"/><t id="s1_2" word="Eule" pos="NN"/><t id="s1_3" word="hat" pos="VAFIN"/>
   <t id="s1_4" word="sie" pos="PPER"/><t id="s1_5" word="," pos="$,"/>
   <t id="s1_6" word="nie" pos="ADV"/><t id="s1_7" word="gesehen" pos="VVPP"><secedge idref="s1_501" label="X"/></t>
   <t id="s1_8" word="." pos="$."/>
  </terminals>
  <nonterminals>
   <nt id="s1_503" cat="S"><edge idref="s1_3" label="HD"/><edge idref="s1_4" label="SB"/><edge idref="s1_502"
    label="OC"/></nt>
   <nt id="s1_502" cat="VP"><edge idref="s1_7" label="HD"/><edge idref="s1_6" label="MO"/><edge idref="s1_501"
    label="OA"/><secedge idref="s1_4" label="SB"/></nt>
   <nt id="s1_501" cat="NP"><edge idref="s1_1" label="NK"/><edge idref="s1_2" label="NK"/></nt>
  </nonterminals>
 </graph>
</s>"""
DUTCH = """
<alpino_ds version="1.2" id="1">
 <node begin="0" cat="top" end="6" rel="top">
  <node begin="0" cat="smain" end="5" rel="--">
   <node begin="1" end="2" pos="verb" rel="hd" word="heeft"/>
   <node begin="2" end="3" index="1" pos="noun" rel="su" word="zij"/>
   <node begin="0" cat="ppart" end="5" rel="vc">
    <node begin="2" end="3" index="1" rel="su"/>
    <node begin="0" cat="mwu" end="1" rel="obj1"><node begin="0" end="1" pos="name" rel="mwp" word="De Uil"/></node>
    <node begin="3" end="4" pos="adv" rel="mod" word="nooit"/>
    <node begin="4" end="5" pos="verb" rel="hd" word="gezien"/>
   </node>
  </node>
  <node begin="5" end="6" pos="punct" rel="--" word="."/>
 </node>
 <sentence>De_Uil heeft zij nooit gezien .</sentence>
</alpino_ds>"""


def corpus(*sentences):
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<corpus><body>{"".join(sentences)}</body></corpus>'.encode()


def test_tiger():
    [found] = read_xml(corpus(OWL), TIGER)
    assert str(found.tree) == "(S (NP Die Eule) hat sie (VP nie gesehen))"  # the VP keeps the part with its head
    assert found.tags == ("ART", "NN", "VAFIN", "PPER", "ADV", "VVPP")
    assert (found.line, found.gaps, found.length, len(found.leaves)) == (3, 1, 6, 9)
    rules = {
        "split": "(S (VP (NP Die Eule)) hat sie (VP nie gesehen))",
        "drop": "(S (NP Die Eule) hat sie nie gesehen)",
    }
    for rule, brackets in rules.items():
        [found] = read_xml(corpus(OWL), replace(TIGER, discontinuous=rule))
        assert (str(found.tree), found.gaps) == (brackets, 1)
    [found] = read_xml(corpus(OWL), replace(TIGER, heads=()))
    assert str(found.tree) == "(S (VP (NP Die Eule)) hat sie nie gesehen)"  # no head: the first part


def test_punctuation_makes_no_gaps_and_pseudo_tokens_are_no_text():
    [found] = read_xml(corpus(OWL), TIGER, punctuation=True)
    assert str(found.tree) == "( (S (NP Die Eule) hat sie , (VP nie gesehen)) . )"
    own = OWL.replace('<nt id="s1_503" cat="S">', '<nt id="s1_503" cat="S"><edge idref="s1_8" label="--"/>')
    [found] = read_xml(corpus(own), TIGER, punctuation=True)
    assert str(found.tree) == "(S (NP Die Eule) hat sie , (VP nie gesehen) .)"
    assert found.gaps == 1


def test_alpino(tmp_path):
    [found] = read_xml(f'<?xml version="1.0" encoding="ISO-8859-1"?>\n<alpino>{DUTCH}</alpino>'.encode(), ALPINO)
    assert str(found.tree) == "(smain (mwu De_Uil) heeft zij (ppart nooit gezien))"
    assert (found.tags, found.gaps, found.line) == (("name", "verb", "noun", "adv", "verb"), 1, 3)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:  # one sentence a file
        for name in ("1.xml", "2.xml"):
            archive.writestr(f"bank/{name}", DUTCH.strip())
        archive.writestr("bank/README", "<alpino_ds")
    treebank = read_treebank(tmp_path / "a.zip", strict=True)
    assert (treebank.profile, treebank.discontinuous) == (ALPINO, 2)
    assert treebank.trees == (found.tree,) * 2
    assert treebank.sources == ("bank/1.xml:1", "bank/2.xml:1")


def test_auto_passes_over_other_xml(tmp_path):
    (tmp_path / "align.xml").write_text("<treealign><node node_id='s1_1'/></treealign>")
    (tmp_path / "trees.xml").write_bytes(corpus(OWL))
    treebank = read_treebank(tmp_path, strict=True)
    assert (treebank.profile, treebank.sources, treebank.skipped) == (TIGER, ("trees.xml:3",), {})
    with pytest.raises(UserError, match=r"align.xml: no trees of profile tiger \(tiger-xml\); choose"):
        read_treebank(tmp_path / "align.xml", profile="tiger")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('idref="s1_501" label="OA"', 'idref="s1_9" label="OA"', "edge to a node that is not there"),
        ('idref="s1_6" label="MO"', 'idref="s1_4" label="MO"', "node with two parents"),
        ('idref="s1_1" label="NK"', 'idref="s1_502" label="NK"', "node with two parents"),
        ('idref="s1_1" label="NK"', 'idref="s1_503" label="NK"', "nodes in a circle"),
        ('word="Eule"', 'word=" "', "word 1 is '': words are not empty and hold no whitespace"),
        ('cat="VP"', 'cat="V P"', "label 'V P' holds whitespace or parentheses"),
    ],
)
def test_defects_cost_one_sentence(old, new, what):
    bad = OWL.replace("\n    label", " label").replace(old, new)
    assert bad != OWL.replace("\n    label", " label")
    first, second, third = read_xml(corpus(OWL, bad, OWL), TIGER)
    assert second == Defect(what, 21)
    assert first.tree == third.tree


def test_broken_xml_costs_the_rest_of_its_file(tmp_path):
    data = corpus(OWL, OWL, OWL)
    (tmp_path / "a.xml").write_bytes(data[: len(data) * 5 // 6])
    (tmp_path / "b.xml").write_bytes(corpus(OWL))
    treebank = read_treebank(tmp_path)
    assert treebank.sources == ("a.xml:3", "a.xml:21", "b.xml:3")
    [(what, count)] = treebank.skipped.items()
    assert (what[:12], count) == ("broken XML (", 1)
    with pytest.raises(TreebankError, match=r"a.xml:\d+: broken XML \("):
        read_treebank(tmp_path, strict=True)
    (tmp_path / "early.xml").write_bytes(data[:70])
    treebank = read_treebank(tmp_path / "early.xml")
    assert (treebank.profile, treebank.skipped) == (TIGER, {"broken XML (unclosed token)": 1})


def test_encodings_of_xml(tmp_path):
    path = tmp_path / "a.xml"
    gull = corpus(OWL.replace("Eule", "Möwe")).decode()
    path.write_bytes(gull.encode("latin-1"))
    assert read_treebank(path).skipped == {"broken XML (not well-formed (invalid token))": 1}
    with pytest.raises(TreebankError, match=r"^a.xml:7: broken XML \(not well-formed"):
        read_treebank(path, strict=True)
    assert "Möwe" in read_treebank(path, profile=replace(TIGER, encoding="latin-1")).trees[0].words
    path.write_bytes(gull.replace("UTF-8", "ISO-8859-1").encode("latin-1"))
    assert "Möwe" in read_treebank(path, strict=True).trees[0].words
    for name, why in (("UTF-81", "unknown encoding: UTF-81"), ("gbk", "multi-byte encodings are not supported")):
        path.write_bytes(corpus(OWL.replace("Eule", "鹰")).decode().replace("UTF-8", name).encode("gbk"))
        assert read_treebank(path).skipped == {f"broken XML ({why})": 1}
        assert "鹰" in read_treebank(path, profile=replace(TIGER, encoding="gbk")).trees[0].words
    with pytest.raises(TreebankError, match=r"^a.xml:7: not ascii, as profile tiger expects; choose one"):
        read_treebank(path, profile=replace(TIGER, encoding="ascii"))


def test_entities_are_no_way_in(tmp_path):
    (tmp_path / "secret").write_text("Eule")
    outside = f'<!DOCTYPE corpus [<!ENTITY x SYSTEM "{tmp_path / "secret"}">]>'
    grown = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
    bomb = f'<!DOCTYPE corpus [<!ENTITY e0 "eule">{grown}]>'
    for doctype, entity in ((outside, "&x;"), (bomb, "&e9;")):
        data = f"{doctype}<corpus><body>{OWL.replace('Eule', entity)}</body></corpus>".encode()
        [found] = read_xml(data, TIGER)
        assert isinstance(found, Defect)


@st.composite
def graphs(draw):
    """Children by node, of a tree whose leaves come in any order; the roles of the leaves; the heads."""
    n = draw(st.integers(1, 9))
    tops = [[place] for place in draw(st.permutations(range(n)))]
    nodes, children = [], [str(place) for [place] in tops]
    while len(tops) > 1:
        k = draw(st.integers(1, len(tops)))
        chosen = draw(st.lists(st.integers(0, len(tops) - 1), min_size=k, max_size=k, unique=True))
        nodes.append((sorted(p for i in chosen for p in tops[i]), [children[i] for i in chosen]))
        rest = [i for i in range(len(tops)) if i not in chosen]
        tops = [tops[i] for i in rest] + [nodes[-1][0]]
        children = [children[i] for i in rest] + [f"n{len(nodes) - 1}"]
        if k == 1 and len(nodes) > 20:
            break
    return n, draw(st.lists(st.sampled_from(["N", "$,"]), min_size=n, max_size=n)), nodes


def parts(places, words):
    """The runs of words among places."""
    runs = []
    for rank, place in enumerate(words):
        if place in places:
            if runs and runs[-1][1] == rank:
                runs[-1][1] = rank + 1
            else:
                runs.append([rank, rank + 1])
    return [tuple(run) for run in runs]


@example(  # a part that ends where a constituent with a mark of its own does
    (
        5,
        ["N", "N", "N", "N", "$,"],
        [([3, 4], ["3", "4"]), ([0, 2, 3, 4], ["0", "2", "n0"]), ([0, 1, 2, 3, 4], ["1", "n1"])],
    ),
    False,
    True,
)
@given(graphs(), st.booleans(), st.booleans())
def test_every_graph_becomes_a_tree(graph, headed, punctuation):
    n, tags, nodes = graph
    text = "".join(f'<t id="{i}" word="w{i}" pos="{tag}"/>' for i, tag in enumerate(tags))
    for k, (_, children) in enumerate(nodes):
        edges = [
            f'<edge idref="{child}" label="{"HD" if headed and not i else ""}"/>' for i, child in enumerate(children)
        ]
        text += f'<nt id="n{k}" cat="c{k}">{"".join(edges)}</nt>'
    words = [i for i, tag in enumerate(tags) if tag == "N"]
    runs = {f"c{k}": parts(places, words) for k, (places, _) in enumerate(nodes)}
    for rule in ("lift", "split", "drop"):
        [found] = read_xml(corpus(f"<s>{text}</s>"), replace(TIGER, discontinuous=rule), punctuation)
        assert found.gaps == sum(len(run) > 1 for run in runs.values())
        if found.tree is None:
            assert not words
            continue
        if punctuation:
            assert len(found.tree.words) == n
            continue
        spans = {label: [] for label in runs}
        for start, end, label in found.tree.nodes:
            spans.setdefault(label, []).append((start, end))
        for label, run in runs.items():
            if rule == "split" or len(run) < 2:
                assert spans[label] == run
            else:
                assert len(spans[label]) == (rule == "lift")
                assert set(spans[label]) <= set(run)


@pytest.fixture(scope="module")
def data(shared):
    return shared / "data" / "treebanks-other"


@pytest.mark.data
def test_smultron_by_language(data):
    with zipfile.ZipFile(data / "smultron.zip") as archive:
        for language, sentences, terminals, gaps in (("en", 79, 1876, 0), ("de", 86, 1906, 39), ("sv", 93, 1731, 2)):
            found = list(read_xml(archive.read(f"smultron/smultron_{language}_banana.xml"), TIGER))
            assert (len(found), sum(len(one.leaves) for one in found)) == (sentences, terminals)
            assert sum(one.gaps for one in found) == gaps


@pytest.mark.data
@pytest.mark.slow
def test_alpino_has_as_many_gaps_as_its_readme_says(data):
    with zipfile.ZipFile(data / "alpino.zip") as archive:
        found = list(read_xml(archive.read("alpino/alpino.xml"), ALPINO))
    assert (len(found), sum(bool(one.gaps) for one in found), sum(one.gaps for one in found)) == (7136, 3459, 6243)
