"""`onlstm demo`: a grammar writes sentences, an ON-LSTM reads their words alone, and its trees are held against gold.

A same-size LSTM trains beside it on the same text, in a process of its own. All is measured on sentences that occur
nowhere in training. Layer and decoder of the headline are fixed here, chosen on other seeds than those reported.
"""

import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.paper.demo.grammar import Grammar
from onlstm.paper.demo.page import DECODER, LAYER, RULE, Demo, page
from onlstm.paper.parsing.rows import Forest, baselines, forests, rows, untrained
from onlstm.paper.parsing.sentences import Reading
from onlstm.parser import Parser
from onlstm.text.tokenizer import EOS, UNK, Tokenizer
from onlstm.train import fit
from onlstm.train.config import TrainConfig
from onlstm.train.fit import Listener
from onlstm.train.language_model import LanguageModelTraining
from onlstm.trees.decode import tree_from_distances
from onlstm.trees.f1 import score
from onlstm.trees.tree import Tree

MINUTES, PASSES = 1.5, 2
"""The time allowed by default, and the passes for which it is plenty; of other times there are more or fewer."""
_LOOKS = 12
"""Points of the curves."""

_MODEL = LMConfig(
    embedding_size=120,
    hidden_size=120,
    num_layers=2,
    chunk_size=6,
    dropout_embedding=0.0,
    dropout_input=0.2,
    dropout_hidden=0.2,
    dropout_output=0.2,
    weight_dropout=0.0,
    parse_layer=LAYER,
)
_TRAIN = TrainConfig(
    epochs=PASSES,
    batch_size=32,
    bptt=35,
    vary_bptt=False,
    optimizer="adamw",
    lr=5e-3,
    schedule="one-cycle",
    warmup=0.2,
    clip=1.0,
    weight_decay=0.0,
    alpha=0.0,
    beta=0.0,
    averaging="none",
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `onlstm demo` was asked for."""

    grammar: Path | None = None
    """File; None: the English one."""
    seed: int = 0
    """Of sentences, weights and dropout."""
    minutes: float = MINUTES
    """Of training, at most."""
    out: Path = Path("demo")
    """Folder for the report and the model."""


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
    """One model to train; it travels to another process as a file."""

    model: LMConfig
    train: TrainConfig
    words: Sequence[str]
    """The vocabulary."""
    text: np.ndarray
    valid: np.ndarray
    seed: int
    seconds: float
    """Training ends after so many, done or not."""
    folder: Path
    """Where the model goes, and curve.json: what the trainer told on the way."""


def run(request: Request, say: Callable[[str], None] = lambda line: None, listeners: Sequence[Listener] = ()) -> Demo:
    """Train both models and return the scores of their trees; write the report."""
    if not 0 < request.minutes < 1e6:
        raise UserError(f"--minutes {request.minutes:g}: a number above 0 is needed")
    if not 0 <= request.seed < 2**63:
        raise UserError(f"--seed {request.seed}: from 0 to less than 2**63 is needed")
    grammar = Grammar.load(request.grammar)
    whole = min(1.0, PASSES * request.minutes / MINUTES)  # of the text, if there is no time for a pass over all
    data = Corpus.of_grammar(grammar, request.seed, max(2000, int(20_000 * whole)))
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {request.out}: {error.strerror}") from None
    say(
        f"{len(data.train):,} sentences of a grammar with {len(grammar.words)} words to learn from, no trees; "
        f"{len(data.test)} others to parse."
    )
    with tempfile.TemporaryDirectory() as work:
        job = _planned(_job(grammar, data, request, Path(work)), request.minutes)
        say(f"ON-LSTM and LSTM, {_MODEL.num_layers} layers of {_MODEL.hidden_size}, a process each.")
        with _beside(replace(job, model=replace(job.model, rnn="lstm"), folder=Path(work) / "lstm")) as finish:
            model, curve = _train(job, lambda model: [*listeners, _trees(model, data.valid, say)])
            say("Waiting for the LSTM …")
            lstm, lstm_curve = finish()
    made = _forests(model, lstm, data.test, request.seed)
    found = Demo(rows=rows(data.test, made, RULE, ["all"]), out=request.out)
    model.save(found.model)
    files.write(found.report, page(found, data.test, model, {"ON-LSTM": curve, "LSTM": lstm_curve}))
    return found


def _job(grammar: Grammar, data: Corpus, request: Request, work: Path) -> _Job:
    tokenizer = Tokenizer.of_words([UNK, EOS, *grammar.words])

    def ids(sentences: Iterator[tuple[str, ...]]) -> np.ndarray:
        lines = ([*tokenizer.ids(words), tokenizer.eos_id] for words in sentences)
        return np.fromiter((id for line in lines for id in line), np.int32)

    valid = ids(tree.words for tree in data.valid)
    return _Job(
        model=replace(_MODEL, vocab_size=len(tokenizer)),
        train=replace(_TRAIN, valid_batch_size=min(10, len(valid) // 2)),
        words=tokenizer.vocabulary,
        text=ids(iter(data.train)),
        valid=valid,
        seed=request.seed,
        seconds=60 * request.minutes,
        folder=work / "onlstm",
    )


def _planned(job: _Job, minutes: float) -> _Job:
    """Return the job with as many passes, or as much of the text, as fit into the time at this machine's speed."""
    trial = _training(replace(job, folder=job.folder.with_name("trial")))
    fit.step(trial)  # the kernel may have to be built
    began = time.perf_counter()
    for _ in range(5):
        trial.progress.cursor = 0
        fit.step(trial)
    speed = 5 * job.train.batch_size * job.train.bptt / (time.perf_counter() - began)
    passes = max(1.0, PASSES * minutes / MINUTES)
    tokens = int(min(passes * len(job.text), 0.8 * speed * 60 * minutes))
    text = job.text[: max(tokens, 10 * job.train.batch_size)]
    epochs = max(1, tokens // len(text))
    steps = epochs * len(text) // (job.train.batch_size * job.train.bptt)
    return replace(job, text=text, train=replace(job.train, epochs=epochs, log_steps=max(1, steps // _LOOKS)))


def _training(job: _Job) -> LanguageModelTraining:
    job.folder.mkdir(parents=True)
    torch.manual_seed(job.seed)
    model = LanguageModel(job.model, Tokenizer.of_words(job.words))
    return LanguageModelTraining(model, job.text, job.valid, job.train, job.folder, seed=job.seed)


def _train(job: _Job, listeners: Callable[[LanguageModel], Sequence[Listener]]) -> tuple[LanguageModel, list[Any]]:
    """Return the trained model and what the trainer told on the way; both are in the job's folder too."""
    training, stop = _training(job), fit.Stop()
    curve: list[dict[str, Any]] = []
    ends = time.monotonic() + job.seconds

    def watch(record: dict[str, Any]) -> None:
        if record["event"] == "step":
            curve.append(record)
        if time.monotonic() > ends:
            training.progress.cursor = len(job.text)  # the end of the pass,
            if record["event"] == "epoch":
                stop.requested = True  # and of them all

    fit.fit(training, [watch, *listeners(training.model)], stop=stop)
    training.model.eval().save(job.folder)
    files.write(job.folder / "curve.json", files.json_text(curve))
    return training.model, curve


@contextmanager
def _beside(job: _Job) -> Iterator[Callable[[], tuple[LanguageModel, list[Any]]]]:
    """Train in another process meanwhile; what is yielded waits for it and returns what `_train` does.

    The process has a session of its own, so that it is this one that Ctrl-C interrupts; it never outlives this one.
    """
    file = job.folder.with_suffix(".job")
    file.write_bytes(pickle.dumps(job))
    code = "import sys; from onlstm.paper.demo import run as demo; demo._in_process(sys.argv[1], int(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(file), str(os.getpid())]
    with subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:

        def finish() -> tuple[LanguageModel, list[Any]]:
            _, errors = process.communicate()
            if process.returncode:
                raise RuntimeError(f"the LSTM's process ended with code {process.returncode}:\n{errors.decode()}")
            return LanguageModel.load(job.folder), json.loads((job.folder / "curve.json").read_text())

        try:
            yield finish
        finally:
            process.kill()


def _in_process(file: str, parent: int) -> None:
    """What `_beside` runs; ends when its parent has."""
    torch.set_num_threads(1)

    def watch(record: dict[str, Any]) -> None:
        if os.getppid() != parent:
            sys.exit("its parent has ended")

    _train(pickle.loads(Path(file).read_bytes()), lambda model: [watch])


def _trees(model: LanguageModel, valid: Sequence[Tree], say: Callable[[str], None]) -> Listener:
    """Return a listener that says on the way and after each pass how validation sentences are parsed, and shows one."""
    parser = Parser(model)
    shown = min(range(len(valid)), key=lambda k: abs(len(valid[k].words) - 8))
    say(f"gold      {valid[shown].unlabelled()}")

    def show(record: dict[str, Any]) -> None:
        if record["event"] != "tick":
            found = zip(parser.distances([tree.words for tree in valid]), valid, strict=True)
            trees = [tree_from_distances(d[LAYER - 1], gold.words, DECODER) for d, gold in found]
            record["f1"] = score(valid, trees, RULE).f1
            say(f"F1 {record['f1']:5.1f}  {trees[shown]}")

    return show


def _forests(model: LanguageModel, lstm: LanguageModel, gold: Sequence[Tree], seed: int) -> list[Forest]:
    reads = [Reading.plain(tree) for tree in gold]
    return [
        *forests(Parser(model), reads, system="onlstm"),
        *forests(Parser(lstm, gates="lstm"), reads, system="lstm-gates"),
        *forests(Parser(untrained(model, seed)), reads, system="untrained"),
        *baselines(gold),
    ]
