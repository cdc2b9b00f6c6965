"""What users have of today's behaviour: options, keys of JSON, exit codes, numbers that a seed fixes, files of a run.

Only the command line and the public names of `onlstm` are used here, so that modules may move. The answers are in
tests/golden/snapshots; `ONLSTM_WRITE_SNAPSHOTS=1 pytest tests/test_snapshots.py` writes them anew, which is right only
after a change of behaviour that was meant. inputs.json holds what the commands read here, all of it invented.
"""

import hashlib
import json
import os
import random
import re
import shlex
import zipfile
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open

import onlstm as package
from helpers import onlstm
from onlstm import ONLSTM, LanguageModel

RENAMED: dict[str, str] = {}
"""Options that have another name in the help now and are still taken under the old one: {"--old": "--new"}."""
WRITE = bool(os.environ.get("ONLSTM_WRITE_SNAPSHOTS"))
GOLDEN = Path(__file__).parent / "golden" / "snapshots"
TINY = """--recipe tiny --threads 1 --seed 0 --train.epochs 2 --train.batch-size 8 --train.log-steps 20
--text.min-count 1 --text.profile pretokenized --model.embedding-size 16 --model.hidden-size 24"""
LOGIC = """--encoder onlstm lstm --seeds 1 --pairs 2000 --epochs 2 --threads 1 --model.hidden-size 8
--model.chunk-size 2"""
DATA = "encoders|results|skipped|tags|training_memory|published|by_length|counts|renamed|rules|values|probabilities"
"""Objects whose keys are data, besides keys that do not look like names of fields."""


def answer(*args, **options) -> str:
    done = onlstm(*args, **options)
    assert done.code == 0, done.err
    return done.out


def check(name: str, found, tolerance: float = 0) -> None:
    """Compare with the golden file, numbers up to the tolerance; or write it."""
    path = GOLDEN / f"{name}.json"
    if WRITE:
        text = json.dumps(found, indent=1, ensure_ascii=False)
        for some in set(re.findall(r"\[\s+[^][{}]{1,400}\]", text)):  # a short list is a line
            text = text.replace(some, f"[{' '.join(some[1:-1].split())}]")
        path.write_text(text + "\n")
    same(json.loads(json.dumps(found)), json.loads(path.read_text()), tolerance, name)


def same(found, golden, tolerance: float, where: str) -> None:
    if isinstance(golden, dict):
        assert isinstance(found, dict), where
        assert found.keys() == golden.keys(), where
        for key, value in golden.items():
            same(found[key], value, tolerance, f"{where}.{key}")
    elif isinstance(golden, list):
        assert isinstance(found, list), where
        assert len(found) == len(golden), where
        for k, value in enumerate(golden):
            same(found[k], value, tolerance, f"{where}[{k}]")
    elif isinstance(golden, float) and tolerance:
        assert found == pytest.approx(golden, rel=0, abs=tolerance), where
    else:
        assert found == golden, where


def kinds(*values) -> dict[str, str]:
    """Return {path of keys: types} of JSON or of what torch.load returned."""
    seen: dict[str, set[str]] = {}

    def visit(value, path: str) -> None:
        if isinstance(value, dict):
            seen.setdefault(path, set()).add("object")
            parent = path.rpartition(".")[2]
            for key, each in value.items():
                field = re.fullmatch(r"[a-z][a-z0-9_.]*", str(key)) and not re.fullmatch(DATA, parent)
                visit(each, f"{path}.{key if field else '*'}".lstrip("."))
        elif isinstance(value, list | tuple):
            seen.setdefault(path, set()).add("array")
            for each in value:
                visit(each, f"{path}[]")
        else:
            kind = {"NoneType": "null", "int": "number", "float": "number"}.get(type(value).__name__)
            seen.setdefault(path, set()).add(kind or type(value).__name__)

    for value in values:
        visit(value, "")
    return {path or ".": "|".join(sorted(types)) for path, types in sorted(seen.items())}


