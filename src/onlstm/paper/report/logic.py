"""Relations of formulas, by length: the section of `onlstm logic`'s results."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onlstm.paper.report.result import Keys, Result, Section
from onlstm.paper.report.tables import NONE, network, number, origin, table

_ABOUT = """\
Accuracy in % at telling which of seven relations holds of two propositional formulas (Bowman et al. 2015), by the \
operators in the longer one; 12 means 12 or more. Models learn from short pairs alone and are tested on all lengths, \
with the weights of their best epoch in validation (on every tenth of the short pairs).

- Of several seeds: the mean, and below it the lowest and the highest.
- *ON-LSTM* and *LSTM* read brackets as words; *Tree-LSTM* is given the trees, an upper bound; *majority* answers with \
the relation that is commonest in training.
- *settings that differ*: from those of the authors' run.
- *published*: not run here; from a later paper of the same authors, for the paper itself prints a curve only."""
_LENGTHS = [str(n) for n in range(1, 13)]
_PUBLISHED_OPS = 6  # operators that the published models were trained on
_Row = Mapping[str, Any]


def _logic(results: Sequence[Result]) -> list[str]:
    """Return how to read the tables, then of each set of pairs the runs, the accuracies and what they show."""
    sets: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: -len(result["encoders"])):  # variants of one model last
        sets.setdefault(_pairs(result), []).append(result)
    blocks = [_ABOUT]
    for pairs, group in sets.items():
        blocks += [pairs, *_runs(group), _accuracies(group), *_shown(group)]
        blocks += [f"![Accuracy by length: {each.name}]({each['figure']})" for each in group if each["figure"]]
        blocks += [_commands(group), "\n".join(origin(each, f"{each['seconds'] / 60:.0f} min") for each in group)]
    return blocks


def _pairs(result: Result) -> str:
    """Return which pairs were learnt from and tested on."""
    data, tested = result["data"], {row["n"] for rows in result["encoders"].values() for row in rows}
    where = f"Pairs of `{data['path']}`" if data.get("path") else f"{data['pairs']:,} pairs, not the published ones"
    sizes = " or ".join(f"{n:,}" for n in sorted(tested))
    return f"{where}: trained on at most {data['max_train_ops']} operators, tested on {sizes} pairs."


def _rows(group: Sequence[Result]) -> Iterator[tuple[str, list[_Row]]]:
    """Yield each encoder's name, with its file's if there are several, and the rows of its seeds; the majority once."""
    found: dict[str, list[_Row]] = {}
    for result in group:
        for encoder, rows in result["encoders"].items():
            name = {"tree-lstm": "Tree-LSTM"}.get(encoder) or network(encoder, ()).strip()
            alone = len(group) == 1 or encoder == "majority"
            found.setdefault(name if alone else f"{name}, {result.name}", rows)
    yield from sorted(found.items(), key=lambda item: item[0] == "majority")


def _runs(group: Sequence[Result]) -> list[str]:
    """Return the table of how models were trained; nothing if none was."""
    head = ["model", "seeds", "epochs", "best", "parameters", "s/epoch", "validation", "settings that differ"]
    lines = []
    for name, rows in _rows(group):
        if name != "majority":
            facts = [[row.get(key) for row in rows] for key in ("epochs", "best_epoch", "parameters")]
            line = [name, ", ".join(str(row["seed"]) for row in rows), *map(_range, facts)]
            line += [
                _range([row[key] for row in rows], digits) for key, digits in (("seconds_per_epoch", 0), ("valid", 1))
            ]
            lines.append([*line, "; ".join(dict.fromkeys(map(_settings, rows)))])
    return [table(head, lines)] if lines else []


def _settings(row: _Row) -> str:
    settings = (row.get("settings") or {}).items()
    return ", ".join(f"{key} {value}" for key, value in settings if key != "epochs") or "none"


def _accuracies(group: Sequence[Result]) -> str:
    """Return the table of accuracies by length, ours and the published."""
    lines = []
    for name, rows in _rows(group):
        mean = _mean(rows)
        lines.append([name, *(number(mean.get(n), 1) for n in _LENGTHS)])
        if len(rows) > 1:
            lines.append(["lowest–highest", *(_range([row["by_length"].get(n) for row in rows], 1) for n in _LENGTHS)])
    if group[0]["data.max_train_ops"] == _PUBLISHED_OPS:
        for name, row in group[0]["published"].items():
            lines.append([f"{name}, published", *(number(row.get(n), 0) for n in _LENGTHS)])
    return table(["operators", *_LENGTHS], lines)


def _shown(group: Sequence[Result]) -> list[str]:
    """Return how each ON-LSTM compares with the published one and with an LSTM, at lengths it was not trained on."""
    stock = next((each for each in group if each["encoders.lstm"]), None)
    lines = []
    for result in group:
        ops, said = result["data.max_train_ops"], []
        ours = {n: value for n, value in _mean(result["encoders.onlstm"] or []).items() if int(n) > ops}
        if ops == _PUBLISHED_OPS:
            said += _above(_minus(ours, result["published.ON-LSTM"] or {}))
        if other := result if result["encoders.lstm"] else stock:
            whose = "the LSTM" if other is result else f"the LSTM of {other.name}"
            said += _grows(_minus(ours, _mean(other["encoders.lstm"])), whose)
        if said:
            alone = len(result["encoders.onlstm"]) == 1
            said += ["One seed: how much seeds differ is not known."] * alone
            lines.append(f"- {result.name}: {' '.join(said)}")
    return ["\n".join(lines)] if lines else []


def _above(differences: Mapping[str, float]) -> list[str]:
    below = {n: value for n, value in differences.items() if value <= 0}
    if not differences:
        return []
    if below:
        where = f"at {len(differences) - len(below)} of {len(differences)} lengths, not at " + _listed(below)
    else:
        where = "at every length: " + _listed(differences)
    return [f"ON-LSTM is above the published ON-LSTM {where}."]


def _grows(gaps: Mapping[str, float], whose: str) -> list[str]:
    if len(gaps) < 2:
        return []
    slope = statistics.linear_regression(list(map(int, gaps)), list(gaps.values())).slope
    verb = "grows" if slope > 0 else "does not grow"
    return [f"Its lead over {whose} {verb} with length (by least squares {slope:+.2f} an operator): {_listed(gaps)}."]


def _listed(differences: Mapping[str, float]) -> str:
    return ", ".join(f"{n} ({value:+.1f})" for n, value in differences.items())


def _minus(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    return {n: value - theirs[n] for n, value in ours.items() if n in theirs}


def _mean(rows: Sequence[_Row]) -> dict[str, float]:
    """Return the mean accuracy over the seeds at each length that was tested."""
    known = {n: [row["by_length"].get(n) for row in rows] for n in _LENGTHS}
    return {n: statistics.fmean(values) for n, values in known.items() if values and None not in values}


def _range(values: Sequence[float | None], digits: int = 0) -> str:
    """Return the lowest and the highest, as one number if they are the same."""
    known = [value for value in values if value is not None]
    ends = (min(known), max(known)) if known else ()
    return "–".join(dict.fromkeys(f"{value:,.{digits}f}" for value in ends)) or NONE


def _commands(group: Sequence[Result]) -> str:
    """Return the commands that began the trainings: those that went on with them name no settings."""
    lines = []
    for result in group:
        rows = [row for rows in result["encoders"].values() for row in rows]
        begun = dict.fromkeys(row["command"] for row in rows if row.get("command"))
        lines += [f"{command}  # {result.name}" for command in begun or [result["command"]]]
    return "\n".join(["```sh", *lines, "```"])


_ROWS: Keys = {
    int: "epochs n best_epoch? parameters?",
    float: "valid seconds_per_epoch",
    dict: "by_length settings?",
    str: "command?",
}
LOGIC = Section(
    title="Logical inference",
    tables={"logic": ""},
    keys={dict: "data encoders published", int: "data.max_train_ops", str: "data.path? figure?"},
    entries={f"encoders.{name}": _ROWS for name in ("onlstm", "lstm", "tree-lstm", "majority")},
    paragraphs=_logic,
)
