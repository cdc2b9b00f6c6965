"""The results of language models: what `onlstm train` and `eval` write and the pages read. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.paper.published import published
from onlstm.paper.results import Model, Result
from onlstm.paper.tables import NONE, Table, bundled, named, network, number
from onlstm.records import from_json, typed
from onlstm.text.corpus import Part


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a model was trained on."""

    name: str = ""
    profile: str
    vocabulary: int
    train: Part
    valid: Part
    test: Part | None = None


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """How training went; perplexities are those of the best epoch's weights."""

    valid_perplexity: float
    test_perplexity: float | None = None
    best_epoch: int
    epochs: int
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """An epoch, as seen during training."""

    epoch: int
    step: int = 0
    train_loss: float
    valid_loss: float = 0.0
    valid_perplexity: float
    best_epoch: int = 0
    averaging: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A learning rate that was tried beforehand."""

    lr: float
    epochs: int
    valid_perplexity: float
    seconds: float = 0.0
    """Of a processor, an epoch."""


def trials_beside(run: Path) -> list[Trial]:
    """Return the learning rates that were tried before a run, as noted beside its folder."""
    path = run.with_name(f"{run.name}.trials") / "trials.json"
    try:
        rows = list(from_json(files.read(path))) if path.exists() else []
    except (ValueError, TypeError):
        raise UserError(f"{path}: damaged: not a list in JSON; delete it to try again") from None
    return [typed(Trial, row, str(path)) for row in rows]


@dataclass(frozen=True, kw_only=True)
class Content:
    """A training that is finished."""

    recipe: Mapping[str, Any]
    """All settings, as `Recipe.settings` returns them."""
    data: Text
    parameters: int
    processes: int = 1
    numbers: Numbers
    curve: Sequence[Epoch]
    grid: Sequence[Trial] | None = None

    @property
    def model(self) -> LMConfig:
        """The shape of the model."""
        return LMConfig.of(self.recipe.get("model", {}))


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """How well a run predicts a text, per token with `<eos>`."""

    perplexity: float
    bits_per_word: float
    nll: float
    tokens: int
    unk_rate: float
    cache: Mapping[str, float] | None = None
    """The first three with a neural cache, the `valid_nll` that it was tuned to, and its weights."""
    dynamic: Mapping[str, float] | None = None
    """The same with dynamic evaluation."""


@dataclass(frozen=True, kw_only=True)
class Evaluated(Perplexity):
    """The perplexity of a run, saved."""

    run: Model
    text: str
    """Names of its files."""
    split: str | None = None
    """Which part of the text, if it is a folder with several."""


_MOST = 12
"""Epochs of a curve that are shown, besides the best and the last."""
Results = Sequence[Result[Content]]
Every = Sequence[Result[Any]]
"""Of trainings and of perplexities."""


def summary(results: Every) -> list[str]:
    """Return the paper's Table 1 with our small networks beside it, and our other runs text by text."""
    rows = _small_rows()
    others = [run for run in _trained(results) if run.file not in rows]
    head = ["model", "parameters", "epochs (best)", "seed", "validation", "test", "result"]
    ours = [cells(run) | {"text": text} for text, runs in _by_text(others) for run in runs]
    table = Table.of(ours, "text", *head).markdown() if ours else ""
    return [*_table_1(results), *["Here:", table] * bool(ours)]


