"""The command draw: what it takes, in every format, and mistakes in one line."""

import gzip
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers import onlstm
from onlstm.trees import Tree

SHARED = Path(__file__).parents[3] / "shared"
NAMESPACE = "{http://www.w3.org/2000/svg}"
TREE = Tree.from_brackets("((the (old man)) (saw him))")
GOLD = Tree.from_brackets("(S (NP (DT the) (JJ old) (NN man)) (VP (VBD saw) (NP him)))")


def words_of(picture):
    """The words, in the order of the sentence."""
    group = next(g for g in ET.fromstring(picture).iter(f"{NAMESPACE}g") if g.get("font-size") == "15")
    return [text.text for text in group]


def command(*args):
    """Run the command in this process; returns its exit code, stdout and stderr."""
    return onlstm("draw", *args)


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
    code = "import sys\nfrom onlstm.cli.main import main\nmain()\nsys.exit('torch' in sys.modules)"
    out = tmp_path / "owl.svg"
    arguments = [sys.executable, "-c", code, "draw", "-", "--out", str(out)]
    done = subprocess.run(arguments, input="(a\n(b c))\n( d e )\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert words_of(out.read_text()) == ["a", "b", "c"]
    assert ET.fromstring(out.read_text()).tag == f"{NAMESPACE}svg"


@pytest.mark.parametrize(
    ("kind", "start"), [("tree", "S ┬─ NP"), ("svg", "<svg "), ("html", "<!DOCTYPE html>"), ("latex", "% Compile with")]
)
def test_every_format_is_printed(kind, start):
    code, out, err = command(GOLD, "--format", kind)
    assert (code, err) == (0, "")
    assert out.startswith(start)


def test_parses_in_json_and_gold_beside(tmp_path):
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
    assert "#c2410c" not in plain
    assert command(parses, "--gold", gold)[1].startswith("model, F1 80.0\n┬─┬─ the\n")
    assert command(parses, "--gold", parses)[1].startswith("model, F1 100.0\n┬─┬─ the\n")


def test_a_run_parses_text_and_treebanks(run, tmp_path):
    from onlstm.parser import Parser

    _, picture, _ = command(run, "the old man saw him", "--format", "svg")
    assert words_of(picture) == ["the", "old", "man", "saw", "him"]
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
        drawn = parser.diagram("the old man saw him")
        assert drawn.tree == parser.parse("the old man saw him").tree
        assert len(drawn.gates) == (3 if layer == 3 else 6)
        means = [1 - sum(column) / len(column) for column in zip(*drawn.gates, strict=True)]
        assert means == pytest.approx(drawn.distances, abs=1e-5), "d = 1 - the mean of the master forget gate"


def test_words_are_found_whole(tmp_path):
    file = tmp_path / "trees.txt"
    file.write_text("( starters ( state-of-the-art art-work ) )\n( Modern ( Art sells ) )\n( the art )\n")
    for words, starts in (("art", ["Modern", "the"]), ("modern  ART", ["Modern"]), ("starters", ["starters"])):
        code, out, _ = command(file, "--find", words)
        assert (code, [block.split("─ ")[1].split()[0] for block in out.split("\n\n")]) == (0, starts)
    assert "in none of 3" in command(file, "--find", "modern sells")[2]


def test_marks_at_a_word_of_raw_text_do_not_hide_it(run):
    for words in ("saw", "owls", "man saw", "him, owls", "him owls"):
        assert command(run, "The old “man” saw him, owls.", "--find", words)[0] == 0
    assert command(run, "The old man saw him.", "--find", "ma")[0] == 2


def test_a_run_parses_a_single_word_and_packed_treebanks(run, tmp_path):
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
        ([], "draw: name one thing to draw: "),
        (["(a (b c)"], 'the brackets:1: unclosed "("'),
        (["no-such-file"], 'no-such-file: no such file; brackets begin with "("'),
        (["(a b)", "(c d)"], "draw: name one thing to draw: "),
        (["(a b)", "--gold", "(a b c)"], "the gold tree has 3 words, the other one 2"),
        (["(a b)", "--gold", "(a b) (c d)"], "--gold (a b) (c d): 2 trees for 1 sentences"),
        (["(a b)", "--gold", "nosuch"], "nosuch: no such file"),
        (["(a b)", "--select", "2"], "--select 2: the sentences are 1 to 1"),
        (["(a b)", "--select", "x"], "--select x: numbers and ranges are needed"),
        (["(a b)", "--find", "owl"], "--find 'owl': in none of 1 sentences"),
        (["(a b)", "--max", "0"], "--max 0: at least 1 is needed"),
        (["(a b)", "--out", "no/such/a.svg"], "--out no/such/a.svg: the folder no/such does not exist"),
        (["(a b)", "--out", "a.bmp"], "--out a.bmp: the name ends in .svg, "),
        (["(a b)", "--format", "png"], "--format png: name a file for it with --out"),
        (['{"words": ["a", "b"], "spans": [], "distances": [1]}'], "the brackets:1: distances: one finite number"),
        (['{"words": [3, 4], "spans": []}'], "the brackets:1: not a tree in JSON"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(args, line):
    code, out, err = command(*args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"onlstm: {line}")


def test_headings_keep_the_numbers_of_the_sentences(run, tmp_path):
    file = tmp_path / "trees.txt"
    file.write_text("".join(f"( owls ( number {k} ) )\n" for k in range(1, 8)))
    for args, numbers in {"--select 3-6": "3456", "--select 7,1": "71", "--find 5": "5", "--max 2": "12"}.items():
        for source in ([file], [run, file]):
            _, page, _ = command(*source, "--format", "html", *args.split())
            assert "".join(re.findall(r"<h2 dir=auto>(\d)\. ", page)) == numbers


def test_images_are_made_by_what_is_installed(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "rsvg-convert"
    program.write_text('#!/bin/sh\necho "$@"\ncat\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name, start in (("tree.png", "-f png -z 2\n<svg"), ("tree.PDF", "-f pdf\n<svg")):
        code, out, err = command(GOLD, "--out", tmp_path / name)
        assert (code, out, err) == (0, "", f"{tmp_path / name} written\n")
        assert (tmp_path / name).read_text().startswith(start)
    program.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    assert command(GOLD, "--out", tmp_path / "a.png") == (2, "", "onlstm: rsvg-convert: no room\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    svg2png = lambda bytestring, scale: bytestring[:4] + bytes([scale])  # noqa: E731
    monkeypatch.setitem(sys.modules, "cairosvg", SimpleNamespace(svg2png=svg2png))
    assert command(GOLD, "--out", tmp_path / "b.png")[0] == 0
    assert (tmp_path / "b.png").read_bytes() == b"<svg\x02"
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    code, _, err = command("nowhere at all", "--out", tmp_path / "c.pdf")
    assert (code, err.count("\n")) == (2, 1), "before any work"
    assert err.startswith("onlstm: pdf: needs rsvg-convert (package librsvg2-bin or librsvg) or CairoSVG")


def test_quiet_leaves_only_the_tree(tmp_path):
    assert command(GOLD, "--out", tmp_path / "a.svg", "--quiet") == (0, "", "")


@pytest.mark.data
def test_the_gold_trees_of_the_sample_are_drawn(tmp_path):
    bank = SHARED / "data" / "wsj-sample" / "wsj-sample-nltk-layout.zip"
    if not bank.exists():
        pytest.skip("the WSJ sample is not here")
    out = tmp_path / "bank.svg"
    code, _, err = command(bank, "--select", "1,40-45", "--out", out)
    assert code == 0, err
    assert len(ET.fromstring(out.read_text()).findall(f"{NAMESPACE}g")) == 7
