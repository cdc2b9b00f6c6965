"""Sentences: nothing lost, ends where a reader sees them; the command."""

import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import onlstm
from onlstm.text.sentences import joined, sentences

WORDS = ["Go", "he", "Dr", "I", "J", "No", "7", "<unk>", "you", "Él", "好"]
TEXT = st.lists(st.sampled_from([*WORDS, *'.!?…"() 。']), max_size=30).map("".join)


@pytest.mark.parametrize(
    "whole",
    [
        "Dr. Smith of St. Louis paid Acme Corp. $3.50 on Jan. 7.",
        "J. R. R. Tolkien met C. S. Lewis.",
        "The U.S. Senate sat until 5 p.m. on Monday.",
        "See No. 7, p. 12.",
        "“Stop!” he cried.",
        "Well... maybe not.",
        "Version 2.0 is out",
    ],
)
def test_what_is_one_sentence(whole):
    assert sentences(whole) == [whole]


@pytest.mark.parametrize(
    "several",
    [
        ["He came.", "She went."],
        ["It was I.", "Then he said no.", "Nobody laughed."],
        ["“Stop!”", "The car stopped."],
        ['He said "go."', "(We went.)", "[Laughter] 1999 was better."],
        ["¿Quién?", "¡Nadie!", "Él vino."],
        ["Really?!", "Yes…", "No."],
        ["Ce n'est pas fini.", "«Vraiment?»", "Étienne rit."],
    ],
)
def test_where_sentences_end(several):
    assert sentences(" ".join(several)) == several


def test_scripts_without_blanks():
    assert sentences("我们走吧。他来了！“好。”") == ["我们走吧。", "他来了！", "“好。”"]


def test_wikitext():
    assert sentences(" = = Early life = = ") == []
    line = " The role @-@ playing game ( 2 @.@ 5 m ) cost $ 1 @,@ 000 . <unk> did n't like it ; it 's out . "
    assert sentences(line) == ["The role-playing game (2.5 m) cost $ 1,000.", "<unk> didn't like it; it's out."]


@given(TEXT)
def test_no_letter_is_lost_or_moved(text):
    found = sentences(text)
    assert "".join("".join(found).split()) == "".join(joined(text).split())
    assert all(found)


def test_the_command_reads_packed_files_and_folders_and_pipes(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.xz").write_bytes(lzma.compress(b"One is here. Two is not.\n\n"))
    (tmp_path / "in" / "b.txt").write_text("Three\n")
    monkeypatch.chdir(tmp_path)
    assert onlstm("sentences", "in").out == "One is here.\nTwo is not.\nThree\n"
    done = onlstm("sentences", "in/a.xz", "in/b.txt", "--out", "out.txt")
    assert (done.code, done.out, (tmp_path / "out.txt").read_text()) == (0, "", "One is here.\nTwo is not.\nThree\n")


def test_wrapped_lines_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("It was late. He\nslept.\n \nShe did\nnot.\n")
    assert onlstm("sentences", "book.txt", "--wrapped").out == "It was late.\nHe slept.\nShe did not.\n"
    assert onlstm("sentences", "book.txt").out == "It was late.\nHe\nslept.\nShe did\nnot.\n"


def test_the_command_refuses_what_it_cannot_read_or_would_lose(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"fine\nbad \xff\n")
    for words, message in (
        (("a.txt", "--out", "b.txt"), "a.txt:2: not UTF-8"),
        (("a.txt", "--out", "a.txt"), "--out a.txt: an input of this command"),
        (("missing.txt",), "missing.txt: no such file"),
    ):
        done = onlstm("sentences", *words)
        assert (done.code, done.err.count("\n")) == (2, 1), done
        assert message in done.err
    assert not (tmp_path / "b.txt").exists()
