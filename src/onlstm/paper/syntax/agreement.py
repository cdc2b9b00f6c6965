"""Number agreement over distance (Gulordava et al. 2018, Linzen et al. 2016): which form of the verb is likelier?

A set is three files with a line for each sentence: `.text`; `.gold`, with the place of the verb and its right and wrong
form between tabs; and `.eval`, which repeats the place. Only the words before the verb are read: what stands in its
place in the text is neither of the two forms.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.syntax import scoring
from onlstm.paper.syntax.members import Say, members
from onlstm.paper.syntax.scoring import Group, Judged, Progress, Request, Scored, Scores

_SUFFIXES = (".text", ".gold", ".eval")


class Task(NamedTuple):
    """A sentence up to the verb, and two forms of that."""

    before: list[str]
    right: str
    wrong: str
    kind: str
    """Which part of its set: the number of nouns that attract the wrong form, or whether it is nonsense."""


def judge(request: Request, models: list[LanguageModel], say: Say, progress: Progress) -> Judged:
    """Return what models make of the forms of verbs."""
    assert request.pairs
    sets = read(request.pairs, say)
    tasks = [task for some in sets.values() for task in some]
    runs = []
    for model in models:
        tokenizer = tokenizer_of(model)
        before = [tokenizer.ids(task.before) for task in tasks]
        forms = [tokenizer.ids([task.right, task.wrong]) for task in tasks]
        ids = [[*words, form] for words, both in zip(before, forms, strict=True) for form in both]
        scores = scoring.pair_scores(model, ids, progress, last_only=True)
        known = [tokenizer.unk_id not in both for both in forms]
        runs.append(Scored(scores, known, {"unk_rate": scoring.unk_rate(model, before)}))
    records = _records(sets, [each.scores for each in runs])
    return Judged(runs, _groups(sets), _arranged, records, ("n", "scorable"))


def read(path: Path, say: Say) -> dict[str, list[Task]]:
    """Return the tasks of every set in a folder or zip, or of the set that a file belongs to, by name."""
    paths = [path] if path.is_dir() or path.suffix.lower() not in _SUFFIXES else _siblings(path)
    found = ((PurePath(name), data) for each in paths for name, data in members(each, _SUFFIXES, say))
    files = {str(name.with_suffix(name.suffix.lower())): data for name, data in found}
    sets = {}
    for stem in sorted({name[: -len(PurePath(name).suffix)] for name in files}):
        there = {suffix: files[stem + suffix] for suffix in _SUFFIXES if stem + suffix in files}
        if missing := [suffix for suffix in _SUFFIXES[:2] if suffix not in there]:
            say(f"{stem}{missing[0]}: no such file; the set is left out")
        elif tasks := list(_tasks(stem, there, say)):
            sets[stem] = tasks
    if not sets:
        raise UserError(f"{path}: no sentences; files NAME.text, NAME.gold, NAME.eval are needed, in a folder or zip")
    short = {stem: PurePath(stem).name for stem in sets}
    twice = Counter(short.values())
    return {stem if twice[short[stem]] > 1 else short[stem]: tasks for stem, tasks in sets.items()}


def _siblings(path: Path) -> list[Path]:
    if not path.is_file():
        raise UserError(f"cannot read {path}: no such file")
    return sorted(file for file in path.parent.glob("*") if file.stem == path.stem and file.suffix.lower() in _SUFFIXES)


def _tasks(stem: str, there: Mapping[str, bytes], say: Say) -> Iterator[Task]:
    """Yield the tasks of a set."""
    lines = {
        suffix: data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").removesuffix("\n").split("\n")
        for suffix, data in there.items()
    }
    lengths = {suffix: len(some) for suffix, some in lines.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{suffix} {count:,}" for suffix, count in lengths.items())
        say(f"{stem}: the numbers of lines differ ({counted}); what is over is left out")
    for number, each in enumerate(zip(*lines.values(), strict=False), 1):
        if not any(map(str.strip, each)):
            continue
        task = _task(*each)
        if isinstance(task, str):
            say(f"{stem}.gold:{number}: {task}; left out")
            continue
        if task.right == task.wrong:
            say(f"{stem}.gold:{number}: identical forms, a tie")
        yield task


def _task(text: str, gold: str, place: str | None = None) -> Task | str:
    """Return the task, or what is wrong with it."""
    if re.search("[\ud800-\udfff]", text + gold):
        return "not UTF-8, or the text's line is not"
    columns = [column.strip() for column in gold.split("\t")]
    if len(columns) not in (4, 12):
        return f"{len(columns)} columns, not the 4 or 12 of the known layouts"
    index, right, wrong = (columns[k] for k in ((0, 1, 2) if len(columns) == 4 else (3, 6, 7)))
    words = text.split()
    if not re.fullmatch(r"\d{1,9}", index) or int(index) >= len(words):
        return f"place {index[:20]!r} is not one of the sentence's {len(words)} words, counted from 0"
    if place is not None and place.strip() != index:
        return f"place {index}, but {place.strip() or 'nothing'} in .eval"
    if not right or not wrong:
        return "a form is missing"
    if len(columns) == 4 and not columns[3].isdecimal():
        return f"{columns[3][:20]!r} is no number of attractors"
    kind = f"{columns[3]} attractors" if len(columns) == 4 else "original" if columns[2] == "0" else "nonsense"
    return Task(words[: int(index)], right, wrong, kind)


def _groups(sets: Mapping[str, Sequence[Task]]) -> list[Group]:
    """Return the places of each set's tasks, and of those of its parts."""
    groups: list[Group] = []
    first = 0
    for name, tasks in sets.items():
        groups.append(({"name": name, "part": None}, range(first, first + len(tasks))))
        for part, where in sorted(scoring.grouped(task.kind for task in tasks).items()):
            groups.append(({"name": name, "part": part}, [first + k for k in where]))
        first += len(tasks)
    return groups


def _arranged(counted: Sequence[dict[str, Any]]) -> dict[str, Any]:
    parts = [row for row in counted if row["part"]]
    sets = [row for row in counted if not row["part"]]
    return {"sets": [row | {"parts": [each for each in parts if each["name"] == row["name"]]} for row in sets]}


def _records(sets: Mapping[str, Sequence[Task]], scores: Sequence[Scores]) -> Iterator[dict[str, Any]]:
    tasks = [({"set": name, "kind": task.kind}, task) for name, some in sets.items() for task in some]
    for (head, task), *found in zip(tasks, *scores, strict=True):
        said = {"before": " ".join(task.before), "right": task.right, "wrong": task.wrong}
        yield head | said | scoring.score_columns(("right", "wrong"), found)
