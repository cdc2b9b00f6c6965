"""Prepare 90 million words of repeated WikiText-2 and measure time and memory: python benchmarks/text.py [PROFILE ...]

Needs ../shared/data/wikitext-2. Repeated text has few distinct words; `--fresh N` gives every N-th word of each
repetition a new spelling, which is harder than natural text. Writes benchmarks/results/text.json.
"""

import argparse
import json
import lzma
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT.parent / "shared" / "data" / "wikitext-2" / "wiki.train.tokens.xz"
SECONDS, GIGABYTES = 300, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="*", default=[], help="profiles to measure (default: all three)")
    parser.add_argument("--words", type=int, default=90_000_000)
    parser.add_argument("--fresh", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "text.json")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    if not SOURCE.is_file():
        sys.exit(f"{SOURCE}: not there; the benchmark repeats this text")
    rows = []
    with tempfile.TemporaryDirectory(prefix="onlstm-text-") as name:
        text = Path(name) / "text.txt"
        words = write_text(text, options.words, options.fresh)
        print(f"{words:,} words, {text.stat().st_size / 1e6:.0f} MB, {os.cpu_count()} cores")
        for profile in options.profiles or ["pretokenized", "generic", "ptb-en"]:
            rows.append(measure(text, words, profile, options.fresh))
            print(
                "{profile:13} {seconds:6.1f} s (target {0})  {words_per_second:>12,.0f} words/s  "
                "{peak_gb:.2f} GB (target {1})  vocabulary {vocabulary:,}".format(SECONDS, GIGABYTES, **rows[-1]),
                flush=True,
            )
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    report = {"targets": {"seconds": SECONDS, "peak_gb": GIGABYTES}, "machine": machine, "rows": rows}
    aside = options.out.with_name(f".{options.out.name}.{os.getpid()}")
    aside.write_text(json.dumps(report, indent=1) + "\n")
    aside.replace(options.out)


def write_text(path: Path, words: int, fresh: int) -> int:
    """Write the training text over and over until it has so many words; return how many it has."""
    with lzma.open(SOURCE, "rt", encoding="utf-8") as file:
        lines = file.readlines()
    done = repetition = 0
    with path.open("w", encoding="utf-8") as file:
        while done < words:
            for line in lines:
                done += len(line.split())
                if fresh:
                    parts = line.split(" ")
                    line = " ".join(f"{w}x{repetition}" if i % fresh == 1 else w for i, w in enumerate(parts)) + "\n"
                file.write(line)
                if done >= words:
                    break
            repetition += 1
    return done


def measure(text: Path, words: int, profile: str, fresh: int) -> dict[str, object]:
    """Return what a preparation in a process of its own takes."""
    with tempfile.TemporaryDirectory(prefix="onlstm-text-") as folder:
        command = [sys.executable, __file__, "--child", str(text), folder, profile]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    return {"profile": profile, "words": words, "fresh": fresh, "words_per_second": words / found["seconds"]} | found


def child(text: str, folder: str, profile: str) -> None:
    started = time.perf_counter()
    from onlstm.text.config import TextConfig
    from onlstm.text.corpus import prepare

    corpus = prepare(text, folder, TextConfig(profile=profile))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
    tokens = sum(part.tokens for part in corpus.parts.values())
    print(json.dumps({"seconds": seconds, "peak_gb": peak, "tokens": tokens, "vocabulary": len(corpus.tokenizer)}))


if __name__ == "__main__":
    main()
