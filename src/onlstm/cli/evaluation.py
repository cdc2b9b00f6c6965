"""The command evaluate, and its table: the paper's Table 2."""

import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from onlstm.cli.console import Json, aligned, json_text, many
from onlstm.cli.inputs import Threads, set_threads
from onlstm.cli.main import app
from onlstm.errors import UserError

_RULES = "on-lstm, kim2019, kim2019-corpus, evalb, evalb-onlstm, punct, or all"


@app.command
def evaluate(
    *paths: Annotated[
        Path,
        Parameter(help="Run folders, then the treebank: a file, folder, zip, tar, packed, or -. Several runs: seeds."),
    ],
    rule: Annotated[list[str] | None, many(f"How F1 is counted: {_RULES} (default: on-lstm).")] = None,
    layers: Annotated[list[str] | None, many("1, 2, middle, last, or 1,2 for an average (default: each).")] = None,
    decoder: Annotated[
        list[Literal["paper", "unbiased", "vote"]] | None, many("paper, unbiased, vote (default: all three).")
    ] = None,
    gates: Annotated[
        Literal["forget", "input", "lstm"] | None,
        Parameter(help="Whose distances; lstm: an LSTM's own forget gates (default: forget; of LSTM runs, lstm)."),
    ] = None,
    mapping: Annotated[
        Literal["aligned", "original"], Parameter(help="How words are looked up: as the model's text has them, or not.")
    ] = "aligned",
    profile: Annotated[
        str, Parameter(help="Kind of treebank: a name or a YAML file (default: by its content).")
    ] = "auto",
    split: Annotated[Literal["all", "wsj10", "test", "valid"], Parameter(help="Of the Wall Street Journal.")] = "all",
    max_len: Annotated[int | None, Parameter(help="Leave longer sentences out.")] = None,
    trees: Annotated[Path | None, Parameter(help="Score these brackets (or parses in JSON), too or instead.")] = None,
    dev: Annotated[Path | None, Parameter(help="Treebank to choose the headline's layer and decoder on.")] = None,
    words: Annotated[Path | None, Parameter(help="Write the treebank's sentences here, for other parsers.")] = None,
    out: Annotated[Path | None, Parameter(help="Keep the result here, for `onlstm report`: results/NAME.json.")] = None,
    strict: Annotated[bool, Parameter(negative="", help="Stop at the first defect of the treebank.")] = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Score a run's trees, or anybody's, against a treebank, beside what every parser must beat."""
    started = time.perf_counter()
    if not paths:
        raise UserError("evaluate: name a run folder and a treebank")
    set_threads(threads)
    from onlstm.paper.parsing import evaluate as task
    from onlstm.trees.f1 import RULES

    names = list(RULES) if rule and "all" in rule else rule
    if names and names != rule and trees:  # which hold words alone, or would have been asked about by name
        names.remove("punct")
        print("Rule punct is left out: trees with punctuation are scored by --rule punct alone.", file=sys.stderr)
    request = task.Request(
        runs=paths[:-1],
        treebank=paths[-1],
        layers=layers or (),
        gates=gates,
        mapping=mapping,
        profile=profile,
        split=split,
        max_len=max_len,
        strict=strict,
        trees=trees,
        dev=dev,
        words=words,
        out=out,
        command=shlex.join(["onlstm", *sys.argv[1:]]),
        rules=names or ("on-lstm",),
        decoders=decoder or ("paper", "unbiased", "vote"),
    )
    found = task.run(request, lambda line: print(line, file=sys.stderr, flush=True))
    print(json_text("evaluate", started, None, found) if json else "\n".join(_report(found)))


def _report(found: dict[str, Any]) -> Iterable[str]:
    """Yield the lines for people: what was read, one table per rule, what to report."""
    from onlstm.trees.f1 import RULES

    bank = found["treebank"]
    skipped = ", ".join(f"{n:,} {why}" for why, n in bank["skipped"].items()) or "none"
    yield f"{bank['path']}: {bank['sentences']:,} sentences, {bank['words']:,} words; skipped: {skipped}."
    gaps = f"; nodes with gaps, made continuous: {bank['discontinuous']:,}" if bank["discontinuous"] else ""
    yield f"Read with profile {bank['profile']}, split {bank['split']}{gaps}."
    if bank["unk_share"] is not None:
        yield f"Words looked up as in mapping {found['mapping']}: {bank['unk_share']:.1f} % are unknown to the model."
        yield _seen(bank["seen_share"])
        if found["gates"] == "input":
            yield "Distances of the master input gate, not the forget gate."
    for rule in dict.fromkeys(row["rule"] for row in found["rows"]):
        yield ""
        yield f"Rule {rule}: {RULES[rule].about}"
        yield from _table([row for row in found["rows"] if row["rule"] == rule])
    if line := found["headline"]:
        mean = f"mean of {line['runs']}, " if line["runs"] > 1 else ""
        yield f"\nHeadline: {_named(line)}, {mean}F1 {line['f1']:.1f} ({line['chosen']}; no labels of this treebank)."
        same = [row for row in found["rows"] if all(row[key] == line[key] for key in line.keys() & row.keys())]
        yield from _details(same[0])
    elif found["best"]:
        yield "\nNo headline: name one layer with --layers, or let another treebank choose with --dev."
    if (line := found["best"]) and line["f1"] != (found["headline"] or {}).get("f1"):
        yield f"Highest:  {_named(line)}, F1 {line['f1']:.1f}, {line['chosen']}: not a result to report."
    if warning := _warning(found):
        yield warning


def _seen(share: float | None) -> str:
    if share is None:
        return "Whether the model was trained on these sentences is not known: the run has no training text beside it."
    return f"{share:.1f} % of the sentences are lines of the model's training text (words seen, trees never)."


def _named(row: dict[str, Any]) -> str:
    layer = row["layer"]
    number = "" if layer is None else f" layer {layer}" if isinstance(layer, int) else f" layers {_joined(layer)}"
    return f"{row['system']}{number}{', ' + row['decoder'] if row['decoder'] else ''}"


def _joined(layer: Any) -> str:
    return ",".join(map(str, layer)) if isinstance(layer, list | tuple) else "" if layer is None else str(layer)


def _table(rows: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Return the lines of one rule's table; a row has both subsets."""
    from onlstm.paper.parsing.evaluate import table_labels

    short = {_key(row): row for row in rows if row["subset"] == "len<=10"}
    every = [row for row in rows if row["subset"] == "all"]
    counts = [max((row["n"] for row in some), default=0) for some in (short.values(), every)]
    tags = table_labels(every[0]["tags"])
    head = ["system", "layer", "decoder", f"≤10 ({counts[0]:,})", f"all ({counts[1]:,})", "95 %", "depth"]
    lines = [[*head, *tags, "tied", "to right"]]
    names = _names({row["run"] for row in every if row["run"]})
    for row in every:
        same = sum(_key(row)[:3] == _key(other)[:3] for other in every)
        name = names.get(row["run"], "") if same > 1 or row["system"] in ("vote", "trees") else ""
        where = f", mean of {row['runs']}" if row["runs"] > 1 else f" {name}".rstrip()
        interval = "" if row["runs"] > 1 or not row["ci95"] else "{:.1f}-{:.1f}".format(*row["ci95"])
        line = [row["system"] + where, _joined(row["layer"]), row["decoder"] or "", _f1(short.get(_key(row))), _f1(row)]
        line += [interval, _number(row["depth"]), *(_share(row["tags"].get(tag)) for tag in tags)]
        lines.append([*line, _number(row["ties"], "%"), _number(row["f1_to_right"])])
    return aligned(lines, left=3)


def _names(paths: set[str]) -> dict[str, str]:
    """Return the last part of each path, or all of it where that is not one path's alone."""
    last = [Path(path).name for path in paths]
    return {path: Path(path).name if last.count(Path(path).name) == 1 else path for path in paths}


def _details(row: dict[str, Any]) -> Iterable[str]:
    """Yield a row's recall by label and F1 by length."""
    tags = sorted(row["tags"].items(), key=lambda item: -item[1][1])
    most = ", ".join(f"{tag} {_share(counts)} of {counts[1]:,}" for tag, counts in tags[:12])
    best = " of the best run" if row["runs"] > 1 else ""
    yield f"  recall by label{best}: {most}{f', and {len(tags) - 12} rarer ones (--json)' if len(tags) > 12 else ''}"
    lengths = ", ".join(f"{low}-{high}: {f1:.1f} of {n:,}" for low, high, f1, n in row["by_length"])
    yield f"  F1 by length in words: {lengths}"


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["system"], _joined(row["layer"]), row["decoder"], row["run"], row["runs"]


def _f1(row: dict[str, Any] | None) -> str:
    if row is None or row["f1"] is None:
        return ""
    return f"{row['f1']:.1f}" + (f" ({row['deviation']:.1f}) {row['max']:.1f}" if row["runs"] > 1 else "")


def _number(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.1f}{unit}"


def _share(counts: Sequence[int] | None) -> str:
    return f"{100 * counts[0] / counts[1]:.1f}" if counts and counts[1] else ""


def _warning(found: dict[str, Any]) -> str:
    """A line on layers that are no parsers."""
    dead = [row for row in found["rows"] if row["subset"] == "all" and (row["ties"] or 0) >= 5]
    names = dict.fromkeys(_named({**row, "decoder": None}) for row in dead if row["system"] != "untrained")
    return (
        f"Beware: 5 % or more of the distances of {', '.join(names)} are tied; ties decode to the right."
        if names
        else ""
    )
