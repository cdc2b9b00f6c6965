"""CoNLL-U and other kinds of text as a user types them: read by every command, written by `parse`."""

import json

import pytest

from helpers import onlstm, random_model
from onlstm.text.tokenizer import Tokenizer

REST = 8 * "\t_"
FIRST = f"""# sent_id = x-1
# text = Don't feed the cat!
# parse = ( an old one )
1-2\tDon't{REST}
1\tDo\tdo\tAUX\t_\t_\t3\taux\t_\t_
2\tn't{REST}
3\tfeed{REST}
3.1\tfeed{REST}
4\tthe{REST}
5\tcat\tcat\tNOUN\t_\t_\t3\tobj\t_\tSpaceAfter=No|Gloss=chat
6\t!{REST}
"""
SECOND = f"# text = !\n1\t!{REST}\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    random_model(Tokenizer.of_words(["do", "n't", "feed", "the", "cat"], "generic")).save(folder)
    return folder


@pytest.fixture
def columns(tmp_path):
    path = tmp_path / "in.conllu"
    path.write_text(f"{FIRST}\n{SECOND}\n")
    return path


def test_the_tree_goes_into_the_columns_that_were_read(run, columns, tmp_path):
    out = tmp_path / "out.conllu"
    assert onlstm("parse", run, columns, "--out", out).code == 0
    first, second, rest = out.read_text().split("\n\n")
    old, new = FIRST.split("\n")[:-1], first.split("\n")
    assert new[:2] + new[3:] == old[:2] + old[3:]
    assert new[2].startswith("# parse = ( ")
    assert new[2].translate(str.maketrans("", "", "()")).split()[3:] == ["Do", "n't", "feed", "the", "cat"]
    assert (f"{second}\n", rest) == (SECOND, "")  # a sentence without words has no tree
    again = onlstm("parse", run, out, "--format", "conllu")
    assert again.out == out.read_text()
    words = json.loads(onlstm("parse", run, columns, "--tokenized", "--json").out.split("\n")[0])["words"]
    assert words == ["Do", "n't", "feed", "the", "cat", "!"]


def test_other_text_becomes_columns(run):
    done = onlstm("parse", run, "Feed the cat!", "", "the cat", "--format", "conllu", "--quiet")
    first, second, rest = done.out.split("\n\n")
    assert first.split("\n")[:2] == ["# sent_id = 1", "# text = Feed the cat!"]
    assert first.split("\n")[3:] == [f"1\tFeed{REST}", f"2\tthe{REST}", f"3\tcat{REST}"]
    assert (second.split("\n")[0], rest) == ("# sent_id = 3", "")


def test_every_command_reads_it(run, columns, tmp_path):
    rows = onlstm("score", run, columns, "--json").out.splitlines()
    assert [json.loads(row)["words"] for row in rows] == [["Do", "n't", "feed", "the", "cat"], []]
    assert onlstm("sentences", columns, "--wrapped").out == "Don't feed the cat!\n!\n"
    assert json.loads(onlstm("eval", run, columns, "--json").out)["tokens"] == 6
    assert "Profile     pretokenized: the words are those of CoNLL-U" in onlstm("doctor", columns).out
    trained = onlstm("train", columns, "--out", tmp_path / "run", "--recipe", "tiny", "--text.min-count", "9")
    assert "profile: pretokenized (the words are those of CoNLL-U)" in trained.out


@pytest.mark.parametrize("command", ["parse", "score", "eval", "train", "sentences", "induce"])
@pytest.mark.parametrize("content", ["the cat\nfed it\n".encode("utf-16le"), b"the cat\nf\0ed\n"], ids=["utf16", "nul"])
def test_what_is_not_text_is_refused(run, tmp_path, command, content):
    (tmp_path / "a.txt").write_bytes(content)
    words = {"train": ["--out", tmp_path / "run"], "induce": ["--out", tmp_path / "run"]}
    done = onlstm(
        command, *[run] * (command in ("parse", "score", "eval")), tmp_path / "a.txt", *words.get(command, [])
    )
    assert done.code == 2
    problem = "a.txt: UTF-16 without" if b"c\0a" in content else "a.txt:2: not text (a NUL byte at column 2)"
    assert problem in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_score_warns_of_unknown_words(run):
    done = onlstm("score", run, "eine Eule schläft", "the cat")
    assert done.err.splitlines()[-1].startswith("onlstm: 60% of the words are unknown to the model, so most of these")
    assert "unknown" not in onlstm("score", run, "feed the cat").err
