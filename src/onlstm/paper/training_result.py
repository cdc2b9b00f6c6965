"""The content of a language model's result: what `onlstm train` writes and the pages read. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.paper.published import published
from onlstm.paper.results import Result
from onlstm.paper.tables import NONE, Table, named, network, number
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


_MOST = 12
"""Epochs of a curve that are shown, besides the best and the last."""
Results = Sequence[Result[Content]]


def summary(results: Results) -> list[str]:
    """Return the paper's Table 1, and ours text by text."""
    rows = [row for row in published("language-modelling") if row.source == "Shen et al. 2019, Table 1"]
    columns = ["parameters", "validation", "test"]
    quoted = Table(head=["published", *columns], rows=[[row.row, *row.cells(*columns)] for row in rows])
    head = ["model", "parameters", "epochs (best)", "seed", "validation", "test", "result"]
    ours = [cells(run) | {"text": text} for text, runs in _by_text(results) for run in runs]
    return ["Penn Treebank:", quoted.markdown(), "Here:", Table.of(ours, "text", *head).markdown()]


def small_budget(results: Results, rows: Mapping[str, str]) -> str:
    """Return our small networks beside the published rows, in Markdown; `rows` are the published names by run."""
    runs = {run.file: run for run in results}
    quoted = {row.row: row for row in published("language-modelling")}
    lines = []
    for name, row in rows.items():
        here = cells(runs[name]) | {"lr": f"{runs[name].content.recipe['train']['lr']:g}"} if name in runs else {}
        theirs = quoted[row].cells("parameters", "validation", "test") if row else [NONE] * 3
        columns = ("model", "parameters", "lr", "epochs (best)", "tokens/s", "validation", "test")
        line = {"row": row or name} | {column: here.get(column, NONE) for column in columns}
        lines.append(line | dict(zip(("their parameters", "their validation", "their test"), theirs, strict=True)))
    return Table.of(lines).markdown()


def details(results: Results) -> list[str]:
    """Return, text by text, the runs, the settings in which they differ, learning rates that were tried and curves."""
    blocks = []
    for text, runs in _by_text(results):
        data = runs[0].content.data
        splits = {"train": data.train, "valid": data.valid, "test": data.test}
        sizes = [f"{name} {part.tokens:,} tokens (sha256 {part.sha256[:12]})" for name, part in splits.items() if part]
        blocks += [f"### {text}", f"Profile `{data.profile}`, vocabulary {data.vocabulary:,}; {', '.join(sizes)}."]
        blocks.append(Table.of([cells(run) for run in runs]).markdown())
        blocks += [*_settings(runs), *_trials(runs)]
        blocks += ["Validation perplexity (training loss in nats) by epoch:", _curves(runs).markdown()]
    return blocks


def cells(run: Result[Content]) -> dict[str, str]:
    """Return a run's cells by column."""
    config, numbers = run.content.model, run.content.numbers
    return {
        "result": run.file,
        "model": network(config.rnn, (config.embedding_size, *config.sizes)),
        "parameters": f"{run.content.parameters / 1e6:.2f}M",
        "epochs (best)": f"{numbers.epochs} ({numbers.best_epoch})",
        "seed": str(run.origin.seed),
        "minutes": number(run.origin.seconds / 60),
        "tokens/s": f"{numbers.tokens_per_second:,.0f}",
        "validation": number(numbers.valid_perplexity, 2),
        "test": number(numbers.test_perplexity, 2),
    }


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
    rows = [
        [run.file, f"{trial.lr:g}", str(trial.epochs), number(trial.valid_perplexity, 2)]
        for run in runs
        for trial in run.content.grid or ()
    ]
    head = ["for run", "learning rate", "epochs", "validation"]
    return ["Learning rates that were tried beforehand:", Table(head=head, rows=rows).markdown()] if rows else []


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
