"""`onlstm demo`: a grammar writes sentences, an ON-LSTM reads their words alone, and its trees are held against gold.

A same-size LSTM trains beside it on the same text, in a process of its own. All is measured on sentences that occur
nowhere in training. Layer and decoder of the headline are fixed here, chosen on other seeds than those reported.
"""

import math
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onlstm import files, recipe
from onlstm.device import find
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.paper.demo.grammar import Grammar
from onlstm.paper.demo.page import DECODER, LAYER, RULE, Demo, page
from onlstm.paper.parsing.alignment import Reading
from onlstm.paper.parsing.rows import Forest, baselines, forests, rows, untrained
from onlstm.parser import Parser
from onlstm.recipe import Recipe
from onlstm.records import from_json
from onlstm.text.tokenizer import EOS, UNK, Tokenizer
from onlstm.train import fit
from onlstm.train.config import TrainConfig
from onlstm.train.language_model import LanguageModelTraining
from onlstm.trees.f1 import score
from onlstm.trees.tree import Tree

MINUTES, PASSES = 1.5, 2
"""The time allowed by default, and the passes for which it is plenty; other times allow more or fewer."""
_POINTS = 12
"""Of the curves."""
_spawn: Any = torch.multiprocessing.spawn  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Sentences of a grammar in three parts that have none in common."""

    train: list[tuple[str, ...]]
    """Words alone, as often as they were drawn."""
    valid: list[Tree]
    """Each sentence once, here and in `test`."""
    test: list[Tree]

    @classmethod
    def of_grammar(cls, grammar: Grammar, seed: int, count: int, held_out: int = 500) -> "Corpus":
        """Return `count` draws, among them up to `held_out` distinct sentences for each of validation and test."""
        rng = random.Random(seed)
        drawn = list(grammar.trees(count, rng))
        distinct = {tree.words: tree for tree in reversed(drawn)}
        if len(distinct) < 30:
            raise UserError(
                f"{grammar.source}: {len(distinct)} distinct sentences are too few to train on some and test on "
                "others: add words or rules until there are 30"
            )
        size = min(held_out, len(distinct) // 6)
        chosen = rng.sample(list(distinct.values()), 2 * size)
        held = {tree.words for tree in chosen}
        train = [tree.words for tree in drawn if tree.words not in held]
        return cls(train=train, valid=chosen[:size], test=chosen[size:])


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One model to train, here or in another process."""

    model: LMConfig
    train: TrainConfig
    words: Sequence[str]
    """The vocabulary."""
    text: np.ndarray
    valid: np.ndarray
    seed: int
    seconds: float = math.inf
    """Training ends after this time, done or not."""
    folder: Path
    """For the model and log.jsonl."""
    device: str = "auto"


