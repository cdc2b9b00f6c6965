"""`onlstm train`: text in, a run folder out. The paper's section 5.1.

A run folder holds the model (config.json, model.safetensors, tokenizer.json), trainer.pt to go on from, log.jsonl,
the encoded text (corpus/), and in the end result.json.
"""

import json
import os
import platform
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onlstm import __version__, files, recipe
from onlstm.errors import UserError
from onlstm.lm import store
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import evaluate
from onlstm.recipe import Recipe
from onlstm.text import corpus as text
from onlstm.text.stream import text_files
from onlstm.train import checkpoint
from onlstm.train.trainer import Listener, Trainer
from onlstm.train.world import World
from onlstm.trees.distances import tree_from_distances

Say = Callable[[str], None]
RESULT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `onlstm train` was asked for."""

    sources: Sequence[str]
    """Files, folders or "-"; none when resuming."""
    recipe: str
    overrides: Mapping[str, Any]
    out: Path
    resume: bool = False
    command: str = ""
    """As the user typed it, for result.json."""


def run(
    request: Request, say: Say = lambda line: None, listeners: Iterable[Listener] = ()
) -> dict[str, Any] | signal.Signals:
    """Train and return the contents of result.json (of the first process), or the signal that ended it early."""
    chosen, content = _recipe(request)
    world = World.join()
    with ExitStack() as stack:
        stack.callback(world.leave)
        if world.rank == 0:
            stack.enter_context(_folder(request.out))
        else:
            say, listeners = (lambda line: None), ()
        data = _corpus(request, chosen, world, say)
        torch.manual_seed(chosen.seed)
        config = replace(chosen.model, vocab_size=len(data.tokenizer))
        model = LanguageModel(config, data.tokenizer).to(getattr(torch, chosen.train.precision))
        count = sum(p.numel() for p in model.parameters())
        say(f"{config.rnn} {config.embedding_size}→{'→'.join(map(str, config.sizes))}: {count:,} parameters")
        trainer = Trainer(
            model,
            data.train,
            data.valid,
            chosen.train,
            request.out,
            seed=chosen.seed,
            world=world,
            listeners=[*listeners, _trees(model, data.valid, say)],
            about={
                "recipe": chosen.settings(),
                "sources": list(request.sources) or (content or {})["about"]["sources"],
            },
        )
        if content:
            trainer.restore(content)
            done = trainer.progress
            say(f"Going on from step {done.step:,} (epoch {done.epoch + 1}, {_time(done.seconds)} so far)")
        else:
            if world.rank == 0:
                store.save_description(model, request.out)
            trainer.save()  # from now on there is something to resume
        with _stopping(trainer) as caught:
            finished = trainer.run()
        if not finished:
            say(f"Stopped at step {trainer.progress.step:,}; saved in {request.out}: go on with --resume")
            return caught[0] if caught else signal.SIGTERM  # that of another process
        return _result(request, chosen, data, trainer, say) if world.rank == 0 else {}


def _recipe(request: Request) -> tuple[Recipe, dict[str, Any] | None]:
    """Return the recipe and, when resuming, the checkpoint."""
    if not request.resume:
        if (request.out / checkpoint.NAME).exists() or (request.out / store.WEIGHTS).exists():
            raise UserError(f"{request.out}: there is a run already: go on with --resume, or name another --out")
        text_files(request.sources)  # are they there?
        return recipe.resolve(recipe.read(request.recipe), request.overrides), None
    content = checkpoint.load(request.out)
    saved, sources = content["about"]["recipe"], content["about"]["sources"]
    if request.sources and list(request.sources) != sources:
        raise UserError(f"{request.out} was trained on {' '.join(sources)}: leave the text out, or name the same")
    for part in ("model", "text", "seed"):
        if request.overrides.get(part):
            raise UserError(f"--{part}: cannot change with --resume; only train.* can")
    return recipe.resolve(saved, request.overrides), content


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Hold the run's folder; leave none behind if nothing got into it."""
    fresh = not path.exists()
    try:
        with checkpoint.Lock(path):
            yield
    finally:
        if fresh and not (path / checkpoint.NAME).exists():
            shutil.rmtree(path, ignore_errors=True)


