"""Speed of grammars: training and parsing, C++ against PyTorch, float32 and bfloat16, one thread and two, interleaved.

python benchmarks/grammar.py [PTB/train.txt] [--symbols 128 256]

Sentences are those of at most 30 words of the Penn Treebank's language-modelling text, without "$" and "#", if it is
given; else random, of like lengths. A training step is what `onlstm induce` does: 32 sentences of equal length, tilt,
gradient, Adam. The PyTorch reference takes a few batches of the same. Kept in benchmarks/results/grammar.json.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from onlstm import files
from onlstm.grammar.config import GrammarConfig
from onlstm.grammar.pcfg import Grammar
from onlstm.kernels import build
from onlstm.kernels.chart import has_bfloat16, inside, posteriors
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer
from onlstm.train import fit
from onlstm.train.config import GrammarTrainConfig
from onlstm.train.grammar import GrammarTraining

ROUNDS, STEPS, REFERENCE_STEPS, WORDS = 5, 25, 1, 9_998
TARGETS = {"training": 500, "threads": 1.7, "parsing": 400}


def sentences(path: str | None) -> tuple[list[list[str]], str]:
    """Return tokenised sentences of 2 to 30 words, and where they are from."""
    if path:
        lines = ([w for w in line.split() if w not in "$#"] for line in Path(path).read_text().splitlines())
        return [words for words in lines if 2 <= len(words) <= 30], Path(path).name
    draw = random.Random(0)
    lengths = [min(30, max(2, round(draw.gauss(20, 7)))) for _ in range(20_000)]
    return [[f"w{int(WORDS * draw.random() ** 3)}" for _ in range(n)] for n in lengths], "random"


def check(grammar: Grammar, ids: torch.Tensor) -> float:
    """Return the largest difference of the kernel's log Z and posteriors from the reference's, which must be small."""
    rules, emission = grammar.rules(), grammar.emissions()[ids]
    with torch.no_grad():
        exact = inside(rules, emission)
        worst = (posteriors(rules, emission).log_z - exact).abs().max().item()
    if not worst < 1e-3:
        raise SystemExit(f"kernel and reference differ by {worst:.1e}; not reporting")
    return worst


def rate(work: Callable[[], int]) -> float:
    """Return sentences per second of something that returns how many it did."""
    started = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - started)


def steps(training: GrammarTraining, count: int) -> int:
    before = training.progress.cursor
    for _ in range(count):
        fit.step(training)
    return sum(len(training._batches[k]) for k in range(before, before + count))


def without_kernel(work: Callable[[], int]) -> int:
    build._loaded["chart"] = False
    try:
        return work()
    finally:
        build._loaded["chart"] = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?")
    parser.add_argument("--symbols", type=int, nargs=2, default=(128, 256), metavar=("NONTERMINALS", "PRETERMINALS"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    words, source = sentences(arguments.text)
    tokenizer = Tokenizer.of_words([word for word, _ in Counter(w for s in words for w in s).most_common(WORDS)])
    ids = [np.array(tokenizer.ids(sentence)) for sentence in words]
    shares = [np.triu(np.random.default_rng(len(s)).random((len(s) + 1, len(s) + 1))).astype(np.float16) for s in ids]
    N, P = arguments.symbols

    def training(precision: str) -> GrammarTraining:
        torch.manual_seed(0)
        model = Grammar(GrammarConfig(vocab_size=len(tokenizer), nonterminals=N, preterminals=P), tokenizer)
        config = GrammarTrainConfig(epochs=1000, precision=precision)
        return GrammarTraining(model, ids, ids[:10], config, Path(tempfile.mkdtemp()), shares=shares)

    runs = {name: training(name) for name in ("float32", "bfloat16" if has_bfloat16() else "float32")}
    fastest, reference = list(runs.values())[-1], training("float32")
    difference = check(fastest.model.eval(), torch.from_numpy(np.stack([s for s in ids if len(s) == 20][:8])))
    sample = [words[k] for k in range(0, len(words), max(1, len(words) // 1500))]
    grammar_parser = Parser.load(_saved(fastest.model))
    for run in (*runs.values(), reference):
        fit.step(run)
    grammar_parser.parse(sample[:50])

    rates: dict[str, list[float]] = {name: [] for name in (*runs, "two threads", "reference", "parsing")}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            rates[name].append(rate(lambda run=run: steps(run, STEPS)))
        torch.set_num_threads(2)
        rates["two threads"].append(rate(lambda: steps(fastest, STEPS)))
        torch.set_num_threads(1)
        rates["reference"].append(rate(lambda: without_kernel(lambda: steps(reference, REFERENCE_STEPS))))
        rates["parsing"].append(rate(lambda: len(grammar_parser.parse(sample))))

    name = list(runs)[-1]
    threads = statistics.median(b / a for a, b in zip(rates[name], rates["two threads"], strict=True))
    over = statistics.median(a / b for a, b in zip(rates[name], rates["reference"], strict=True))
    result = {
        "symbols": [N, P],
        "text": source,
        "mean_words": statistics.mean(map(len, words)),
        "sentences_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "best_sentences_per_second": {name: max(values) for name, values in rates.items()},
        "two_threads_to_one": threads,
        "kernel_to_reference": over,
        "targets": TARGETS,
        "largest_difference": difference,
        "torch": torch.__version__,
    }
    for row, values in rates.items():
        print(f"{row:12} {statistics.median(values):8.0f} sentences/s (best {max(values):.0f})")
    print(
        f"two threads to one {threads:.2f} (target {TARGETS['threads']}); kernel to PyTorch reference {over:.1f} times"
    )
    print(f"targets: training {TARGETS['training']}, parsing {TARGETS['parsing']} sentences/s on one thread")
    files.write(Path(__file__).parent / "results" / "grammar.json", json.dumps(result, indent=1) + "\n")


def _saved(grammar: Grammar) -> Path:
    folder = Path(tempfile.mkdtemp())
    grammar.save(folder)
    return folder


if __name__ == "__main__":
    main()
