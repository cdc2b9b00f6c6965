"""Number agreement over distance (Gulordava et al. 2018, Linzen et al. 2016): which form of the verb is likelier?

A set is three files with a line for each sentence: `.text`; `.gold`, with the place of the verb and its right and wrong
form between tabs; and `.eval`, which repeats the place. Only the words before the verb are read: what stands in its
place in the text is neither of the two forms.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.syntax import scoring
from onlstm.paper.syntax.content import Agreement, AgreementRow
from onlstm.paper.syntax.pairs import Report, files, require

_SUFFIXES = (".text", ".gold", ".eval")


class Task(NamedTuple):
    """A sentence up to the verb, and two forms of that."""

    before: list[str]
    right: str
    wrong: str
    part: str
    """Of its set: the number of nouns that attract the wrong form, or whether it is nonsense."""

    @property
    def texts(self) -> tuple[str, str]:
        """The words up to the right form, and up to the wrong one."""
        return " ".join([*self.before, self.right]), " ".join([*self.before, self.wrong])


def run(
    runs: Sequence[Path],
    pairs: Path,
    *,
    scores: Path | None = None,
    on_defect: Report,
    on_progress: scoring.Progress = lambda done, total: None,
) -> Agreement:
    """Return how often one run, or each of two, finds the right form of a verb likelier."""
    models = [LanguageModel.load(path) for path in runs]
    sets = read(pairs, on_defect)
    tasks = [task for some in sets.values() for task in some]
    ids = [_ids(model, tasks) for model in models]
    differ = [{task.right, task.wrong} for task in tasks]
    scored = scoring.score(runs, models, ids, [task.texts for task in tasks], differ, on_progress, last_only=True)
    if scores:
        records = (_record(name, task) for name, some in sets.items() for task in some)
        scoring.write_scores(scores, scored, records)
    groups = list(_groups(sets))
    contents = []
    for run, of in zip(scored, ids, strict=True):
        parts = [run.count(AgreementRow, group) for group in groups if group[0]["part"]]
        whole = [group for group in groups if not group[0]["part"]]
        rows = [
            run.count(AgreementRow, group, parts=[part for part in parts if part.name == group[0]["name"]])
            for group in whole
        ]
        rate = scoring.unk_rate(run.model, (of[task.texts[0]][:-1] for task in tasks))
        contents.append(Agreement(**run.about, unk_rate=rate, sets=rows))
    return scoring.compared(contents, scored, groups)


def _ids(model: LanguageModel, tasks: Sequence[Task]) -> dict[str, list[int]]:
    """Return the ids of forms, and of the words up to them."""
    tokenizer, ids = tokenizer_of(model), dict[str, list[int]]()
    for task in tasks:
        before, forms = tokenizer.ids(task.before), tokenizer.ids([task.right, task.wrong])
        for text, word, form in zip(task.texts, (task.right, task.wrong), forms, strict=True):
            ids |= {text: [*before, form], word: [form]}
    return ids


def read(path: Path, on_defect: Report) -> dict[str, list[Task]]:
    """Return the tasks of every set in a folder or archive, or of the set that a file belongs to, by name."""
    paths = [path] if path.is_dir() or path.suffix.lower() not in _SUFFIXES else _siblings(path)
    inside = ((PurePath(file.place), file.data) for source in paths for file in files(source, _SUFFIXES, on_defect))
    by_place = {str(place.with_suffix(place.suffix.lower())): data for place, data in inside}
    sets = {}
    for stem in sorted({place[: -len(PurePath(place).suffix)] for place in by_place}):
        there = {suffix: by_place[stem + suffix] for suffix in _SUFFIXES if stem + suffix in by_place}
        if missing := [suffix for suffix in _SUFFIXES[:2] if suffix not in there]:
            on_defect(f"{stem}{missing[0]}: no such file; the set is left out")
        elif tasks := list(_tasks(stem, there, on_defect)):
            sets[stem] = tasks
    if not sets:
        raise UserError(f"{path}: no sentences; files NAME.text, NAME.gold, NAME.eval are needed, in a folder or zip")
    short = {stem: PurePath(stem).name for stem in sets}
    counts = Counter(short.values())
    return {stem if counts[short[stem]] > 1 else short[stem]: tasks for stem, tasks in sets.items()}


def _siblings(path: Path) -> list[Path]:
    if not path.is_file():
        raise UserError(f"cannot read {path}: no such file")
    return sorted(file for file in path.parent.glob("*") if file.stem == path.stem and file.suffix.lower() in _SUFFIXES)


def _tasks(stem: str, there: Mapping[str, bytes], on_defect: Report) -> Iterator[Task]:
    """Yield the tasks of a set."""
    lines = {
        suffix: data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").removesuffix("\n").split("\n")
        for suffix, data in there.items()
    }
    if len(set(map(len, lines.values()))) > 1:
        counts = ", ".join(f"{suffix} {len(some):,}" for suffix, some in lines.items())
        on_defect(f"{stem}: the numbers of lines differ ({counts}); what is over is left out")
    for number, texts in enumerate(zip(*lines.values(), strict=False), 1):
        if not any(map(str.strip, texts)):
            continue
        try:
            task = _task(*texts)
        except ValueError as error:
            on_defect(f"{stem}.gold:{number}: {error}; left out")
            continue
        if task.right == task.wrong:
            on_defect(f"{stem}.gold:{number}: identical forms, a tie")
        yield task


def _task(text: str, gold: str, place: str | None = None) -> Task:
    """Return the task of a line, or raise a `ValueError`."""
    require(not re.search("[\ud800-\udfff]", text + gold), "not UTF-8, or the text's line is not")
    words, columns = text.split(), [column.strip() for column in gold.split("\t")]
    short = len(columns) == 4
    require(short or len(columns) == 12, f"{len(columns)} columns, not the 4 or 12 of the known layouts")
    index, right, wrong = (columns[k] for k in ((0, 1, 2) if short else (3, 6, 7)))
    inside = re.fullmatch(r"\d{1,9}", index) and int(index) < len(words)
    require(inside, f"place {index[:20]!r} is not one of the sentence's {len(words)} words, counted from 0")
    require(
        place is None or place.strip() == index, f"place {index}, but {(place or '').strip() or 'nothing'} in .eval"
    )
    require(right and wrong, "a form is missing")
    require(not short or columns[3].isdecimal(), f"{columns[3][:20]!r} is no number of attractors")
    part = f"{columns[3]} attractors" if short else "original" if columns[2] == "0" else "nonsense"
    return Task(words[: int(index)], right, wrong, part)


def _groups(sets: Mapping[str, Sequence[Task]]) -> Iterator[scoring.Group]:
    """Yield each set, then its parts."""
    first = 0
    for name, tasks in sets.items():
        yield {"name": name, "part": None}, range(first, first + len(tasks))
        for part, places in sorted(scoring.grouped(task.part for task in tasks).items()):
            yield {"name": name, "part": part}, [first + k for k in places]
        first += len(tasks)


def _record(name: str, task: Task) -> tuple[dict[str, str], dict[str, str]]:
    words = {"before": " ".join(task.before), "right": task.right, "wrong": task.wrong}
    return {"set": name, "kind": task.part} | words, dict(zip(("right", "wrong"), task.texts, strict=True))
