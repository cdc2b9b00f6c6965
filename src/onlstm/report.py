"""RESULTS.md out of the committed results, with published numbers beside ours, marked as published.

`collect` reads results/*.json, copies of the result.json that every run writes; `render` makes the page; `write` does
both. A new kind of result is one function that returns the section's paragraphs and one entry in `_SECTIONS`.
The commands import this; it never imports torch.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from onlstm import files
from onlstm.errors import UserError

_NONE = "--"
_Keys = Mapping[type, str]  # dotted keys, separated by blanks, by the type that is wanted there; "?": may be absent


@dataclass(frozen=True, kw_only=True)
class Published:
    """One row of a published table, as printed there."""

    table: str
    """`language-modelling`, `parsing`, `wsj-sample`, `syneval` or `logic`."""
    row: str
    """The model or the test case."""
    values: Mapping[str, str]
    """Text by column; `--` where the source gives nothing."""
    source: str
    """Where it stands."""
    checked: bool
    """Read in the source itself, not quoted second-hand or from memory."""
    rule: str
    """How it was counted."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One results file that has every key of its kind."""

    name: str
    """The file's name without .json: unlike the recipe's it is unique on the page."""
    content: Mapping[str, Any]
    """The file."""

    def __getitem__(self, path: str) -> Any:
        """Return what stands at a dotted path such as `numbers.epochs`; None if nothing does."""
        return _at(self.content, path)


def published(table: str | None = None) -> list[Published]:
    """Return the published rows of a table (default: of all), in the order of published.yaml.

    >>> [row.values["test"] for row in published("language-modelling") if row.row.startswith("ON-LSTM")]
    ['56.17 ± 0.12']
    """
    text = resources.files("onlstm").joinpath("published.yaml").read_text(encoding="utf-8")
    found = []
    for block in yaml.load(text, Loader=yaml.BaseLoader):  # every scalar as text: 0.50 stays 0.50
        for row, cells in block["rows"].items():
            values = dict(zip(block["columns"], cells, strict=True))
            source, checked = (values.pop(key, block[key]) for key in ("source", "checked"))
            options = {"table": block["table"], "row": row, "source": source, "rule": block["rule"]}
            found.append(Published(**options, values=values, checked=checked == "true"))
    if table and table not in {each.table for each in found}:
        raise ValueError(f"no published table {table!r}; there are {', '.join(sorted({p.table for p in found}))}")
    return [each for each in found if table in (None, each.table)]


def collect(folder: Path) -> list[Result]:
    """Return the results in a folder, by file name; a broken or foreign file is the user's mistake."""
    paths = sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))
    if not paths:
        way = f"get some with `onlstm train ... --out RUN` and copy RUN/result.json to {folder / 'NAME.json'}"
        raise UserError(f"{folder}: no results (*.json) there; {way}")
    return [_read(path) for path in paths]


def render(results: Sequence[Result], quoted: Sequence[Published]) -> str:
    """Return RESULTS.md: a section for every kind of result at hand, with the published rows of its table."""
    marks = "*Published, not run here* heads what is quoted from others; † marks what was not checked at its source."
    blocks = ["# Results", f"Made by `onlstm report`; do not edit. {marks}"]
    for kind, section in _SECTIONS.items():
        if runs := [each for each in results if each["kind"] == kind]:
            blocks += [f"## {section.title}", *section.paragraphs(runs)]
            blocks += _published([each for each in quoted if each.table == section.table])
    return "\n\n".join(blocks) + "\n"


def write(folder: Path, out: Path) -> None:
    """Write the page of a folder's results to `out`, whole or not at all."""
    files.write(out, render(collect(folder), published()))


def _at(content: Any, path: str) -> Any:
    for key in path.split("."):
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def _read(path: Path) -> Result:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # bytes that are no text are a ValueError, too
        raise UserError(f"{path}: not JSON ({error}); copy the run's result.json anew") from None
    _check(path, content, {int: "format_version", str: "kind"})
    if content["format_version"] != 1:
        raise UserError(f"{path}: format_version {content['format_version']} is not 1; run it again with this onlstm")
    if not (section := _SECTIONS.get(content["kind"])):
        raise UserError(f"{path}: unknown kind {content['kind']!r}; known: {', '.join(_SECTIONS)}; move it elsewhere")
    _check(path, content, _COMMON)
    _check(path, content, section.keys)
    for key, keys in section.entries.items():
        found = _at(content, key)
        for number, entry in enumerate(found if isinstance(found, list) else [found] * (found is not None)):
            _check(f"{path}: entry {number} of {key}", entry, keys)
    return Result(name=path.stem, content=content)


