"""What a treebank's reader leaves out, and what it says about that."""

import zipfile

import pytest

from onlstm.errors import UserError
from onlstm.trees import TreebankError
from onlstm.trees.treebank import read_treebank

WOW = "( (INTJ (UH Wow) (. !) ))\n"
LONG = f"( (NP {'(NN tick) ' * 11}))\n"


def test_a_treebank_of_which_more_than_one_in_twenty_is_lost_says_so(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(WOW * 95 + "( (NP (NN)) )\n" * 5 + "( (CODE <TURN>) )\n# note\n" * 50)
    assert read_treebank(path).warnings == ()
    path.write_text(WOW * 90 + LONG * 4 + "( (NP (NN)) )\n" * 4 + "( (NP b (NN a)) )\n" * 2)
    for limit in (None, 10):  # what is too long was read
        bank = read_treebank(path, max_len=limit)
        assert (bank.defects, bank.defect_share) == (6, 0.06)
        assert bank.warnings == (
            "6 of 100 sentences could not be read and are skipped: 4 empty brackets, 2 word beside brackets",
        )


def test_text_between_trees_is_not_skipped_trees(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(f"one\n{WOW}\n" * 10)
    bank = read_treebank(path)
    assert (len(bank.trees), bank.skipped, bank.defects, bank.outside, bank.warnings) == (10, {}, 0, 10, ())
    path.write_text("one\n" * 10)
    with pytest.raises(UserError, match=r"a.mrg: no trees of profile ptb"):
        read_treebank(path)


def test_the_size_of_one_tree_is_limited(tmp_path, monkeypatch):
    path = tmp_path / "a.mrg"
    monkeypatch.setattr("onlstm.trees.treebank.brackets.LARGEST_TREE", 1000)
    monkeypatch.setattr("onlstm.trees.treebank.brackets._BLOCK", 7)
    path.write_text(f"{WOW}( (NP {'(NN tick) ' * 100}))\n{WOW}{' ' * 2000}")
    assert read_treebank(path).skipped == {"more than 1,000 characters in one tree": 1}
    with pytest.raises(TreebankError, match=r"^a.mrg:2: more than 1,000 characters in one tree$"):
        read_treebank(path, strict=True)


def zipped(path, text, name="a.mrg"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, text)


def test_a_folder_of_different_treebanks_is_refused(tmp_path):
    zipped(tmp_path / "a.zip", WOW)
    zipped(tmp_path / "b.zip", "( (S (NNP Ana) (VBD slept)))\n")
    assert len(read_treebank(tmp_path).trees) == 2
    zipped(tmp_path / "c.zip", "(STA+fcl (SUBJ+np (>N+art A) (H+n dona)) (P+v-fin viu) (.))\n")
    with pytest.raises(UserError) as error:
        read_treebank(tmp_path)
    several = "several treebanks, by their profiles: a.zip (ptb), b.zip (ptb), c.zip (floresta)"
    assert str(error.value) == f"{tmp_path}: {several}; name one of them"
    assert len(read_treebank(tmp_path, profile="floresta").sentences) < 3


def test_a_treebank_whose_files_are_named_otherwise_is_seen(tmp_path):
    zipped(tmp_path / "a.zip", WOW)
    zipped(tmp_path / "b.zip", "<corpus><body></body></corpus>", "b.xml")
    with pytest.raises(UserError, match=r"several treebanks, by their profiles: a.zip \(ptb\), b.zip \(tiger\)"):
        read_treebank(tmp_path)
    zipped(tmp_path / "b.zip", "how it was made", "notes.pdf")
    assert len(read_treebank(tmp_path).trees) == 1
