"""The command evaluate: the paper's Table 2 for any run and treebank."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onlstm.cli.console import Answer, Json, Progress
from onlstm.cli.inputs import Device, Threads, check_outputs, command_line, set_threads
from onlstm.cli.main import app
from onlstm.errors import UserError
from onlstm.models import TREES
from onlstm.paper.parsing.request import Options, Request

if TYPE_CHECKING:
    from onlstm.paper.parsing.content import Evaluation, Row

_LABELS = 12  # that are printed


@app.command
def evaluate(
    *paths: Annotated[
        Path, Parameter(help="Run folders (several: seeds), then the treebank: a file, a folder, an archive, or -.")
    ],
    options: Annotated[Options, Parameter(name="*", consume_multiple=True, show_default=False)] = Options(),  # noqa: B008  (frozen)
    threads: Threads = None,
    device: Device = "auto",
    json: Json = False,
) -> Answer:
    """Score the trees of runs, or anybody's, against a treebank, beside the baselines that every parser must beat.

    With --dev, grammars also have labelled scores: each induced label counts as the gold label that it goes with most
    often there. Runs of several kinds also vote together.
    """
    if not paths:
        raise UserError("evaluate: name a run folder and a treebank")
    inputs = [*paths, *filter(None, (options.trees, options.dev)), Path(options.profile)]
    check_outputs({"--words": (options.words, "words.txt"), "--out": (options.out, "results/NAME.json")}, inputs)
    set_threads(threads)
    from onlstm.paper.parsing.evaluate import run
    from onlstm.paper.parsing.system import Watch

    own = () if options.trees or options.layers or options.gates else (Path(TREES),)
    runs = paths[:-1] or own
    request = Request(**vars(options), runs=runs, treebank=paths[-1], command=command_line(), device=device)
    with Progress() as progress:
        evaluation = run(request, Watch(progress.say, progress.update))
    return Answer(evaluation, _report(evaluation), json)


def _report(evaluation: "Evaluation") -> Iterator[str]:
    """Yield what was read, one table per rule, and the row to report."""
    from onlstm.paper.parsing.table import below_right, facts, headline, paired, published_ccm, table
    from onlstm.trees.f1 import RULES

    yield facts(evaluation).replace("`", "")
    rows = paired(evaluation.rows)
    for rule in dict.fromkeys(row.rule for row in rows):
        yield f"\nRule {rule}: {RULES[rule].about}"
        yield table([row for row in rows if row.rule == rule], evaluation.headline).text()
    if any(row.system == "ccm" for row in rows):
        yield f"\n{published_ccm()}"
    if chosen := evaluation.headline:
        key = (chosen.rule, chosen.system, chosen.layer, chosen.decoder, chosen.run)
        yield "\n" + headline(chosen).replace("`", "").replace("*", "") + below_right(evaluation.rows, chosen)
        yield from _details(next(r for r in evaluation.rows if (*r.key, r.run) == key and r.subset == "all"))
    elif evaluation.best:
        yield "\nNo headline: name one layer with --layers, or let another treebank choose with --dev."


def _details(row: "Row") -> Iterator[str]:
    """Yield a row's recall by label, F1 by length, and what is known about its labels and confidence."""
    from onlstm.paper.tables import number

    tags = sorted(row.tags.items(), key=lambda item: -item[1][1])
    recall = ", ".join(f"{tag} {100 * right / total:.1f} of {total:,}" for tag, (right, total) in tags[:_LABELS])
    more = f", and {len(tags) - _LABELS} rarer ones (--json)" if len(tags) > _LABELS else ""
    yield f"  recall by label{' of the best run' * (row.runs > 1)}: {recall}{more}"
    lengths = ", ".join(f"{low}-{high}: {f1:.1f} of {n:,}" for low, high, f1, n in row.by_length)
    yield f"  F1 by length in words: {lengths}"
    if row.labelled_f1 is not None:
        right = f"{number(row.label_accuracy)} % of the labels of correct brackets are right"
        yield f"  labelled F1: {row.labelled_f1:.1f}; {right} (what each stands for: --dev)"
    if sure := row.confidence:
        halves = f"{sure.upper:.1f} of the surer half of each length, {sure.lower:.1f} of the other"
        yield f"  precision of spans: {halves}"
