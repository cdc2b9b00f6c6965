"""What the tasks of an induction do: each is a function of the run's files that writes its own."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from onlstm import files
from onlstm.device import find
from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar
from onlstm.induction import spans
from onlstm.induction.plan import LANGUAGE_MODELS, STAGES, Plan, Speeds, Task
from onlstm.induction.spans import Ids, Shares, Text
from onlstm.lm.model import LanguageModel
from onlstm.records import from_json, plain, typed
from onlstm.text import corpus
from onlstm.text.tokenizer import Tokenizer
from onlstm.train import checkpoint, fit
from onlstm.train.grammar import GrammarTraining
from onlstm.train.language_model import LanguageModelTraining
from onlstm.trees.decode import Decoder, spans_from_distances

RESULT, RESTARTED, PROGRESS = "result.json", "restarted", "progress"
"""Files of a task: how it ended; that it diverged once; the share that is done."""
_TRAINED = 0.9
"""Share of a model's task that is done when it is trained; then it parses."""
_VALID = 100_000
"""Tokens, at most, that a language model is validated on."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a task ended; the result.json of its folder."""

    seconds: float = 0.0
    """Time spent, over all sittings."""
    likelihood: float | None = None
    """Mean log-probability of held-out words, in nats."""
    restarted: bool = False
    """Whether its first training diverged."""
    speeds: Speeds | None = None


class Stopped(Exception):
    """The task was asked to stop; it can be continued."""


class Watch:
    """Notes how much of a task is done, and ends it after a signal or when the parent process is gone."""

    def __init__(self, folder: Path, parent: int, stop: fit.Stop) -> None:
        self._folder, self._parent, self.stop, self._noted = folder, parent, stop, 0.0

    def __call__(self, done: float) -> None:
        self.note(done)
        if self.stop.requested:
            raise Stopped

    def step(self, record: fit.Record) -> None:
        """Watch a training, which writes a checkpoint before it stops."""
        if record.event != "epoch":
            self.note(_TRAINED * record.numbers["done"])

    def note(self, done: float) -> None:
        """Write the share that is done to a file, once a second."""
        if time.monotonic() > self._noted + 1:
            self._noted = time.monotonic()
            with suppress(OSError):  # a full disk shows at the next checkpoint
                (self._folder / PROGRESS).write_text(f"{done:.4f}")
        if os.getppid() != self._parent:
            self.stop.requested = True


def folder_of(run: Path, name: str) -> Path:
    """Return the folder of a task."""
    return run / STAGES / name


def load_outcome(run: Path, name: str) -> Outcome | None:
    """Return how a task ended; None if it has not."""
    path = folder_of(run, name) / RESULT
    if not path.exists():
        return None
    try:
        content = from_json(files.read(path))
    except ValueError:
        raise UserError(f"{path}: damaged: not JSON; delete its folder to do that task again") from None
    return typed(Outcome, content, str(path))


def perform(run: Path, plan: Plan, task: Task, watch: Watch, device: str = "auto") -> None:
    """Do a task, or what is left of it; a language model's on the device, a grammar's on the CPU."""
    started, text = time.perf_counter(), Text.load(run, plan)
    if task.kind == "speed":
        outcome = Outcome(speeds=_speeds(run, plan, text, device))
    elif task.kind == "teacher":
        _read(LanguageModel.load(task.run, device=device), run, task, text, watch)
        outcome = Outcome()
    elif task.kind == "language-model":
        outcome = _language_model(run, plan, task, text, watch, device)
    else:
        outcome = _grammar(run, plan, task, text, watch)
    folder, seconds = folder_of(run, task.name), outcome.seconds or time.perf_counter() - started
    outcome = replace(outcome, seconds=seconds, restarted=(folder / RESTARTED).exists())
    files.write(folder / RESULT, files.json_text(plain(outcome)) + "\n")


def _language_model(run: Path, plan: Plan, task: Task, text: Text, watch: Watch, device: str) -> Outcome:
    data, folder, numbers = corpus.load(run / "corpus"), folder_of(run, task.name), plan.settings.numbers
    texts = spans.part(data.train, text.tokenizer.eos_id, plan.tokens, task.seed), data.valid[:_VALID]

    def start(factor: float) -> fit.Training:
        torch.manual_seed(task.seed)
        model = LanguageModel(replace(numbers.model, vocab_size=len(text.tokenizer)), text.tokenizer).to(find(device))
        model.save_description(folder)
        config = replace(numbers.train, epochs=task.epochs, lr=factor * numbers.train.lr)
        return LanguageModelTraining(model, *texts, config, folder, seed=task.seed)

    training = _train(start, folder, watch)
    started = time.perf_counter()
    _read(LanguageModel.load(folder, device=device), run, task, text, watch)
    seconds = training.progress.seconds + time.perf_counter() - started
    return Outcome(seconds=seconds, likelihood=-training.progress.best)


