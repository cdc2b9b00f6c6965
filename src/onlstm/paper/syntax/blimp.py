"""BLiMP (Warstadt et al. 2020): pairs of raw sentences in JSON lines, paradigm by paradigm.

The model's own tokenizer reads the sentences, and all its words are scored, `<eos>` is not.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, compress
from operator import not_
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.syntax.content import Blimp, BlimpRow
from onlstm.paper.syntax.pairs import Report, read_lines
from onlstm.paper.syntax.scoring import Group, Scored, Task, contrast, grouped

Reading = Literal["own", "words"]
Encode = Callable[[Sequence[str]], list[list[int]]]
"""From texts to the ids of their words."""

_CLITICS = r"n't\b|\w+?(?=n't\b)|"
_WORDS = r"'\w+|\w+(?:-\w+)*|[^\w\s]"


class Pair(NamedTuple):
    """A line of a file."""

    place: str
    """File and line."""
    uid: str
    """The paradigm; the file's name, if the line does not say."""
    field: str
    phenomenon: str
    """What the files call linguistics_term."""
    texts: tuple[str, str]
    """The good sentence and the bad one."""


def task(models: Sequence[LanguageModel], *, pairs: Path, reading: Reading = "own", on_defect: Report) -> Task[Blimp]:
    """Return the pairs of a file, a folder or an archive, and how they are counted; for `reading` see `encoder`."""
    every = list(read(pairs, on_defect))
    differ = [contrast(*(text.split() for text in pair.texts)) for pair in every]
    texts = sorted({text for pair in every for text in pair.texts}.union(*differ))
    ids = [dict(zip(texts, encoder(model, reading)(texts), strict=True)) for model in models]
    full = [all(ids_of[text] for ids_of in ids for text in pair.texts) for pair in every]
    for pair in compress(every, map(not_, full)):
        on_defect(f"{pair.place}: a sentence without words; left out")
    chosen = list(compress(every, full))
    if not chosen:
        raise UserError(f"{pairs}: the run's tokenizer finds words in no pair; they are not in its language")
    paradigms = _paradigms(chosen)
    phenomena = _phenomena(paradigms)

    def content(run: Scored) -> Blimp:
        rows = [run.count(BlimpRow, group) for group in paradigms]
        *means, whole = (_mean(run, group, rows) for group in phenomena)
        return Blimp(
            **run.about,
            reading=reading,
            unk_rate=run.unk_rate(run.ids[text] for pair in chosen for text in pair.texts),
            paradigms=rows,
            phenomena={head["phenomenon"]: mean for (head, _), mean in zip(phenomena, means, strict=False)},
            all=whole,
            mean=whole.accuracy,
        )

    return Task(
        pairs=[pair.texts for pair in chosen],
        differ=list(compress(differ, full)),
        ids=ids,
        records=map(_record, chosen),
        groups=[*paradigms, *phenomena],
        content=content,
    )


def read(path: Path, on_defect: Report) -> Iterator[Pair]:
    """Yield the pairs of a file, or of all in a folder or archive; there must be one."""
    for line in read_lines(path, ["sentence_good", "sentence_bad"], on_defect, table=False):
        uid, field, term = (str(line.record.get(key) or "") for key in ("UID", "field", "linguistics_term"))
        yield Pair(line.place, uid or line.stem, field.replace("/", "_"), term, (line.sentences[0], line.sentences[1]))


def encoder(model: LanguageModel, reading: Reading) -> Encode:
    """Return what gives the ids of raw sentences.

    "own" is the model's tokenizer. "words" is for models of text that was tokenised before: punctuation and clitics are
    split off, a word that only its lower case is known of is lowered, unknown punctuation is left out.
    """
    tokenizer = tokenizer_of(model)
    if reading == "own":
        encode: Encode = tokenizer.encode
        return encode
    known = set(tokenizer.vocabulary)
    part = re.compile((_CLITICS if "n't" in known else "") + _WORDS)

    def words(text: str) -> list[str]:
        parts = [word if word in known else word.lower() for word in part.findall(text.replace("’", "'"))]
        return [word for word in parts if word in known or re.search(r"\w", word)]

    return lambda texts: [tokenizer.ids(words(text)) for text in texts]


def _paradigms(pairs: Sequence[Pair]) -> list[Group]:
    """Return what each paradigm is called, and its pairs."""
    paradigms = list[Group]()
    for uid, places in sorted(grouped(pair.uid for pair in pairs).items()):
        phenomenon = next((pairs[k].phenomenon for k in places if pairs[k].phenomenon), "")
        field = next((pairs[k].field for k in places if pairs[k].field), "")
        paradigms.append(({"uid": uid, "phenomenon": phenomenon, "field": field}, places))
    return paradigms


def _phenomena(paradigms: Sequence[Group]) -> list[Group]:
    """Return the pairs of each phenomenon, and last all."""
    phenomena = dict[str | None, list[int]]()
    for name, places in sorted((head["phenomenon"], places) for head, places in paradigms):
        phenomena.setdefault(name, []).extend(places)
    every = {None: list(chain.from_iterable(phenomena.values()))}
    return [({"phenomenon": name}, places) for name, places in (phenomena | every).items()]


def _mean(run: Scored, group: Group, rows: Sequence[BlimpRow]) -> BlimpRow:
    head, places = group
    accuracies = [row.accuracy for row in rows if head["phenomenon"] in (None, row.phenomenon)]
    return replace(run.count(BlimpRow, ({"paradigms": len(accuracies)}, places)), accuracy=fmean(accuracies))


def _record(pair: Pair) -> tuple[dict[str, str], dict[str, str]]:
    texts = dict(zip(("good", "bad"), pair.texts, strict=True))
    return {"uid": pair.uid} | texts, texts
