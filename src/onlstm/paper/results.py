"""Result files: what a command measured, with the command, the machine and the versions it was measured by.

On disk a result is one flat JSON object: the fields of `Origin` and those of the content, a frozen dataclass that the
experiment defines.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onlstm import __version__, files
from onlstm.errors import UserError
from onlstm.grammar.config import GrammarConfig
from onlstm.records import from_json, plain, typed

if TYPE_CHECKING:
    from onlstm.grammar.pcfg import Grammar
    from onlstm.lm.model import LanguageModel

FORMAT_VERSION = 1
Content = TypeVar("Content")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How a result came about."""

    kind: str
    name: str
    command: str
    versions: Mapping[str, str]
    seed: int | None = None
    seconds: float
    threads: int
    machine: str
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Result(Generic[Content]):
    """One result file."""

    file: str
    """Its name without .json, which is unique in a folder; a run's own name is not."""
    origin: Origin
    content: Content


@dataclass(frozen=True, kw_only=True)
class Model:
    """What identifies a model in a result."""

    path: str
    name: str
    rnn: str
    sizes: Sequence[int]
    """Of the embedding and of every layer; of a grammar, its nonterminals and preterminals."""
    parameters: int
    valid_perplexity: float | None = None
    test_perplexity: float | None = None

    @classmethod
    def of(cls, run: Path, model: "LanguageModel | Grammar") -> "Model":
        """Return the facts of a run's model; its name and perplexities if RUN/result.json is there."""
        try:
            trained = from_json((run / "result.json").read_text(encoding="utf-8"))
            numbers = dict(trained.get("numbers", {}))
        except (OSError, ValueError, AttributeError, TypeError):  # none, or not that of a training
            trained, numbers = {}, {}
        if isinstance(model.config, GrammarConfig):
            rnn, sizes = "grammar", [model.config.nonterminals, model.config.preterminals]
        else:
            rnn, sizes = model.config.rnn, [model.config.embedding_size, *model.config.sizes]
        return cls(
            path=str(run),
            name=trained.get("name", run.name),
            rnn=rnn,
            sizes=sizes,
            parameters=sum(p.numel() for p in model.parameters()),
            valid_perplexity=numbers.get("valid_perplexity"),
            test_perplexity=numbers.get("test_perplexity"),
        )


def save(
    path: Path, *, kind: str, content: object, command: str, seed: int | None, seconds: float, name: str = ""
) -> dict[str, Any]:
    """Write a result file and return its JSON object; fields of the content that are None are left out."""
    import torch

    record: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "name": name or path.stem,
        "command": command,
        "versions": {"onlstm": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "seed": seed,
        "seconds": seconds,
        "threads": torch.get_num_threads(),
        "machine": _machine(),
        **plain(content, sparse=True),
        "notes": [],
    }
    files.write(path, files.json_text(record) + "\n")
    return record


def read(path: Path) -> dict[str, Any]:
    """Return the JSON object of a result file; a broken or foreign one is the user's mistake."""
    try:
        record = from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not JSON ({error}); copy the run's result.json again") from None
    version = record.get("format_version") if isinstance(record, dict) else None
    if version != FORMAT_VERSION:
        raise UserError(f"{path}: format_version {version} is not {FORMAT_VERSION}; is it a result.json of a run?")
    return dict(record)


def result(path: Path, contents: Mapping[str, type]) -> Result[Any]:
    """Return the result in a file; `contents` has the type of each kind's content."""
    record = read(path)
    origin = typed(Origin, record, str(path))
    if origin.kind not in contents:
        raise UserError(f"{path}: unknown kind {origin.kind!r}; known: {', '.join(contents)}")
    name = path.stem if path.stem != "result" else path.parent.name
    return Result(file=name, origin=origin, content=typed(contents[origin.kind], record, str(path)))


def load(folder: Path, contents: Mapping[str, type]) -> list[Result[Any]]:
    """Return the results in a folder and in the runs in it, by name."""
    paths = files_of(folder)
    if not paths:
        way = f"make some: `onlstm train … --out {folder / 'RUN'}` or `onlstm evaluate … --out {folder / 'NAME.json'}`"
        raise UserError(f"{folder}: no results (*.json) there; {way}")
    return [result(path, contents) for path in paths]


def files_of(folder: Path) -> list[Path]:
    """Return the result files in a folder: NAME.json, and result.json of each run."""
    paths = sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))
    return [*paths, *sorted(folder.glob("*/result.json"))]


def _machine() -> str:
    """Return the processor's name and the number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores"
