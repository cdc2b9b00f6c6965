"""Minimal pairs: the sections of what `onlstm syneval`, `blimp` and `agreement` keep with `--out`.

The commands take the rows and columns of their own tables from here.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onlstm.paper.report.result import Keys, Result, Section
from onlstm.paper.report.tables import NONE, commands, network, number, origin, table

PARADIGMS = 67
"""Of the whole of BLiMP."""
Row = Mapping[str, Any]

_NPI, _LEVEL = "Negative polarity items", 0.05
_KNOWN = (
    "*known %*: pairs whose differing words are all in the vocabulary; *on known*: accuracy on these. *p*: McNemar's "
    "exact test; pairs share their words, so it finds differences too easily, and of how much seeds differ it says "
    "nothing."
)
_SYNEVAL = (
    "Accuracy in %: how often the grammatical sentence of one of Marvin & Linzen's (2018) pairs is strictly likelier; "
    "a tie is wrong. A sentence is read alone, as `<eos> w1 … wn .` from a zero state; its words and the period are "
    "scored. All pairs of a row count the same, and so do all that are pooled.\n\n"
    f"{_KNOWN}\n\n"
    "*published*: the paper's Table 3, not run here; both its models were trained on 90 million words of Wikipedia. "
    "That one model is better on a group of rows shows here if it is ahead in more of them than behind, also among "
    f"those with p < {_LEVEL}."
)
_BLIMP = (
    "Accuracy in %: how often the good sentence of a pair of BLiMP (Warstadt et al. 2020) is strictly likelier; a tie "
    "is wrong. All words of a sentence are scored, `<eos>` is not. A phenomenon's accuracy, and that of all, is the "
    f"mean of its paradigms'; the other numbers are of all its pairs.\n\n{_KNOWN}"
)
_AGREEMENT = (
    "Accuracy in %: how often the right form of a verb is strictly likelier than the wrong one, after the words before "
    "it; a tie is wrong. The sets are of Gulordava et al. (2018) and Linzen et al. (2016): *nonsense* is a sentence "
    f"with its words replaced, *attractors* are nouns between subject and verb that want the other form.\n\n{_KNOWN}"
)
_SHOWS = {
    (True, True): "shows",
    (True, False): "shows only with negative polarity items",
    (False, True): "shows only without negative polarity items",
    (False, False): "does not show",
}


def grid(
    found: Row, rows: Callable[[Row], Sequence[Row]], by: Sequence[str], names: Sequence[str] = ("1", "2")
) -> list[list[str]]:
    """Return the head of a table and its lines of numbers: of one run, or of two and how surely they differ.

    Args:
        found: what a command found, with a second run in "compare" or without.
        rows: from what was found of one run to the lines.
        by: the keys that tell lines, and the tests of them, apart.
        names: what the two runs are called.
    """
    tests = {tuple(test.get(key) for key in by): test["p"] for test in found.get("tests", ())}
    runs = [rows(run) for run in (found, found.get("compare")) if run]
    counts = [[(row["ties"], _known(row)) for row in each] for each in runs]
    apart = len(runs) if counts[0] != counts[-1] else 1  # of how many runs ties and known words are listed
    head = _head(names if len(runs) > 1 else [""], apart)
    lines = zip(*runs, strict=True)
    return [head, *(_cells(line, apart, tests.get(tuple(line[0].get(key) for key in by))) for line in lines)]


def syneval_rows(run: Row) -> list[Row]:
    """Return the rows of the table, then those that are pooled."""
    return [*run["rows"], *run["pooled"]]


def blimp_rows(run: Row) -> list[Row]:
    """Return each phenomenon and then its paradigms, last all together."""
    rows: list[Row] = []
    for name, mean in run["phenomena"].items():
        rows.append({"phenomenon": name} | mean)
        rows += [each for each in run["paradigms"] if each["phenomenon"] == name]
    return [*rows, run["all"]]


def agreement_rows(run: Row) -> list[Row]:
    """Return each set and then its parts."""
    return [row for each in run["sets"] for row in (each, *each["parts"])]


def _head(names: Sequence[str], apart: int) -> list[str]:
    accuracy, on = ([f"{column} {name}".strip() for name in names] for column in ("accuracy", "on known"))
    ties, known = ([f"{column} {name}" for name in names] if apart > 1 else [column] for column in ("ties", "known %"))
    return [*accuracy, *["p"] * (len(names) > 1), "pairs", *ties, *known, *on]


def _cells(rows: Sequence[Row], apart: int, p: float | None) -> list[str]:
    pairs = rows[0].get("n") or rows[0]["pairs"]
    return [
        *(number(row["accuracy"], 1) for row in rows),
        *[NONE if p is None else f"{p:.2g}" if p >= 1e-4 else "<1e-4"] * (len(rows) > 1),
        f"{pairs:,}",
        *(f"{row['ties']:,}" for row in rows[:apart]),
        *(number(100 * _known(row) / pairs, 1) for row in rows[:apart]),
        *(number(row["scorable_accuracy"], 1) for row in rows),
    ]


def _known(row: Row) -> int:
    found: int = row["scorable"] if "scorable" in row else row["scorable_pairs"]
    return found


def _syneval(results: Sequence[Result]) -> list[str]:
    """Return how to read the tables, then each result's: the paper's Table 3."""
    blocks = [_SYNEVAL]
    for result in results:
        rows, labels = syneval_rows(result.content), []
        quoted = list(next((row["published"] for row in rows if row.get("published")), {}))
        for row in rows:
            said = {"dependency": row["group"], "phenomenon": row.get("phenomenon"), "row": row.get("name", "pooled")}
            paper = {f"published {name}": number((row.get("published") or {}).get(name), 0) for name in quoted}
            labels.append({key: value or NONE for key, value in said.items()} | paper)
        without = ", ".join(name for name, run in _runs(result) if not run.get("period", True))
        note = f"No word for the period, so sentences were read and scored without it: {without}."
        lines = grid(result.content, syneval_rows, ("row", "group"), [name for name, _ in _runs(result)])
        blocks += _block(result, labels, lines, [*_verdict(result), *[note] * bool(without)])
    return blocks


def _verdict(result: Result) -> list[str]:
    """Return whether the paper's difference shows, counted by its rows; nothing without both models and groups."""
    runs, lines, said = dict(_runs(result)), [], []
    if {"ON-LSTM", "LSTM"} != runs.keys():
        return []
    p = {test["row"]: test["p"] for test in result["tests"]}
    both = zip(runs["ON-LSTM"]["rows"], runs["LSTM"]["rows"], strict=True)
    rows = [(row, row["correct"] - other["correct"]) for row, other in both if row.get("published")]
    for group, better, sign in (("long-term", "ON-LSTM", 1), ("short-term", "LSTM", -1)):
        holds = []
        for kind, left_out in (("all", ""), (f"without {_NPI.lower()}", _NPI)):
            some = [each for each in rows if each[0]["group"] == group and each[0]["phenomenon"] != left_out]
            ours = [(sign * gain, p[row["row"]]) for row, gain in some]
            sure = _ahead([gain for gain, chance in ours if chance < _LEVEL])
            found = _ahead([gain for gain, _ in ours])
            paper = _ahead([sign * (row["published"]["ON-LSTM"] - row["published"]["LSTM"]) for row, _ in some])
            claim = [f"{better} better on {group} rows", f"{kind} ({len(some)})"]
            lines.append([*claim, *("{} to {}".format(*each) for each in (found, sure, paper))])
            holds.append(all(ahead > behind for ahead, behind in (found, sure)))
        if not some:
            return []
        said.append(f"{better} better on {group} rows **{_SHOWS[holds[0], holds[1]]}**")
    head = ["claim", "rows", "ahead to behind", f"with p < {_LEVEL}", "published"]
    return [f"The known difference: {', '.join(said)}.", table(head, lines)]