def _corpus(request: Request, chosen: Recipe, world: World, say: Say) -> text.Corpus:
    """Return the encoded text: of the run's folder, or made there by the first process."""
    folder = request.out / "corpus"
    if request.resume:
        return text.load(folder)
    if world.rank == 0:
        wanted = chosen.text
        text.prepare(
            request.sources, folder, profile=wanted.profile, size=wanted.vocab_size, min_count=wanted.min_count, say=say
        )
    world.from_first(None)
    return text.load(folder)


@contextmanager
def _stopping(trainer: Trainer) -> Iterator[list[signal.Signals]]:
    """Let SIGINT and SIGTERM end the training after a step, and note them; a second SIGINT ends it at once."""
    caught: list[signal.Signals] = []

    def ask(number: int, frame: object) -> None:
        caught.append(signal.Signals(number))
        trainer.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _trees(model: LanguageModel, valid: np.ndarray, say: Say) -> Listener:
    """Return a listener that shows the trees of three sentences of the validation text after each epoch."""
    sentences = _sample(valid, model.tokenizer.eos_id, model.tokenizer.unk_id)
    words = model.tokenizer.vocabulary

    def show(record: dict[str, Any]) -> None:
        if record["event"] != "epoch" or model.config.rnn != "onlstm":
            return
        model.eval()
        layer = len(model.layers) // 2
        for ids in sentences:
            with torch.no_grad():
                _, _, distances = model.encode(torch.tensor([[model.tokenizer.eos_id], *([k] for k in ids)]))
            assert distances
            tree = tree_from_distances(distances.forget[layer, 1:, 0].tolist(), [words[k] for k in ids])
            say(f"  layer {layer + 1}: {tree}")

    return show


def _sample(ids: np.ndarray, eos: int, unk: int) -> list[list[int]]:
    """Return the first three sentences of 6 to 12 known words."""
    head = np.asarray(ids[:20_000]).astype(np.int64)
    lines = np.split(head, np.flatnonzero(head == eos) + 1)[1:-1]
    kept = [line[:-1].tolist() for line in lines if 6 <= len(line) - 1 <= 12 and unk not in line]
    return kept[:3]


def _result(request: Request, chosen: Recipe, data: text.Corpus, trainer: Trainer, say: Say) -> dict[str, Any]:
    """Evaluate the best weights, write result.json and return it."""
    model = store.load_model(request.out)
    parts = {"valid": data.valid} | ({"test": data.test} if data.test is not None else {})
    numbers: dict[str, Any] = {}
    for name, ids in parts.items():
        say(f"Evaluating the best weights (epoch {trainer.progress.best_epoch}) on {name} …")
        numbers[f"{name}_perplexity"] = evaluate(model, ids).perplexity
    numbers |= {"best_epoch": trainer.progress.best_epoch, "epochs": trainer.progress.epoch}
    numbers["tokens_per_second"] = len(data.train) * trainer.progress.epoch / trainer.progress.seconds
    log = [json.loads(line) for line in (request.out / "log.jsonl").read_text().splitlines()]
    found = {
        "format_version": RESULT_VERSION,
        "kind": "language-model",
        "name": request.out.name,
        "command": request.command,
        "recipe": chosen.settings(),
        "versions": {"onlstm": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "seed": chosen.seed,
        "data": {
            "name": ", ".join(Path(source).name for source in trainer.about["sources"]),
            **{key: data.info[key] for key in ("profile", "vocabulary")},
            **data.info["splits"],
        },
        "seconds": trainer.progress.seconds,
        "parameters": sum(p.numel() for p in model.parameters()),
        "threads": torch.get_num_threads(),
        "processes": trainer.world.size,
        "machine": _machine(),
        "numbers": numbers,
        "curve": [{k: v for k, v in record.items() if k != "event"} for record in log if record["event"] == "epoch"],
        "notes": [],
    }
    files.write(request.out / "result.json", json.dumps(found, indent=1) + "\n")
    return found


def _machine() -> str:
    """Return the processor's name and how many cores there are."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores"


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.1f} min"
