"""Speed of parsing: the batched `Parser` against one sentence at a time, decoders, votes, memory of the command.

python benchmarks/parse.py [speed] [decoding] [votes] [memory] [--threads 1 2] [--sentences 1000000]

`speed`: a model of the paper's size with random weights on the sentences of the WSJ sample (../shared/data/wsj-sample),
interleaved: all of them batched, a random part of them one by one, eager and with the fused kernel; all three decode.
`decoding`: random distances for the same sentences, and one sentence of 200,000 words with rising distances, in
processor time.
`votes`: five random trees for each of 2,559 of the sentences voted, the shares of 30 trees' spans, and the best tree
over 1,000 words, in processor time.
`memory`: `onlstm parse RUN -` of a `tiny` model with random weights, invented sentences on its standard input.
What is measured replaces its part of benchmarks/results/parse.json.
"""

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onlstm import files
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.paper.parsing.alignment import aligned
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer, vocabulary
from onlstm.trees import Tree, tree_from_distances
from onlstm.trees.average import best_trees, shares, votes
from onlstm.trees.baselines import random_tree
from onlstm.trees.treebank import read_treebank
from twins import twins

ROOT = Path(__file__).resolve().parents[1]
WSJ = ROOT.parent / "shared" / "data" / "wsj-sample" / "wsj-sample-ldc-layout.zip"
RATIO, WORDS_PER_SECOND, GIGABYTES = 6.0, 200_000, 2.0
VOTED, VOTE_SECONDS = 2559, 3.0
ROUNDS, PART = 3, 60
"""How often each way is timed, and on how many sentences one by one."""


def sentences() -> list[list[str]]:
    """Return the words of the WSJ sample as a language model reads them."""
    if not WSJ.is_file():
        sys.exit(f"{WSJ}: not there; the benchmark parses its sentences")
    return [[aligned(word) for word in tree.words] for tree in read_treebank(WSJ).trees]


@torch.no_grad()
def one_by_one(model: LanguageModel, text: list[list[str]], layer: int = 2) -> list[tuple[list[float], Tree]]:
    """Return distances and trees as one writes it without a library, but no layer above the one that is read."""
    found = []
    for words in text:
        ids = torch.tensor([model.tokenizer.eos_id, *model.tokenizer.ids(words)])[:, None]
        distances = model.encode(ids, layers=layer).distances
        assert distances is not None
        d = distances.forget[layer - 1, 1:, 0].tolist()
        found.append((d, tree_from_distances(d, words)))
    return found


def check(parser: Parser, eager: LanguageModel, text: list[list[str]]) -> float:
    """Return the largest difference of the two ways, which must be small."""
    pairs = zip(parser.parse(text), one_by_one(eager, text), strict=True)
    worst = max(abs(a - b) for ours, (d, _) in pairs for a, b in zip(ours.distances, d, strict=True))
    if not worst < 1e-5:
        raise SystemExit(f"the two ways differ by {worst:.1e}; not reporting")
    return worst


def seconds_per_word(work: Callable[[list[list[str]]], object], text: list[list[str]]) -> float:
    started = time.perf_counter()
    work(text)
    return (time.perf_counter() - started) / sum(map(len, text))


