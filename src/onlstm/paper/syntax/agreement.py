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
from onlstm.paper.syntax.content import Agreement, AgreementRow
from onlstm.paper.syntax.pairs import Report, files, require
from onlstm.paper.syntax.scoring import Group, Scored, Task, grouped, word_ids

_SUFFIXES = (".text", ".gold", ".eval")


class Verb(NamedTuple):
    """A sentence up to the verb, and two forms of that."""

    before: list[str]
    right: str
    wrong: str
    set: str
    part: str
    """Of its set: the number of nouns that attract the wrong form, or whether it is nonsense."""

    @property
    def texts(self) -> tuple[str, str]:
        """The words up to the right form, and up to the wrong one."""
        return " ".join([*self.before, self.right]), " ".join([*self.before, self.wrong])


def task(models: Sequence[LanguageModel], *, pairs: Path, on_defect: Report) -> Task[Agreement]:
    """Return the pairs of a file, a folder or an archive, and how they are counted."""
    verbs = read(pairs, on_defect)
    by_set = grouped(verb.set for verb in verbs)
    by_part = sorted(grouped((verb.set, verb.part) for verb in verbs).items())
    sets: list[Group] = [({"name": name, "part": None}, places) for name, places in by_set.items()]
    parts: list[Group] = [({"name": name, "part": part}, places) for (name, part), places in by_part]

    groups = [group for name in by_set for group in (*sets, *parts) if group[0]["name"] == name]

    def content(run: Scored) -> Agreement:
        counted = [run.count(AgreementRow, group) for group in parts]
        rows = [
            run.count(AgreementRow, group, parts=[part for part in counted if part.name == group[0]["name"]])
            for group in sets
        ]
        return Agreement(**run.about, unk_rate=run.unk_rate(run.ids[verb.texts[0]][:-1] for verb in verbs), sets=rows)

    return Task(
        pairs=[verb.texts for verb in verbs],
        differ=[{verb.right, verb.wrong} for verb in verbs],
        ids=[word_ids(model, {text for verb in verbs for text in verb.texts}) for model in models],
        last_only=True,
        records=map(_record, verbs),
        groups=groups,
        content=content,
    )


def read(path: Path, on_defect: Report) -> list[Verb]:
    """Return the verbs of every set in a folder or archive, or of the set that a file belongs to, by name."""
    paths = [path] if path.is_dir() or path.suffix.lower() not in _SUFFIXES else _siblings(path)
    inside = ((PurePath(file.place), file.data) for source in paths for file in files(source, _SUFFIXES, on_defect))
    by_place = {str(place.with_suffix(place.suffix.lower())): data for place, data in inside}
    verbs = list[Verb]()
    stems = sorted({place[: -len(PurePath(place).suffix)] for place in by_place})
    names = Counter(PurePath(stem).name for stem in stems)
    for stem in stems:
        there = {suffix: by_place[stem + suffix] for suffix in _SUFFIXES if stem + suffix in by_place}
        if missing := [suffix for suffix in _SUFFIXES[:2] if suffix not in there]:
            on_defect(f"{stem}{missing[0]}: no such file; the set is left out")
        else:
            name = PurePath(stem).name
            verbs += _verbs(stem, name if names[name] == 1 else stem, there, on_defect)
    if not verbs:
        raise UserError(f"{path}: no sentences; files NAME.text, NAME.gold, NAME.eval are needed, in a folder or zip")
    return verbs


def _siblings(path: Path) -> list[Path]:
    if not path.is_file():
        raise UserError(f"cannot read {path}: no such file")
    return sorted(file for file in path.parent.glob("*") if file.stem == path.stem and file.suffix.lower() in _SUFFIXES)


def _verbs(stem: str, name: str, there: Mapping[str, bytes], on_defect: Report) -> Iterator[Verb]:
    """Yield the verbs of a set."""
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
            verb = _verb(name, *texts)
        except ValueError as error:
            on_defect(f"{stem}.gold:{number}: {error}; left out")
            continue
        if verb.right == verb.wrong:
            on_defect(f"{stem}.gold:{number}: identical forms, a tie")
        yield verb


def _verb(name: str, text: str, gold: str, place: str | None = None) -> Verb:
    """Return the verb of a line, or raise a `ValueError`."""
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
    require(len(right.split()) == len(wrong.split()) == 1, "each form should be one word")
    require(not short or columns[3].isdecimal(), f"{columns[3][:20]!r} is no number of attractors")
    part = f"{columns[3]} attractors" if short else "original" if columns[2] == "0" else "nonsense"
    return Verb(words[: int(index)], right, wrong, name, part)


def _record(verb: Verb) -> tuple[dict[str, str], dict[str, str]]:
    words = {"before": " ".join(verb.before), "right": verb.right, "wrong": verb.wrong}
    return {"set": verb.set, "kind": verb.part} | words, dict(zip(("right", "wrong"), verb.texts, strict=True))
