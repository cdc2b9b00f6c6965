"""What `onlstm logic` does with a trained run: test it on other pairs, or ask it for the relation of two formulas."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onlstm.device import find
from onlstm.errors import UserError
from onlstm.paper.logic import formulas, induced
from onlstm.paper.logic.classifier import Problems
from onlstm.paper.logic.content import Evaluation, OtherRow, Prediction, Tested
from onlstm.paper.logic.encoders import check_trust
from onlstm.paper.logic.experiment import jobs, load_model, result
from onlstm.paper.logic.formulas import Say


def evaluate(
    run: Path,
    paths: Sequence[Path],
    encoders: Sequence[str] = (),
    say: Say = lambda line: None,
    device: str = "auto",
) -> Evaluation:
    """Return how the classifiers of a run do on other files of pairs."""
    place = find(device)
    read = [pair for path in paths for file in formulas.read(path).values() for pair in file]
    if not read:
        raise UserError(f"{', '.join(map(str, paths))}: no pairs to test")
    rows: dict[str, list[OtherRow]] = {}
    known, names = None, dict[str, str]()
    chosen = jobs(run, encoders)
    check_trust(run, [job.model.encoder for job in chosen.values()], encoders)
    for folder, job in chosen.items():
        if job.known != known:  # the first, or trained on other files
            known = job.known
            pairs, names = formulas.rename(read, say, known)
            problems, texts = Problems.of(pairs), induced.sample(pairs)
        model = load_model(folder, place)
        right, trees = model.right(problems), induced.of_encoder(model.encoder, texts)
        tested = Tested.of(problems.operators, right, range(13))
        row = OtherRow(seed=job.seed, run=folder.name, accuracy=100 * float(right.mean()), trees=trees, **tested)
        rows.setdefault(job.model.encoder, []).append(row)
    wrong = sum(pair.truth != pair.relation for pair in pairs)
    about: Any = {"files": list(map(str, paths)), "renamed": names, "wrong_labels": wrong}
    return Evaluation(**about, encoders=rows, trees=induced.without_encoder(texts))


def predict(
    run: Path,
    left: str,
    right: str,
    encoders: Sequence[str] = (),
    say: Say = lambda line: None,
    device: str = "auto",
) -> Prediction:
    """Return the relation of two formulas that the best classifier of a run (by validation) predicts."""
    place = find(device)
    asked = formulas.Pair.checked("#", left, right)
    chosen = jobs(run, encoders)
    check_trust(run, [job.model.encoder for job in chosen.values()], encoders)
    rows = {folder: result(folder) for folder in chosen}
    folder = max(rows, key=lambda folder: row.valid if (row := rows[folder]) else -1.0)
    (pair,), names = formulas.rename([asked], say, chosen[folder].known)
    shares = load_model(folder, place).logits(Problems.of([pair]))[0].cpu().double().softmax(-1).tolist()
    probabilities = dict(zip(formulas.RELATIONS, shares, strict=True))
    best, truth = max(probabilities, key=probabilities.__getitem__), pair.truth
    return Prediction(
        relation=best,
        name=formulas.NAMES[best],
        probability=probabilities[best],
        truth=truth,
        truth_name=formulas.NAMES[truth],
        probabilities=probabilities,
        renamed=names,
        run=str(folder),
    )
