"""The command logic: encoders trained on short formulas and tested on longer ones."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import Json, Progress, emit, many, say
from onlstm.cli.inputs import Threads, command_line, set_threads
from onlstm.cli.main import app
from onlstm.cli.train import epochs_shown
from onlstm.errors import UserError
from onlstm.paper.logic.config import ModelConfig, Source, TrainConfig

_OUT = Path("runs/logic")


@app.command
def logic(
    *words: Annotated[str, Parameter(help="With --eval, files of pairs; with --predict, two formulas.")],
    data: Annotated[
        Path | None, Parameter(help="Folder or archive with files train0 … test12 (default: pairs are generated).")
    ] = None,
    encoder: Annotated[
        list[str] | None, many("onlstm, lstm, tree-lstm, majority, or module:name of your own (default: these four).")
    ] = None,
    seeds: Annotated[int | None, Parameter(help="Seeds per encoder (default: 3).")] = None,
    seed: Annotated[int, Parameter(help="The first seed.")] = 0,
    max_train_ops: Annotated[int, Parameter(help="Train on formulas of at most this many operators.")] = 6,
    pairs: Annotated[int, Parameter(help="Pairs to generate without --data.")] = 500_000,
    epochs: Annotated[int | None, Parameter(help="Passes over the pairs (default: 50).")] = None,
    out: Annotated[Path, Parameter(help="Run folder, with a subfolder for each encoder and seed.")] = _OUT,
    resume: Annotated[bool, Parameter(help="Continue the run in --out, with its settings.")] = False,
    eval: Annotated[Path | None, Parameter(help="Test this run on files of pairs, with any six variables.")] = None,
    predict: Annotated[Path | None, Parameter(help="Ask this run for the relation of two formulas.")] = None,
    threads: Threads = None,
    json: Json = False,
    model: Annotated[ModelConfig, Parameter(group="Settings of the model")] = ModelConfig(),  # noqa: B008  (frozen)
    train: Annotated[TrainConfig, Parameter(group="Settings of the training")] = TrainConfig(),  # noqa: B008
) -> None:
    """Run the paper's experiment on logic: train on short pairs of formulas, test on all, print accuracy by length.

    Two processes can train different encoders or seeds in the same run folder at once; the last to finish prints
    the whole table. An interrupted run continues, bit for bit, with --resume.
    """
    started = time.perf_counter()
    set_threads(threads)
    if eval and not predict:
        _evaluate(eval, words, encoder or (), started, json)
    elif predict and not eval:
        _predict(predict, words, encoder or (), started, json)
    elif words or eval:
        usage = '`--eval RUN FILES` or `--predict RUN "( not a )" "b"`'
        raise UserError(f"{words[0] if words else '--eval'}: write {usage}, not both")
    else:
        for option, value, least in (("--seeds", seeds, 1), ("--seed", seed, 0)):
            if value is not None and value < least:
                raise UserError(f"{option} {value}: at least {least} is needed")
        source = Source(path=str(data.resolve()) if data else None, pairs=pairs, max_train_ops=max_train_ops)
        asked = range(seed, seed + (seeds or 3)) if seeds or seed else ()
        settings = {"source": source, "model": model, "train": train, "epochs": epochs}
        _train(out, resume, started, json, encoders=encoder or (), seeds=asked, **settings)


def _train(out: Path, resume: bool, started: float, json: bool, **asked: Any) -> None:
    from onlstm.paper.logic import experiment, figure

    request = experiment.Request(out=out, resume=resume, command=command_line(), **asked)
    with Progress(stream=sys.stderr if json else sys.stdout) as progress:
        result = experiment.run(request, progress.say, lambda: [epochs_shown(progress)])
    if isinstance(result, int):  # a signal
        sys.exit(128 + result)
    picture = out / "logic.svg"
    files.write(picture, figure.svg(result))
    if json:
        emit("logic", started, None, result, run=out, figure=[picture])
        return
    print(figure.trainings({out.name: result}).text(), figure.accuracies({out.name: result}).text(), sep="\n\n")
    print("Accuracy in %; 12 means 12 or more operators. †: not run here, quoted second-hand (Ordered Memory, 2019).")
    print(f"{out / 'result.json'}, {picture} written")


def _evaluate(run: Path, files: tuple[str, ...], encoders: Sequence[str], started: float, json: bool) -> None:
    from onlstm.paper.logic import experiment, figure

    if not files:
        raise UserError(f"--eval {run}: name files of pairs to test it on")
    result = experiment.evaluate(run, list(map(Path, files)), encoders, lambda line: say(line, json))
    if json:
        emit("logic", started, None, result, run=run)
        return
    print(figure.others(result).text())
    print("Accuracy in %; 12 means 12 or more operators.")
    if result.wrong_labels:
        print(f"{result.wrong_labels:,} relations in the files are not those of the truth tables.")


def _predict(run: Path, formulas: tuple[str, ...], encoders: Sequence[str], started: float, json: bool) -> None:
    from onlstm.paper.logic import experiment

    if len(formulas) != 2:
        raise UserError(f'--predict {run}: two formulas in quotes are needed, such as "( a ( and b ) )" "( not c )"')
    result = experiment.predict(run, *formulas, encoders, lambda line: say(line, json))
    if json:
        emit("logic", started, None, result)
        return
    print(f"{result.run}: {result.relation}  {result.name}, probability {result.probability:.3f}")
    print(f"truth tables: {result.truth}  {result.truth_name}")