def rows(text: str) -> list:
    return [json.loads(line) for line in text.splitlines()]


def only(keys, records) -> list[dict]:
    return [{key: each[key] for key in keys if key in each} for each in records]


def invented(count: int, seed: int) -> str:
    rng = random.Random(seed)

    def noun_phrase(depth: int) -> str:
        more = f" of {noun_phrase(depth + 1)}" if depth < 2 and rng.random() < 0.3 else ""
        words = [rng.choice(["the", "a"]), rng.choice(["", "old", "small"]), rng.choice(["cat", "dog", "bird", "cats"])]
        return " ".join(filter(None, words)) + more

    return "".join(f"{noun_phrase(0)} {rng.choice(['sees', 'hears'])} {noun_phrase(0)}\n" for _ in range(count))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    """A small run, what it was trained on, and the files of inputs.json, by name."""
    folder = tmp_path_factory.mktemp("made")
    texts = json.loads((GOLDEN / "inputs.json").read_text())
    parts = {"train": 700, "valid": 60, "test": 61}
    texts |= {f"text/{part}.txt": invented(count, seed=count) for part, count in parts.items()}
    place = {name: folder / name for name in ("text", "run", "blimp", "agreement", "empty", "train.json", *texts)}
    for name in ("text", "blimp", "agreement", "empty"):
        place[name].mkdir()
    for name, text in texts.items():
        place[name].write_text(text)
    said = answer("train", place["text"], "--out", place["run"], *TINY.split(), "--json")
    place["train.json"].write_text(said)
    return place


@pytest.fixture(scope="module")
def logic(tmp_path_factory):
    """The folder of a small run of `onlstm logic`, and what it printed."""
    out = tmp_path_factory.mktemp("logic") / "run"
    return out, json.loads(answer("logic", *LOGIC.split(), "--out", out, "--json"))


