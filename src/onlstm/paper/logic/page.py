"""Logical inference on the pages: the paper's Figure 3 in numbers, ours beside the published."""

from collections.abc import Sequence

from onlstm.paper.logic.content import Experiment
from onlstm.paper.logic.figure import accuracies, trainings, trees
from onlstm.paper.results import Result
from onlstm.paper.tables import named

Results = Sequence[Result[Experiment]]


def summary(results: Results) -> list[str]:
    """Return accuracies by length, and the figure if a result names one."""
    blocks = []
    for pairs, group in _by_pairs(results):
        blocks += [f"{pairs}:", accuracies(_named(group)).markdown()]
        blocks += [f"![Accuracy by length: {r.file}]({r.content.figure})" for r in group if r.content.figure]
    return blocks


def details(results: Results) -> list[str]:
    """Return how the models of each set of pairs were trained, and the F1 of their trees."""
    blocks = []
    for pairs, group in _by_pairs(results):
        blocks += [f"### {pairs}", trainings(_named(group)).markdown()]
        if (table := trees(_named(group))).rows:
            blocks += [
                "F1 in % of trees against the formulas' brackets, by operators of the formula:",
                table.markdown(),
            ]
    return blocks


def commands(result: Result[Experiment]) -> list[str]:
    """Return the commands that began the trainings: those that continued them name no settings."""
    rows = [row for rows in result.content.encoders.values() for row in rows]
    return list(dict.fromkeys(row.command for row in rows if row.command)) or [result.origin.command]


def _by_pairs(results: Results) -> list[tuple[str, list[Result[Experiment]]]]:
    """Return the results on each set of pairs, those with most encoders first."""
    sets: dict[str, list[Result[Experiment]]] = {}
    for result in sorted(results, key=lambda result: -len(result.content.encoders)):
        data, rows = result.content.data, [row for rows in result.content.encoders.values() for row in rows]
        name = named(data.path) if data.path else f"{data.pairs:,} generated pairs"
        tested = " or ".join(f"{n:,}" for n in sorted({row.n for row in rows}))
        about = f"{name}: trained on at most {data.max_train_ops} operators, tested on {tested} pairs"
        sets.setdefault(about, []).append(result)
    return list(sets.items())


def _named(group: Results) -> dict[str, Experiment]:
    return {result.file: result.content for result in group}
