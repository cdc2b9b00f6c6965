"""What models make of minimal pairs: the paper's Table 3, and the counting that BLiMP shares.

The procedure is the original's: each sentence alone, as `<eos> w1 … wn .` from a zero state, every word and the period
scored; a pair is right if its grammatical sentence is strictly likelier; all pairs of a row count the same. A model
without a word for the period reads and scores none.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from onlstm import files
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.lm.score import tokenizer_of
from onlstm.report import published
from onlstm.report.tables import network
from onlstm.tasks.syneval.generator import Item, generate
from onlstm.tasks.syneval.loading import load
from onlstm.tasks.syneval.pairs import read_pairs
from onlstm.tasks.syneval.spec import SENTENCES, Row, Spec, rows_of

Say = Callable[[str], object]
Progress = Callable[[int, int], object]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `onlstm syneval` was asked for."""

    runs: Sequence[Path]
    """One, or two to compare."""
    pairs: Path | None = None
    """A file, folder or zip of pairs, or templates in YAML; None: Marvin & Linzen's."""
    lexicon: str = ""
    """`in-vocabulary`: only words that all the models know; else the name of a lexicon beside the templates."""
    scores: Path | None = None
    """A file for the scores of each pair."""


class Outcome(NamedTuple):
    """How a pair came out."""

    right: bool
    tie: bool
    known: bool
    """The words that differ are all in the vocabulary."""


def run(
    request: Request, say: Say = lambda line: None, progress: Progress = lambda done, total: None
) -> dict[str, Any]:
    """Return what `onlstm syneval --json` prints; `say` is told of defects in the pairs."""
    check_target(request.scores)
    models = [LanguageModel.load(path) for path in request.runs]
    items, table = _items(request, models, say)
    scores = [_scores(model, items, progress) for model in models]
    if request.scores:
        write_scores(request.scores, _records(items, scores))
    rows = [(row, chosen) for row, chosen in zip(table, _chosen(items, table), strict=True) if chosen]
    known = [_known(model, items) for model in models]
    outcomes = [
        [[_outcome(items[k], row.compare, found[k], words) for k in chosen] for row, chosen in rows]
        for found, words in zip(scores, known, strict=True)
    ]
    heads = [_head(row, items[chosen[0]], request.pairs) for row, chosen in rows]
    made = [[head | tally(each) for head, each in zip(heads, some, strict=True)] for some in outcomes]
    found = [
        {"run": str(path), "model": named(model), "period": bool(_period(model))}
        | {"rows": some, "pooled": _pooled(heads, each)}
        for path, model, some, each in zip(request.runs, models, made, outcomes, strict=True)
    ]
    more = {"compare": found[1], "tests": _tests(heads, *outcomes)} if len(models) > 1 else {}
    return found[0] | {"items": len(items)} | more


def named(model: LanguageModel) -> str:
    """Return what kind of model it is."""
    return network(model.config.rnn, (model.config.embedding_size, *model.config.sizes))