def run(
    grammar: Path | None = None,
    *,
    seed: int = 0,
    minutes: float = MINUTES,
    out: Path = Path("demo"),
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
    listeners: Sequence[fit.Listener] = (),
) -> Demo:
    """Train both models, write the report, and return the scores of their trees.

    Args:
        grammar: a file; by default, the English one.
        seed: of sentences, weights and dropout.
        minutes: of training, at most.
        out: the folder for the report and the model.
        device: where both models train, see `onlstm.device.find`.
    """
    if not 0 < minutes < 1e6:
        raise UserError(f"minutes {minutes:g}: a number above 0 is needed")
    find(device)  # is it there?
    settings, rules = _settings(seed), Grammar.load(grammar)
    share = min(1.0, PASSES * minutes / MINUTES)  # of the text, if there is no time for a pass over all
    corpus = Corpus.of_grammar(rules, seed, max(2000, int(20_000 * share)))
    files.make_folder(out)
    say(f"{len(corpus.train):,} sentences, {len(rules.words)} words, no trees; {len(corpus.test)} others to parse.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        job = _planned(replace(_job(rules, corpus, settings, Path(work) / "onlstm"), device=device), minutes)
        other = replace(job, model=replace(job.model, rnn="lstm"), folder=Path(work) / "lstm")
        say(f"ON-LSTM and LSTM, {job.model.num_layers} layers of {job.model.hidden_size}, a process each.")
        beside = _spawn(_train_beside, (other,), join=False, daemon=True)
        try:
            training = _training(job)
            f1: list[float] = []
            _fit(training, job.seconds, [*listeners, _validation(training.model, corpus.valid, say, f1)])
            say("Waiting for the LSTM …")
            while not beside.join():
                pass
        finally:
            for process in beside.processes:
                process.kill()
        lstm = LanguageModel.load(other.folder, device=device)
        curves = {"ON-LSTM": _losses(job.folder), "LSTM": _losses(other.folder)}
    model = training.model.eval()
    model.save(out / "model")
    scores = rows(corpus.test, _forests(model, lstm, corpus.test, seed), RULE, ["all"])
    demo = Demo.of(scores, out / "report.html")
    files.write(demo.report, page(demo, corpus.test, model, curves, f1))
    return demo


def _settings(seed: int) -> Recipe:
    with resources.as_file(resources.files("onlstm.paper.demo") / "demo.yaml") as file:
        return Recipe.of({**recipe.read(str(file)), "seed": seed})


def _job(grammar: Grammar, corpus: Corpus, settings: Recipe, folder: Path) -> _Job:
    tokenizer = Tokenizer.of_words([UNK, EOS, *grammar.words])

    def ids(sentences: Iterable[tuple[str, ...]]) -> np.ndarray:
        return np.array([id for words in sentences for id in (*tokenizer.ids(words), tokenizer.eos_id)], np.int32)

    valid = ids(tree.words for tree in corpus.valid)
    return _Job(
        model=replace(settings.model, vocab_size=len(tokenizer)),
        train=replace(settings.train, valid_batch_size=min(10, len(valid) // 2)),
        words=tokenizer.vocabulary,
        text=ids(corpus.train),
        valid=valid,
        seed=settings.seed,
        folder=folder,
    )


def _planned(job: _Job, minutes: float) -> _Job:
    """Return the job with as many passes, or as much of the text, as fit into the time at this machine's speed."""
    trial = _training(replace(job, folder=job.folder.with_name("trial")))
    fit.step(trial)  # the kernel may have to be built
    started = time.perf_counter()
    for _ in range(5):
        trial.progress.cursor = 0
        fit.step(trial)
    fit.settle(trial)  # a GPU may be behind
    speed = 5 * job.train.batch_size * job.train.bptt / (time.perf_counter() - started)
    passes = max(1.0, PASSES * minutes / MINUTES)
    tokens = int(min(passes * len(job.text), 0.8 * speed * 60 * minutes))
    text = job.text[: max(tokens, 10 * job.train.batch_size)]
    epochs = max(1, tokens // len(text))
    steps = epochs * len(text) // (job.train.batch_size * job.train.bptt)
    train = replace(job.train, epochs=epochs, log_steps=max(1, steps // _POINTS))
    return replace(job, text=text, train=train, seconds=60 * minutes)


def _training(job: _Job) -> LanguageModelTraining:
    job.folder.mkdir(parents=True)
    torch.manual_seed(job.seed)
    model = LanguageModel(job.model, Tokenizer.of_words(job.words)).to(find(job.device))
    return LanguageModelTraining(model, job.text, job.valid, job.train, job.folder, seed=job.seed)


def _fit(training: LanguageModelTraining, seconds: float, listeners: Sequence[fit.Listener] = ()) -> None:
    """Train until all epochs are done or the time is up."""
    stop, end = fit.Stop(), time.monotonic() + seconds

    def watch(record: fit.Record) -> None:
        if time.monotonic() > end:
            training.progress.cursor = training.end  # of this pass,
            stop.requested = record.event == "epoch"  # and of them all

    fit.fit(training, [watch, *listeners], stop=stop)


def _train_beside(rank: int, job: _Job) -> None:
    """Train in a process of its own, which ends when its parent does."""
    torch.set_num_threads(1)
    training = _training(job)
    _fit(training, job.seconds)
    training.model.eval().save(job.folder)


def _validation(
    model: LanguageModel, valid: Sequence[Tree], say: Callable[[str], None], f1: list[float]
) -> fit.Listener:
    """Return a listener that scores the trees of validation sentences on the way, and shows one; F1 goes to `f1`."""
    parser = Parser(model, layer=LAYER, decoder=DECODER)
    sentences = [tree.words for tree in valid]
    shown = min(range(len(valid)), key=lambda k: abs(len(valid[k].words) - 8))
    say(f"gold      {valid[shown].unlabelled()}")

    def show(record: fit.Record) -> None:
        if record.event != "tick":
            trees = [parse.tree for parse in parser.parse(sentences) if parse.tree]
            value = score(valid, trees, RULE).f1
            f1.extend([value] * (record.event == "step"))
            say(f"F1 {value:5.1f}  {trees[shown]}")

    return show


def _losses(folder: Path) -> dict[int, float]:
    """Return the loss of a training by step, as it was logged."""
    records = map(from_json, (folder / "log.jsonl").read_text().splitlines())
    return {record["step"]: record["loss"] for record in records if record["event"] == "step"}


def _forests(model: LanguageModel, lstm: LanguageModel, gold: Sequence[Tree], seed: int) -> list[Forest]:
    reads = [Reading.plain(tree) for tree in gold]
    return [
        *forests(Parser(model), reads, system="onlstm"),
        *forests(Parser(lstm, gates="lstm"), reads, system="lstm-gates"),
        *forests(Parser(untrained(model, seed)), reads, system="untrained"),
        *baselines(gold),
    ]