def details(results: Every) -> list[str]:
    """Return Table 1, then text by text the runs, the settings in which they differ, and curves."""
    rows = _small_rows()
    small = [run for run in results if run.file in rows]
    blocks = ["### Table 1 at one small budget", *_table_1(small), *_trials(_trained(small))] if small else []
    for text, runs in _by_text([run for run in _trained(results) if run.file not in rows]):
        data = runs[0].content.data
        splits = {"train": data.train, "valid": data.valid, "test": data.test}
        sizes = [f"{name} {part.tokens:,} tokens (sha256 {part.sha256[:12]})" for name, part in splits.items() if part]
        blocks += [f"### {text}", f"Profile `{data.profile}`, vocabulary {data.vocabulary:,}; {', '.join(sizes)}."]
        blocks.append(Table.of([cells(run) for run in runs]).markdown())
        blocks += [*_settings(runs), *_trials(runs)]
        blocks += ["Validation perplexity (training loss in nats) by epoch:", _curves(runs).markdown()]
    if evaluated := [result for result in results if isinstance(result.content, Evaluated)]:
        about = "By `onlstm eval`, also with a neural cache and with dynamic evaluation, both tuned on validation text:"
        blocks += [
            "### With a cache, or dynamic evaluation",
            about,
            Table.of(list(map(_adapted, evaluated))).markdown(),
        ]
    return blocks


def _trained(results: Every) -> Results:
    return [result for result in results if isinstance(result.content, Content)]


def _adapted(result: Result[Evaluated]) -> dict[str, str]:
    """Return the cells of a perplexity."""
    content = result.content
    ways = {"with the cache": content.cache, "dynamic": content.dynamic}
    return {
        "result": result.file,
        "model": network(content.run.rnn, content.run.sizes),
        "text": ", ".join(filter(None, (named(content.text), content.split))),
        "tokens": f"{content.tokens:,}",
        "perplexity": number(content.perplexity, 2),
        **{name: number(row["perplexity"] if row else None, 2) for name, row in ways.items()},
    }


def _small_rows() -> Mapping[str, str]:
    """Return the published row beside each run that `onlstm reproduce table1 --scale small` makes; "": none."""
    rows: Mapping[str, str] = bundled("reproduce.yaml")["table1"]["small"]["rows"]
    return rows


def _table_1(results: Every) -> list[str]:
    """Return the published rows, and beside them our networks of one small budget as far as they are there."""
    quoted = {row.row: row for row in published("language-modelling") if row.source == "Shen et al. 2019, Table 1"}
    theirs, ours = ("parameters", "validation", "test"), ("model", "parameters", "lr", "epochs (best)", "tokens/s")
    names = {row: name for name, row in _small_rows().items() if row}
    names |= {name: name for name, row in _small_rows().items() if not row}
    runs = {run.file: run for run in results if run.file in names.values()}
    lines = []
    for row in [*quoted, *(name for name in names if name in runs)]:
        line = {"published": row if row in quoted else NONE}
        line |= dict(zip(theirs, quoted[row].cells(*theirs) if row in quoted else [NONE] * len(theirs), strict=True))
        if runs:
            run = runs.get(names.get(row, ""))
            here = _small_cells(run) if run else {}
            line |= {f"our {column}": here.get(column, NONE) for column in (*ours, "validation", "test")}
        lines.append(line)
    about = (
        "; ours with a small budget: 20 minutes of one core, the best of three learning rates after an epoch, one seed"
    )
    return [f"Penn Treebank{about if runs else ''}:", Table.of(lines).markdown()]


def _small_cells(run: Result[Any]) -> dict[str, str]:
    """Return the cells of a row of the small budget: a training, or one that reads its test text with a cache."""
    if isinstance(run.content, Evaluated):
        adapted = _adapted(run)
        return adapted | {"parameters": f"{run.content.run.parameters / 1e6:.2f}M", "test": adapted["with the cache"]}
    return cells(run) | {"lr": f"{run.content.recipe['train']['lr']:g}"}


def cells(run: Result[Content]) -> dict[str, str]:
    """Return a run's cells by column."""
    config, numbers = run.content.model, run.content.numbers
    share = run.content.recipe.get("train", {}).get("last_epoch", 1)
    epochs = f"{numbers.epochs - 1 + share:.1f}" if share < 1 else str(numbers.epochs)
    return {
        "result": run.file,
        "model": _model(config),
        "parameters": f"{run.content.parameters / 1e6:.2f}M",
        "epochs (best)": f"{epochs} ({numbers.best_epoch})",
        "seed": str(run.origin.seed),
        "minutes": number(run.origin.seconds / 60),
        "tokens/s": f"{numbers.tokens_per_second:,.0f}",
        "validation": number(numbers.valid_perplexity, 2),
        "test": number(numbers.test_perplexity, 2),
    }


