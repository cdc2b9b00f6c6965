"""Trees that nobody taught, scored against treebanks: the section of `onlstm evaluate --out`'s results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onlstm.paper.report.result import Result, Section
from onlstm.paper.report.tables import NONE, commands, network, number, origin, table

_ABOUT = """\
F1 of unlabelled brackets, 0 to 100, in the layout of the paper's Table 2. The same trees have another F1 under each \
rule and on each treebank: only numbers under one rule on one treebank compare.

- *ON-LSTM*: trees from the distances that a layer's master gates give; *LSTM gates*: from an LSTM's own forget gates, \
through the same parser; *untrained*: the first run's network with random weights; *oracle*: the best binary trees.
- Decoder `paper`: Shen et al. 2019, which leans to the right; `unbiased`: Dyer et al. 2019; `vote`: the trees that \
layers and decoders agree on most. *vote of N*: the trees that N runs agree on most.
- Several runs or seeds: mean (standard deviation) max. *95 %*: bootstrap over sentences. *depth*: brackets around a \
word. Under a label: how many per cent of its spans were found (of how many); of several runs, the best one's.
- *tied %*: distances that occur again in their sentence; ties decode to the right. *to right*: F1 against \
right-branching trees; 100 is no parser at all.
- *headline*: the row to report, its layer and decoder chosen without the labels it is scored by. *selected on test \
labels*: the highest of the models' rows; not a result to report."""
_SYSTEMS = {
    **{"onlstm": "ON-LSTM", "lstm-gates": "LSTM gates"},
    **{"left": "left-branching", "right": "right-branching"},
}
_MODELS = ("onlstm", "lstm-gates", "vote")
_DEAD = 5  # % of tied distances
_Row = Mapping[str, Any]


def _parsing(results: Sequence[Result]) -> list[str]:
    """Return how to read the tables, the headlines, then each treebank's models, tables and commands."""
    results = sorted(results, key=_treebank)
    names = Counter(map(_treebank, results))
    blocks = [_ABOUT, *_headlines(results)]
    for result in results:
        name, headline = _treebank(result), result["headline"]
        blocks += [f"### {name}" + f" ({result.name})" * (names[name] > 1), _text(result), *_models(result)]
        if headline:
            f1 = f"F1 {number(headline.get('f1'), 1)} by rule *{headline['rule']}*"
            how = f"Chosen: {headline['chosen']}; no labels of this treebank were used."
            seeds = "" if headline.get("run") is None else " One run: how much seeds differ is not known."
            blocks.append(f"Headline: {_named(headline)}, {f1}. {how}{seeds}")
        for rule, about in result["rules"].items():
            if rows := [row for row in result["rows"] if row["rule"] == rule]:
                blocks += [f"Rule *{rule}*: {about}.", _table(rows, headline)]
        blocks += [commands([result]), origin(result, f"{result['seconds']:.0f} s")]
    return blocks


def _treebank(result: Result) -> str:
    return Path(result["treebank.path"]).name


def _headlines(results: Sequence[Result]) -> list[str]:
    """Return a table of all headlines beside trivial trees; nothing if no model was scored."""
    lines = []
    for result in results:
        if headline := result["headline"]:
            rows = [row for row in result["rows"] if row["rule"] == headline["rule"]]
            row = next((row for row in rows if _same(row, headline)), headline)
            f1 = {row["system"]: _f1(row) for row in rows}
            runs = Path(headline["run"]).name if headline.get("run") else f"{row.get('runs', len(result['runs']))} runs"
            line = [_treebank(result), runs, *(number(result[f"treebank.{key}_share"], 1) for key in ("seen", "unk"))]
            line += [headline["rule"], _named(headline), _f1(row), _interval(row)]
            lines.append(line + [f1.get(system, NONE) for system in ("right", "random", "oracle")])
    head = ["treebank", "run", "seen %", "unknown %", "rule", "headline", "F1", "95 %"]
    head += ["right-branching", "random", "oracle"]
    about = "The headlines; *seen*: sentences that are lines of the model's training text; *unknown*: words it lacks."
    return [about, table(head, lines)] if lines else []


def _text(result: Result) -> str:
    """Return what was read, what of it is unknown to the model, and what it had seen."""
    bank = result["treebank"]
    skipped = ", ".join(f"{count:,} {why}" for why, count in bank["skipped"].items()) or "none"
    size = f"{bank['sentences']:,} sentences, {bank['words']:,} words; skipped: {skipped}"
    text = f"Profile `{bank['profile']}`, split `{bank['split']}`: {size}."
    if (unknown := bank.get("unk_share")) is None:
        return text
    text += f" Words are looked up by mapping `{result['mapping']}`; {unknown:.1f} % are unknown to the model."
    if (seen := bank.get("seen_share")) is None:
        return f"{text} Whether the model was trained on these sentences is not known."
    return f"{text} {seen:.1f} % of the sentences are lines of its training text (words seen, trees never)."


