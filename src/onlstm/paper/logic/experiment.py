"""`onlstm logic`: encoders trained on short pairs of formulas and tested on longer ones. The paper's section 5.4.

A run folder holds a folder for each encoder and seed (config.json, model.safetensors, trainer.pt, log.jsonl and, when
it is finished, result.json) and the result.json of all that are. Several processes can work in it at once.
"""

import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from onlstm import __version__, files, memory
from onlstm.device import find
from onlstm.errors import UserError
from onlstm.folder import CONFIG, FORMAT_VERSION, WEIGHTS, read_config
from onlstm.paper import results
from onlstm.paper.logic import formulas, induced
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import ModelConfig, Request, Source, TrainConfig
from onlstm.paper.logic.content import MAJORITY, Experiment, Induced, Row, Tested
from onlstm.paper.logic.data import Data
from onlstm.paper.logic.embedded import CPU
from onlstm.paper.logic.encoders import check_trust
from onlstm.paper.logic.formulas import Say
from onlstm.paper.logic.training import ClassifierTraining
from onlstm.paper.published import published
from onlstm.records import plain, typed
from onlstm.train import checkpoint, fit
from onlstm.train.fit import Listener

ENCODERS, SEEDS = ("onlstm", "lstm", "tree-lstm"), 3
_FREE = ("epochs", "checkpoint_minutes", "log_steps")
"""Settings that may change when a training continues."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One encoder and seed, as config.json in its folder describes it."""

    model: ModelConfig = ModelConfig()  # noqa: RUF009  (frozen)
    source: Source = Source()  # noqa: RUF009
    train: TrainConfig = TrainConfig()  # noqa: RUF009
    seed: int = 0
    command: str = ""
    """The one that began it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the variables of its files are called in training; empty if they are a to f there too."""

    @property
    def known(self) -> Mapping[str, str]:
        """What variables are called in training, by their names in the files."""
        return self.variables or dict(zip(formulas.VARIABLES, formulas.VARIABLES, strict=True))

    @classmethod
    def read(cls, folder: Path) -> "Job":
        if not (folder / CONFIG).is_file():
            raise UserError(f"{folder}: not a run of `onlstm logic`: no {CONFIG} there")
        described = read_config(folder)
        if described.get("kind") != "logic":
            raise UserError(f"{folder}: a run of another command, not of `onlstm logic`")
        return typed(cls, described, str(folder / CONFIG))

    def write(self, folder: Path) -> None:
        head = {"format_version": FORMAT_VERSION, "kind": "logic", "onlstm_version": __version__}
        files.write(folder / CONFIG, files.json_text(head | plain(self)) + "\n")

    def changed(self) -> dict[str, Any]:
        """Return the settings that are not the authors'."""
        own = _differences(self.model, ModelConfig(encoder=self.model.encoder))
        return own | _differences(self.train, TrainConfig())


def jobs(run: Path, encoders: Sequence[str] = ()) -> dict[Path, Job]:
    """Return the jobs of a run, of the encoders named or all, by folder; `run` may be the folder of one."""
    if not run.is_dir():
        raise UserError(f"{run}: no such run folder")
    folders = [run] if (run / CONFIG).exists() else sorted(path.parent for path in run.glob(f"*/{CONFIG}"))
    if not folders:
        raise UserError(f"{run}: not a run of `onlstm logic`: no {CONFIG} in it or its folders")
    every = {folder: Job.read(folder) for folder in folders}
    chosen = {folder: job for folder, job in every.items() if not encoders or job.model.encoder in encoders}
    if not chosen:
        known = ", ".join(sorted({job.model.encoder for job in every.values()}))
        raise UserError(f"--encoder {' '.join(encoders)}: {run} has only {known}")
    return chosen


def load_model(folder: Path, device: torch.device = CPU) -> Classifier:
    """Return the classifier of a job with its best weights, in evaluation mode."""
    path, config = folder / WEIGHTS, Job.read(folder).model
    try:
        tensors = load_file(path)
        if config.least_bytes > 4 * sum(tensor.numel() for tensor in tensors.values()):  # before memory is taken
            raise UserError(f"{path}: damaged, or does not fit {CONFIG} (which has larger sizes)")
        model = Classifier(config)
        model.to(next(iter(tensors.values())).dtype).load_state_dict(tensors)
    except FileNotFoundError:
        raise UserError(
            f"{path}: missing; was training cut off before its first epoch? Continue with --resume"
        ) from None
    except (SafetensorError, OSError, RuntimeError, StopIteration) as error:
        raise UserError(f"{path}: damaged, or does not fit {CONFIG} ({str(error).splitlines()[0]})") from None
    return model.to(device).eval()


def result(folder: Path) -> Row | None:
    """Return the row of a job; None if it is not finished."""
    with suppress(UserError):
        record = typed(Experiment, results.read(folder / "result.json"), str(folder))
        return next(row for rows in record.encoders.values() for row in rows)
    return None