def test_every_option_is_still_there(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = {}
    for name in (golden := json.loads((GOLDEN / "options.json").read_text())):
        lines = answer(name, "--help").splitlines()
        left = [line.strip("│* ").split("  ")[0] for line in lines if line.startswith("│")]
        shown[name] = [option for names in left for option in re.findall(r"--[a-z][\w-]*", names)]
        for option in set(golden[name]) - set(shown[name]):
            assert RENAMED.get(option) in shown[name], f"{name} {option}"
            said = onlstm(name, option, "1", "--frobnicate", "1").err  # names the first unknown
            assert f"Unknown option: {option}." not in said, f"{name} {option}"
    if WRITE:
        check("options", shown)


def test_keys_and_types_of_json(made, tmp_path):
    run, lines, out = made["run"], made["lines"], tmp_path / "out.json"
    asked = {
        "doctor": [made["text"], "--run", run],
        "eval": [run, made["text"], "--cache", "--dynamic", "--threads", 1],
        "generate": [run, "the old", "--words", 5, "--seed", 1, "--across"],
        "inspect": [run, made["text"] / "test.txt"],
        "evaluate": [run, made["bank"], "--rule", "on-lstm", "evalb", "--dev", made["dev"], "--out", out],
        "syneval": [run, "--compare", "en-small", "--pairs", made["pairs.tsv"], "--out", out],
        "blimp": [run, made["blimp"], "--compare", "en-small", "--out", out],
        "agreement": [run, made["agreement"], "--compare", "en-small", "--out", out],
        "convert": [run, "--half", "--out", tmp_path / "shipped"],
    }
    found = {"train": kinds(json.loads(made["train.json"].read_text()))}
    for command, args in asked.items():
        found[command] = kinds(json.loads(answer(command, *args, "--json")))
        if out in args:
            found[f"{command} --out"] = kinds(json.loads(out.read_text()))
    for command in ("parse", "score"):
        found[command] = kinds(*rows(answer(command, run, lines, "--json")))
    for name in ("shipped/config.json", "shipped/tokenizer.json"):
        found[name] = kinds(json.loads((tmp_path / name).read_text()))
    check("json_keys", found)


def test_files_of_a_run(made):
    run = made["run"]
    found = {"files": sorted(path.name for path in run.iterdir() if not path.name.startswith("."))}
    found["corpus"] = sorted(path.name for path in (run / "corpus").iterdir())
    for name in ("config.json", "tokenizer.json", "result.json"):
        found[name] = kinds(json.loads((run / name).read_text()))
    found["log.jsonl"] = kinds(*rows((run / "log.jsonl").read_text()))
    found["trainer.pt"] = kinds(torch.load(run / "trainer.pt", weights_only=True))
    with safe_open(run / "model.safetensors", "pt") as file:
        found["model.safetensors"] = {name: list(file.get_slice(name).get_shape()) for name in sorted(file.keys())}
        found["model.safetensors metadata"] = sorted(file.metadata() or {})
    check("run_folder", found)


def test_exit_codes(made, logic, tmp_path):
    """The table is the golden file itself: add lines to it, and write it."""
    table, names = json.loads((GOLDEN / "exit_codes.json").read_text()), made | {"logic": logic[0]}
    found = {}
    for k, line in enumerate(table):
        (tmp_path / str(k)).mkdir()
        words = [re.sub(r"\{(.+?)\}", lambda name: str(names[name[1]]), word) for word in shlex.split(line)]
        done = onlstm(*words, cwd=tmp_path / str(k))
        found[line] = done.code
        assert "Traceback" not in done.err, line
        one_line = re.fullmatch(r"(Surprisal in nats.*\n)?onlstm: .+\n", done.err)  # `score` says that before
        assert done.code == 0 or one_line, (line, done.err)
    check("exit_codes", found)


@pytest.mark.data
def test_f1_of_the_model_in_the_box(shared):
    bank = shared / "data" / "wsj-sample" / "wsj-sample-nltk-layout.zip"
    args = ["--max-len", 12, "--rule", "on-lstm", "evalb", "--threads", 1, "--json"]
    found = json.loads(answer("evaluate", "en-small", bank, *args))
    keys = ("system", "layer", "decoder", "rule", "subset", "n", "f1", "ties", "f1_to_right")
    numbers = {"sentences": found["treebank"]["sentences"], "headline": found["headline"]["f1"]}
    check("wsj_sample", numbers | {"rows": [[row[key] for key in keys] for row in found["rows"]]}, 1e-6)


def test_trees_and_surprisals_of_the_model_in_the_box(made):
    lines, one = made["lines"], ["--threads", 1]
    check("brackets", answer("parse", "en-small", lines, *one).splitlines())
    ways = {"paper": [], "unbiased": ["--decoder", "unbiased"], "input": ["--layer", "1,2", "--gates", "input"]}
    check("parses", {way: rows(answer("parse", "en-small", lines, "--json", *ways[way], *one)) for way in ways}, 1e-5)
    check("surprisals", rows(answer("score", "en-small", lines, "--json", *one)), 1e-4)
    texts = json.loads(answer("generate", "en-small", "the", "--count", 3, "--seed", 7, "--json", *one))["texts"]
    check("generated", texts)
    found = json.loads(answer("inspect", "en-small", lines, "--json", *one))
    check("inspect", {key: found[key] for key in ("sentences", "words", "spreads", "warnings")}, 1e-4)


def test_numbers_of_a_training_run(made):
    log = rows((made["run"] / "log.jsonl").read_text())
    losses = ("event", "epoch", "step", "train_loss", "loss", "valid_loss", "lr", "gradient_norm", "best_epoch")
    perplexities = ("valid_perplexity", "test_perplexity", "best_epoch", "epochs")
    result = json.loads((made["run"] / "result.json").read_text())
    check("training", {"log": only(losses, log), "numbers": only(perplexities, [result["numbers"]])}, 1e-4)


def test_numbers_and_keys_of_logic(made, logic):
    out, said = logic
    found = {"logic": kinds(said), "result.json": kinds(json.loads((out / "result.json").read_text()))}
    found["logic --eval"] = kinds(json.loads(answer("logic", "--eval", out, made["formulas.tsv"], "--json")))
    found["logic --predict"] = kinds(json.loads(answer("logic", "--predict", out, "( a ( and b ) )", "c", "--json")))
    found["files"] = sorted(path.name for path in (out / "onlstm-0").iterdir() if not path.name.startswith("."))
    logs = {name: rows((out / name / "log.jsonl").read_text()) for name in ("onlstm-0", "lstm-0")}
    found["log.jsonl"] = kinds(*logs["onlstm-0"])
    check("logic_keys", found)
    numbers = {name: [(row["valid"], row["n"]) for row in found] for name, found in said["encoders"].items()}
    losses = ("epoch", "step", "train_loss", "train_accuracy", "valid_accuracy")
    check("logic", numbers | {name: only(losses, log) for name, log in logs.items()}, 1e-4)


@pytest.mark.slow
def test_demo(tmp_path):
    found = json.loads(answer("demo", "--seed", 0, "--json", "--out", tmp_path / "demo"))
    check("demo_keys", kinds(found))
    check("demo", [[row[key] for key in ("system", "layer", "decoder", "n", "f1")] for row in found["rows"]], 0.5)


@pytest.mark.slow
def test_keys_of_bench_and_reproduce(made, tmp_path):
    (tmp_path / "ptb-lm").symlink_to(made["text"])
    (tmp_path / "wsj-sample").mkdir()
    with zipfile.ZipFile(tmp_path / "wsj-sample" / "wsj-sample-nltk-layout.zip", "w") as archive:
        archive.write(made["bank"], "treebank/combined/wsj_0001.mrg")
    bench = answer("bench", "--shapes", "parse-mid-1", "--threads", 1, "--seconds", 0.1, "--json")
    args = ["table2", "--data", tmp_path, "--out", tmp_path / "out", "--threads", 1, "--json"]
    check("slow_keys", {"bench": kinds(json.loads(bench)), "reproduce": kinds(json.loads(answer("reproduce", *args)))})


@pytest.mark.parametrize("backend", ["fused", "eager"])
def test_numbers_of_the_layer(backend):
    found = {}
    for name, options in {"plain": {}, "free": {"free_last_chunk": True, "bidirectional": True}}.items():
        torch.manual_seed(0)
        layer = ONLSTM(10, 24, 2, chunk_size=4, backend=backend, dtype=torch.float64, **options)
        x = torch.randn(7, 3, 10, dtype=torch.float64, requires_grad=True)
        output, (h, c), distances = layer.scan(x)
        forget, written = distances.forget, distances.input
        (output.square().sum() + (h * c).sum() + forget.sin().sum() + written.square().sum()).backward()
        every = {"output": output, "h": h, "c": c, "forget": forget, "input": written, "x": x.grad}
        every |= {key: parameter.grad for key, parameter in layer.named_parameters()}
        found[name] = {key: [each.sum().item(), each.square().sum().item()] for key, each in every.items()}
    check("layer", found, 1e-10)


def test_the_model_in_the_box_is_the_same_file_by_file():
    assert LanguageModel.load("en-small").config.vocab_size > 0
    (folder,) = Path(package.__file__).parent.rglob("en-small")
    files = ("config.json", "tokenizer.json", "model.safetensors")
    check("en_small", {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files})


def test_recipes_and_plans():
    names = [line for line in answer("recipes").splitlines() if line[:1].strip()]
    check("recipes", {name: yaml.safe_load(answer("recipes", name)) for name in names})
    plans = [(t, s) for t in ("table1", "table2", "table3", "figure-logic", "figure-a1") for s in ("small", "paper")]
    asked = ["--data", "data", "--out", "out", "--threads", 1, "--dry-run"]
    check("plans", {f"{t} {s}": answer("reproduce", t, "--scale", s, *asked).splitlines() for t, s in plans})
