"""The commands train and recipes."""

import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, ArgumentCollection, Parameter
from cyclopts.config import Dict

from onlstm.cli.console import Answer, Json, Progress, many
from onlstm.cli.inputs import Device, Text, Threads, command_line, set_threads, sources
from onlstm.cli.main import app, whole_numbers
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig, check_settings
from onlstm.recipe import Recipe, Settings, names, read
from onlstm.text.config import TextConfig
from onlstm.train.config import TrainConfig

if TYPE_CHECKING:
    from onlstm.train.fit import Listener, Record


def _settings(of: str) -> Parameter:
    return Parameter(group=f"Settings of the {of} (default: the recipe's)", show_default=False)


_SETTINGS = ("seed", "text", "model", "train")
"""The keys of a recipe that are settings of a run; the others describe the recipe."""


@app.command
def recipes(name: Annotated[str | None, Parameter(help="Print this recipe in full.")] = None) -> None:
    """List the recipes that `onlstm train` knows, or print one."""
    import yaml

    if name:
        print(yaml.safe_dump(read(name), sort_keys=False, allow_unicode=True, width=110), end="")
        return
    for recipe in map(read, names()):
        print("{name}\n    {about}\n    {command}\n    expect: {expected}".format(**recipe))


@app.command
def train(
    *words: Text,
    recipe: Annotated[
        str | None, Parameter(help="A name from `onlstm recipes`, or a YAML file (default: quick).")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Run folder (default: runs/RECIPE).")] = None,
    resume: Annotated[bool, Parameter(help="Continue the run in --out.")] = False,
    seed: Annotated[int, Parameter(help="Seed (default: the recipe's).", show_default=False)] = 0,
    try_lr: Annotated[
        list[float] | None, many("Train an epoch with each of these learning rates first, and take the best.")
    ] = None,
    minutes: Annotated[
        float | None,
        Parameter(help="Train for so much processor time: an epoch is timed beforehand, and the last one cut short."),
    ] = None,
    threads: Threads = None,
    device: Device = "auto",
    tensorboard: Annotated[bool, Parameter(help="Write TensorBoard files too (extra `log`).")] = False,
    json: Json = False,
    text: Annotated[TextConfig, _settings("text")] = TextConfig(),  # noqa: B008  (frozen)
    model: Annotated[LMConfig, _settings("model")] = LMConfig(),  # noqa: B008
    train: Annotated[TrainConfig, _settings("training")] = TrainConfig(),  # noqa: B008
) -> Answer | None:
    """Train a language model on text; the run folder holds the best model, a checkpoint, a log and the result.

    Settings that are not given are the recipe's. An interrupted run continues, bit for bit, with --resume.
    `torchrun --nproc-per-node N -m onlstm train …` splits the batch over N processes.
    """
    from onlstm.paper import language_modelling as task
    from onlstm.paper import results, trials

    set_threads(threads)
    run = out or Path("runs") / Path(recipe or "quick").stem
    about = {key: value for key, value in _base(recipe, run, resume).items() if key not in _SETTINGS}
    request = task.Request(
        sources=sources(*words),
        recipe=Recipe(**about, seed=seed, text=text, model=model, train=train),
        out=run,
        resume=resume,
        device=device,
        command=command_line(),
    )
    if resume and recipe:
        raise UserError(f"--recipe {recipe}: {run} has its own; leave it out with --resume")
    if os.environ.get("RANK", "0") != "0":  # one of torchrun's processes, and not the first
        task.run(request)
        return None
    with Progress(stream=sys.stderr if json else sys.stdout) as progress:
        listeners = [epochs_shown(progress)] + ([_tensorboard(run)] if tensorboard else [])
        settled: task.Request | int = request
        if (try_lr or minutes is not None) and not resume:
            settled = trials.settled(request, try_lr or (), minutes, progress.say, [epochs_shown(progress)])
        if isinstance(settled, int):  # a signal
            sys.exit(128 + settled)
        result = task.run(settled, progress.say, listeners, lambda done, total: progress.update(done / total))
    if isinstance(result, int):  # a signal
        sys.exit(128 + result)
    assert result
    numbers = result.numbers
    test = f", test {numbers.test_perplexity:.2f}" if numbers.test_perplexity else ""
    line = f"Perplexity: valid {numbers.valid_perplexity:.2f}{test} (epoch {numbers.best_epoch}); model in {run}"
    return Answer({"run": run, "result": results.read(run / "result.json")}, [line], json, seed)


def _with_recipe(command: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give the options that were not typed the values of the recipe or, with --resume, of the run."""
    typed = {
        argument.name: argument.tokens[0].value for argument in arguments if argument.tokens and not argument.children
    }
    name, out = typed.get("--recipe"), typed.get("--out")
    base = _base(name, Path(out or f"runs/{Path(name or 'quick').stem}"), "--resume" in typed)
    settings = {key: value for key, value in base.items() if key in _SETTINGS}
    if text := settings.get("text"):  # of which vocab_size: null is the default, and no word of a command line
        settings["text"] = {key: value for key, value in text.items() if value is not None}
    if "model" in settings and "--model.hidden-size" in typed:  # a list of sizes, and a number for all layers
        settings["model"] = {key: value for key, value in settings["model"].items() if key != "hidden_size"}
    if "--resume" in typed and "--train.epochs" in typed:  # more epochs are whole ones
        settings["train"] = {key: value for key, value in settings["train"].items() if key != "last_epoch"}
    rnn = typed.get("--model.rnn") or settings.get("model", {}).get("rnn", LMConfig.rnn)
    check_settings(rnn, [name.removeprefix("--model.").replace("-", "_") for name in typed if "--model." in name])
    Dict({commands[-1]: settings}, source=f"{base['name']}.yaml")(command, commands, arguments)
    whole_numbers(command, commands, arguments)


def _base(recipe: str | None, run: Path, resume: bool) -> Settings:
    """Return the settings of a recipe or, to continue, of a run."""
    if not resume:
        return read(recipe or "quick")
    from onlstm.train import checkpoint

    recipe_of_run = checkpoint.load(run).get("about", {}).get("recipe")
    if not isinstance(recipe_of_run, dict):
        raise UserError(
            f"{run / checkpoint.NAME}: not of onlstm train; continue it with the command that it was made by"
        )
    return recipe_of_run


app["train"].config = _with_recipe


def epochs_shown(progress: Progress, number: int = 1, count: int = 1) -> "Listener":
    """Return a listener of the trainer, of the one with this number of so many, that shows its steps and epochs."""
    words, moment, speed = math.inf, 0.0, 0.0  # of the step before, in this process

    def show(record: "Record") -> None:
        nonlocal words, moment, speed
        numbers = record.numbers
        if record.event == "epoch":
            best = "" if numbers["best_epoch"] == record.epoch else f"  (best: epoch {numbers['best_epoch']})"
            averaged = "  averaged" if numbers.get("averaging") else ""
            progress.say(f"epoch {record.epoch:3}  {_scores(numbers)}  {record.seconds:7.0f} s{averaged}{best}")
            return
        now = time.perf_counter()
        if numbers["words"] > words:  # smoothed over the last twenty steps or so
            rate = (numbers["words"] - words) / (now - moment)
            speed = 0.95 * speed + 0.05 * rate if speed else rate
        words, moment = numbers["words"], now
        pace = f"{speed:,.0f} tokens/s, " if speed else ""
        note = f"epoch {record.epoch}, {_learnt(numbers)}, {pace}lr {numbers['lr']:.3g}"
        progress.update((number - 1 + numbers["done"]) / count, note=note)

    return show


def _scores(numbers: Mapping[str, float]) -> str:
    if "valid_accuracy" in numbers:
        return f"train {_learnt(numbers)}  valid {numbers['valid_accuracy']:5.1f}"
    return f"train {math.exp(numbers['train_loss']):8.2f}  valid {numbers['valid_perplexity']:8.2f} perplexity"


def _learnt(numbers: Mapping[str, float]) -> str:
    if "train_accuracy" in numbers:
        return f"loss {numbers['train_loss']:.3f} accuracy {numbers['train_accuracy']:.1f}"
    return f"loss {numbers['mean_loss']:.3f}, perplexity {math.exp(min(numbers['mean_loss'], 99)):.1f}"


def _tensorboard(folder: Path) -> "Listener":
    """Return a listener that writes scalars for TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("--tensorboard needs the extra `log`: pip install 'onlstm[log]'") from None
    writer: Any = None

    def write(record: "Record") -> None:
        nonlocal writer
        if record.event != "tick":
            writer = writer or SummaryWriter(folder / "tensorboard")
            for name, value in {**record.numbers, "seconds": record.seconds}.items():
                writer.add_scalar(f"{record.event}/{name}", value, record.step)
            writer.flush()

    return write
