"""`onlstm eval`: the perplexity of a run on text, with a cache or with dynamic evaluation on request."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from onlstm.errors import UserError, at_least_one
from onlstm.lm.adaptation import Cache, Dynamic
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import evaluate
from onlstm.paper import results
from onlstm.paper.training_result import Evaluated, Perplexity
from onlstm.text import corpus
from onlstm.text.sources import find_sources

NUMBERS = ("perplexity", "bits_per_word", "nll")


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
    device: str = "auto",
    out: Path | None = None,
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> Perplexity:
    """Return the perplexity of a run on text; cache and dynamic evaluation are tuned on `valid` or the run's own.

    It is saved in `out`, with the command.
    """
    started = time.perf_counter()
    at_least_one(batch_size=batch)
    model = LanguageModel.load(folder, device=device)
    paths = _files(sources, split)
    if paths != sources:
        say(f"{split}: {', '.join(map(str, paths))}")
    ids = corpus.encode_text(model.tokenizer, paths)
    if len(ids) < 2 * batch:
        raise UserError(f"--batch-size {batch}: the text has {len(ids):,} tokens; use at most {max(1, len(ids) // 2)}")
    plain = evaluate(model, ids, batch=batch, compat=compat, on_progress=on_progress)
    rows: dict[str, Any] = {}
    if cache:
        tuning = _validation(folder, model, valid)
        say(f"Tuning the cache on {len(tuning):,} tokens of validation text …")
        rows["cache"] = _row(Cache.tune(model, tuning, on_progress=on_progress), model, ids, on_progress)
    if dynamic:
        say("Tuning dynamic evaluation on the first 10,000 tokens of validation text …")
        tuned = Dynamic.tune(model, _validation(folder, model, valid), on_progress=on_progress)
        rows["dynamic"] = _row(tuned, model, ids, on_progress)
    found = Perplexity(**{name: getattr(plain, name) for name in (*NUMBERS, "tokens", "unk_rate")}, **rows)
    if out:
        part = split if paths != sources else None
        text = ", ".join(Path(source).name for source in sources)
        content = Evaluated(**vars(found), run=results.Model.of(folder, model), text=text, split=part)
        seconds = time.perf_counter() - started
        results.save(out, kind="perplexity", content=content, command=command, seed=None, seconds=seconds)
    return found


def _row(
    tuned: Cache | Dynamic, model: LanguageModel, ids: np.ndarray, on_progress: Callable[[int, int], object]
) -> dict[str, float]:
    scored, settings = tuned.evaluate(model, ids, on_progress), asdict(tuned)
    return {name: getattr(scored, name) for name in NUMBERS} | {"valid_nll": settings.pop("nll"), **settings}


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
