"""Speed of `score`: batched and fused against sentence by sentence in eager mode, interleaved, with the same threads.

python benchmarks/score.py [--threads 1]

The model has the sizes 256-512-512-256 and 10,000 words; the sentences are random, of 5 to 40 words. Sentence by
sentence is measured on a sample and scaled up by words. The result is kept in benchmarks/results/score.json.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from onlstm import files
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import score
from onlstm.text.tokenizer import Tokenizer
from twins import twins

TARGET, SENTENCES, SAMPLE, ROUNDS = 6.0, 10_000, 300, 5


@torch.no_grad()
def one_by_one(model: LanguageModel, sentences: list[list[str]]) -> list[list[float]]:
    """Return the surprisals of words and `<eos>` as one writes it without a library."""
    tokenizer, found = model.tokenizer, []
    for words in sentences:
        ids = torch.tensor([tokenizer.eos_id, *tokenizer.ids(words), tokenizer.eos_id])[:, None]
        log_p = model(ids[:-1]).logits.log_softmax(-1)
        found.append((-log_p.gather(-1, ids[1:, :, None])).flatten().tolist())
    return found


def check(fused: LanguageModel, eager: LanguageModel, sentences: list[list[str]]) -> float:
    """Return the largest difference of the two ways, which must be small."""
    ours = [[*each.surprisal, each.eos] for each in score(fused, sentences)]
    pairs = zip(ours, one_by_one(eager, sentences), strict=True)
    worst = max(abs(a - b) for x, y in pairs for a, b in zip(x, y, strict=True))
    if not worst < 1e-4:
        raise SystemExit(f"the two ways differ by {worst:.1e}; not reporting")
    return worst


def nanoseconds_per_word(work: Callable[[list[list[str]]], object], sentences: list[list[str]]) -> float:
    started = time.perf_counter_ns()
    work(sentences)
    return (time.perf_counter_ns() - started) / sum(len(words) + 1 for words in sentences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    fused, eager = twins(
        Tokenizer.of_words([f"w{k}" for k in range(9998)]),
        embedding_size=256,
        hidden_size=(512, 512, 256),
        chunk_size=8,
    )
    draw = random.Random(0)
    text = [[f"w{draw.randrange(9998)}" for _ in range(draw.randint(5, 40))] for _ in range(SENTENCES)]
    difference = check(fused, eager, text[:50])

    batched, single = [], []
    for k in range(ROUNDS):
        part = text[k * SENTENCES // ROUNDS : (k + 1) * SENTENCES // ROUNDS]
        batched.append(nanoseconds_per_word(lambda sentences: score(fused, sentences), part))
        single.append(nanoseconds_per_word(lambda sentences: one_by_one(eager, sentences), part[: SAMPLE // ROUNDS]))

    tokens = sum(len(words) + 1 for words in text)
    result = {
        "threads": threads,
        "sentences": SENTENCES,
        "tokens": tokens,
        "sample": SAMPLE,
        "batched_seconds": statistics.mean(batched) * tokens / 1e9,
        "one_by_one_seconds": statistics.mean(single) * tokens / 1e9,
        "ratio": statistics.median(b / a for a, b in zip(batched, single, strict=True)),
        "target": TARGET,
        "largest_difference": difference,
        "torch": torch.__version__,
    }
    print(
        f"{SENTENCES} sentences, {threads} thread(s): batched {result['batched_seconds']:.1f} s, one by one in eager "
        f"{result['one_by_one_seconds']:.1f} s; {result['ratio']:.1f} times faster (target: {TARGET:g})"
    )
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    files.write(results / "score.json", json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
