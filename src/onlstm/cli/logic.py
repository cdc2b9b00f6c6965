"""The command logic: encoders trained on short formulas and tested on longer ones."""

import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from onlstm.cli.console import Json, Progress, aligned, json_text, many, say
from onlstm.cli.inputs import Threads, set_threads
from onlstm.cli.main import app
from onlstm.cli.train import epochs_shown
from onlstm.errors import UserError

_OUT = Path("runs/logic")


@app.command
def logic(
    *words: Annotated[str, Parameter(help="With --eval, files of pairs; with --predict, two formulas.")],
    data: Annotated[
        Path | None, Parameter(help="Folder or zip with files train0 … test12 (default: pairs are drawn).")
    ] = None,
    encoder: Annotated[
        list[str] | None, many("onlstm, lstm, tree-lstm, majority, or module:name of your own (default: these four).")
    ] = None,
    seeds: Annotated[int | None, Parameter(help="How many seeds of each encoder (default: 3).")] = None,
    seed: Annotated[int, Parameter(help="The first of them.")] = 0,
    max_train_ops: Annotated[
        int | None, Parameter(help="Train on formulas of at most so many operators (default: 6).")
    ] = None,
    pairs: Annotated[int | None, Parameter(help="Pairs to draw without --data (default: 500000).")] = None,
    epochs: Annotated[int | None, Parameter(help="Passes over the pairs (default: 50).")] = None,
    out: Annotated[Path, Parameter(help="Run folder, with one in it for each encoder and seed.")] = _OUT,
    resume: Annotated[
        bool, Parameter(negative="", help="Go on with the run in --out; what is done is not done again.")
    ] = False,
    eval: Annotated[Path | None, Parameter(help="Test this run on files of pairs, with any six variables.")] = None,
    predict: Annotated[Path | None, Parameter(help="Ask this run for the relation of two formulas.")] = None,
    threads: Threads = None,
    json: Json = False,
    **settings: Annotated[
        dict[str, str],
        Parameter(help="Other settings: --model.chunk-size 5, --model.num-layers 2, --train.schedule cosine, …"),
    ],
) -> None:
    """Print the paper's experiment on logic: accuracy by length, trained on short pairs of formulas, tested on all.

    Two processes can train different encoders or seeds in the same run folder at once; the last to end has all in its
    table. A run that was interrupted goes on, bit for bit, with --resume.
    """
    started = time.perf_counter()
    set_threads(threads)
    if eval and not predict:
        _evaluate(eval, words, encoder or (), started, json)
    elif predict and not eval:
        _predict(predict, words, encoder or (), started, json)
    elif words or eval:
        raise UserError(
            f'{words[0] if words else "--eval"}: say `--eval RUN FILES` or `--predict RUN "( not a )" "b"`, not both'
        )
    else:
        unknown = [name for name, value in settings.items() if name not in ("model", "train") or isinstance(value, str)]
        if unknown:
            raise UserError(f"Unknown option: --{unknown[0]}. (Settings are --model.… and --train.….)")
        for option, value, least in (("--seeds", seeds, 1), ("--seed", seed, 0)):
            if value is not None and value < least:
                raise UserError(f"{option} {value}: at least {least} is needed")
        source = {"path": data and str(data.resolve()), "pairs": pairs, "max_train_ops": max_train_ops}
        chosen: dict[str, Any] = {"model": settings.get("model", {}), "train": settings.get("train", {})}
        if epochs is not None:
            chosen["train"] = {**chosen["train"], "epochs": epochs}
        asked = range(seed, seed + (seeds or 3)) if seeds or seed else ()
        given = {key: value for key, value in source.items() if value is not None}
        _train(given, encoder or (), asked, chosen, out, resume, started, json)


