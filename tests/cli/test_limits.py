"""Numbers that cannot be meant: one line that names the option, and nothing begins."""

import pytest

from helpers import onlstm

SEED = "a number from 0 to below 2**63 is needed"
SEEDED = (
    "train text.txt --out run",
    "generate en-small the",
    "demo --out run",
    "logic --out run",
    "induce text.txt --out run",
)
MOST = "at most 1,000 is possible"
LINES = {
    "generate en-small the --count 1000000000000": "at most 10,000,000 words in all texts are possible",
    "generate en-small the --words 1000000000000": "at most 10,000,000 words in all texts are possible",
    "logic --out run --seeds 1000000000000": MOST,
    "logic --out run --pairs 1000000000000": "at most 10,000,000 is possible",
    "induce text.txt --out run --seeds 1000000000000": MOST,
    "induce text.txt --out run --rounds 1000000000000": MOST,
    "induce text.txt --out run --threads 1000000000": "at most 1,024 is possible",
    "bench --threads 1000000000": "at most 1,024 is possible",
    "bench --threads 0": "at least 1 is needed",
    "bench --threads 1.5": "a whole number is needed",
    "bench --seconds -1": "a number of 0 or more is needed",
    "bench --seconds nan": "a number of 0 or more is needed",
    "eval en-small text.txt --batch-size 0": "at least 1 is needed",
    "reproduce table2 --threads -1": "at least 1 is needed",
    "score en-small text.txt --threads 1000000000": "at most 1,024 is possible",
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("the owl sleeps\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("seed", [2**64, 2**63, -1])
@pytest.mark.parametrize("command", SEEDED)
def test_a_seed_fits_every_generator(command, seed, here):
    done = onlstm(*command.split(), "--seed", seed)
    assert (done.code, done.out, done.err) == (2, "", f"onlstm: --seed {seed}: {SEED}\n")
    assert [path.name for path in here.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("command", SEEDED)
def test_a_seed_is_a_whole_number(command):
    done = onlstm(*command.split(), "--seed", "1.5")
    assert (done.code, done.err) == (2, "onlstm: --seed 1.5: a whole number is needed\n")


@pytest.mark.parametrize("line", LINES)
def test_what_no_machine_can_do_is_refused(line, here):
    done = onlstm(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err == f"onlstm: {' '.join(line.split()[-2:])}: {LINES[line]}\n"
    assert [path.name for path in here.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(
    ("encoder", "why"),
    [
        ("os:system", "os is Python's own and has no encoders"),
        ("builtins:print", "builtins is Python's own and has no encoders"),
        ("nosuch:Thing", "No module named 'nosuch'"),
        ("mine:Thing", "unexpected"),
        ("mine:nothing", "module 'mine' has no attribute 'nothing'"),
        ("mine:name", "not an encoder"),
    ],
)
def test_an_encoder_is_a_module_of_torch(encoder, why, here):
    (here / "mine.py").write_text("def Thing(config):\n    raise KeyError('unexpected')\n\nname = str\n")
    done = onlstm("logic", "--encoder", encoder, "--out", "run")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert why in done.err
    assert "name a torch.nn.Module of your own" in done.err
    assert not (here / "run").exists()


def test_more_sentences_than_there_are_are_all():
    done = onlstm("inspect", "en-small", "the cat sat", "--max", 10**30)
    assert (done.code, "1 sentence" in done.out) == (0, True)
