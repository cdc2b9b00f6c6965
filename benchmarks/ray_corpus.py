"""`onlstm parse` with Ray against one process: the time of a corpus, and the memory of all processes.

python benchmarks/ray_corpus.py [--lines 200000]

Invented sentences of 5 to 25 words, the bundled grammar `en`, JSON out: one process with one thread and Ray with one
worker at the same time, so that both meet the same load of the machine; then two threads and two workers. Elapsed time
and processor time of the command and all processes below it, as /proc has them twice a second. The records are compared
line by line. Kept in benchmarks/results/ray_corpus.json.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from onlstm import files

RESULT = Path(__file__).parent / "results" / "ray_corpus.json"
WORDS = "the a old dog cat man house river people room company said knew that who was sold in of by with year has been"
WAYS = {
    "one thread": ["--threads", "1", "--json", "--out", "one.jsonl"],
    "one worker": ["--ray", "local", "--workers", "1", "--out", "one"],
    "two threads": ["--threads", "2", "--json", "--out", "two.jsonl"],
    "two workers": ["--ray", "local", "--workers", "2", "--out", "two"],
}
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def processes(ancestor: int) -> Iterator[tuple[int, float, float]]:
    """Yield the number, the processor time in seconds and the memory in GB of a process and of all below it."""
    rows = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            rows[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
    for number, row in rows.items():
        above = number
        while above != ancestor and above in rows:
            above = int(rows[above][1])
        if above == ancestor:
            yield number, (int(row[11]) + int(row[12])) / _TICKS, int(row[21]) * _PAGE / 1e9


def measure(text: Path, options: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "onlstm", "parse", "en", str(text), "--quiet", *options]
    start, used, peak = time.monotonic(), dict[int, float](), 0.0
    with subprocess.Popen(command, cwd=text.parent, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            rows = list(processes(process.pid))
            used |= {number: seconds for number, seconds, _ in rows}
            peak = max(peak, sum(memory for *_, memory in rows))
            time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: code {process.returncode}")
    return {"elapsed": time.monotonic() - start, "processor": sum(used.values()), "gigabytes": peak}


def records(path: Path) -> Iterator[dict[str, object]]:
    for part in sorted(path.glob("part-*")) if path.is_dir() else [path]:
        with part.open() as file:
            yield from ({key: value for key, value in json.loads(line).items() if key != "model"} for line in file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=200_000)
    lines, rng, words = parser.parse_args().lines, random.Random(0), WORDS.split()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("".join(" ".join(rng.choices(words, k=rng.randint(5, 25))) + "\n" for _ in range(lines)))
        rows = {}
        for pair in (list(WAYS)[:2], list(WAYS)[2:]):
            with ThreadPoolExecutor() as pool:
                rows |= dict(zip(pair, pool.map(lambda name: measure(text, WAYS[name]), pair), strict=True))
            for name in pair:
                print(f"{name:12}", *(f"{key} {value:7.2f}" for key, value in rows[name].items()), flush=True)
        for name in ("one", "two"):
            pairs = zip(records(Path(folder, f"{name}.jsonl")), records(Path(folder, name)), strict=True)
            if not all(a == b for a, b in pairs):
                raise SystemExit("the records differ; not reporting")
    result = {"lines": lines, "ways": rows}
    for key in ("elapsed", "processor"):
        result[f"one worker to one thread, {key}"] = rows["one worker"][key] / rows["one thread"][key]
        result[f"two workers to two threads, {key}"] = rows["two workers"][key] / rows["two threads"][key]
    files.write(RESULT, json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "ways"}, indent=1))


if __name__ == "__main__":
    main()