def _models(result: Result) -> list[str]:
    rows = [
        [run["name"], network(run["rnn"], run["sizes"]), f"{run['parameters'] / 1e6:.2f}M"]
        + [number(run.get(f"{split}_perplexity")) for split in ("valid", "test")]
        for run in result["runs"]
    ]
    return [table(["run", "model", "parameters", "validation perplexity", "test perplexity"], rows)] if rows else []


def _table(rows: Sequence[_Row], headline: _Row | None) -> str:
    """Return one rule's table."""
    sizes = {label: counts[1] for row in reversed(rows) for label, counts in row["tags"].items()}
    marks = _marks(rows, headline)
    head = ["system", "layer", "decoder", f"≤10 words ({rows[0]['short']['n']:,})", f"all ({rows[0]['n']:,})", "95 %"]
    head += ["depth", *(f"{label} ({size:,})" for label, size in sizes.items()), "tied %", "to right", "mark"]
    lines = []
    for row, mark in zip(rows, marks, strict=True):
        line = [_system(row), _layer(row), row.get("decoder") or NONE, _f1(row["short"]), _f1(row), _interval(row)]
        line += [number(row.get("depth"), 1), *(_share(row["tags"].get(label)) for label in sizes)]
        lines.append([*line, *(number(row.get(key), 1) for key in ("ties", "f1_to_right")), mark])
    return table(head, lines)


def _marks(rows: Sequence[_Row], headline: _Row | None) -> list[str]:
    """Return what is to be said of each row: which to report, which not to."""
    marks = ["headline" if headline and _same(row, headline) else "" for row in rows]
    scores = {k: row.get("f1") or 0 for k, row in enumerate(rows) if row["system"] in _MODELS}
    best = max(scores, key=scores.__getitem__, default=0)
    if len(scores) > 1 and all(scores[best] > scores[k] for k in scores if marks[k]):
        marks[best] = "selected on test labels"
    dead = ["ties: no parser" if row.get("ties", 0) >= _DEAD else "" for row in rows]
    return [", ".join(filter(None, pair)) for pair in zip(marks, dead, strict=True)]


def _same(row: _Row, other: _Row) -> bool:
    return all(row.get(key) == other.get(key) for key in ("system", "run", "layer", "decoder"))


def _named(row: _Row) -> str:
    return f"{_system(row)}, layer {_layer(row)}, `{row.get('decoder')}`"


def _system(row: _Row) -> str:
    system, run, runs = row["system"], row.get("run") or "", row.get("runs", 1)
    if system == "vote":
        count, _, kind = run.partition(" ")
        return f"vote of {count} {_SYSTEMS.get(kind, kind)}"
    name = f"{system} {Path(run).name}" if system == "trees" else _SYSTEMS.get(system, str(system))
    return name if runs == 1 else f"{name}, {runs} {'seeds' if system == 'random' else 'runs'}"


def _layer(row: _Row) -> str:
    layer = row.get("layer")
    return ",".join(map(str, layer)) if isinstance(layer, list) else NONE if layer is None else str(layer)


def _f1(row: _Row) -> str:
    text = number(row.get("f1"), 1)
    if (deviation := row.get("deviation")) is None:
        return text
    return f"{text} ({deviation:.1f}) {number(row.get('max'), 1)}"


def _interval(row: _Row) -> str:
    """Return the bounds; of one run, for that of several is the best one's."""
    return "{:.1f}–{:.1f}".format(*row["ci95"]) if row.get("ci95") and row.get("runs", 1) == 1 else NONE


def _share(counts: Sequence[int] | None) -> str:
    return f"{100 * counts[0] / counts[1]:.1f}" if counts and counts[1] else NONE


PARSING = Section(
    title="Unsupervised parsing",
    tables={
        "parsing": "*WSJ10* and *WSJ* are what `--split wsj10` and `--split test` read of the full treebank: scores on "
        "other sentences do not compare.",
        "wsj-sample": "On NLTK's sample of the WSJ: trivial trees, and parses that the paper's authors released.",
    },
    keys={
        str: "treebank.path treebank.profile treebank.split mapping",
        int: "treebank.sentences treebank.words",
        float: "treebank.seen_share? treebank.unk_share?",
        **{dict: "treebank.skipped rules headline?", list: "runs rows"},
    },
    entries={
        "runs": {str: "name rnn", list: "sizes", int: "parameters", float: "valid_perplexity? test_perplexity?"},
        "headline": {str: "system rule chosen run? decoder?", float: "f1?"},
        "rows": {
            str: "system rule run? decoder?",
            int: "n runs short.n",
            float: "f1? deviation? max? depth? ties? f1_to_right? short.f1? short.deviation? short.max?",
            **{dict: "tags short", list: "ci95?"},
        },
    },
    paragraphs=_parsing,
)