def _check(where: Path | str, content: object, keys: _Keys) -> None:
    """Refuse content that lacks one of the keys (null counts as lacking) or has another type there."""
    wanted = [(key, kind, _at(content, key.strip("?"))) for kind, names in keys.items() for key in names.split()]
    if missing := [key for key, _, value in wanted if value is None and not key.endswith("?")]:
        raise UserError(f"{where}: missing {', '.join(missing)}; is it a result.json that a run wrote?")
    for key, kind, value in ((key.strip("?"), kind, value) for key, kind, value in wanted if value is not None):
        if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool):
            raise UserError(f"{where}: {key} should be of type {kind.__name__}, is {json.dumps(value)[:40]}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table that is aligned as plain text too; columns of numbers to the right."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    columns = []
    for top, *column in zip(*cells, strict=True):
        width = max(3, *map(len, (top, *column)))
        right = all(re.match(r"[-+*]*\d|--$|inf|nan", cell) for cell in column)
        line = "-" * (width - 1) + ":" if right else "-" * width
        columns.append([f"{cell:{'>' if right else '<'}{width}}" for cell in (top, line, *column)])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}" if value < 1e6 else f"{value:.1e}"


def _published(rows: Sequence[Published]) -> list[str]:
    """Return the paragraphs that quote published rows: one table, then how each source counted."""
    columns = list(dict.fromkeys(column for row in rows for column in row.values))
    lines, rules = [], dict[str, dict[str, None]]()
    for row in rows:
        values = (row.values.get(column, _NONE) for column in columns)
        lines.append([row.row + " †" * (not row.checked), *values, row.source])
        rules.setdefault(row.rule, {})[row.source] = None
    counted = "\n".join(f"- {', '.join(sources)}: {rule}." for rule, sources in rules.items())
    return ["### Published, not run here", _table(["published", *columns, "source"], lines), counted]


# Language modelling

_SPLITS = ("train", "valid", "test")
_PERPLEXITY = (
    "Rule *per token with `<eos>`*: perplexity is exp of the mean negative log-probability of all tokens of the split, "
    "in its natural order, each line's `<eos>` included. The epoch with the best validation perplexity is reported. "
    "Only runs on the same text share a table; a run is called by its file in the results folder."
)


def _language_models(runs: Sequence[Result]) -> list[str]:
    """Return the rule, then each text's runs, differences, learning rates, curves and commands."""
    texts: dict[str, list[Result]] = {}
    for run in runs:
        words = f"Profile `{run['data.profile']}`, vocabulary {run['data.vocabulary']:,}"
        splits = [(split, run[f"data.{split}"]) for split in _SPLITS if run[f"data.{split}"]]
        sizes = ", ".join(f"{name} {part['tokens']:,} tokens (sha256 {part['sha256'][:12]})" for name, part in splits)
        texts.setdefault(f"{words}; {sizes}.", []).append(run)
    blocks = [_PERPLEXITY]
    for number, (text, group) in enumerate(texts.items(), 1):
        title = group[0]["data.name"] or f"Text {number}"
        blocks += [f"### {title}", text, _runs(group), *_differences(group), *_grid(group), *_curve(group)]
        blocks.append("\n".join(["```sh", *(f"{run['command']}  # {run.name}" for run in group), "```"]))
        blocks.append("\n".join(map(_origin, group)))
    return blocks