def measure_speed(threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    text = sentences()
    fused, eager = twins(Tokenizer.of_words(vocabulary(Counter(word for words in text for word in words), 10_000, 1)))
    parser = Parser(fused)
    difference = check(parser, eager, text[:30])
    per_sentence = sum(map(len, text)) / len(text)
    ways: dict[str, tuple[Callable[[list[list[str]]], object], int]] = {
        "batched": (parser.parse, len(text)),
        "eager": (lambda part: one_by_one(eager, part), PART),
        "fused": (lambda part: one_by_one(fused, part), 4 * PART),
    }
    draw, cost = random.Random(0), {name: list[float]() for name in ways}
    for _ in range(ROUNDS):
        for name, (work, count) in ways.items():
            cost[name].append(seconds_per_word(work, draw.sample(text, count)))

    def ratio(name: str) -> float:
        return statistics.median(b / a for a, b in zip(cost["batched"], cost[name], strict=True))

    rates = {name: 1 / (statistics.median(some) * per_sentence) for name, some in cost.items()}
    print(
        f"{threads} thread(s), {len(text)} sentences of {per_sentence:.1f} words: {rates['batched']:.0f} sentences/s "
        f"batched; one by one {rates['eager']:.1f} eager, {rates['fused']:.1f} fused: "
        f"{ratio('eager'):.1f} (target {RATIO:g}) and {ratio('fused'):.1f} times faster",
        flush=True,
    )
    return {
        "threads": threads,
        "sentences": len(text),
        "words": sum(map(len, text)),
        "sentences_per_second": rates,
        "ratio_to_eager": ratio("eager"),
        "ratio_to_fused": ratio("fused"),
        "target": RATIO,
        "largest_difference": difference,
    }


def measure_decoding() -> list[dict[str, Any]]:
    draw = random.Random(0)
    text = [[str(k) for k in range(len(words))] for words in sentences()]
    cases = {
        "wsj": [([draw.random() for _ in words], words) for words in text],
        "monotone": [([k / 200_000 for k in range(200_000)], [str(k) for k in range(200_000)])],
    }
    rows = []
    for decoder in ("paper", "unbiased"):
        for name, case in cases.items():
            words, best = sum(len(d) for d, _ in case), float("inf")
            for _ in range(ROUNDS):
                started = time.process_time()
                for d, some in case:
                    tree_from_distances(d, some, decoder)
                best = min(best, time.process_time() - started)
            rows.append({"decoder": decoder, "case": name, "words_per_second": words / best})
            print(f"decoding, {decoder:8} {name:8} {words / best:>10,.0f} words/s (target {WORDS_PER_SECOND:,})")
    return rows


def measure_votes() -> dict[str, float]:
    draw = random.Random(0)
    text = draw.sample(sentences(), VOTED)
    forests = [[random_tree(words, draw) for words in text] for _ in range(30)]
    some = list(zip(*forests, strict=True))[: VOTED // 10]
    scores = np.random.default_rng(0).random((1, 1001, 1001))
    work: dict[str, Callable[[], object]] = {
        "votes_seconds": lambda: votes(forests[:5]),
        "shares_seconds": lambda: [shares(trees) for trees in some],
        "thousand_words_seconds": lambda: best_trees(scores),
    }
    best = dict.fromkeys(work, float("inf"))
    for _ in range(ROUNDS):
        for name, function in work.items():
            started = time.process_time()
            function()
            best[name] = min(best[name], time.process_time() - started)
    voted, shared, long = best.values()
    print(
        f"votes of five trees, {VOTED:,} sentences: {voted:.2f} s (target {VOTE_SECONDS:g}); shares of 30 trees: "
        f"{len(some) / shared:,.0f} sentences/s; the best tree over 1,000 words: {long:.2f} s"
    )
    return {"sentences": VOTED, "target_seconds": VOTE_SECONDS, "sentences_of_shares": len(some), **best}


def measure_memory(count: int, threads: int) -> dict[str, Any]:
    draw, words = random.Random(0), [f"w{k}" for k in range(9998)]
    torch.manual_seed(0)
    tokenizer = Tokenizer.of_words(words)
    config = LMConfig(vocab_size=len(tokenizer), embedding_size=64, hidden_size=128, num_layers=2, chunk_size=8)
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 40))) + "\n" for _ in range(10_000)]
    with tempfile.TemporaryDirectory(prefix="onlstm-parse-") as name:
        run = Path(name) / "run"
        LanguageModel(config, tokenizer).save(run)
        command = [sys.executable, "-m", "onlstm", "parse", str(run), "-", "--threads", str(threads)]
        started = time.perf_counter()
        with (Path(name) / "trees").open("wb") as out:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, text=True)
            assert child.stdin
            for k in range(count):
                child.stdin.write(lines[k * 7919 % len(lines)])
            child.stdin.close()
            if child.wait():
                raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}")
        seconds = time.perf_counter() - started
        with (Path(name) / "trees").open("rb") as file:
            printed = sum(1 for _ in file)
        if printed != count:
            raise SystemExit(f"{printed} lines came of {count}; not reporting")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{count:,} sentences from stdin: {seconds:.0f} s, peak {peak:.0f} MB (target {GIGABYTES * 1000:.0f} MB)")
    return {"sentences": count, "threads": threads, "seconds": seconds, "peak_mb": peak, "target_gb": GIGABYTES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], help="speed, decoding, votes, memory (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sentences", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "parse.json")
    options = parser.parse_args()
    parts: dict[str, dict[str, Callable[[], object]]] = {
        "speed": {f"speed, threads {n}": partial(measure_speed, n) for n in options.threads},
        "decoding": {"decoding": measure_decoding},
        "votes": {"votes": measure_votes},
        "memory": {"memory": lambda: measure_memory(options.sentences, options.threads[0])},
    }
    if unknown := set(options.parts) - set(parts):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}")
    result = json.loads(options.out.read_text()) if options.out.is_file() else {}
    for name, work in (job for part in options.parts or parts for job in parts[part].items()):
        result[name] = work()
        machine = {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count()}
        files.write(options.out, json.dumps({**result, "machine": machine}, indent=1) + "\n")


if __name__ == "__main__":
    main()
