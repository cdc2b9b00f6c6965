"""Does longer training lose the trees? Perplexity and F1 after every epoch, as a table, as JSON and as a curve.

onlstm train PTB --recipe ptb-evening --train.keep-epochs true --out RUN
python benchmarks/epochs.py RUN [RUN …] TREEBANK --out NAME

writes benchmarks/results/NAME.json and docs/NAME.svg; rule on-lstm, the middle layer, unless --layer names another.
"""

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onlstm import files
from onlstm.draw import Line, curve
from onlstm.paper.parsing import evaluate
from onlstm.paper.parsing.request import Decoding, Request
from onlstm.records import from_json
from onlstm.train import checkpoint

HERE = Path(__file__).parent
DECODERS: tuple[Decoding, ...] = "paper", "unbiased"


def perplexities(run: Path) -> dict[int, float]:
    """Validation perplexity by epoch."""
    records = [from_json(line) for line in (run / checkpoint.LOG).read_text().splitlines()]
    return {record["epoch"]: record["valid_perplexity"] for record in records if record["event"] == "epoch"}


def scores(run: Path, treebank: Path) -> dict[int, dict[str, float]]:
    """F1 by epoch, layer and decoder."""
    folders = {int(path.name): path for path in (run / "epochs").iterdir()}
    paths = [folders[epoch] for epoch in sorted(folders)]
    found = evaluate.run(Request(runs=paths, treebank=treebank, decoder=DECODERS))
    by_path: dict[str, dict[str, float]] = {str(path): {} for path in paths}
    for row in found.rows:
        if row.run in by_path and row.subset == "all" and row.f1 is not None:
            by_path[row.run][f"layer {row.layer}, {row.decoder}"] = round(row.f1, 2)
    return {epoch: by_path[str(folders[epoch])] for epoch in sorted(folders)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+", metavar="RUN … TREEBANK")
    parser.add_argument("--layer", type=int, default=2)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    *runs, treebank = options.paths
    for run in runs:
        if not (run / "epochs").is_dir():
            parser.error(f"{run}: no epochs/ there; train with --train.keep-epochs true")
    table: dict[str, dict[str, Any]] = {
        run.name: {"perplexity": perplexities(run), "f1": scores(run, treebank)} for run in runs
    }
    for name, run in table.items():
        print(f"{name}\nepoch  perplexity  F1")
        for epoch, f1 in run["f1"].items():
            each = ", ".join(f"{key} {value:.1f}" for key, value in f1.items())
            print(f"{epoch:5}  {run['perplexity'][epoch]:10.2f}  {each}")
    files.write(HERE / "results" / f"{options.out}.json", json.dumps(table, indent=1) + "\n")
    files.write(HERE.parent / "docs" / f"{options.out}.svg", drawn(table, options.layer))


def drawn(table: Mapping[str, Any], layer: int) -> str:
    """F1 of a layer by epoch, a line for each run and decoder."""
    epochs = sorted({int(epoch) for run in table.values() for epoch in run["f1"]})
    lines = []
    for decoder in DECODERS:
        for name, run in table.items():
            by_epoch = {int(epoch): f1 for epoch, f1 in run["f1"].items()}
            key = f"layer {layer}, {decoder}"
            values = [by_epoch[epoch][key] if epoch in by_epoch else math.nan for epoch in epochs]
            lines.append(Line(name=f"{decoder}, {name}", values=values))
    title = f"Trees of layer {layer} after every epoch"
    return curve(lines, x=epochs, x_label="epoch", y_label="F1 on the treebank", title=title)


if __name__ == "__main__":
    main()