def _origin(run: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    facts = [f"{run['machine']}, threads: {run['threads']}, {versions}", *map(str, run["notes"])]
    return f"- {run.name}: {'; '.join(facts)}"


def _runs(runs: Sequence[Result]) -> str:
    head = ["run", "model", "parameters", "epochs (best)", "minutes", "tokens/s", "seed", "validation", "test"]
    rows = []
    for run in runs:
        numbers, model = run["numbers"], _model(run["recipe.model"])
        row = [run.name, model, f"{run['parameters'] / 1e6:.2f}M", f"{numbers['epochs']} ({numbers['best_epoch']})"]
        row += [f"{run['seconds'] / 60:.1f}", f"{numbers['tokens_per_second']:,.0f}", str(run["seed"])]
        rows.append(row + [_number(numbers.get(f"{split}_perplexity")) for split in _SPLITS[1:]])
    return _table(head, rows)


def _model(model: Mapping[str, Any]) -> str:
    hidden, embedding, layers = model["hidden_size"], model["embedding_size"], model.get("num_layers")
    if not isinstance(hidden, list):  # with tied weights the last layer has the embeddings' size
        hidden = [hidden] * (layers - 1) + [embedding if model.get("tied") else hidden] if layers else [hidden, "…"]
    cell = {"onlstm": "ON-LSTM", "lstm": "LSTM"}.get(model["rnn"], model["rnn"])
    return f"{cell} {'→'.join(map(str, [embedding, *hidden]))}"


def _differences(runs: Sequence[Result]) -> list[str]:
    """Return ON-LSTM minus LSTM, each against the LSTM run that is most like it; nothing without both."""
    ours, stock = ([run for run in runs if run["recipe.model.rnn"] == rnn] for rnn in ("onlstm", "lstm"))
    rows = []
    for run in ours if stock else []:
        other = min(stock, key=lambda each: (each["seed"] != run["seed"], len(_unlike(run["recipe"], each["recipe"]))))
        pairs = [(run[f"numbers.{split}_perplexity"], other[f"numbers.{split}_perplexity"]) for split in _SPLITS[1:]]
        change = [f"{a - b:+.2f} ({100 * (a / b - 1):+.1f} %)" if a and b else _NONE for a, b in pairs]
        rows.append([run.name, other.name, *change, "; ".join(_unlike(run["recipe"], other["recipe"])) or "nothing"])
    spread = "" if len({run["seed"] for run in ours}) > 1 else " One seed: how much seeds differ is not known."
    caption = f"ON-LSTM minus LSTM, perplexity (negative: the ON-LSTM is better).{spread}"
    head = ["ON-LSTM run", "LSTM run", "validation", "test", "what differs besides the cell"]
    return [caption, _table(head, rows)] if rows else []


def _unlike(ours: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the settings in which two resolved recipes differ, names and cells apart."""
    found = []
    for key in dict.fromkeys([*ours, *other]):
        a, b = ours.get(key, _NONE), other.get(key, _NONE)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _unlike(a, b, f"{prefix}{key}.")
        elif a != b and prefix + key not in ("name", "model.rnn"):
            found.append(f"{prefix}{key} {a} / {b}")
    return found


def _grid(runs: Sequence[Result]) -> list[str]:
    tried = [(run.name, each) for run in runs for each in run["grid"] or []]
    rows = [[name, f"{each['lr']:g}", str(each["epochs"]), _number(each["valid_perplexity"])] for name, each in tried]
    head = ["for run", "learning rate", "epochs", "validation"]
    return ["Learning rates tried beforehand, compared by validation perplexity:", _table(head, rows)] if rows else []


def _curve(runs: Sequence[Result], most: int = 12) -> list[str]:
    """Return validation perplexity and training loss by epoch; of long runs some `most` epochs and the best."""
    curves = [{each["epoch"]: each for each in run["curve"]} for run in runs]
    epochs = sorted(set[int]().union(*curves))
    kept = {run["numbers.best_epoch"] for run in runs}.union(epochs[:: -(-len(epochs) // most) or 1], epochs[-1:])
    rows = [[str(epoch)] for epoch in epochs if epoch in kept]
    for row in rows:
        points = [curve.get(int(row[0])) for curve in curves]
        row += [f"{_number(at['valid_perplexity'])} ({at['train_loss']:.3f})" if at else _NONE for at in points]
    head = ["epoch", *(run.name for run in runs)]
    return ["Validation perplexity (and training loss in nats) by epoch, as seen during training:", _table(head, rows)]


@dataclass(frozen=True, kw_only=True)
class _Section:
    """What a kind of result looks like in its file and on the page."""

    title: str
    """Heading."""
    table: str
    """Published rows that go below."""
    keys: _Keys
    """What its files must have besides `_COMMON`."""
    entries: Mapping[str, _Keys]
    """Objects or lists of objects, if they are there, and what each must have."""
    paragraphs: Callable[[Sequence[Result]], list[str]]
    """From results to paragraphs of Markdown."""


_COMMON: _Keys = {
    str: "name command machine versions.onlstm versions.torch versions.python",
    **{int: "seed threads", float: "seconds", list: "notes"},
}
_SECTIONS = {
    "language-model": _Section(
        title="Language modelling",
        table="language-modelling",
        keys={
            str: "data.profile data.name?",
            int: "parameters data.vocabulary numbers.best_epoch numbers.epochs",
            float: "numbers.valid_perplexity numbers.test_perplexity? numbers.tokens_per_second",
            **{list: "curve grid?", dict: "data.train data.valid data.test? recipe.model"},
        },
        entries={
            **{f"data.{split}": {int: "tokens", str: "sha256"} for split in _SPLITS},
            "recipe.model": {str: "rnn", int: "embedding_size num_layers?", object: "hidden_size"},
            "curve": {int: "epoch", float: "train_loss valid_perplexity"},
            "grid": {int: "epochs", float: "lr valid_perplexity"},
        },
        paragraphs=_language_models,
    ),
}
