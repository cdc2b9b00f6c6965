"""From files to files with Ray Data: a corpus is read in parts of consecutive lines, and each becomes a file.

Parts are named after their first line, so in the order of their names they are the corpus. The actor that makes one
writes it whole; so a part that is lost with its actor is made again, and work that was stopped goes on.
"""

# mypy: disable-error-code="import-not-found, import-untyped"
# Ray may be missing

import json
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import ray
import ray.data
from pyarrow import parquet

from onlstm import files
from onlstm.adapters.ray import Batches
from onlstm.errors import UserError
from onlstm.text.sources import blank_separated, read_inputs

LINES, CHARACTERS = 5000, 1 << 23
"""Of a part, at most; a single line may be longer."""
_NAMED = 5


class Part(NamedTuple):
    """What is known of a finished part; of one that was there before, only the number of lines."""

    lines: int
    words: int = 0
    unknown: int = 0
    bad: int = 0
    errors: Sequence[str] = ()
    """Of the first bad lines."""


@contextmanager
def cluster(address: str, workers: int | None, threads: int) -> Iterator[int]:
    """Connect to Ray, a "local" one or a running one at host:port; yield the number of workers, by default all it has.

    A `UserError` of a worker is raised here.
    """
    workers = workers or (max(1, (os.cpu_count() or 1) // threads) if address == "local" else None)
    local = {"num_cpus": workers * threads, "include_dashboard": False} if address == "local" and workers else {}
    try:
        with _quiet():
            ray.init(address, log_to_driver=False, logging_level="ERROR", **local)
        room = int(ray.cluster_resources().get("CPU", 0)) // threads
        if (workers or 1) > room:
            raise UserError(f"workers {workers or 1}: the cluster has processors for {room}")
        yield workers or room
    except ConnectionError:
        raise UserError(f"{address}: no Ray cluster can be reached there; `ray start` prints the address") from None
    except Exception as error:
        cause: BaseException | None = error
        while cause and type(cause) is not UserError:  # Ray derives classes of its own from those of a worker's errors
            cause = getattr(cause, "cause", None) or cause.__cause__
        if not cause:
            raise
        raise UserError(str(cause)) from None
    finally:
        ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray's own messages, also those of its C++, from stderr."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    settings["RAY_worker_niceness"] = "0"  # Ray's own 15 starves workers where others compute, too
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"ray\.")
    stderr, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nothing)


def work(
    make: partial[Batches], paths: Sequence[Path], out: Path, *, workers: int, columnar: bool, tokenized: bool
) -> tuple[int, Iterator[Part]]:
    """Return the number of lines of files and an iterator over the parts as they are finished, in any order.

    Args:
        make: called by each actor.
        paths: text with a sentence on a line, CoNLL-U, or Parquet with a column `text`.
        out: an existing folder; the parts that it has are not made again.
        columnar: write Parquet instead of JSON lines.
        tokenized: lines are words with blanks between.
    """
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars, context.target_max_block_size = False, 1  # so that a part is a block, and a task
    counts = ray.get([ray.remote(_count).options(num_cpus=0).remote(path.resolve()) for path in paths])
    firsts = accumulate(counts, initial=0)
    items = [
        {"path": str(path.resolve()), "name": str(path), "first": first}
        for path, first in zip(paths, firsts, strict=False)
    ]
    parts = (
        ray.data.from_items(items, override_num_blocks=len(items))
        .map_batches(_read, batch_size=1, num_cpus=0, fn_kwargs={"tokenized": tokenized})
        .map_batches(
            _Writer,
            fn_constructor_args=(make, out.resolve(), columnar),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=make.keywords["threads"],
            compute=ray.data.ActorPoolStrategy(size=workers),
        )
        .iter_batches(batch_size=None, batch_format="pyarrow")
    )
    return sum(counts), (Part(**row) for table in parts for row in table.to_pylist())


def _parquet(path: Path) -> parquet.ParquetFile:
    try:
        file = parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]:.80})") from None
    if "text" not in file.schema_arrow.names:
        raise UserError(f"{path}: no column text; there are {', '.join(file.schema_arrow.names):.200}")
    return file


def _count(path: Path) -> int:
    return int(_parquet(path).metadata.num_rows) if path.suffix == ".parquet" else sum(1 for _ in read_inputs([path]))


def _lines(path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the lines of a file, each with a message if it is not UTF-8."""
    if path.suffix != ".parquet":
        yield from read_inputs([path])
        return
    for batch in _parquet(path).iter_batches(columns=["text"]):
        yield from ((line, "") for line in batch["text"].to_pylist())


def _read(batch: Any, tokenized: bool) -> Iterator[pyarrow.Table]:
    """Yield the lines of a file, those of a part in one row."""
    (path,), (name,), (first,) = batch["path"], batch["name"], batch["first"]
    lines, errors, size = list[Any](), list[str](), 0
    for line, error in _lines(Path(path)):
        text = "" if error else line
        lines.append(blank_separated(text) if tokenized and isinstance(text, str) else text)
        errors.append(error.replace(path, name))
        size += len(text or "")
        if len(lines) == LINES or size >= CHARACTERS:
            yield pyarrow.table({"first": [first], "lines": [lines], "errors": [errors]})
            first, lines, errors, size = first + len(lines), [], [], 0
    if lines:
        yield pyarrow.table({"first": [first], "lines": [lines], "errors": [errors]})


class _Writer:
    """An actor: the lines of a part in, its file out."""

    def __init__(self, make: partial[Batches], out: Path, columnar: bool) -> None:
        self.batches, self.out, self.columnar = make(), out, columnar

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        (row,) = batch.to_pylist()
        path = self.out / f"part-{row['first']:012}.{'parquet' if self.columnar else 'jsonl'}"
        part = Part(len(row["lines"])) if path.exists() else self._write(path, **row)
        return pyarrow.Table.from_pylist([part._asdict()])

    def _write(self, path: Path, first: int, lines: list[Any], errors: list[str]) -> Part:
        records: list[Any] = self.batches.records(lines, first)
        for record, error in zip(records, errors, strict=True):
            record["error"] = error or record["error"]
        if self.columnar:
            table = self.batches.table(records, id=pyarrow.int64())
            files.write(path, lambda file: parquet.write_table(table, file))
        else:
            files.write(path, "".join(map(self._json, records)))
        words, unknown = (
            sum(counts) for counts in zip(*((len(r["words"]), r["unknown"]) for r in records), strict=True)
        )
        bad = [record["error"] for record in records if record["error"]]
        return Part(len(lines), words, unknown, len(bad), bad[:_NAMED])

    def _json(self, record: dict[str, Any]) -> str:
        hidden = {"unknown"} if record["error"] else {"unknown", "error"}
        shown = {key: value for key, value in record.items() if key not in hidden} | {"model": self.batches.model_hash}
        return json.dumps(shown, ensure_ascii=False) + "\n"
