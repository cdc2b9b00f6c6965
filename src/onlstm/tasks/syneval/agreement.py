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
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.lm.score import tokenizer_of
from onlstm.tasks.syneval.members import members
from onlstm.tasks.syneval.scoring import Progress, Say, check_target, named, write_scores

_SUFFIXES = (".text", ".gold", ".eval")


class Task(NamedTuple):
    """A sentence up to the verb, and two forms of that."""

    before: list[str]
    right: str
    wrong: str
    kind: str
    """Which part of its set: the number of nouns that attract the wrong form, or whether it is nonsense."""


def run(
    path: Path,
    source: Path,
    *,
    scores: Path | None = None,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Return what `onlstm agreement --json` prints; `say` is told of defects in the files."""
    check_target(scores)
    model = LanguageModel.load(path)
    sets = read(source, say)
    tokenizer, tasks = tokenizer_of(model), [task for some in sets.values() for task in some]
    ids = [tokenizer.ids([*task.before, task.right, task.wrong]) for task in tasks]
    read_for = [form for each in ids for form in (each[:-1], [*each[:-2], each[-1]])]
    found = sentence_log_probs(model, read_for, given=[len(each) - 1 for each in read_for], on_progress=progress)
    judged = [
        {"task": task, "right": a, "wrong": b, "known": tokenizer.unk_id not in each[-2:]}
        for task, a, b, each in zip(tasks, found[::2], found[1::2], ids, strict=True)
    ]
    rows, rest = [], iter(judged)
    for name, some in sets.items():
        rows.append(_set(name, [next(rest) for _ in some]))
    if scores:
        names = [name for name, some in sets.items() for _ in some]
        write_scores(scores, (_record(name, each) for name, each in zip(names, judged, strict=True)))
    words = [id for each in ids for id in each[:-2]]
    return {
        "run": str(path),
        "model": named(model),
        "unk_rate": words.count(tokenizer.unk_id) / max(1, len(words)),
        "sets": rows,
    }


def read(path: Path, on_defect: Say) -> dict[str, list[Task]]:
    """Return the tasks of every set in a folder or zip, or of the set that a file belongs to, by name."""
    names = [path] if path.is_dir() or path.suffix.lower() not in _SUFFIXES else _siblings(path)
    files = {name: data for each in names for name, data in members(each, *_SUFFIXES)}
    sets = {}
    for stem in sorted({name[: -len(PurePath(name).suffix)] for name in files}):
        there = {suffix: files[stem + suffix] for suffix in _SUFFIXES if stem + suffix in files}
        if missing := [suffix for suffix in _SUFFIXES[:2] if suffix not in there]:
            on_defect(f"{stem}{missing[0]}: no such file; the set is left out")
        elif tasks := list(_tasks(stem, there, on_defect)):
            sets[stem] = tasks
    if not sets:
        raise UserError(f"{path}: no sentences; files NAME.text, NAME.gold, NAME.eval are needed, in a folder or zip")
    short = {stem: PurePath(stem).name for stem in sets}
    twice = Counter(short.values())
    return {stem if twice[short[stem]] > 1 else short[stem]: tasks for stem, tasks in sets.items()}


def _siblings(path: Path) -> list[Path]:
    if not path.is_file():
        raise UserError(f"cannot read {path}: no such file")
    return [file for suffix in _SUFFIXES if (file := path.with_suffix(suffix)).is_file()]


def _tasks(stem: str, there: Mapping[str, bytes], on_defect: Say) -> Iterator[Task]:
    """Yield the tasks of a set."""
    lines = {
        suffix: data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").removesuffix("\n").split("\n")
        for suffix, data in there.items()
    }
    lengths = {suffix: len(some) for suffix, some in lines.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{suffix} {count:,}" for suffix, count in lengths.items())
        on_defect(f"{stem}: the numbers of lines differ ({counted}); what is over is left out")
    for number, each in enumerate(zip(*lines.values(), strict=False), 1):
        if not any(map(str.strip, each)):
            continue
        task = _task(*each)
        if isinstance(task, str):
            on_defect(f"{stem}.gold:{number}: {task}; left out")
            continue
        if task.right == task.wrong:
            on_defect(f"{stem}.gold:{number}: identical forms, a tie")
        yield task


def _task(text: str, gold: str, place: str | None = None) -> Task | str:
    """Return the task, or what is wrong with it."""
    columns = [column.strip() for column in gold.split("\t")]
    if len(columns) not in (4, 12):
        return f"{len(columns)} columns, not the 4 or 12 of the known layouts"
    index, right, wrong = (columns[k] for k in ((0, 1, 2) if len(columns) == 4 else (3, 6, 7)))
    words = text.split()
    if not index.isdecimal() or int(index) >= len(words):
        return f"place {index!r} is not one of the sentence's {len(words)} words, counted from 0"
    if place is not None and place.strip() != index:
        return f"place {index}, but {place.strip() or 'nothing'} in .eval"
    if not right or not wrong:
        return "a form is missing"
    if re.search("[\ud800-\udfff]", text + gold):
        return "not UTF-8"
    kind = f"{columns[3]} attractors" if len(columns) == 4 else "original" if columns[2] == "0" else "nonsense"
    return Task(words[: int(index)], right, wrong, kind)


def _set(name: str, judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = [each for each in judged if each["known"]]
    correct, sure = (sum(each["right"] > each["wrong"] for each in some) for some in (judged, known))
    kinds = sorted({each["task"].kind for each in judged})
    return {
        "name": name,
        "n": len(judged),
        "correct": correct,
        "ties": sum(each["right"] == each["wrong"] for each in judged),
        "accuracy": 100 * correct / len(judged),
        "scorable": len(known),
        "scorable_accuracy": 100 * sure / len(known) if known else None,
        "parts": {
            kind: [sum(e["right"] > e["wrong"] for e in some), len(some)]
            for kind in kinds
            if (some := [each for each in judged if each["task"].kind == kind])
        },
    }


def _record(name: str, each: Mapping[str, Any]) -> dict[str, Any]:
    task = each["task"]
    forms = {"right": task.right, "wrong": task.wrong, "score_right": each["right"], "score_wrong": each["wrong"]}
    return {"set": name, "kind": task.kind, "before": " ".join(task.before)} | forms
