"""`onlstm train`: text in, a run folder out. The paper's section 5.1.

A run folder holds the model (config.json, model.safetensors, tokenizer.json), trainer.pt to continue from, log.jsonl,
the encoded text (corpus/), and in the end result.json.
"""

import shlex
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from onlstm import files, folder, memory
from onlstm.device import find
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import evaluate
from onlstm.paper.results import save
from onlstm.paper.training_result import Content, Epoch, Numbers, Text, trials_beside
from onlstm.parser import Parser
from onlstm.recipe import Recipe
from onlstm.records import from_json, typed
from onlstm.text import corpus
from onlstm.text.sources import text_files
from onlstm.train import checkpoint, fit
from onlstm.train.checkpoint import StateDict
from onlstm.train.distributed import World
from onlstm.train.fit import Listener, Record, Stop
from onlstm.train.language_model import LanguageModelTraining

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `onlstm train` was asked for."""

    sources: Sequence[str]
    """Files, folders or "-"; none when resuming."""
    recipe: Recipe
    out: Path
    resume: bool = False
    device: str = "auto"
    """Where to train, see `onlstm.device.find`."""
    command: str = ""
    """As the user typed it; result.json has the one that began the run, and those that changed its settings."""
    test: bool = True
    """Read the test text, too, when the training is done; a trial of settings must not."""


def run(
    request: Request,
    say: Say = lambda line: None,
    listeners: Iterable[Listener] = (),
    on_evaluation: Callable[[int, int], object] = lambda done, total: None,
) -> Content | signal.Signals | None:
    """Train and return the content of result.json (in the first process), or the signal that ended it early.

    `on_evaluation` is called, when the training is done, with the number of tokens that have been tested and of all.
    """
    device, content = find(request.device), _checkpoint(request)
    if device.type == "mps" and request.recipe.train.precision == "float64":
        raise UserError("train.precision float64: the device mps does not have it; choose cpu")
    memory.check(2 * request.recipe.model.least_bytes, "model", "choose smaller sizes")
    recipe, world = request.recipe, World.join(device)
    with ExitStack() as stack:
        stack.callback(world.leave)
        stop = stack.enter_context(Stop())
        if world.rank:
            say, listeners = (lambda line: None), ()
        data = _corpus(request, world, stack, say)
        torch.manual_seed(recipe.seed)
        config = replace(recipe.model, vocab_size=len(data.tokenizer))
        dtype = torch.float64 if recipe.train.precision == "float64" else torch.float32
        model = LanguageModel(config, data.tokenizer).to(device, dtype)
        sizes = "→".join(map(str, (config.embedding_size, *config.sizes)))
        where = "" if device.type == "cpu" else f", on {device}"
        say(f"{config.rnn} {sizes}: {sum(p.numel() for p in model.parameters()):,} parameters{where}")
        about = _about(request, content)
        texts = data.train, data.valid
        training = LanguageModelTraining(
            model, *texts, recipe.train, request.out, seed=recipe.seed, world=world, about=about
        )
        if content:
            fit.restore(training, content)
            spent = f"{training.progress.seconds / 60:.1f} min so far"
            say(f"Continuing from step {training.progress.step:,} (epoch {training.progress.epoch + 1}, {spent})")
        else:
            fit.save(training)  # from now on there is something to resume
        if world.rank == 0:
            model.save_description(request.out)
        if not fit.fit(training, [*listeners, _trees(training, data.valid, say)], stop=stop):
            again = shlex.join(["onlstm", "train", "--resume", "--out", str(request.out)])
            say(f"Stopped at {training.where}; saved in {request.out}: continue with {again}")
            return stop.received or signal.SIGTERM  # that of another process
        return _result(request, data, training, say, on_evaluation) if world.rank == 0 else None


def _about(request: Request, content: StateDict | None) -> StateDict:
    """Return what the checkpoint says of a run: recipe, sources and the command that began it."""
    recipe = request.recipe.settings()
    if not content:
        return {"recipe": recipe, "sources": list(request.sources), "command": request.command}
    before = content["about"]
    command = before.get("command", request.command)
    if recipe != before["recipe"]:
        command += f" && {request.command}"
    return {"recipe": recipe, "sources": before["sources"], "command": command}


def _checkpoint(request: Request) -> StateDict | None:
    """Return the checkpoint to continue from, whose settings the request may only change where that is safe."""
    if not request.resume:
        text_files(request.sources)  # are they there?
        return None
    content = checkpoint.load(request.out)
    saved, sources = Recipe.of(content["about"]["recipe"]), content["about"]["sources"]
    if request.sources and list(request.sources) != sources:
        raise UserError(f"{request.out} has its text ({' '.join(sources)}): leave it out")
    for name in ("seed", "text", "model"):  # what a recipe says of itself may change
        if getattr(request.recipe, name) != getattr(saved, name):
            raise UserError(f"--{name}: cannot change with --resume; only train.* can")
    for name in ("batch_size", "optimizer", "averaging", "precision"):
        before, now = getattr(saved.train, name), getattr(request.recipe.train, name)
        if now != before and {now, before} != {"float32", "bfloat16"}:  # both have weights in float32
            raise UserError(f"--train.{name}: cannot change with --resume (it was {before})")
    return content


@contextmanager
def _folder(request: Request) -> Iterator[None]:
    """Hold the run's folder; leave none behind if nothing got into it."""
    path = request.out
    with checkpoint.lock(path):
        files.remove_temporary(path, checkpoint.NAME, folder.WEIGHTS, folder.CONFIG, folder.TOKENIZER, "result.json")
        there = {item.name for item in path.iterdir()} - {".lock"}
        if not request.resume and not there <= {"corpus"}:
            run = checkpoint.NAME in there or folder.WEIGHTS in there
            what = "there is a run already: continue it with --resume, or" if run else "not empty:"
            raise UserError(f"{path}: {what} name another --out")
        for rest in (path / "corpus").glob(".unfinished-*"):
            shutil.rmtree(rest)
        try:
            yield
        finally:
            if not there and not (path / checkpoint.NAME).exists():
                shutil.rmtree(path, ignore_errors=True)


