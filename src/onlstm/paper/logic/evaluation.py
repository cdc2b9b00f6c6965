"""What trained classifiers say of other files (`evaluate`) and of a single pair (`predict`)."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from onlstm.errors import UserError
from onlstm.lm import folder as store
from onlstm.paper.logic import classifier, formulas
from onlstm.paper.logic.classifier import Problems
from onlstm.paper.logic.data import Say, by_length, said
from onlstm.paper.logic.formulas import Pair


def evaluate(run: Path, paths: Iterable[Path], encoders: Sequence[str] = (), say: Say = lambda line: None) -> Any:
    """Return what the classifiers of a run make of other files of the format."""
    given = list(paths)
    pairs, names = formulas.rename(pair for path in given for pair in formulas.read(path))
    if not pairs:
        raise UserError(f"{', '.join(map(str, given)) or '--eval'}: no pairs to test")
    if names:
        say(said(names))
    wrong = sum(formulas.relation(pair.left, pair.right) != pair.relation for pair in pairs)
    problems = Problems.of(pairs)
    rows: dict[str, list[dict[str, Any]]] = {}
    for folder in runs(run, encoders):
        model, seed = classifier.load_model(folder), classifier.read_description(folder)["seed"]
        right = model.right(problems)
        row = {"seed": seed, "run": folder.name, "accuracy": 100 * float(right.mean())}
        rows.setdefault(model.config.encoder, []).append(row | by_length(problems.operators, right, range(13)))
    return {"files": list(map(str, given)), "renamed": names, "wrong_labels": wrong, "encoders": rows}


def predict(run: Path, left: str, right: str, encoders: Sequence[str] = ()) -> dict[str, Any]:
    """Return the relation of two formulas that a run's best classifier (by validation) finds, and the true one."""
    sides = []
    for name, text in (("left", left), ("right", right)):
        try:
            sides.append(formulas.check(text, None))
        except UserError as error:
            raise UserError(f"{name} formula, {error}") from None
    (pair,), names = formulas.rename([Pair("#", *sides)])
    folder = max(runs(run, encoders), key=_valid)
    model = classifier.load_model(folder)
    shares = model.logits(Problems.of([pair]))[0].double().softmax(-1).tolist()
    found = dict(zip(formulas.RELATIONS, shares, strict=True))
    best = max(found, key=found.__getitem__)
    truth = formulas.relation(pair.left, pair.right)
    return {
        "relation": best,
        "name": formulas.NAMES[best],
        "probability": found[best],
        "truth": truth,
        "truth_name": formulas.NAMES[truth],
        "probabilities": found,
        "renamed": names,
        "run": str(folder),
    }


def runs(run: Path, encoders: Sequence[str] = ()) -> list[Path]:
    """Return the folders of a run's classifiers, of the encoders named or all; `run` may be one of them."""
    if not run.is_dir():
        raise UserError(f"{run}: no such run folder")
    within = sorted(path.parent for path in run.glob(f"*/{store.CONFIG}"))
    folders = [run] if (run / store.CONFIG).exists() else within
    if not folders:
        raise UserError(f"{run}: not a run of `onlstm logic`: no {store.CONFIG} in it or its folders")
    known = {folder: classifier.read_description(folder)["model"]["encoder"] for folder in folders}
    chosen = [folder for folder in folders if not encoders or known[folder] in encoders]
    if not chosen:
        raise UserError(f"--encoder {' '.join(encoders)}: {run} has only {', '.join(sorted(set(known.values())))}")
    return chosen


def result(folder: Path) -> dict[str, Any] | None:
    """Return a classifier's row of the table; None if it is not done."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        row: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))["row"]
        return row
    return None


def _valid(folder: Path) -> float:
    row = result(folder)
    return row["valid"] if row else -1.0
