"""Speed of scoring minimal pairs: every distinct prefix once against one sentence at a time in eager mode.

python benchmarks/syneval.py [2x650] [256-400-400-256] [--threads 1]

All of Marvin & Linzen's sentences with WikiText-2's vocabulary (../shared/data/wikitext-2) and random weights. While
they are scored, the clock is stopped now and then to time a few random ones by themselves, fed as the original does
it, `<eos> w1 … wn . <eos>`; so both meet the same machine. If the scores are equal to 1e-4, wall and processor time are
kept in benchmarks/results/syneval.json.
"""

import argparse
import json
import os
import platform
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from onlstm import files
from onlstm.lm.model import LanguageModel
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.paper.syntax.templates import generate, load
from onlstm.text.sources import read_lines
from onlstm.text.tokenizer import Tokenizer, vocabulary
from twins import twins

ROOT = Path(__file__).resolve().parents[1]
TEXT = ROOT.parent / "shared" / "data" / "wikitext-2" / "wiki.train.tokens.xz"
TARGET, STOPS, SAMPLE = 40.0, 20, 15
"""How often the clock is stopped, and for how many sentences."""
SIZES: dict[str, dict[str, Any]] = {
    "2x650": {"embedding_size": 200, "hidden_size": 650, "num_layers": 2, "tied": False},
    "256-400-400-256": {"embedding_size": 256, "hidden_size": 400, "chunk_size": 8},
}


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


@torch.no_grad()
def one_by_one(model: LanguageModel, sentence: list[int]) -> float:
    """Return a sentence's score as one writes it without a library."""
    eos = model.tokenizer.eos_id
    ids = torch.tensor([eos, *sentence, eos])[:, None]
    log_p = model(ids[:-1]).logits.log_softmax(-1).gather(-1, ids[1:, :, None])
    return float(log_p[:-1].sum())


def measure(size: str, tokenizer: Tokenizer, sentences: list[list[int]], threads: int) -> dict[str, Any]:
    fused, eager = twins(tokenizer, **SIZES[size])
    sentence_log_probs(fused, sentences[:500])
    for sentence in sentences[:5]:
        one_by_one(eager, sentence)
    draw, alone, stopped, prefixes = random.Random(0), dict[int, float](), [0.0, 0.0], 0

    def stop(done: int, total: int) -> None:
        nonlocal prefixes
        prefixes = total
        if done * STOPS < total * (len(alone) // SAMPLE + 1):
            return
        before = clocks()
        for k in draw.sample([k for k in range(len(sentences)) if k not in alone], SAMPLE):
            alone[k] = one_by_one(eager, sentences[k])
        stopped[:] = (total + b - a for total, a, b in zip(stopped, before, clocks(), strict=True))

    before = clocks()
    found = sentence_log_probs(fused, sentences, on_progress=stop)
    once = [b - a - s for a, b, s in zip(before, clocks(), stopped, strict=True)]
    single = [s / len(alone) * len(sentences) for s in stopped]
    difference = max(abs(found[k] - score) for k, score in alone.items())
    if not difference < 1e-4:
        raise SystemExit(f"the two ways differ by {difference:.1e}; not reporting")
    wall, cpu = (b / a for a, b in zip(once, single, strict=True))
    print(
        f"{size}, {threads} thread(s), {len(sentences):,} sentences, {prefixes:,} prefixes: {once[0]:.0f} s, "
        f"one by one {single[0]:,.0f} s: {wall:.1f} times faster (target: {TARGET:g}), by processor time {cpu:.1f}",
        flush=True,
    )
    return {
        "size": size,
        "threads": threads,
        "sentences": len(sentences),
        "prefixes": prefixes,
        "sample": len(alone),
        "seconds": once[0],
        "one_by_one_seconds": single[0],
        "ratio": wall,
        "processor_ratio": cpu,
        "target": TARGET,
        "largest_difference": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", help=f"{', '.join(SIZES)} (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "syneval.json")
    options = parser.parse_args()
    if unknown := set(options.sizes) - set(SIZES):
        parser.error(f"no such size: {', '.join(unknown)}; there are {', '.join(SIZES)}")
    if not TEXT.is_file():
        sys.exit(f"{TEXT}: not there; the benchmark takes its vocabulary")
    torch.set_num_threads(options.threads)
    counts = Counter(word for line in read_lines(TEXT) for word in line.split())
    tokenizer = Tokenizer.of_words(vocabulary(counts, None, 1))
    sentences = [tokenizer.ids([*text.split(), "."]) for item in generate(load()) for text in item.sentences]
    result = json.loads(options.out.read_text()) if options.out.is_file() else {}
    for size in options.sizes or SIZES:
        result[size] = measure(size, tokenizer, sentences, options.threads)
        machine = {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count()}
        files.write(options.out, json.dumps({**result, "machine": machine}, indent=1) + "\n")


if __name__ == "__main__":
    main()