def _train(
    source: dict[str, Any],
    encoders: Any,
    seeds: Any,
    settings: dict[str, Any],
    out: Path,
    resume: bool,
    started: float,
    json: bool,
) -> None:
    from onlstm import files
    from onlstm.paper.logic import experiment, figure

    request = experiment.Request(
        out=out,
        encoders=encoders,
        seeds=seeds,
        source=source,
        settings=settings,
        resume=resume,
        command=" ".join(["onlstm", *sys.argv[1:]]),
    )
    with Progress(stream=sys.stderr if json else sys.stdout) as progress:
        found = experiment.run(request, progress.say, lambda: [epochs_shown(progress)])
    if isinstance(found, int):  # a signal
        sys.exit(128 + found)
    drawn = [out / "logic.svg"]
    files.write(drawn[0], figure.svg(found))
    if figure.png(found, out / "logic.png"):
        drawn.append(out / "logic.png")
    if json:
        more = {key: found[key] for key in ("encoders", "published", "data")}
        print(json_text("logic", started, None, {"run": str(out), **more, "figure": list(map(str, drawn))}))
        return
    print("\n".join(_table(found)))
    print(f"{out / 'result.json'}, {', '.join(map(str, drawn))} written")


def _evaluate(run: Path, paths: tuple[str, ...], encoders: Any, started: float, json: bool) -> None:
    from onlstm.paper.logic import evaluation

    if not paths:
        raise UserError(f"--eval {run}: name files of pairs to test it on")
    found = evaluation.evaluate(run, map(Path, paths), encoders, lambda line: say(line, json))
    if json:
        print(json_text("logic", started, None, {"run": str(run), **found}))
        return
    counts: dict[str, int] = next(iter(found["encoders"].values()))[0]["counts"]
    shown = [n for n, count in counts.items() if count]
    head = ["operators", "seed", *shown, "all"]
    body = [
        [name, str(row["seed"]), *(f"{row['by_length'][n]:.1f}" for n in shown), f"{row['accuracy']:.1f}"]
        for name, rows in found["encoders"].items()
        for row in rows
    ]
    total = ["pairs", "", *(f"{counts[n]:,}" for n in shown), f"{sum(counts.values()):,}"]
    print("\n".join(aligned([head, total, *body])))
    print("Accuracy in %; 12 means 12 or more operators.")
    if found["wrong_labels"]:
        print(f"{found['wrong_labels']:,} relations in the files are not those of the truth tables.")


def _predict(run: Path, words: tuple[str, ...], encoders: Any, started: float, json: bool) -> None:
    from onlstm.paper.logic import data, evaluation

    if len(words) != 2:
        raise UserError(f'--predict {run}: two formulas in quotes are needed, such as "( a ( and b ) )" "( not c )"')
    found = evaluation.predict(run, *words, encoders)
    if json:
        print(json_text("logic", started, None, found))
        return
    if found["renamed"]:
        print(data.said(found["renamed"]))
    print(f"{found['run']}: {found['relation']}  {found['name']}, probability {found['probability']:.3f}")
    verdict = "right" if found["relation"] == found["truth"] else "wrong"
    print(f"truth tables: {found['truth']}  {found['truth_name']}; so it is {verdict}")


def _table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the accuracies by length, ours and the published; with several seeds the mean and the deviation."""
    from onlstm.paper.logic import figure

    ops = found["data"]["max_train_ops"]
    head = ["operators", "seeds", "valid", *map(str, range(1, 13)), "s/epoch"]
    lines = [head]
    for name, seeds in figure.lines(found).items():
        rows = found["encoders"].get(name, [])
        columns = [
            [row["valid"] for row in rows],
            *zip(*seeds, strict=True),
            [row["seconds_per_epoch"] for row in rows],
        ]
        digits = 1 if rows else 0  # the published are whole
        lines.append([name, str(len(rows) or ""), *(_cell(column, statistics.fmean, digits) for column in columns)])
        if len(seeds) > 1:
            lines.append(["", "±", *(_cell(column, statistics.stdev) for column in columns)])
    for line in lines:
        line.insert(3 + min(ops, 12), "|")
    yield from aligned(lines)
    yield "Accuracy in %; 12 means 12 or more operators; pairs left of | are as long as those trained on."
    yield "published: not run here; quoted second-hand (Shen et al. 2019, Ordered Memory)."


def _cell(column: Any, statistic: Any, digits: int = 1) -> str:
    known = [value for value in column if not math.isnan(value)]
    return f"{statistic(known):.{digits}f}" if known else ""
