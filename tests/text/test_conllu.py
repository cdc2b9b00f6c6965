"""CoNLL-U is text like any other: one line per sentence, the words of its columns."""

import io
import json

import pytest

from onlstm.errors import UserError
from onlstm.text.config import TextConfig
from onlstm.text.conllu import ConlluLine
from onlstm.text.corpus import encode_text, prepare
from onlstm.text.doctor import examine
from onlstm.text.sources import find_sources, read_inputs, read_lines, suitable_profile
from onlstm.text.tokenizer import Tokenizer

REST = 8 * "\t_"
COLUMNS = f"""# newdoc
# text = Va au bois.
1\tVa{REST}
2-3\tau{REST}
2\tà{REST}
3\tle{REST}
3.1\tgrand{REST}
4\tbois\tbois\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No
5\t.{REST}

# a comment of its own

1\tHà Nội{REST}
"""
LINES = ["Va à le bois .", "Hà_Nội"]


@pytest.fixture
def columns(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(COLUMNS, "utf-8")
    return path


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_sentences_are_lines(columns, block, end, monkeypatch):
    monkeypatch.setattr("onlstm.text.sources._BLOCK", block)
    columns.write_bytes((COLUMNS.rstrip() + end).replace("\n", "\r\n").encode())
    first, second = read_lines(columns)
    assert [first, second] == LINES
    assert isinstance(first, ConlluLine)
    assert (first.text, first.number, first.rows) == ("Va au bois.", 1, tuple(COLUMNS.split("\n\n")[0].split("\n")))
    assert (second.text, second.number) == ("Hà_Nội", 13)


def test_text_that_is_not_conllu_stays_text(tmp_path, monkeypatch):
    monkeypatch.setattr("onlstm.text.sources._BLOCK", 4)
    for text in ("# a heading\n\nwords\n", "#\n" * 3000, "1\ttwo\n", "\n1" + REST, "#only", ""):
        (tmp_path / "a.txt").write_text(text)
        assert list(read_lines(tmp_path / "a.txt")) == text.splitlines()


def test_standard_input(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(COLUMNS.encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert list(read_lines("-")) == LINES


WRONG = {
    "2: not a row of CoNLL-U": f"1\ta{REST}\n2\tb\tc\n",
    "2: word 1 after word 1; put an empty line between": f"1\ta{REST}\n1\tb{REST}\n",
    "3: not a row": f"1\ta{REST}\n\nsome words\n",
    "1: every word is _: the treebank comes without its text": f"1\t_{REST}\n2\t_{REST}\n",
}


@pytest.mark.parametrize(("message", "text"), WRONG.items())
def test_what_is_wrong_is_named(tmp_path, message, text):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(UserError, match=f"a.txt:{message}"):
        list(read_lines(tmp_path / "a.txt"))


def test_the_name_tells_too(tmp_path):
    (tmp_path / "a.conllu").write_text("1\tA\t_\n")
    with pytest.raises(UserError, match=r"a\.conllu:1: not a row of CoNLL-U"):
        list(read_lines(tmp_path / "a.conllu"))


def test_a_defect_belongs_to_its_sentence(columns):
    good = f"1\ta{REST}\n\n".encode()
    columns.write_bytes(good + f"1\ta{REST}\n2\t\xe9{REST}\n\n".encode("latin1") + good)
    lines = list(read_inputs([columns]))
    assert [bool(defect) for _, defect in lines] == [False, True, False]
    assert "a.conllu:4: not UTF-8" in lines[1][1]


def test_words_are_kept(columns, tmp_path):
    assert suitable_profile(read_lines(columns)) == ("pretokenized", "the words are those of CoNLL-U")
    columns.write_text("\n".join([COLUMNS] * 10))
    corpus = prepare(columns, tmp_path / "corpus", TextConfig())
    assert corpus.tokenizer.profile == "pretokenized"
    assert {"à", "le", "Hà_Nội", "."} < set(corpus.tokenizer.vocabulary)
    assert "au" not in corpus.tokenizer.vocabulary
    assert sum(part.lines for part in corpus.parts.values()) == 20
    generic = Tokenizer.of_words(["à", "bois"], "generic")
    assert encode_text(generic, columns)[:5].tolist() == [generic.unk_id, 0, generic.unk_id, 1, generic.eos_id]
    diagnosis = examine(columns)
    assert (diagnosis.lines, diagnosis.longest) == (20, 5)
    assert json.loads((tmp_path / "corpus" / "corpus.json").read_text())["profile"] == "pretokenized"


def test_a_folder_of_universal_dependencies_is_read_once(tmp_path):
    for name in ("x-ud-train.conllu", "x-ud-train.txt", "x-ud-dev.conllu", "x-ud-dev.txt", "LICENSE.txt", "README.md"):
        (tmp_path / name).write_text(COLUMNS)
    files = find_sources([tmp_path]).files
    assert [path.name for paths in files.values() for path in paths] == ["x-ud-train.conllu", "x-ud-dev.conllu"]
