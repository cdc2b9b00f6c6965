"""Treebanks: what is kept, layouts, splits, defects, other profiles, the two mappings, the WSJ sample."""

import gzip
import io
import sys
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm.errors import UserError
from onlstm.trees import Node, TreebankError
from onlstm.trees.treebank import load_profile, read_treebank
from onlstm.trees.treebank.brackets import Defect, read_text

OWL = """
( (S
    (NP-SBJ-1 (PRP We) )
    (VP (VBD wanted)
      (S
        (NP-SBJ (-NONE- *-1) )
        (VP (TO to)
          (VP (VB buy)
            (NP=2 (DT an) (NN owl) )
            (PP-CLR (IN for)
              (NP ($ $) (CD 3.50) (-NONE- *U*) ))))))
    (. .) ))
"""
WOW = "( (INTJ (UH Wow) (. !) ))\n"
LONG = f"( (NP {'(NN tick) ' * 11}))\n"


def words_of(treebank):
    return [" ".join(tree.words) for tree in treebank.trees]


def saved(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_tree_is_words_labels_tags_and_place(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(OWL + WOW)
    treebank = read_treebank(path)
    assert words_of(treebank) == ["We wanted to buy an owl for 3.50", "Wow"]
    assert treebank.tags == (("PRP", "VBD", "TO", "VB", "DT", "NN", "IN", "CD"), ("UH",))
    assert treebank.sources == ("a.mrg:2", "a.mrg:13")
    assert str(treebank.trees[0]) == (
        "(S (NP We) (VP wanted (S (VP to (VP buy (NP an owl) (PP for (NP 3.50)))))))"  # the empty subject is gone
    )
    assert treebank.trees[1].nodes == (Node(0, 1, "INTJ"),)
    assert treebank.skipped == {}
    assert (treebank.profile, treebank.split, treebank.punctuation) == (load_profile("ptb"), "all", False)


def test_punctuation_and_the_wide_profile(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(OWL + WOW)
    assert words_of(read_treebank(path, punctuation=True)) == ["We wanted to buy an owl for $ 3.50 .", "Wow !"]
    assert words_of(read_treebank(path, profile="ptb-wide")) == ["We wanted to buy an owl for $ 3.50", "Wow"]


def test_a_view_is_another_reading_of_the_same_sentences(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(OWL + WOW + LONG + "( (NP ($ $)) )")
    bank = read_treebank(path, max_len=10)
    whole = read_treebank(path, max_len=10, punctuation=True)
    assert bank.view(punctuation=True) == whole
    assert whole.view() == bank
    wide = bank.view(profile=load_profile("ptb-wide"))
    assert words_of(wide) == ["We wanted to buy an owl for $ 3.50", "Wow"]
    assert wide.tags[0][-2:] == ("$", "CD")
    assert (wide.sources, wide.skipped) == (bank.sources, {"more than 10 words": 1, "no words": 1})


def test_only_an_outermost_bracket_without_meaning_goes():
    for text in ("( (S (UH Yes) (NN sir)))", "(ROOT (S (UH Yes) (NN sir)))", "(TOP (S-1 (UH Yes) (NN sir)))"):
        [sentence] = read_text(text, load_profile("ptb"))
        assert sentence.tree.nodes == (Node(0, 2, "S"),)
    [sentence] = read_text("( (NP (NN sir)) (ROOT (UH Yes)) (X (NN sir)))", load_profile("ptb"))
    assert [node.label for node in sentence.tree.nodes] == [None, "NP", "ROOT", "X"]


def test_layouts_hold_the_same_trees(tmp_path):
    layouts = [
        {"parsed/mrg/wsj/00/wsj_0001.mrg": OWL, "parsed/mrg/wsj/23/wsj_2300.mrg": WOW},
        {"PARSED/MRG/WSJ/00/WSJ_0001.MRG": OWL, "PARSED/MRG/WSJ/23/WSJ_2300.MRG": WOW},
        {"treebank/combined/wsj_0001.mrg": OWL, "treebank/combined/wsj_2300.mrg": WOW, "treebank/raw/a.txt": "We"},
        {"one/b": OWL, "two": WOW, "README": "(about it"},
        {"a.psd": OWL, "b.psd": WOW, "notes.txt": "(", ".hidden.psd": WOW, "__MACOSX/a.psd": OWL},
    ]
    for k, files in enumerate(layouts):
        folder = saved(tmp_path / str(k), {**files, "README": "read me ("})
        with zipfile.ZipFile(tmp_path / f"{k}.zip", "w") as archive, tarfile.open(tmp_path / f"{k}.txz", "w:xz") as tar:
            for name, text in reversed(files.items()):
                archive.writestr(name, text)
                member = tarfile.TarInfo(name)
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
        for path in (folder, tmp_path / f"{k}.zip", str(tmp_path / f"{k}.txz")):
            treebank = read_treebank(path)
            assert words_of(treebank) == ["We wanted to buy an owl for 3.50", "Wow"]
            first, second = [name for name in files if files[name] in (OWL, WOW)][:2]
            assert treebank.sources == (f"{first}:2", f"{second}:1")


def test_packed_files_and_pipes(tmp_path, monkeypatch):
    data, words = gzip.compress((OWL + WOW).encode()), ["We wanted to buy an owl for 3.50", "Wow"]
    (tmp_path / "notes.txt").write_text("(")
    (tmp_path / "wsj_2300.mrg.gz").write_bytes(data)
    (tmp_path / "wsj_0100.mrg").write_text(WOW)
    assert words_of(read_treebank(tmp_path)) == ["Wow", *words]
    assert words_of(read_treebank(tmp_path, split="test")) == words
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    bank = read_treebank("-")
    assert (words_of(bank), bank.sources) == (words, ("standard input:2", "standard input:13"))


def test_splits_go_by_section(tmp_path):
    files = {
        "mrg/wsj/00/wsj_0001.mrg": OWL + LONG,
        "mrg/wsj/22/WSJ_2201.MRG": WOW + LONG,
        "mrg/wsj/23/wsj_2300.mrg": LONG,
        "mrg/brown/cf/cf01.mrg": WOW,
    }
    folder = saved(tmp_path, files)
    owl, wow, long = "We wanted to buy an owl for 3.50", "Wow", " ".join(["tick"] * 11)
    assert words_of(read_treebank(folder)) == [wow, owl, long, wow, long, long]
    assert words_of(read_treebank(folder, split="test")) == [long]
    assert words_of(read_treebank(folder, split="valid")) == [wow, long]
    short = read_treebank(folder, split="wsj10")
    assert words_of(short) == [owl, wow]
    assert short.skipped == {"more than 10 words": 3}
    assert words_of(read_treebank(folder, split="wsj10", max_len=1)) == [wow]
    assert words_of(read_treebank(folder / "mrg/brown", split="wsj10")) == [wow]
    with pytest.raises(
        UserError, match=r"split test is wsj_23….mrg, but its sections are 00; choose split all or wsj10"
    ):
        read_treebank(folder / "mrg/wsj/00", split="test")
    with pytest.raises(UserError, match="but no file is named so"):
        read_treebank(folder / "mrg/brown", split="valid")


def test_lengths_are_in_words_even_with_punctuation(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(f"( (X {'(NN tick) (, ,) ' * 10}))\n( (X (. .) (: --)))\n( (X (-NONE- 0)))")
    for punctuation in (False, True):
        treebank = read_treebank(path, max_len=10, punctuation=punctuation)
        assert len(treebank.trees) == 1
        assert treebank.skipped == {"no words": 2}
        assert read_treebank(path, max_len=9, punctuation=punctuation).skipped["more than 9 words"] == 1


@pytest.mark.parametrize(
    ("defect", "what"),
    [
        ("( (S (NN a) (NN b))", 'unclosed "("'),
        ("( (S (NN a)) (NN b))))", '")" without "("'),
        (")", '")" without "("'),
        ("# a comment (with a bracket", "comment"),
        ("some text", "text outside brackets"),
        ("( (CODE <TURN>) )", "markup only"),
        ("( (NP (NN)) )", "empty brackets"),
        ("()", "empty brackets"),
        ("( (NP (NN a) b) )", "word beside brackets"),
        ("( (NP b (NN a)) )", "word beside brackets"),
        ("( (NP (NN a b)) )", "leaf of too many parts"),
    ],
)
def test_defects_are_counted_and_cost_no_other_tree(tmp_path, defect, what):
    path = tmp_path / "a.mrg"
    path.write_text(f"{WOW}{defect}\n{OWL}")
    treebank = read_treebank(path)
    # a ")" too many cannot be told from one at the end of the tree before it
    good = ["We wanted to buy an owl for 3.50"] if defect == ")" else ["Wow", "We wanted to buy an owl for 3.50"]
    assert words_of(treebank) == good
    lines = what in ("comment", "text outside brackets")
    assert (treebank.skipped, treebank.outside) == (({}, 1) if lines else ({what: 1}, 0))
    assert treebank.defects == (not lines and what != "markup only")
    assert len(treebank.warnings) == treebank.defects
    assert treebank.sources[-1] == "a.mrg:4"
    line = 1 if defect == ")" else 2
    with pytest.raises(TreebankError) as error:
        read_treebank(path, strict=True)
    assert str(error.value) == f"a.mrg:{line}: {what}"


def test_markup_inside_a_sentence_and_odd_indents_do_no_harm():
    text = "( (S (CODE <HUM>) (NP (PRP We))\r\n\t\u00a0(VP (VBD slept))\u00a0))"
    [sentence] = read_text(text, load_profile("ptb-wide"), punctuation=True)
    assert str(sentence.tree) == "(S (NP We) (VP slept))"


def test_a_few_bytes_in_another_encoding_cost_their_trees_many_the_file(tmp_path):
    path = tmp_path / "a.mrg"
    good = "( (S (NP (PRP We)) (VP (VBD slept)) (. .)) )\n" * 100
    slip = "( (NP (NN caf\u00e9)) )\n"
    path.write_text(good + slip + good, encoding="latin-1")
    treebank = read_treebank(path)
    assert (len(treebank.trees), treebank.skipped) == (200, {"not UTF-8": 1})
    message = "a.mrg:101: not UTF-8, as profile ptb expects; choose one with the right encoding, or write it"
    with pytest.raises(TreebankError) as error:
        read_treebank(path, strict=True)
    assert str(error.value) == message
    path.write_text(good + slip * 100, encoding="latin-1")
    with pytest.raises(TreebankError) as error:
        read_treebank(path)
    assert str(error.value) == message


tags = st.sampled_from(["NN", "VB", "-NONE-", ",", "$", "CODE"])
labels = st.sampled_from(["S", "NP-SBJ", "VP=1", "X"])
nested = st.recursive(
    st.tuples(tags, st.sampled_from(["owl", "a-b", "*"])),
    lambda children: st.tuples(labels, st.lists(children, min_size=1, max_size=3)),
)


def written(tree):
    head, body = tree
    return f"({head} {body if isinstance(body, str) else ' '.join(map(written, body))})"


def pruned(tree, start, drop):
    """The words and nodes that are left, by recursion."""
    head, body = tree
    if isinstance(body, str):
        return ([], []) if head in drop else ([body], [])
    words, below = [], []
    for child in body:
        more, nodes = pruned(child, start + len(words), drop)
        words += more
        below += nodes
    own = (start, start + len(words), head.split("-")[0].split("=")[0])
    return words, [own, *below] if words else []


@given(st.lists(st.tuples(st.just("S"), st.lists(nested, min_size=1, max_size=3)), min_size=1, max_size=3))
def test_reading_is_pruning(trees):
    text = "\n".join(f"( {written(tree)} )" for tree in trees)
    for name, punctuation, drop in (
        ("ptb", False, {"-NONE-", "CODE", ",", "$"}),
        ("ptb-wide", False, {"-NONE-", "CODE", ","}),
        ("ptb", True, {"-NONE-", "CODE"}),
    ):
        for tree, found in zip(trees, read_text(text, load_profile(name), punctuation), strict=True):
            words, nodes = pruned(tree, 0, drop)
            if isinstance(found, Defect):
                assert found.what == "markup only"
                assert not pruned(tree, 0, {"CODE"})[0]
            elif not words:
                assert found.tree is None
            else:
                assert (list(found.tree.words), list(found.tree.nodes)) == (words, nodes)


def test_depth_needs_no_recursion():
    deep = 5000
    [sentence] = read_text("(S " * deep + "(NN owl)" + ")" * deep, load_profile("ptb"))
    assert len(sentence.tree.nodes) == deep


def test_mistakes(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(OWL)
    for options, message in (
        ({"profile": "tigr"}, r"unknown treebank profile 'tigr': choose auto, alpino, .*ptb, .*tiger, or a .yaml file"),
        ({"split": "dev"}, "split dev: there are all, wsj10, test, valid"),
        ({"max_len": 0}, "max_len 0"),
    ):
        with pytest.raises(UserError, match=message):
            read_treebank(path, **options)
    with pytest.raises(UserError, match=r"cannot read .*nowhere: No such file"):
        read_treebank(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no treebank files in .*empty$"):
        read_treebank(tmp_path / "empty")
    (tmp_path / "empty.mrg").write_text("\n")
    with pytest.raises(UserError, match=r"empty.mrg: no trees of profile ptb \(brackets\); choose another"):
        read_treebank(tmp_path / "empty.mrg")


@pytest.fixture(scope="module")
def data(shared):
    return shared / "data"


@pytest.mark.data
def test_the_sample_has_the_counts_of_its_readme(data):
    ldc = read_treebank(data / "wsj-sample" / "wsj-sample-ldc-layout.zip", strict=True)
    assert (len(ldc.trees), sum(len(tree.words) for tree in ldc.trees)) == (2559, 54356)
    assert len({source.split(":")[0] for source in ldc.sources}) == 133
    nltk = data / "wsj-sample" / "wsj-sample-nltk-layout.zip"
    short = read_treebank(nltk, split="wsj10")
    assert short.trees == tuple(tree for tree in ldc.trees if len(tree.words) <= 10)
    assert (len(short.trees), dict(short.skipped)) == (360, {"more than 10 words": 2199})
    tokens = read_treebank(nltk, punctuation=True)
    assert sum(len(tree.words) for tree in tokens.trees) == 61879
