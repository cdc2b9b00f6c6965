"""Speed of the layer: `onlstm bench`, with the result kept in benchmarks/results/speed.json.

python benchmarks/speed.py [--shapes lm-large ...] [--threads 1 2] [--seconds 5]
"""

import os
import sys
from pathlib import Path

from onlstm.cli.main import main

results = Path(__file__).parent / "results"
results.mkdir(exist_ok=True)
sys.argv[1:] = ["bench", "--device", "cpu", "--out", os.path.relpath(results / "speed.json"), *sys.argv[1:]]
main()
