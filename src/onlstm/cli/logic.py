"""The command logic: encoders trained on short formulas and tested on longer ones."""

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.console import Answer, Json, Progress, say
from onlstm.cli.inputs import Device, Threads, command_line, set_threads
from onlstm.cli.main import app
from onlstm.cli.train import epochs_shown
from onlstm.errors import UserError
from onlstm.paper.logic.config import ModelConfig, Options, Request, TrainConfig

_NOTE = "Accuracy in %; 12 means 12 or more operators."
_TREES = "F1 in % of trees against the formulas' brackets, by operators of the formula; mean of formulas and seeds."
_QUOTED = "†: not run here, quoted second-hand (Ordered Memory, 2019)."


@app.command
def logic(
    *words: Annotated[str, Parameter(help="With --eval, files of pairs; with --predict, two formulas.")],
    options: Annotated[Options, Parameter(name="*", consume_multiple=True)] = Options(),  # noqa: B008  (frozen)
    eval: Annotated[Path | None, Parameter(help="Test this run on files of pairs, with any six variables.")] = None,
    predict: Annotated[Path | None, Parameter(help="Ask this run for the relation of two formulas.")] = None,
    threads: Threads = None,
    device: Device = "auto",
    json: Json = False,
    model: Annotated[ModelConfig, Parameter(group="Settings of the model")] = ModelConfig(),  # noqa: B008
    train: Annotated[TrainConfig, Parameter(group="Settings of the training")] = TrainConfig(),  # noqa: B008
) -> Answer:
    """Run the paper's experiment on logic: train on short pairs of formulas, test on all, print accuracy by length.

    Two processes can train different encoders or seeds in the same run folder at once; the last to finish prints
    the whole table. An interrupted run continues, bit for bit, with --resume.
    """
    set_threads(threads)
    if eval and not predict:
        return _evaluate(eval, words, options, json, device)
    if predict and not eval:
        return _predict(predict, words, options, json, device)
    if words or eval:
        usage = '`--eval RUN FILES` or `--predict RUN "( not a )" "b"`'
        raise UserError(f"{words[0] if words else '--eval'}: write {usage}, not both")
    typed = frozenset(word.partition("=")[0].lstrip("-").replace("-", "_") for word in sys.argv)
    more: Any = {"model": model, "train": train, "typed": typed, "command": command_line(), "device": device}
    return _train(Request(**vars(options), **more), json)


def _train(request: Request, json: bool) -> Answer:
    from onlstm.paper.logic import experiment, figure

    with Progress(stream=sys.stderr if json else sys.stdout) as progress:
        result = experiment.run(request, progress.say, lambda *part: [epochs_shown(progress, *part)])
    if isinstance(result, int):  # a signal
        sys.exit(128 + result)
    out, picture = request.out, request.out / "logic.svg"
    files.write(picture, figure.svg(result))
    named = {out.name: result}
    lines = [figure.trainings(named).text(), "", figure.accuracies(named).text(), f"{_NOTE} {_QUOTED}"]
    lines += ["", figure.trees(named).text(), _TREES]
    lines.append(f"{out / 'result.json'}, {picture} written")
    return Answer(result.plain() | {"run": out, "figure": [picture]}, lines, json)


def _evaluate(run: Path, files: tuple[str, ...], options: Options, json: bool, device: str) -> Answer:
    from onlstm.paper.logic import figure, trained

    if not files:
        raise UserError(f"--eval {run}: name files of pairs to test it on")
    paths, encoders = list(map(Path, files)), options.encoder or ()
    result = trained.evaluate(run, paths, encoders, lambda line: say(line, json), device)
    lines = [figure.others(result).text(), _NOTE, "", figure.trees({run.name: result}).text(), _TREES]
    if result.wrong_labels:
        lines.append(f"{result.wrong_labels:,} relations in the files are not those of the truth tables.")
    return Answer(vars(result) | {"run": run}, lines, json)


def _predict(run: Path, formulas: tuple[str, ...], options: Options, json: bool, device: str) -> Answer:
    from onlstm.paper.logic import trained

    if len(formulas) != 2:
        raise UserError(f'--predict {run}: two formulas in quotes are needed, such as "( a ( and b ) )" "( not c )"')
    result = trained.predict(run, *formulas, options.encoder or (), lambda line: say(line, json), device)
    line = f"{result.run}: {result.relation}  {result.name}, probability {result.probability:.3f}"
    return Answer(result, [line, f"truth tables: {result.truth}  {result.truth_name}"], json)