def tally(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the counts of pairs, and accuracies from 0 to 100, None of no pairs; a tie is wrong."""
    known = [each for each in outcomes if each.known]
    return {
        "pairs": len(outcomes),
        "correct": sum(each.right for each in outcomes),
        "ties": sum(each.tie for each in outcomes),
        "accuracy": _percent(outcomes),
        "scorable_pairs": len(known),
        "scorable_accuracy": _percent(known),
    }


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


def check_target(path: Path | None) -> None:
    """Raise a `UserError` if scores cannot be written there: now, not after the work."""
    if path and (path.is_dir() or not path.parent.is_dir()):
        raise UserError(f"--scores {path}: name a file in a folder that is there, such as scores.tsv or scores.jsonl")


def write_scores(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
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


def _items(request: Request, models: Sequence[LanguageModel], say: Say) -> tuple[list[Item], list[Row]]:
    """Return all pairs, and the rows of the table that they may belong to."""
    spec = load(request.pairs if _is_spec(request.pairs) else None)
    if request.pairs and not _is_spec(request.pairs):
        if request.lexicon:
            raise UserError(f"--lexicon {request.lexicon}: not with the pairs of a file; leave --pairs out")
        items = list(read_pairs(request.pairs, say))
    elif request.lexicon == "in-vocabulary":
        items = list(generate(spec, known=set.intersection(*(_lexicon(spec, model) for model in models))))
    else:
        items = list(generate(spec, lexicon=request.lexicon))
    if not items:
        raise UserError("no pair is left: the models know too few of the lexicon's words; leave --lexicon out")
    table = list(spec.rows)
    named = {template for row in table for template in row.templates}
    for template, width in {item.template: len(item.sentences) for item in items}.items():
        if template not in named:
            table += rows_of(template, width, len(table) + 1)
    return items, table


def _is_spec(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() in (".yaml", ".yml")


def _lexicon(spec: Spec, model: LanguageModel) -> set[str]:
    """Return those of the lexicon's words that the model knows."""
    return _of_vocabulary(
        model, {w for kind in spec.words().values() for forms in kind for w in " ".join(forms).split()}
    )


def _known(model: LanguageModel, items: Iterable[Item]) -> set[str]:
    return _of_vocabulary(model, {word for item in items for sentence in item.sentences for word in sentence.split()})


def _of_vocabulary(model: LanguageModel, words: Iterable[str]) -> set[str]:
    ids, unknown = _ids(model, words), tokenizer_of(model).unk_id
    return {word for word, id in ids.items() if id != unknown}


def _ids(model: LanguageModel, words: Iterable[str]) -> dict[str, int]:
    listed = list(words)
    return dict(zip(listed, tokenizer_of(model).ids(listed), strict=True))


def _period(model: LanguageModel) -> list[int]:
    """Return the period's id, if the model has one."""
    return [id for id in tokenizer_of(model).ids(["."]) if id != model.tokenizer.unk_id]


def _scores(model: LanguageModel, items: Sequence[Item], progress: Progress) -> list[tuple[float, ...]]:
    """Return the log-probability of each sentence of each item."""
    split = [sentence.split() for item in items for sentence in item.sentences]
    ids, end = _ids(model, {word for words in split for word in words}), _period(model)
    found = iter(sentence_log_probs(model, [[ids[w] for w in words] + end for words in split], on_progress=progress))
    return [tuple(next(found) for _ in item.sentences) for item in items]


def _chosen(items: Sequence[Item], table: Sequence[Row]) -> list[list[int]]:
    """Return the places of the items of each row; a row for intrusive sentences has no pairs."""
    places: dict[str, list[int]] = {}
    for k, item in enumerate(items):
        places.setdefault(item.template, []).append(k)
    enough = [3 if 1 in row.compare else 2 for row in table]
    return [
        [k for template in row.templates for k in places.get(template, ()) if len(items[k].sentences) >= least]
        for row, least in zip(table, enough, strict=True)
    ]


def _outcome(item: Item, compare: tuple[int, int], scores: tuple[float, ...], known: set[str]) -> Outcome:
    better, worse = (scores[k] for k in compare)
    first, second = (item.sentences[k].split() for k in compare)
    return Outcome(better > worse, better == worse, contrast(first, second) <= known)


def _head(row: Row, example: Item, pairs: Path | None) -> dict[str, Any]:
    """Return what a row's line begins with, and what the paper has in it."""
    named = {"row": row.number, "group": row.group, "phenomenon": row.phenomenon, "name": row.name}
    table = [] if _is_spec(pairs) else published("syneval")
    quoted = table[row.number - 1].values if row.number <= len(table) else {}
    numbers = {model: 100 * float(value) for model, value in quoted.items() if model != "dependency"}
    example_pair = [example.sentences[k] for k in row.compare]
    return named | {"files": list(row.templates), "example": example_pair, "published": numbers or None}


def _groups(heads: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the places of the rows of every group, and of all."""
    named = {name: [k for k, head in enumerate(heads) if head["group"] == name] for name in _names(heads)}
    return (named if len(named) > 1 else {}) | {"all": list(range(len(heads)))}


def _names(heads: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(head["group"] for head in heads))


def _pooled(heads: Sequence[Mapping[str, Any]], outcomes: Sequence[Sequence[Outcome]]) -> list[dict[str, Any]]:
    return [
        {"group": name} | tally([each for k in places for each in outcomes[k]])
        for name, places in _groups(heads).items()
    ]


def _tests(
    heads: Sequence[Mapping[str, Any]], first: Sequence[Sequence[Outcome]], second: Sequence[Sequence[Outcome]]
) -> list[dict[str, Any]]:
    """Return McNemar's test of each row, each group and all."""
    rows = [{"row": head["row"], "group": head["group"], "places": [k]} for k, head in enumerate(heads)]
    rows += [{"row": None, "group": name, "places": places} for name, places in _groups(heads).items()]
    tests = []
    for row in rows:
        right = [[each.right for k in row["places"] for each in some[k]] for some in (first, second)]
        tests.append({"row": row["row"], "group": row["group"]} | mcnemar(*right))
    return tests


def _percent(outcomes: Sequence[Outcome]) -> float | None:
    return 100 * sum(each.right for each in outcomes) / len(outcomes) if outcomes else None


def _records(items: Sequence[Item], scores: Sequence[Sequence[tuple[float, ...]]]) -> Iterator[dict[str, Any]]:
    for item, *found in zip(items, *scores, strict=True):
        names = SENTENCES if len(item.sentences) == len(SENTENCES) else SENTENCES[::2]
        record = {"template": item.template, "condition": item.condition} | dict.fromkeys(SENTENCES, "")
        record |= dict(zip(names, item.sentences, strict=True))
        for prefix, some in zip(("score", "compared"), found, strict=False):
            by_name = dict(zip(names, some, strict=True))
            record |= {f"{prefix}_{name}": by_name.get(name, "") for name in SENTENCES}
        yield record