def _corpus(request: Request, world: World, stack: ExitStack, say: Say) -> corpus.Corpus:
    """Return the encoded text: of the run's folder, or made there by the first process, which holds the folder."""
    path, problem = request.out / "corpus", None
    if world.rank == 0:
        try:
            stack.enter_context(_folder(request))
            if not request.resume:
                data = corpus.prepare(request.sources, path, request.recipe.text, say=say)
                if len(data.tokenizer) == 2:  # <unk> and <eos>
                    what = "no word of the training text occurs that often, so all of them would be <unk>"
                    raise UserError(f"text.min_count {request.recipe.text.min_count}: {what}; lower it")
        except UserError as error:
            problem = error
    if world.from_first(str(problem or "")):
        raise problem or SystemExit(2)  # the first process says what it is
    return corpus.load(path)


def _trees(training: LanguageModelTraining, valid: np.ndarray, say: Say) -> Listener:
    """Return a listener that shows the trees of three sentences of the validation text after each epoch."""
    model = training.model
    words = model.tokenizer.vocabulary
    sentences = [[words[k] for k in ids] for ids in _sample(valid, model.tokenizer.eos_id, model.tokenizer.unk_id)]

    def show(record: Record) -> None:
        if record.event != "epoch" or model.config.rnn != "onlstm":
            return
        with training.averaged():
            for parse in Parser(model, layer="middle").parse(sentences):
                say(f"  layer {parse.layer}: {parse.tree}")

    return show


def _sample(ids: np.ndarray, eos: int, unk: int) -> list[list[int]]:
    """Return three sentences: the first of 6 to 12 known words, or else what comes nearest, cut to 12 words."""
    head = np.asarray(ids[:20_000]).astype(np.int64)
    lines = [line[line != eos].tolist() for line in np.split(head, np.flatnonzero(head == eos) + 1)]
    lines = [line for line in lines if len(line) > 1]
    fitness = [(unk in line) + abs(len(line) - min(max(len(line), 6), 12)) for line in lines]
    return [lines[k][:12] for k in sorted(range(len(lines)), key=fitness.__getitem__)[:3]]


def _result(
    request: Request,
    data: corpus.Corpus,
    training: LanguageModelTraining,
    say: Say,
    on_evaluation: Callable[[int, int], object],
) -> Content:
    """Evaluate the best weights, write result.json and return it."""
    model, progress = LanguageModel.load(request.out, device=request.device), training.progress
    perplexity: dict[str, float] = {}
    for split, ids in (("valid", data.valid), ("test", data.test if request.test else None)):
        if ids is not None:
            say(f"Evaluating the best weights (epoch {progress.best_epoch}) on {split} …")
            perplexity[split] = evaluate(model, ids, on_progress=on_evaluation).perplexity
    content = Content(
        recipe=request.recipe.settings(),
        data=_described(data, training.about["sources"]),
        parameters=sum(p.numel() for p in model.parameters()),
        processes=training.world.size,
        numbers=Numbers(
            valid_perplexity=perplexity["valid"],
            test_perplexity=perplexity.get("test"),
            best_epoch=progress.best_epoch,
            epochs=progress.epoch,
            tokens_per_second=len(data.train) * training.config.passes / progress.seconds,
        ),
        curve=_curve(request.out / checkpoint.LOG),
        grid=trials_beside(request.out) or None,
    )
    about = {"command": training.about["command"], "seed": request.recipe.seed, "seconds": progress.seconds}
    save(request.out / "result.json", kind="language-model", name=request.out.name, content=content, **about)
    return content


def _described(data: corpus.Corpus, sources: Sequence[str]) -> Text:
    name, tokenizer = ", ".join(Path(source).name for source in sources), data.tokenizer
    return Text(name=name, profile=tokenizer.profile, vocabulary=len(tokenizer), **data.parts)


def _curve(log: Path) -> list[Epoch]:
    """Return the records of all epochs that the log still has."""
    curve = []
    for line in log.read_text(errors="replace").splitlines() if log.exists() else []:
        with suppress(ValueError, UserError):
            record = from_json(line)
            if isinstance(record, dict) and record.get("event") == "epoch":
                curve.append(typed(Epoch, record, str(log)))
    return curve