def _grammar(run: Path, plan: Plan, task: Task, text: Text, watch: Watch) -> Outcome:
    folder, numbers = folder_of(run, task.name), plan.settings.numbers
    teachers = [teacher for teacher in plan.tasks if teacher.name in task.needs]
    by_grammars = any(teacher.kind not in LANGUAGE_MODELS for teacher in teachers)
    shares = Shares([folder_of(run, teacher.name) for teacher in teachers], text, by_grammars) if teachers else None

    def start(factor: float) -> fit.Training:
        torch.manual_seed(task.seed)
        model = Grammar(replace(numbers.grammar, vocab_size=len(text.tokenizer)), text.tokenizer)
        config = replace(numbers.grammar_train, epochs=task.epochs, lr=factor * numbers.grammar_train.lr)
        return GrammarTraining(model, text.train, text.valid, config, folder, shares=shares, seed=task.seed)

    training = _train(start, folder, watch)
    started, model = time.perf_counter(), training.model.eval()
    assert isinstance(model, Grammar)
    model.save(folder)

    def marginals(sentences: list[Ids]) -> NDArray[np.float32]:
        by_sentence = {k: chart.spans[0].numpy() for k, chart in model.read([ids.tolist() for ids in sentences])}
        return np.stack([by_sentence[k] for k in range(len(sentences))]).clip(0, 1)

    spans.write(folder, text, "valid", marginals, lambda done: watch(_TRAINED))
    if task.kind != "final":
        spans.write(folder, text, "train", marginals, lambda done: watch(_TRAINED + (1 - _TRAINED) * done))
    seconds = training.progress.seconds + time.perf_counter() - started
    return Outcome(seconds=seconds, likelihood=-training.progress.history[-1])


def _train(start: Callable[[float], fit.Training], folder: Path, watch: Watch) -> fit.Training:
    """Return a finished training; if it diverges, it begins once more with half the learning rate."""
    restarted = (folder / RESTARTED).exists()
    training = start(0.5 if restarted else 1.0)
    if (folder / checkpoint.NAME).exists():
        fit.restore(training, checkpoint.load(folder))
    try:
        if not fit.fit(training, [watch.step], stop=watch.stop):
            raise Stopped
    except fit.Diverged:
        if restarted:
            raise UserError(
                f"{folder.name}: diverged twice, at last with a learning rate of {training.config.lr:g}"
            ) from None
        for name in (checkpoint.NAME, checkpoint.LOG):
            (folder / name).unlink(missing_ok=True)
        (folder / RESTARTED).touch()
        return _train(start, folder, watch)
    return training


def _read(model: LanguageModel, run: Path, task: Task, text: Text, watch: Watch) -> None:
    """Write the shares of all trees of a language model: of every layer, by both decoders."""
    assert model.tokenizer
    table = teacher_ids(model.tokenizer, text.tokenizer)

    def shares(sentences: list[Ids]) -> Any:
        distances = np.zeros((len(sentences), model.config.distance_layers, len(sentences[0])))
        for batch in model.read(table[np.stack(sentences)].tolist(), distances=True):
            assert batch.distances
            for k, part in batch.split(batch.distances.forget):
                distances[k] = part.numpy()
        layers = [distances[:, k] for k in range(distances.shape[1])]
        trees = [spans_from_distances(d, decoder) for d in layers for decoder in get_args(Decoder)]
        return np.mean(trees, axis=0, dtype=np.float32)

    for split in ("valid", "train"):
        report = (lambda done: watch(_TRAINED + (1 - _TRAINED) * done)) if task.kind == "language-model" else watch
        spans.write(folder_of(run, task.name), text, split, shares, report)


def teacher_ids(teacher: Tokenizer, tokenizer: Tokenizer) -> Ids:
    """Return the teacher's id of every word of the vocabulary."""
    return np.array(teacher.ids(tokenizer.vocabulary))


def _speeds(run: Path, plan: Plan, text: Text, device: str) -> Speeds:
    """Return how fast models are trained, measured for some seconds each."""
    seconds, folder = min(5.0, 0.6 * plan.settings.minutes), folder_of(run, "speed-0")
    numbers, data = plan.settings.numbers, corpus.load(run / "corpus")
    words, tokens = len(text.tokenizer), 0.0
    if not plan.settings.teachers:
        model = LanguageModel(replace(numbers.model, vocab_size=words), text.tokenizer).to(find(device))
        training = LanguageModelTraining(model, data.train, data.valid, replace(numbers.train, epochs=1000), folder)
        tokens = numbers.train.batch_size * numbers.train.bptt * _steps_per_second(training, seconds)
    grammar = Grammar(replace(numbers.grammar, vocab_size=words), text.tokenizer)
    of_grammar = GrammarTraining(grammar, text.train, text.valid, replace(numbers.grammar_train, epochs=1000), folder)
    size = len(text.train) / of_grammar.length
    return Speeds(tokens=tokens, sentences=size * _steps_per_second(of_grammar, seconds))


def _steps_per_second(training: fit.Training, seconds: float) -> float:
    for _ in range(2):
        fit.step(training)
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds and training.progress.cursor < training.end:
        fit.step(training)
        steps += 1
    fit.settle(training)  # a GPU may be behind
    return max(1, steps) / (time.perf_counter() - started)
