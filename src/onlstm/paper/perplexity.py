"""`onlstm eval`: the perplexity of a run on text, with a cache or with dynamic evaluation on request."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from onlstm.errors import UserError
from onlstm.lm.cache import evaluate_with_cache, tune_cache
from onlstm.lm.dynamic import evaluate_dynamic, tune_dynamic
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import Evaluation, evaluate
from onlstm.text import corpus as text
from onlstm.text.sources import find_sources


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
) -> dict[str, Any]:
    """Return what `onlstm eval --json` prints; the two extras are tuned on `valid`, else on the run's own."""
    model = LanguageModel.load(folder)
    files: Sequence[str | Path] = sources
    parts = find_sources(sources).files
    if len(sources) == 1 and Path(sources[0]).is_dir() and (parts["valid"] or parts["test"]):
        files = parts.get(split, [])
        if not files:
            raise UserError(
                f"--split {split}: {sources[0]} has no such part; there are {', '.join(filter(parts.get, parts))}"
            )
        say(f"{split}: {', '.join(map(str, files))}")
    ids, _ = text.encode_text(model.tokenizer, files)
    plain = evaluate(model, ids, batch=batch, compat=compat)
    found = _numbers(plain) | {"tokens": plain.tokens, "unk_rate": plain.unk_rate, "cache": None, "dynamic": None}
    if cache or dynamic:
        tuning = _validation(folder, model, valid)
    if cache:
        say(f"Tuning the cache on {len(tuning):,} tokens of validation text …")
        weights = tune_cache(model, tuning)
        better = evaluate_with_cache(model, ids, weights.theta, weights.lam, weights.size)
        found["cache"] = _numbers(better) | _settings(weights)
    if dynamic:
        say("Tuning dynamic evaluation on the first 10,000 tokens of validation text …")
        settings = tune_dynamic(model, tuning)
        moving = evaluate_dynamic(model, ids, lr=settings.lr, decay=settings.decay, window=settings.window)
        found["dynamic"] = _numbers(moving) | _settings(settings)
    return found


def _numbers(found: Evaluation) -> dict[str, Any]:
    return {"perplexity": found.perplexity, "bits_per_word": found.bits_per_word, "nll": found.nll}


def _settings(tuned: Any) -> dict[str, Any]:
    plain = asdict(tuned)
    return {"valid_nll": plain.pop("nll"), **plain}


def _validation(folder: Path, model: LanguageModel, valid: str | None) -> np.ndarray:
    """Return the ids to tune on."""
    if valid:
        return text.encode_text(model.tokenizer, valid)[0]
    if not (folder / "corpus" / "corpus.json").exists():
        raise UserError(f"{folder} has no validation text with it; name some with --valid")
    return text.load(folder / "corpus").valid
