"""`onlstm eval`: the perplexity of a run on text, with a cache or with dynamic evaluation on request."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onlstm.errors import UserError
from onlstm.lm.adaptation import Cache, Dynamic
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import Evaluation, evaluate
from onlstm.text import corpus
from onlstm.text.sources import find_sources


@dataclass(frozen=True, kw_only=True)
class Row:
    """How well a text was predicted, per token with `<eos>`."""

    perplexity: float
    bits_per_word: float
    nll: float


@dataclass(frozen=True, kw_only=True)
class CacheRow(Row):
    """The same with a neural cache, whose weights gave `valid_nll` on the text they were tuned on."""

    valid_nll: float
    theta: float
    lam: float
    size: int


@dataclass(frozen=True, kw_only=True)
class DynamicRow(Row):
    """The same with dynamic evaluation, tuned likewise."""

    valid_nll: float
    lr: float
    decay: float
    window: int


@dataclass(frozen=True, kw_only=True)
class Result(Row):
    """What `onlstm eval --json` prints."""

    tokens: int
    unk_rate: float
    cache: CacheRow | None = None
    dynamic: DynamicRow | None = None


def run(
    folder: Path,
    sources: Sequence[str],
    *,
    split: str = "test",
    cache: bool = False,
    dynamic: bool = False,
    valid: str | None = None,
    batch: int = 1,
    compat: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Return the perplexity of a run on text; cache and dynamic evaluation are tuned on `valid` or the run's own."""
    model = LanguageModel.load(folder)
    paths = _files(sources, split)
    if paths != sources:
        say(f"{split}: {', '.join(map(str, paths))}")
    ids = corpus.encode_text(model.tokenizer, paths)
    plain = evaluate(model, ids, batch=batch, compat=compat)
    with_cache = with_dynamic = None
    if cache:
        tuning = _validation(folder, model, valid)
        say(f"Tuning the cache on {len(tuning):,} tokens of validation text …")
        weights = Cache.tune(model, tuning)
        with_cache = CacheRow(**_numbers(weights.evaluate(model, ids)), **_tuned(weights))
    if dynamic:
        tuning = _validation(folder, model, valid)
        say("Tuning dynamic evaluation on the first 10,000 tokens of validation text …")
        tuned = Dynamic.tune(model, tuning)
        with_dynamic = DynamicRow(**_numbers(tuned.evaluate(model, ids)), **_tuned(tuned))
    counts: Any = {"tokens": plain.tokens, "unk_rate": plain.unk_rate}
    return Result(**_numbers(plain), **counts, cache=with_cache, dynamic=with_dynamic)


def _numbers(evaluation: Evaluation) -> Any:
    return {name: getattr(evaluation, name) for name in ("perplexity", "bits_per_word", "nll")}


def _tuned(settings: Cache | Dynamic) -> Any:
    fields = asdict(settings)
    return {"valid_nll": fields.pop("nll"), **fields}


def _files(sources: Sequence[str], split: str) -> Sequence[str | Path]:
    """Return the files of one part, if the source is a folder with parts; else the sources."""
    parts = find_sources(sources).files
    if len(sources) > 1 or not Path(sources[0]).is_dir() or not (parts["valid"] or parts["test"]):
        return sources
    if not parts.get(split):
        raise UserError(f"--split {split}: {sources[0]} has only {', '.join(filter(parts.get, parts))}")
    return parts[split]


def _validation(folder: Path, model: LanguageModel, valid: str | None) -> np.ndarray:
    """Return the ids to tune on."""
    if valid:
        return corpus.encode_text(model.tokenizer, valid)
    if not (folder / "corpus" / "corpus.json").exists():
        raise UserError(f"{folder} has no validation text with it; name some with --valid")
    return corpus.load(folder / "corpus").valid
