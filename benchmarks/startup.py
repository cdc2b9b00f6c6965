"""The processor time of starting `onlstm --help` and `onlstm parse`, beside `import torch` alone, interleaved.

python benchmarks/startup.py

The kernel is compiled before. Medians, kept in benchmarks/results/startup.json.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from onlstm import files

RESULT = Path(__file__).parent / "results" / "startup.json"
COMMANDS = {
    "import torch": ["-c", "import torch"],
    "onlstm --help": ["-m", "onlstm", "--help"],
    "onlstm parse": ["-m", "onlstm", "parse", "The cat that the dogs chased was tired."],
}
ROUNDS = 7
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"OMP_NUM_THREADS": "1"}


def seconds(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rounds = [{name: seconds(words) for name, words in COMMANDS.items()} for _ in range(ROUNDS + 1)][1:]
    result = {name: statistics.median(row[name] for row in rounds) for name in COMMANDS}
    for name, median in result.items():
        print(f"{name:14} {median:.2f} s")
    files.write(RESULT, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