def _model(config: LMConfig) -> str:
    """Return the network, its sizes, and what stands before or after its layers.

    >>> _model(LMConfig(rnn="lstm", embedding_size=360, hidden_size=360, num_layers=2, mos=3))
    'LSTM 360→360→360, 3 softmaxes'
    """
    parts = {"characters": config.filters, "pointer": config.pointer, "augmented loss": config.augmented}
    parts[f"{config.mos} softmaxes"] = config.mos
    sizes = config.embedding_size, *config.sizes
    return ", ".join((network(config.rnn, sizes), *(name for name, there in parts.items() if there)))


def _by_text(results: Results) -> list[tuple[str, list[Result[Content]]]]:
    """Return the runs on each text, the Penn Treebank first."""
    texts: dict[tuple[str, ...], list[Result[Content]]] = {}
    for result in results:
        data = result.content.data
        texts.setdefault((data.train.sha256, data.valid.sha256, str(data.vocabulary)), []).append(result)
    groups = [(named(runs[0].content.data.name) or f"Text {k}", runs) for k, runs in enumerate(texts.values(), 1)]
    return sorted(groups, key=lambda group: group[0] != named("ptb-lm"))


def _settings(runs: Results) -> list[str]:
    """Return the table of settings in which the runs differ, if there are any."""
    recipes = [
        {f"{part}.{key}": value for part in ("text", "model", "train") for key, value in recipe.get(part, {}).items()}
        for recipe in (run.content.recipe for run in runs)
    ]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    values = {key: [str(recipe.get(key, NONE)) for recipe in recipes] for key in keys}
    rows = [[key, *cells] for key, cells in values.items() if len(set(cells)) > 1]
    head = ["setting", *(run.file for run in runs)]
    return ["Settings in which they differ:", Table(head=head, rows=rows).markdown()] if rows else []


def _trials(runs: Results) -> list[str]:
    """Return the table of learning rates that were tried beforehand, if any were."""
    tried = {run.file: {trial.lr: trial for trial in run.content.grid} for run in runs if run.content.grid}
    rates = sorted({lr for trials in tried.values() for lr in trials})
    rows = []
    for name, trials in tried.items():
        epochs = sorted({trial.epochs for trial in trials.values()})
        found = (number(trials[lr].valid_perplexity, 2) if lr in trials else NONE for lr in rates)
        rows.append([name, ", ".join(map(str, epochs)), *found])
    head = ["for run", "epochs", *(f"{lr:g}" for lr in rates)]
    about = "Validation perplexity of learning rates that were tried beforehand:"
    return [about, Table(head=head, rows=rows).markdown()] if rows else []


def _curves(runs: Results) -> Table:
    """Return validation perplexity and training loss by epoch; of long runs some epochs, the best and the last."""
    curves = [{epoch.epoch: epoch for epoch in run.content.curve} for run in runs]
    epochs = sorted({epoch for curve in curves for epoch in curve})
    shown = {run.content.numbers.best_epoch for run in runs}.union(
        epochs[:: -(-len(epochs) // _MOST) or 1], epochs[-1:]
    )
    rows = []
    for epoch in (epoch for epoch in epochs if epoch in shown):
        points = [curve.get(epoch) for curve in curves]
        cells = [f"{number(at.valid_perplexity, 2)} ({at.train_loss:.3f})" if at else NONE for at in points]
        rows.append([str(epoch), *cells])
    return Table(head=["epoch", *(run.file for run in runs)], rows=rows)
