"""Minimal pairs on the pages: the paper's Table 3 with ours beside it, BLiMP and number agreement."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from onlstm.paper.results import Result
from onlstm.paper.sections import Section
from onlstm.paper.syntax.content import (
    Agreement,
    AgreementContent,
    AgreementRow,
    Blimp,
    BlimpContent,
    BlimpRow,
    Counts,
    Syneval,
    SynevalContent,
    SynevalRow,
)
from onlstm.paper.tables import NONE, Table, models, named, network, number

PARADIGMS = 67
"""Of the whole of BLiMP."""
_KNOWN = """\
*known %*: pairs whose differing words are all in the vocabulary; *on known*: accuracy on these. *p*: McNemar's exact \
test; pairs share their words, so it finds differences too easily, and it says nothing of how much seeds differ."""
SYNEVAL = f"""\
Accuracy in %: how often the grammatical sentence of one of Marvin and Linzen's (2018) pairs is strictly likelier; a \
tie is wrong. *published*: the paper's Table 3, whose models were trained on 90 million words of Wikipedia. *p*: \
McNemar's exact test of our two models.

A sentence is read alone, as `<eos> w1 … wn .` from a zero state; its words and the period are scored. All pairs of a \
row count the same, and so do all that are pooled.

{_KNOWN}"""
BLIMP = f"""\
Accuracy in %: how often the good sentence of a pair of BLiMP (Warstadt et al. 2020) is strictly likelier; a tie is \
wrong.

All words of a sentence are scored, `<eos>` is not. A phenomenon's accuracy, and that of all, is the mean of \
its paradigms'; the other numbers are of all its pairs.

{_KNOWN}"""
AGREEMENT = f"""\
Accuracy in %: how often the right form of a verb is strictly likelier than the wrong one, after the words before it; \
a tie is wrong.

The sets are of Gulordava et al. (2018) and Linzen et al. (2016): *nonsense* is a sentence with its \
words replaced, *attractors* are nouns between subject and verb that want the other form.

{_KNOWN}"""
Content = SynevalContent | BlimpContent | AgreementContent
Results = Sequence[Result[Content]]


def summary(results: Results) -> list[str]:
    """Return Table 3, published numbers beside ours; of BLiMP and number agreement the whole sets."""
    blocks = []
    for result in results:
        whole = [k for k, row in enumerate(_rows(result.content)) if _labels(row).get("part", "all") == "all"]
        shown = whole[-1:] if isinstance(result.content, BlimpContent) else whole
        blocks.append(_table(result.content, shown, brief=True).markdown())
    return blocks


def details(results: Results) -> list[str]:
    """Return every result's models and its whole table."""
    blocks = []
    for result in results:
        content, runs = result.content, _runs(result.content)
        blocks += [*models(content.runs), _table(content, range(len(_rows(content)))).markdown()]
        if without := [name for name, run in runs.items() if isinstance(run, Syneval) and not run.period]:
            blocks.append(f"No word for the period, so sentences are scored without it: {', '.join(without)}.")
        unknown = [f"{100 * run.unk_rate:.1f} % ({name})" for name, run in runs.items() if not isinstance(run, Syneval)]
        blocks += [f"Unknown words: {', '.join(unknown)}."] if unknown else []
    return blocks


def _table(content: Content, shown: Sequence[int], brief: bool = False) -> Table:
    """Return the rows of one run, or of two and how surely they differ; `brief`: accuracies alone."""
    runs = _runs(content)
    rows = list(zip(*map(_rows, runs.values()), strict=True))
    same = all(len({(row.ties, row.sizes) for row in line}) == 1 for line in rows)
    apart = 1 if same else len(runs)  # how many runs ties and known words are listed of
    names = list(runs) if len(runs) > 1 else [""]
    columns = [("accuracy", names), ("p", [""] * (len(runs) > 1)), ("pairs", [""])]
    if not brief:
        columns += [(column, names if apart > 1 else [""]) for column in ("ties", "known %")] + [("on known", names)]
    lines = []
    for line in (rows[k] for k in shown):
        pairs = line[0].sizes[0]
        cells = [*_labels(line[0]).values(), *(number(row.accuracy) for row in line)]
        cells += [_p(content, line[0])] * (len(runs) > 1) + [f"{pairs:,}"]
        if not brief:
            cells += [f"{row.ties:,}" for row in line[:apart]]
            cells += [number(100 * row.sizes[1] / pairs) for row in line[:apart]]
            cells += [number(row.scorable_accuracy) for row in line]
        lines.append(cells)
    head = [f"{column} {name}".strip() for column, some in columns for name in some]
    return Table(head=[*_labels(rows[0][0]), *head], rows=lines)


def _runs(content: Content) -> dict[str, Syneval | Blimp | Agreement]:
    """Return the runs by the kind of model, or by the folder's name if they are of one kind."""
    kinds = [network(model.rnn, ()) for model in content.runs]
    folders = [PurePath(model.path).name for model in content.runs]
    runs = [run for run in (content, content.compare) if run]
    return dict(zip(kinds if len(set(kinds)) == len(runs) else folders, runs, strict=True))


def _rows(run: Syneval | Blimp | Agreement) -> list[Counts]:
    if isinstance(run, Syneval):
        return [*run.rows, *run.pooled]
    if isinstance(run, Blimp):
        return [*(replace(mean, phenomenon=name) for name, mean in run.phenomena.items()), run.all]
    return [row for whole in run.sets for row in (whole, *whole.parts)]


def _labels(row: Counts) -> dict[str, str]:
    """Return the first cells of a row, by column."""
    if isinstance(row, SynevalRow):
        quoted = {f"published {name}": number((row.published or {}).get(name), 0) for name in ("ON-LSTM", "LSTM")}
        return {"dependency": row.group, "phenomenon": row.phenomenon or NONE, "row": row.name or "pooled"} | quoted
    if isinstance(row, BlimpRow):
        return {"BLiMP phenomenon": row.phenomenon or "all", f"paradigms of {PARADIGMS}": str(row.paradigms)}
    assert isinstance(row, AgreementRow)
    return {"agreement set": named(row.name), "part": row.part or "all"}


def _p(content: Content, row: Counts) -> str:
    key = [getattr(row, name) for name in row.KEYS]
    p = next((test.p for test in content.tests if [getattr(test, name) for name in row.KEYS] == key), None)
    return NONE if p is None else f"{p:.2g}" if p >= 1e-4 else "<1e-4"


SECTIONS = [
    Section(kind=kind, content=content, title=title, page="syntax", about=about, summary=summary, details=details)
    for kind, content, title, about in (
        ("syneval", SynevalContent, "Table 3: targeted syntactic evaluation", SYNEVAL),
        ("blimp", BlimpContent, "BLiMP", BLIMP),
        ("agreement", AgreementContent, "Number agreement", AGREEMENT),
    )
]
