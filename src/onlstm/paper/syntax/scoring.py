"""What runs make of pairs of texts, one of them right: the scoring and counting that three tasks share.

`table3` (Marvin & Linzen), `blimp` and `agreement` read the pairs. A pair is right if the right text is strictly
likelier.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from onlstm import files
from onlstm.lm.model import LanguageModel
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.results import Model
from onlstm.paper.syntax.content import Counts, Outcome, Test
from onlstm.paper.tables import network

Progress = Callable[[int, int], object]
Ids = Mapping[str, Sequence[int]]
"""From texts, and from the words that pairs differ by, to the ids that a model reads."""
Group = tuple[Mapping[str, Any], Sequence[int]]
"""The first fields of a row, and which pairs it counts, by their places among all."""
Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row", bound=Counts)
Content = TypeVar("Content", bound=Outcome)


@dataclass(frozen=True, kw_only=True)
class Task(Generic[Content]):
    """Pairs of texts, and what to make of their scores."""

    pairs: Sequence[tuple[str, str]]
    """The right text, then the wrong one."""
    differ: Sequence[set[str]]
    """The words of each pair that must be known for it to count as scorable."""
    ids: Sequence[Ids]
    """Of each model."""
    last_only: bool = False
    """Score the last words only."""
    records: Iterable[tuple[Mapping[str, str], Mapping[str, str]]]
    """For the file of scores: texts to write, then, by name, those whose scores follow, "" for none."""
    groups: Sequence[Group]
    """What two runs are tested on."""
    content: Callable[["Scored"], Content]


@dataclass(frozen=True)
class Scored:
    """A run and what it makes of a task's pairs."""

    path: Path
    model: LanguageModel
    ids: Ids
    log_p: Mapping[str, float]
    """Of each text, or of its last word, in nats."""
    scores: Sequence[tuple[float, float]]
    known: Sequence[bool]
    """Of each pair, whether the words that differ are all in the vocabulary."""

    @property
    def about(self) -> dict[str, Any]:
        """The first fields of an `Outcome`."""
        config = self.model.config
        return {"run": str(self.path), "model": network(config.rnn, (config.embedding_size, *config.sizes))}

    def count(self, kind: type[Row], group: Group, **more: Any) -> Row:
        """Return the row of a group."""
        head, places = group
        right = [self.scores[k][0] > self.scores[k][1] for k in places]
        sure = [correct for correct, k in zip(right, places, strict=True) if self.known[k]]
        return kind(
            **head,
            **more,
            **dict(zip(kind.SIZES, (len(right), len(sure)), strict=True)),
            correct=sum(right),
            ties=sum(self.scores[k][0] == self.scores[k][1] for k in places),
            accuracy=100 * sum(right) / len(right),
            scorable_accuracy=100 * sum(sure) / len(sure) if sure else None,
        )

    def unk_rate(self, ids: Iterable[Sequence[int]]) -> float:
        """Return the share of the ids that are `<unk>`."""
        words = [id for sentence in ids for id in sentence]
        unknown: int = tokenizer_of(self.model).unknown(words)
        return unknown / max(1, len(words))


def run(
    runs: Sequence[Path],
    prepare: Callable[[list[LanguageModel]], Task[Content]],
    scores: Path | None = None,
    on_progress: Progress = lambda done, total: None,
    device: str = "auto",
) -> Content:
    """Return what one run makes of a task, or two and how surely they differ; write `scores`, if that is a file."""
    models = [LanguageModel.load(path, device=device) for path in runs]
    task = prepare(models)
    scored: list[Scored] = []

    def report(done: int, total: int) -> None:
        on_progress(len(scored) * total + done, len(runs) * total)

    for run in zip(runs, models, task.ids, strict=True):
        scored.append(_scored(task, *run, report))
    if scores:
        _write_scores(scores, scored, task.records)
    first, *other = map(task.content, scored)
    right = [[a > b for a, b in run.scores] for run in scored]
    tests = [
        replace(mcnemar(*([run[k] for k in places] for run in right)), **head)
        for head, places in (task.groups if other else ())
    ]
    facts: dict[str, Any] = {"compare": other[0] if other else None, "tests": tuple(tests)}
    return replace(first, runs=[Model.of(run.path, run.model) for run in scored], **facts)


def _scored(task: Task[Any], path: Path, model: LanguageModel, ids: Ids, on_progress: Progress) -> Scored:
    texts = list(dict.fromkeys(text for pair in task.pairs for text in pair))
    sentences = [ids[text] for text in texts]
    given = [len(sentence) - 1 for sentence in sentences] if task.last_only else None
    scores = sentence_log_probs(model, sentences, given=given, on_progress=on_progress)
    log_p = dict(zip(texts, scores, strict=True))
    unk = tokenizer_of(model).unk_id
    unknown = {word for word in set().union(*task.differ) if unk in ids[word]}
    known = [unknown.isdisjoint(words) for words in task.differ]
    return Scored(path, model, ids, log_p, [(log_p[a], log_p[b]) for a, b in task.pairs], known)


def word_ids(model: LanguageModel, texts: Iterable[str], end: Sequence[int] = ()) -> dict[str, list[int]]:
    """Return the ids of words, and of texts that are words between spaces, followed by `end`."""
    split = {text: text.split() for text in texts}
    words = list({word for some in split.values() for word in some})
    ids = dict(zip(words, tokenizer_of(model).ids(words), strict=True))
    by_text = {text: [*(ids[word] for word in some), *end] for text, some in split.items()}
    return {word: [id] for word, id in ids.items()} | by_text


def grouped(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Return the places of each key.

    >>> grouped("aba")
    {'a': [0, 2], 'b': [1]}
    """
    places: dict[Key, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return places


def mcnemar(first: Iterable[bool], second: Iterable[bool]) -> Test:
    """Return McNemar's exact test of two runs: p is two-sided, that of a fair coin.

    >>> mcnemar([True] * 6 + [False], [False] * 6 + [True]).p
    0.125
    """
    pairs = list(zip(first, second, strict=True))
    b, c = sum(x and not y for x, y in pairs), sum(y and not x for x, y in pairs)
    n, term, total = b + c, 1, 0
    for k in range(min(b, c) + 1):
        total += term  # the sum of the binomial coefficients of n over 0 … k
        term = term * (n - k) // (k + 1)
    return Test(only_first=b, only_second=c, p=min(1.0, 2 * total / 2**n))


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


def _write_scores(
    path: Path, scored: Sequence[Scored], records: Iterable[tuple[Mapping[str, str], Mapping[str, str]]]
) -> None:
    """Write a line a record: JSON if the name ends so, else values between tabs, with a header."""

    def lines() -> Iterator[str]:
        for number, (head, texts) in enumerate(records):
            record: dict[str, str | float] = dict(head)
            for column, run in zip(("score", "compared"), scored, strict=False):
                record |= {f"{column}_{name}": run.log_p.get(text, "") for name, text in texts.items()}
            if path.suffix.lower() in (".json", ".jsonl"):
                yield json.dumps({key: value for key, value in record.items() if value != ""}, ensure_ascii=False)
                continue
            if not number:
                yield "\t".join(record)
            yield "\t".join(" ".join(str(value).split()) for value in record.values())

    files.write(path, lambda file: [file.write(f"{line}\n".encode(errors="replace")) for line in lines()])
