"""`onlstm logic`: encoders trained on short pairs of formulas and tested on longer ones. The paper's section 5.4.

A run folder holds a folder for each encoder and seed (config.json, model.safetensors, trainer.pt, log.jsonl and, when
it is done, result.json) and the result.json of all that are done. Jobs can be run by several processes at once.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm import folder as store
from onlstm.paper import results_old as results
from onlstm.paper.logic import classifier
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.data import Data, Say, Source, by_length, majority
from onlstm.paper.logic.encoders import ModelConfig
from onlstm.paper.logic.evaluation import result, runs
from onlstm.paper.logic.training import ClassifierTraining, TrainConfig
from onlstm.paper.published import published as quoted
from onlstm.settings import build
from onlstm.train import checkpoint, fit
from onlstm.train.fit import Listener, Stop

MAJORITY = "majority"
ENCODERS, SEEDS = ("onlstm", "lstm", "tree-lstm"), 3


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `onlstm logic` was asked for; what is not said has its default or, with `resume`, the run's own value."""

    out: Path
    encoders: Sequence[str] = ()
    seeds: Sequence[int] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Source`."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of `ModelConfig` and `TrainConfig`, as `model` and `train`."""
    resume: bool = False
    command: str = ""
    """As the user typed it, for result.json."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One encoder and seed."""

    folder: Path
    seed: int
    source: Source
    model: ModelConfig
    train: TrainConfig
    command: str
    """That began it."""

    def described(self) -> dict[str, Any]:
        more = {"source": asdict(self.source), "train": asdict(self.train)}
        return {"seed": self.seed, "command": self.command, **more}

    def changed(self) -> dict[str, Any]:
        """Return the settings that are not the authors'."""
        plain = asdict(ModelConfig(encoder=self.model.encoder)) | asdict(TrainConfig())
        return {key: value for key, value in (asdict(self.model) | asdict(self.train)).items() if value != plain[key]}


def run(
    request: Request, say: Say = lambda line: None, listeners: Callable[[], Sequence[Listener]] = tuple
) -> dict[str, Any] | signal.Signals:
    """Train and test what is asked for and return the contents of result.json, or the signal that ended it early.

    `listeners` makes those of one job.
    """
    jobs = _jobs(request)
    source = jobs[0].source if jobs else Source(**request.source)
    data = Data.load(source, say)
    say(f"{len(data.train):,} pairs to train on, {len(data.valid):,} for validation, {len(data.test):,} to test.")
    test = Problems.of(data.test)
    for number, job in enumerate(jobs, 1):
        name = f"{job.model.encoder}, seed {job.seed}"
        if request.resume and _done(job):
            say(f"{name}: done already")
            continue
        say(f"{name} ({number} of {len(jobs)})")
        if ended := _train(job, data, test, request, say, listeners()):
            return ended
    try:
        request.out.mkdir(parents=True, exist_ok=True)  # if the majority alone was asked for
    except OSError as error:
        raise UserError(f"--out {request.out}: {error.strerror}") from None
    rows = {**_finished(request.out), MAJORITY: [majority(data)]}
    return _save(request.out, request.command, None, source, rows)


def published() -> dict[str, dict[str, float]]:
    """Return published accuracies by model and length; none of them was run here."""
    rows = [row for row in quoted("logic") if not row.source.startswith("measured")]
    return {row.row: {length: float(value) for length, value in row.values.items()} for row in rows}


def _jobs(request: Request) -> list[_Job]:
    """Return what is to be trained, each with its settings."""
    begun: dict[tuple[str, int], dict[str, Any]] = {}
    if request.resume:
        for folder in runs(request.out):
            described = classifier.read_description(folder)
            begun[described["model"]["encoder"], described["seed"]] = described
    defaults: dict[str, Any] = next(iter(begun.values()), {"model": {}, "train": {}, "source": {}})
    asked = [(name, seed) for name in request.encoders or ENCODERS for seed in request.seeds or range(SEEDS)]
    wanted = [key for key in begun if not request.encoders or key[0] in request.encoders]
    if not request.resume or request.seeds or not wanted:
        wanted = asked
    jobs = []
    for name, seed in dict.fromkeys(key for key in wanted if key[0] != MAJORITY):
        before = begun.get((name, seed))
        stored = before or defaults
        model = {**stored["model"], **request.settings.get("model", {}), "encoder": name}
        train = {**stored["train"], **request.settings.get("train", {})}
        source = {**stored["source"], **request.source}
        job = _Job(
            folder=request.out / f"{name.replace(':', '.')}-{seed}",
            seed=seed,
            source=Source(**source),
            model=build(ModelConfig, model, "model"),
            train=build(TrainConfig, train, "train"),
            command=(before or {}).get("command", request.command),
        )
        if before:
            _same(job, before)
        jobs.append(job)
    if any(job.source != jobs[0].source for job in jobs):
        raise UserError(f"{request.out}: its jobs have different data; name those of one --encoder")
    for job in jobs:
        Classifier(job.model)  # now, not after hours: a mistake in the settings
    return jobs


def _same(job: _Job, before: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings; the number of epochs may change."""
    for part, now in {"model": asdict(job.model), **job.described()}.items():
        for key, value in now.items() if isinstance(now, dict) else ():
            if key not in ("epochs", "checkpoint_minutes", "log_steps") and before[part][key] != value:
                raise UserError(f"{job.folder}: {part}.{key} was {before[part][key]}, not {value}; name another --out")


def _done(job: _Job) -> bool:
    found = result(job.folder)
    return found is not None and found["epochs"] >= job.train.epochs


def _finished(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the results of all jobs in a run folder that are done, by encoder."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(out.glob(f"*/{store.CONFIG}")):
        if row := result(path.parent):
            found.setdefault(classifier.read_description(path.parent)["model"]["encoder"], []).append(row)
    order = [*ENCODERS, *found]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def _train(
    job: _Job, data: Data, test: Problems, request: Request, say: Say, listeners: Sequence[Listener]
) -> signal.Signals | None:
    """Train a job, test its best weights and write its result; return the signal that ended it early."""
    with checkpoint.lock(job.folder):
        files.clear_halves(job.folder, checkpoint.NAME, store.WEIGHTS, store.CONFIG, "result.json")
        begun = (job.folder / checkpoint.NAME).exists()
        if begun and not request.resume:
            raise UserError(f"{job.folder}: there is a run already: go on with --resume, or name another --out")
        torch.manual_seed(job.seed)
        model = Classifier(job.model)
        about = {"digest": data.digest()}
        parts = Problems.of(data.train), Problems.of(data.valid)
        training = ClassifierTraining(model, *parts, job.train, job.folder, seed=job.seed, about=about)
        if begun:
            content = checkpoint.load(job.folder)
            if content["about"] != about:
                raise UserError(f"{job.folder}: the pairs are no longer those it was trained on; name another --out")
            fit.restore(training, content)
            say(f"Going on from step {training.progress.step:,} (epoch {training.progress.epoch + 1})")
        classifier.save_description(model, job.folder, **job.described())
        if not begun:
            fit.save(training)
        with Stop() as stop:
            if not fit.fit(training, listeners, stop=stop):
                say(f"Stopped at step {training.progress.step:,}; saved in {job.folder}: go on with --resume")
                return stop.received
        _test(job, training, test)
    return None


def _test(job: _Job, training: ClassifierTraining, test: Problems) -> None:
    """Write the result of a job that is done."""
    done, model = training.progress, classifier.load_model(job.folder)
    row = {
        "seed": job.seed,
        "epochs": done.epoch,
        "best_epoch": done.best_epoch,
        "valid": done.best,
        **by_length(test.operators, model.right(test)),
        "seconds_per_epoch": done.seconds / done.epoch,
        "seconds": done.seconds,
        "parameters": sum(p.numel() for p in model.parameters()),
        "settings": job.changed(),
        "command": job.command,
    }
    _save(job.folder, job.command, job.seed, job.source, {job.model.encoder: [row]}, row=row)


def _save(
    folder: Path,
    command: str,
    seed: int | None,
    source: Source,
    rows: dict[str, list[dict[str, Any]]],
    **more: Any,
) -> dict[str, Any]:
    return results.save(
        folder / "result.json",
        kind="logic",
        name=folder.name,
        command=command,
        seed=seed,
        seconds=sum(row.get("seconds", 0.0) for some in rows.values() for row in some),
        data=asdict(source) | {"path": source.path and Path(source.path).name},
        encoders=rows,
        published=published(),
        **more,
    )
