"""The tables of minimal pairs, for commands and pages: the paper's Table 3, BLiMP and number agreement. No torch."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from onlstm.paper.results import Result
from onlstm.paper.syntax.content import Agreement, AgreementRow, BlimpRow, Content, Counts, Syneval, SynevalRow
from onlstm.paper.tables import NONE, Table, models, named, network, number

PARADIGMS = 67
"""Of the whole of BLiMP."""
KNOWN = """\
*known %*: pairs whose differing words are all in the vocabulary; *on known*: accuracy on these."""
P = """\
*p*: McNemar's exact test; pairs share their words, so it finds differences too easily, and it says nothing about how \
much seeds differ."""
Results = Sequence[Result[Content]]


def summary(results: Results) -> list[str]:
    """Return Table 3, published numbers beside ours; of BLiMP and number agreement the whole sets."""
    return [table(result.content, 0).markdown() for result in results]


def details(results: Results) -> list[str]:
    """Return what the columns mean, and every result's models, table and notes."""
    blocks = [f"{KNOWN} {P}"]
    for result in results:
        blocks += [*models(result.content.runs), table(result.content).markdown(), *notes(result.content)]
    return blocks


def table(content: Content, depth: int = 1, names: Sequence[str] = ()) -> Table:
    """Return the rows of one run, or of two and how surely they differ.

    Args:
        depth: 0 has whole sets and accuracies alone, 1 parts of sets and phenomena, 2 paradigms and examples as well.
        names: what two runs are called; by default as `names_of`.
    """
    rows = list(zip(*(_rows(run, depth) for run in runs_of(content)), strict=True))
    two = len(rows[0]) > 1
    names = [f" {name}" for name in names or names_of(content)] if two else [""]
    same = all(len({(row.ties, row.sizes) for row in line}) == 1 for line in rows)
    apart = [""] if same else names  # which runs ties and known words are listed of
    columns = [("accuracy", names), ("p", [""] * two), ("pairs", [""])]
    columns += [("ties", apart), ("known %", apart), ("on known", names)] if depth else []
    labels = [_labels(line[0]) for line in rows]
    shown = [name for name in labels[0] if any(label[name] not in ("", NONE) for label in labels)]
    lines = []
    for line, label in zip(rows, labels, strict=True):
        first, pairs = line[0], line[0].sizes[0]
        cells = [*(label[name] for name in shown), *(number(row.accuracy) for row in line), *[_p(content, first)] * two]
        cells.append(f"{pairs:,}")
        if depth:
            cells += [f"{row.ties:,}" for row in line[: len(apart)]]
            cells += [number(100 * row.sizes[1] / pairs) for row in line[: len(apart)]]
            cells += [number(row.scorable_accuracy) for row in line]
        lines.append(cells)
        if depth > 1 and isinstance(first, SynevalRow) and first.example:
            lines.append([f"  {_example(*first.example)}"])
    head = [*shown, *(f"{column}{name}" for column, some in columns for name in some)]
    return Table(head=head, rows=lines)


def notes(content: Content, names: Sequence[str] = ()) -> list[str]:
    """Return what the numbers do not say: runs without a period, unknown words."""
    runs = dict(zip(names or names_of(content), runs_of(content), strict=False))
    without = [name for name, run in runs.items() if isinstance(run, Syneval) and not run.period]
    unknown = [f"{100 * run.unk_rate:.1f} % ({name})" for name, run in runs.items() if not isinstance(run, Syneval)]
    line = f"No word for the period, so sentences are scored without it: {', '.join(without)}."
    return [line] * bool(without) + [f"Unknown words: {', '.join(unknown)}."] * bool(unknown)


def runs_of(content: Content) -> list[Content]:
    """Return what was found of one run, or of two."""
    return [run for run in (content, content.compare) if run]


def names_of(content: Content) -> list[str]:
    """Return what runs are called: by the kind of model, or by the folder's name if they are of one kind."""
    kinds = [network(model.rnn, ()) for model in content.runs]
    return kinds if len(set(kinds)) == len(kinds) else [PurePath(model.path).name for model in content.runs]


def _rows(run: Content, depth: int) -> list[Counts]:
    if isinstance(run, Syneval):
        return [*run.rows, *run.pooled]
    if isinstance(run, Agreement):
        return [row for whole in run.sets for row in (whole, *(whole.parts if depth else ()))]
    rows: list[Counts] = []
    for name, mean in run.phenomena.items() if depth else ():
        rows.append(replace(mean, phenomenon=name))
        rows += [row for row in run.paradigms if depth > 1 and row.phenomenon == name]
    return [*rows, run.all]


def _labels(row: Counts) -> dict[str, str]:
    """Return the first cells of a row, by column."""
    if isinstance(row, SynevalRow):
        quoted = {f"published {name}": number((row.published or {}).get(name), 0) for name in ("ON-LSTM", "LSTM")}
        return {"dependency": row.group, "phenomenon": row.phenomenon or NONE, "row": row.name or "pooled"} | quoted
    if isinstance(row, BlimpRow):
        name = f"- {row.uid}" if row.uid else row.phenomenon or (NONE if row.phenomenon == "" else "all")
        return {"BLiMP phenomenon": name, f"paradigms of {PARADIGMS}": str(row.paradigms)}
    assert isinstance(row, AgreementRow)
    return {"agreement set": named(row.name), "part": row.part or "all"}


def _example(good: str, bad: str) -> str:
    """Return both sentences in one, with the words that differ, or one after the other."""
    first, second = good.split(), bad.split()
    if len(first) != len(second):
        return f"{good} / *{bad}"
    return " ".join(a if a == b else f"{a}/*{b}" for a, b in zip(first, second, strict=True))


def _p(content: Content, row: Counts) -> str:
    key = [getattr(row, name) for name in row.KEYS]
    p = next((test.p for test in content.tests if [getattr(test, name) for name in row.KEYS] == key), None)
    return NONE if p is None else f"{p:.2g}" if p >= 1e-4 else "<1e-4"
