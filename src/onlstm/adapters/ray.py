"""Trees and surprisal in Ray Data (`pip install 'onlstm[ray]'`): `ParseBatch` and `ScoreBatch`, for `map_batches`.

    ray.data.read_parquet("s3://…").map_batches(ParseBatch, fn_constructor_kwargs={"run": "en"}, batch_size=5000,
                                                compute=ray.data.ActorPoolStrategy(size=8))

They add columns to batches with a column `text`, raw text or lists of words: one model an actor, and one thread unless
asked otherwise. A line that cannot be read has an `error` and no words. `ray_corpus` leads from files to files.
"""

# mypy: disable-error-code="import-not-found, import-untyped"
# pyarrow may be missing

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow
import torch

from onlstm import files, folder
from onlstm.errors import UserError, at_least_one
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import score
from onlstm.models import locate
from onlstm.parser import Parser, Words

Record = dict[str, object]
_STRINGS, _NUMBERS = pyarrow.list_(pyarrow.string()), pyarrow.list_(pyarrow.float64())
_PAIRS = pyarrow.list_(pyarrow.list_(pyarrow.int64()))


class Batches(ABC):
    """A model, and what it makes of lines."""

    columns: ClassVar[Mapping[str, pyarrow.DataType]]
    """Those that there may be; `error` and `model`, the SHA-256 of the weights, are always there."""

    def __init__(self, run: str, threads: int) -> None:
        at_least_one(threads=threads)
        torch.set_num_threads(threads)
        self.model_hash = files.sha256(locate(run) / folder.WEIGHTS)

    def __call__(self, batch: Any) -> pyarrow.Table:
        """Return a batch, a table or a mapping from names to columns, with the columns of results."""
        given = pyarrow.table(batch)
        if "text" not in given.column_names:
            raise UserError(f"the batch has no column text, but {', '.join(given.column_names)}")
        results = self.table(self.records(given["text"].to_pylist()))
        kept = [name for name in given.column_names if name not in results.column_names]
        return pyarrow.table(
            {name: table[name] for table, names in ((given, kept), (results, results.column_names)) for name in names}
        )

    def table(self, records: Sequence[Record], **more: pyarrow.DataType) -> pyarrow.Table:
        """Return records as columns."""
        present = {name: kind for name, kind in self.columns.items() if records and name in records[0]}
        schema = pyarrow.schema(more | present | {"error": pyarrow.string(), "model": pyarrow.string()})
        return pyarrow.Table.from_pylist([record | {"model": self.model_hash} for record in records], schema)

    @abstractmethod
    def records(self, lines: Sequence[str | Words], first: int = 0) -> list[Record]:
        """Return a record of each line: its number from `first` on, `id`, what is found, `unknown`, `error` or None."""


class ParseBatch(Batches):
    """Adds `words`, `offsets`, `distances` and `spans`; `labels`, `confidence` and `votes` if asked.

    The options are those of `Parser`.
    """

    columns: ClassVar = {"words": _STRINGS, "offsets": _PAIRS, "distances": _NUMBERS, "spans": _PAIRS}
    columns |= {"labels": _STRINGS, "confidence": _NUMBERS, "votes": _NUMBERS}

    def __init__(
        self, run: str = "en", *, threads: int = 1, labels: bool = False, confidence: bool = False, **options: Any
    ) -> None:
        super().__init__(run, threads)
        self.parser = Parser.load(run, labels=labels, votes=confidence, **options)
        asked = {"labels": labels, "confidence": confidence}
        self._unasked: Any = {name: None for name in asked if not asked[name]}
        self._blank = self.parser.parse("")

    def records(self, lines: Sequence[str | Words], first: int = 0) -> list[Record]:
        """Return what `Parse.record` does, and more."""
        errors = list[UserError]()
        parses = {parse.id: parse for parse in self.parser.parse_lines(lines, errors.append, first)}
        records = list[Record]()
        for id, line in enumerate(lines, first):
            error = None if id in parses else str(errors.pop(0))
            parse = replace(parses.get(id) or replace(self._blank, id=id, text=str(line)), **self._unasked)
            records.append(parse.record() | {"unknown": parse.unknown, "error": error})
        return records


class ScoreBatch(Batches):
    """Adds `words`, their `surprisal` in nats, and that of the end of the line, `eos`."""

    columns: ClassVar = {"words": _STRINGS, "surprisal": _NUMBERS, "eos": pyarrow.float64()}

    def __init__(self, run: str = "en-small", *, threads: int = 1, device: str = "auto") -> None:
        super().__init__(run, threads)
        self.language_model = LanguageModel.load(run, device=device)

    def records(self, lines: Sequence[str | Words], first: int = 0) -> list[Record]:
        """Return what `SentenceScore.record` does, and more."""
        readable = [isinstance(line, str | list) for line in lines]
        scores = score(self.language_model, [line if fits else "" for line, fits in zip(lines, readable, strict=True)])
        records = list[Record]()
        for id, (fits, scored) in enumerate(zip(readable, scores, strict=True), first):
            unknown = self.language_model.tokenizer.unknown(scored.ids)
            error = {} if fits else {"eos": None, "error": f"line {id + 1}: not text"}
            records.append({"id": id, **scored.record(), "unknown": unknown, "error": None, **error})
        return records