def _ahead(differences: Sequence[float]) -> tuple[int, int]:
    return sum(each > 0 for each in differences), sum(each < 0 for each in differences)


def _blimp(results: Sequence[Result]) -> list[str]:
    """Return how to read the tables, then each result's: phenomena and their mean."""
    blocks = [_BLIMP]
    for result in results:
        labels = [
            {"phenomenon": row.get("phenomenon", "all") or NONE, "paradigms": str(row["paradigms"])}
            for row in _phenomena(result.content)
        ]
        lines = grid(result.content, _phenomena, ("uid", "phenomenon"), [name for name, _ in _runs(result)])
        means = ", ".join(f"{name} {run['mean']:.1f} %" for name, run in _runs(result))
        note = f"Mean over {result['all.paradigms']} of {PARADIGMS} paradigms: {means}."
        blocks += _block(result, labels, lines, [f"{note} {_unknown(result, 'all words')}"])
    return blocks


def _phenomena(run: Row) -> list[Row]:
    return [row for row in blimp_rows(run) if not row.get("uid")]


def _agreement(results: Sequence[Result]) -> list[str]:
    """Return how to read the tables, then each result's: sets and their parts."""
    blocks = [_AGREEMENT]
    for result in results:
        labels = [{"set": row["name"], "part": row.get("part") or "all"} for row in agreement_rows(result.content)]
        lines = grid(result.content, agreement_rows, ("name", "part"), [name for name, _ in _runs(result)])
        blocks += _block(result, labels, lines, [_unknown(result, "the words before the verbs")])
    return blocks