def run(
    request: Request, say: Say = lambda line: None, listeners: Callable[[int, int], Sequence[Listener]] = lambda *_: ()
) -> Experiment | signal.Signals:
    """Train and test what is asked for and return all that is finished, or the signal that ended it early.

    `listeners` makes those of one job from its number, from 1, and that of all.
    """
    memory.keep()
    device, wanted = find(request.device), _wanted(request)
    source = next((job.source for job in wanted.values()), request.source)
    data = Data.load(source, say)
    say(f"{len(data.train):,} pairs to train on, {len(data.valid):,} for validation, {len(data.test):,} to test on.")
    test = Problems.of(data.test)
    for number, (folder, job) in enumerate(wanted.items(), 1):
        name = f"{job.model.encoder}, seed {job.seed}"
        row = result(folder) if request.resume else None
        if row and row.epochs >= job.train.epochs:
            say(f"{name}: already finished")
            continue
        say(f"{name} ({number} of {len(wanted)})")
        if received := _train(folder, job, data, test, request.resume, device, say, listeners(number, len(wanted))):
            return received
    files.make_folder(request.out)  # if the majority alone was asked for
    rows: dict[str, list[Row]] = {name: [] for name in ENCODERS}
    for path in sorted(request.out.glob(f"*/{CONFIG}")):
        if row := result(path.parent):
            rows.setdefault(Job.read(path.parent).model.encoder, []).append(row)
    finished = {name: seeds for name, seeds in rows.items() if seeds}
    trees = induced.without_encoder(induced.sample(data.test))
    return _save(request.out, request.command, None, source, {**finished, MAJORITY: [data.majority()]}, trees)


def _wanted(request: Request) -> dict[Path, Job]:
    """Return what is to be trained, by folder, each with its settings."""
    begun = jobs(request.out) if request.resume else {}
    base = next(iter(begun.values()), Job())
    names = [name for name in request.encoder or ENCODERS if name != MAJORITY]
    chosen = request.seeds is not None or request.seed > 0
    seeds = range(request.seed, request.seed + (request.seeds or SEEDS))
    here = [(job.model.encoder, job.seed) for job in begun.values() if not chosen]
    keys = [key for key in here if not request.encoder or key[0] in names] or list(product(names, seeds))
    check_trust(request.out, [name for name, _ in keys], names)
    wanted = {}
    for name, seed in dict.fromkeys(keys):
        folder = request.out / f"{name.replace(':', '.')}-{seed}"
        new = replace(base, seed=seed, command=request.command, model=replace(base.model, encoder=name))
        wanted[folder] = _updated(begun.get(folder, new), request, folder if folder in begun else None)
        Classifier(wanted[folder].model)  # a mistake in the settings shows now, not after hours
    return wanted


def _updated(job: Job, request: Request, folder: Path | None) -> Job:
    """Return a job with the settings of the request that are no defaults or were typed; few may change in a folder."""
    for part in ("source", "model", "train"):
        before, asked = getattr(job, part), getattr(request, part)
        changes = _differences(asked, getattr(Job(), part))
        typed = {key for key in vars(asked) if {f"{part}.{key}", key if part != "model" else ""} & request.typed}
        changes |= {key: getattr(asked, key) for key in typed}
        for key, value in changes.items():
            if folder and key not in _FREE and value != (was := getattr(before, key)):
                raise UserError(f"{folder}: {part}.{key} was {was}, not {value}; name another --out")
        job = replace(job, **{part: replace(before, **changes)})
    return job


def _differences(settings: object, others: object) -> dict[str, Any]:
    return {key: value for key, value in vars(settings).items() if value != getattr(others, key)}


def _train(
    folder: Path,
    job: Job,
    data: Data,
    test: Problems,
    resume: bool,
    device: torch.device,
    say: Say,
    listeners: Sequence[Listener],
) -> signal.Signals | None:
    """Train a job, test its best weights and write its result; return the signal that ended it early."""
    with checkpoint.lock(folder), fit.Stop() as stop:
        files.remove_temporary(folder, checkpoint.NAME, WEIGHTS, CONFIG, "result.json")
        begun = (folder / checkpoint.NAME).exists()
        if begun and not resume:
            raise UserError(f"{folder}: there is a run already: continue it with --resume, or name another --out")
        torch.manual_seed(job.seed)
        problems = Problems.of(data.train), Problems.of(data.valid)
        training = ClassifierTraining(Classifier(job.model).to(device), *problems, job.train, folder, seed=job.seed)
        training.about = {"digest": data.digest()}
        if begun:
            content = checkpoint.load(folder)
            if content["about"] != training.about:
                raise UserError(f"{folder}: the pairs are no longer those it was trained on; name another --out")
            fit.restore(training, content)
            say(f"Continuing from step {training.progress.step:,} (epoch {training.progress.epoch + 1})")
        replace(job, variables=data.names).write(folder)
        if not begun:
            fit.save(training)
        if not fit.fit(training, listeners, stop=stop):
            again = shlex.join(["onlstm", "logic", "--resume", "--out", str(folder.parent)])
            say(f"Stopped at {training.where} of {folder.name}; saved: continue with {again}")
            return stop.received
        progress, model = training.progress, load_model(folder, device)
        row = Row(
            seed=job.seed,
            epochs=progress.epoch,
            best_epoch=progress.best_epoch,
            valid=progress.best,
            seconds_per_epoch=progress.seconds / progress.epoch,
            seconds=progress.seconds,
            parameters=sum(p.numel() for p in model.parameters()),
            settings=job.changed(),
            command=job.command,
            trees=induced.of_encoder(model.encoder, induced.sample(data.test)),
            **Tested.of(test.operators, model.right(test)),
        )
        _save(folder, job.command, job.seed, job.source, {job.model.encoder: [row]})
    return None


def _save(
    folder: Path,
    command: str,
    seed: int | None,
    source: Source,
    rows: Mapping[str, Sequence[Row]],
    trees: Sequence[Induced] = (),
) -> Experiment:
    quoted = {
        row.row: {length: float(value) for length, value in row.values.items()}
        for row in published("logic")
        if not row.source.startswith("measured")
    }
    name = source.path and Path(source.path).name
    experiment = Experiment(data=replace(source, path=name), encoders=rows, published=quoted, trees=trees)
    about: Any = {"kind": "logic", "name": folder.name, "command": command, "seed": seed}
    about["seconds"] = sum(row.seconds for encoder in rows.values() for row in encoder)
    results.save(folder / "result.json", content=experiment.plain(), **about)
    return experiment
