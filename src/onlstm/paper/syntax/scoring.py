"""What models make of pairs of sentences, one of them right: the work and the counting that three tasks share.

`table3` (Marvin & Linzen), `blimp` and `agreement` read pairs and have them scored; here models are loaded, pairs
counted, two models compared and files written. A pair is right if the right sentence is strictly likelier.
"""

import json
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.results_old import model_facts, save
from onlstm.paper.syntax.members import Say
from onlstm.paper.tables import network

Progress = Callable[[int, int], object]
Reading = Literal["own", "words"]
Group = tuple[dict[str, Any], Sequence[int]]
"""What pairs that are counted together are called, and their places among all."""
Scores = Sequence[tuple[float, float]]
"""Of each pair, the log-probabilities in nats: of the right sentence, of the wrong one."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `onlstm syneval`, `blimp` or `agreement` was asked for."""

    runs: Sequence[Path]
    """One, or two to compare."""
    pairs: Path | None = None
    """A file, folder or zip; for syneval also templates in YAML, or None: Marvin & Linzen's."""
    lexicon: str = ""
    """Of syneval: `in-vocabulary` (only words that all the models know), or a lexicon beside the templates."""
    reading: Reading = "own"
    """Of BLiMP: who finds the words."""
    scores: Path | None = None
    """A file for the scores of each pair."""
    out: Path | None = None
    """A file to keep the result in, for `onlstm report`."""
    command: str = ""
    """As the user typed it, for that file."""


class Scored(NamedTuple):
    """What a run makes of all pairs."""

    scores: Scores
    known: Sequence[bool]
    """Of each pair, whether the words that differ are all in the vocabulary."""
    facts: dict[str, Any]
    """More that `--json` prints."""


class Judged(NamedTuple):
    """What all runs make of a task's pairs, and what to make of that."""

    runs: list[Scored]
    groups: list[Group]
    """What is counted together."""
    arranged: Callable[[list[dict[str, Any]]], dict[str, Any]]
    """From the groups, each with its counts, to what `--json` prints of a run."""
    records: Iterable[Mapping[str, Any]]
    """Lines for `--scores`."""
    names: tuple[str, str] = ("pairs", "scorable_pairs")
    """What `--json` calls the number of pairs, and of those with known words."""


Judge = Callable[[Request, list[LanguageModel], Say, Progress], Judged]