def _block(
    result: Result, labels: Sequence[Mapping[str, str]], lines: Sequence[Sequence[str]], notes: Sequence[str]
) -> list[str]:
    """Return a result's models, its table with labels before the numbers, notes, and how it was made."""
    models = [
        [Path(run["path"]).name, network(run["rnn"], run["sizes"]), f"{run['parameters'] / 1e6:.2f}M"]
        + [number(run.get(f"{split}_perplexity")) for split in ("valid", "test")]
        for run in result["runs"]
    ]
    head, *numbers = lines
    body = [[*label.values(), *cells] for label, cells in zip(labels, numbers, strict=True)]
    return [
        f"### {result.name}",
        table(["run", "model", "parameters", "validation perplexity", "test perplexity"], models),
        table([*labels[0], *head], body),
        *notes,
        commands([result]),
        origin(result, f"{result['seconds']:.0f} s"),
    ]


def _runs(result: Result) -> list[tuple[str, Row]]:
    """Return a name and what was found of each run: the kind of model, or the folder's name if they are of one kind."""
    kinds = [network(run["rnn"], ()).strip() for run in result["runs"]]
    names = kinds if len(set(kinds)) == len(kinds) else [Path(run["path"]).name for run in result["runs"]]
    return list(zip(names, filter(None, (result.content, result["compare"])), strict=True))


def _unknown(result: Result, of: str) -> str:
    shares = " and ".join(f"{100 * run['unk_rate']:.1f} % ({name})" for name, run in _runs(result))
    return f"Of {of} {shares} are unknown."


def _section(
    title: str, paragraphs: Callable[[Sequence[Result]], list[str]], keys: Keys, rows: Mapping[str, str]
) -> Section:
    """Return a section: `keys` is what each of one or two runs must have, `rows` the lists of counts among them."""
    counts: dict[str, Keys] = {
        name: {int: f"correct ties {more}", float: "accuracy scorable_accuracy?"} for name, more in rows.items()
    }
    beside = {f"compare.{name}": each for name, each in counts.items()}
    models: Keys = {str: "path rnn", list: "sizes", int: "parameters", float: "valid_perplexity? test_perplexity?"}
    return Section(
        title=title,
        tables={},
        keys={**keys, list: f"{keys[list]} runs tests?", dict: f"{keys.get(dict, '')} compare?"},
        entries={"runs": models, "tests": {float: "p"}, "compare": keys, **counts, **beside},
        paragraphs=paragraphs,
    )


SYNEVAL = _section(
    "Targeted syntactic evaluation",
    _syneval,
    {list: "rows pooled"},
    {"rows": "row pairs scorable_pairs", "pooled": "pairs scorable_pairs"},
)
BLIMP = _section(
    "BLiMP",
    _blimp,
    {list: "paradigms", dict: "phenomena all", float: "mean unk_rate", int: "all.paradigms"},
    {"paradigms": "n scorable_pairs", "all": "n scorable_pairs"},
)
AGREEMENT = _section("Number agreement", _agreement, {list: "sets", float: "unk_rate"}, {"sets": "n scorable"})
