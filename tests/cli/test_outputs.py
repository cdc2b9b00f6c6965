"""No command writes over what it reads: every option that names a file or folder to write, with an input there."""

from pathlib import Path

import pytest

from helpers import onlstm
from onlstm.cli.main import app, load_commands

load_commands()
PAIRS = "good\tbad\nthe owl sleeps\tthe owl sleep\n"
INPUTS = {
    "text.txt": "the owl sleeps\nthe cat sleeps\n",
    "text.svg": "the owl sleeps\n",
    "bank.mrg": "( (S (NP (DT the) (NN owl)) (VP (VBZ sleeps))) )\n",
    "mine.yaml": "base: ptb\n",
    "trees.txt": "(S (NP the owl) sleeps)\n",
    "pairs.tsv": PAIRS,
    "results/a.json": "{}",
    "blimp/a.jsonl": '{"sentence_good": "a b", "sentence_bad": "b a", "UID": "x"}\n',
    "sets/a.text": "the owl sleeps\n",
    "texts/train.txt": "the owl sleeps\n",
    "shards/part-1-of-2.txt": "the owl sleeps\n",
}
FILES = [  # every option that writes a file, over each kind of input of its command
    "parse text.txt --out text.txt",
    "parse texts --out texts/train.txt",
    "parse shards --shard 1/2 --out shards",
    "score text.txt --out text.txt",
    "eval en-small texts --out texts/train.txt",
    "eval en-small text.txt --valid texts/train.txt --out texts/train.txt",
    "inspect text.svg --out text.svg",
    "sentences text.txt --out text.txt",
    "draw trees.txt --out trees.txt",
    "draw trees.txt --gold bank.mrg --out bank.mrg",
    "draw bank.mrg --profile mine.yaml --out mine.yaml",
    "evaluate bank.mrg --words bank.mrg",
    "evaluate bank.mrg --out bank.mrg",
    "evaluate bank.mrg --trees trees.txt --words trees.txt",
    "evaluate bank.mrg --profile mine.yaml --words mine.yaml",
    "syneval en-small --pairs pairs.tsv --scores pairs.tsv",
    "syneval en-small --pairs pairs.tsv --out pairs.tsv",
    "blimp en-small blimp --scores blimp/a.jsonl",
    "blimp en-small blimp --out blimp/a.jsonl",
    "agreement en-small sets --scores sets/a.text",
    "agreement en-small sets --out sets/a.text",
    "report results --out results/a.json",
]
FOLDERS = [
    "train texts --out texts",
    "induce texts --out texts",
    "convert text.txt --out texts",
    "playground --out texts",
]
NOTHING_REPLACED = {
    ("bench", "--out"),  # reads nothing
    ("demo", "--out"),  # adds report.html and a model to a folder
    ("logic", "--out"),  # adds folders of its own
    ("reproduce", "--out"),
    ("report", "--docs"),  # pages *.md, and reads *.json
    ("doctor", "--out"),
}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name, text in INPUTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", FILES)
def test_an_output_never_replaces_an_input(here, line):
    for words in (line.split(), [f"./{word}" if word == line.split()[-1] else word for word in line.split()]):
        done = onlstm(*words)
        option = words[-2]
        name = "shards/part-1-of-2.txt" if "--shard" in words else str(Path(words[-1]))
        assert (done.code, done.out) == (2, "")
        assert done.err == (
            f"onlstm: {option} {name}: an input of this command, which it would replace; name another file\n"
        )
        assert content(here) == {name: text.encode() for name, text in INPUTS.items()}


@pytest.mark.parametrize("line", FOLDERS)
def test_a_folder_with_inputs_is_not_touched(here, line):
    done = onlstm(*line.split())
    assert (done.code, done.err.count("\n")) == (2, 1)
    after = {name: text for name, text in content(here).items() if not name.endswith(".lock")}
    assert after == {name: text.encode() for name, text in INPUTS.items()}


def test_two_outputs_are_two_files(here):
    done = onlstm("evaluate", "bank.mrg", "--words", "a.json", "--out", "./a.json")
    assert (done.code, done.err) == (2, "onlstm: --out a.json: the file of --words; name another\n")


def test_every_option_that_writes_is_here():
    tested = {(line.split()[0], word) for line in (*FILES, *FOLDERS) for word in line.split() if word.startswith("--")}
    written = set()
    for command in app:
        if command.startswith("-"):
            continue
        for argument in app[command].assemble_argument_collection():
            for option in {"--out", "--words", "--scores", "--docs"} & set(argument.names):
                if argument.hint in (Path, Path | None):
                    written.add((command, option))
    assert len(written) > 20
    assert written <= tested | NOTHING_REPLACED