def run(
    kind: str,
    judge: Judge,
    request: Request,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Return what a command's `--json` prints, after writing the files that were asked for.

    `kind` is the command; `say` is told of defects in the files of pairs.
    """
    started = time.perf_counter()
    inputs = [request.pairs] if request.pairs else []
    if request.scores:
        files.check_target("--scores", request.scores, "scores.tsv", inputs)
    if request.out:
        files.check_target("--out", request.out, "results/NAME.json", inputs)
    if request.out and request.scores and request.out.resolve() == request.scores.resolve():
        raise UserError(f"--out {request.out}: the file of --scores; name another")
    models = [LanguageModel.load(path) for path in request.runs]
    judged = judge(request, models, say, progress)
    found, *other = (
        {"run": str(path), "model": network(model.config.rnn, (model.config.embedding_size, *model.config.sizes))}
        | scored.facts
        | judged.arranged([key | _counts(scored, places, *judged.names) for key, places in judged.groups])
        for path, model, scored in zip(request.runs, models, judged.runs, strict=True)
    )
    if other:
        right = [[a > b for a, b in scored.scores] for scored in judged.runs]
        tests = [key | mcnemar(*([some[k] for k in places] for some in right)) for key, places in judged.groups]
        found |= {"compare": other[0], "tests": tests}
    if request.scores:
        _write_scores(request.scores, judged.records)
    if request.out:
        facts = [model_facts(path, model) for path, model in zip(request.runs, models, strict=True)]
        how: Any = {"command": request.command, "seed": None, "seconds": time.perf_counter() - started}
        save(request.out, kind=kind, name=request.out.stem, **how, runs=facts, **found)
    return found


def pair_scores(
    model: LanguageModel, ids: Sequence[Sequence[int]], progress: Progress, *, last_only: bool = False
) -> Scores:
    """Return the scores of pairs, whose sentences stand one after the other in `ids`; or those of the last words."""
    given = [len(each) - 1 for each in ids] if last_only else None
    found = sentence_log_probs(model, ids, given=given, on_progress=progress)
    return list(zip(found[::2], found[1::2], strict=True))


def grouped(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Return the places of each key.

    >>> grouped("aba")
    {'a': [0, 2], 'b': [1]}
    """
    places: dict[Key, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return places


def mcnemar(first: Iterable[bool], second: Iterable[bool]) -> dict[str, Any]:
    """Return how often only one of two was right, and McNemar's exact two-sided p: that of a fair coin.

    >>> mcnemar([True] * 6 + [False], [False] * 6 + [True])
    {'only_first': 6, 'only_second': 1, 'p': 0.125}
    """
    pairs = list(zip(first, second, strict=True))
    b, c = sum(x and not y for x, y in pairs), sum(y and not x for x, y in pairs)
    n, term, total = b + c, 1, 0
    for k in range(min(b, c) + 1):
        total += term  # the sum of the binomial coefficients of n over 0 … k
        term = term * (n - k) // (k + 1)
    return {"only_first": b, "only_second": c, "p": min(1.0, 2 * total / 2**n)}


def contrast(first: Sequence[str], second: Sequence[str]) -> set[str]:
    """Return the words that differ: place by place, or, if the lengths do, all between the common beginning and end.

    >>> sorted(contrast("the dogs bark".split(), "the dog barks".split()))
    ['bark', 'barks', 'dog', 'dogs']
    >>> sorted(contrast("the dog did bark".split(), "the dog bark".split()))
    ['did']
    """
    if len(first) == len(second):
        return {word for pair in zip(first, second, strict=True) if pair[0] != pair[1] for word in pair}
    short = min(len(first), len(second))
    start = next(k for k in range(short + 1) if k == short or first[k] != second[k])
    end = next(k for k in range(short - start + 1) if k == short - start or first[-1 - k] != second[-1 - k])
    return {*first[start : len(first) - end], *second[start : len(second) - end]}


def unk_rate(model: LanguageModel, ids: Iterable[Sequence[int]]) -> float:
    """Return the share of the ids that are `<unk>`."""
    words = [id for each in ids for id in each]
    return words.count(tokenizer_of(model).unk_id) / max(1, len(words))


def score_columns(names: Sequence[str], scores: Iterable[Sequence[float | str]]) -> dict[str, float | str]:
    """Return the last columns of a line for `--scores`: a run's scores by name, then those of the run beside it.

    >>> score_columns(["good", "bad"], [(-3.0, -4.0)])
    {'score_good': -3.0, 'score_bad': -4.0}
    """
    runs = zip(("score", "compared"), scores, strict=False)
    return {f"{run}_{name}": value for run, some in runs for name, value in zip(names, some, strict=True)}


def _counts(scored: Scored, places: Iterable[int], pairs: str, known: str) -> dict[str, Any]:
    """Return counts of the pairs at some places, and accuracies from 0 to 100, None of no pairs; a tie is wrong."""
    some = [(*scored.scores[k], scored.known[k]) for k in places]
    sure = [each for each in some if each[2]]
    right, sure_right = (sum(a > b for a, b, _ in part) for part in (some, sure))
    return {
        pairs: len(some),
        "correct": right,
        "ties": sum(a == b for a, b, _ in some),
        "accuracy": 100 * right / len(some),
        known: len(sure),
        "scorable_accuracy": 100 * sure_right / len(sure) if sure else None,
    }


def _write_scores(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a line for each record: JSON if the name ends so, else values between tabs, with a header."""

    def lines() -> Iterator[str]:
        for number, record in enumerate(records):
            if path.suffix.lower() in (".json", ".jsonl"):
                yield json.dumps({key: value for key, value in record.items() if value != ""}, ensure_ascii=False)
                continue
            if not number:
                yield "\t".join(record)
            yield "\t".join(" ".join(str(value).split()) for value in record.values())

    files.write(path, lambda file: [file.write(f"{line}\n".encode(errors="replace")) for line in lines()])
