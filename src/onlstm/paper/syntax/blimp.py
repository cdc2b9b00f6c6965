"""BLiMP (Warstadt et al. 2020): pairs of raw sentences in JSON lines, paradigm by paradigm.

The model's own tokenizer reads the sentences, and all its words are scored, `<eos>` is not.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.syntax import scoring
from onlstm.paper.syntax.content import Blimp, BlimpRow
from onlstm.paper.syntax.pairs import Report, read_lines

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
    sentences: tuple[str, str]
    """The good one and the bad one."""


def run(
    runs: Sequence[Path],
    pairs: Path,
    *,
    reading: Reading = "own",
    scores: Path | None = None,
    on_defect: Report,
    on_progress: scoring.Progress = lambda done, total: None,
) -> Blimp:
    """Return how often one run, or each of two, finds the good sentence likelier; for `reading` see `encoder`."""
    models = [LanguageModel.load(path) for path in runs]
    every = list(read(pairs, on_defect))
    differ = [scoring.contrast(*(text.split() for text in pair.sentences)) for pair in every]
    texts = sorted({text for pair in every for text in pair.sentences}.union(*differ))
    ids = [dict(zip(texts, encoder(model, reading)(texts), strict=True)) for model in models]
    chosen = [k for k, pair in enumerate(every) if all(of[text] for of in ids for text in pair.sentences)]
    for k in set(range(len(every))).difference(chosen):
        on_defect(f"{every[k].place}: a sentence without words; left out")
    if not chosen:
        raise UserError(f"{pairs}: the run's tokenizer finds words in no pair; they are not in its language")
    some = [every[k] for k in chosen]
    scored = scoring.score(
        runs, models, ids, [pair.sentences for pair in some], [differ[k] for k in chosen], on_progress
    )
    if scores:
        scoring.write_scores(scores, scored, map(_record, some))
    paradigms = _paradigms(some)
    phenomena = _phenomena(paradigms, len(some))
    contents = []
    for run, of in zip(scored, ids, strict=True):
        rows = [run.count(BlimpRow, group) for group in paradigms]
        *means, whole = (_mean(run, group, rows) for group in phenomena)
        content = Blimp(
            **run.about,
            reading=reading,
            unk_rate=scoring.unk_rate(run.model, (of[text] for pair in some for text in pair.sentences)),
            paradigms=rows,
            phenomena={head["phenomenon"]: mean for (head, _), mean in zip(phenomena, means, strict=False)},
            all=whole,
            mean=whole.accuracy,
        )
        contents.append(content)
    return scoring.compared(contents, scored, [*paradigms, *phenomena])


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


def _paradigms(pairs: Sequence[Pair]) -> list[scoring.Group]:
    """Return what each paradigm is called, and its pairs."""
    paradigms = list[scoring.Group]()
    for uid, places in sorted(scoring.grouped(pair.uid for pair in pairs).items()):
        phenomenon = next((pairs[k].phenomenon for k in places if pairs[k].phenomenon), "")
        field = next((pairs[k].field for k in places if pairs[k].field), "")
        paradigms.append(({"uid": uid, "phenomenon": phenomenon, "field": field}, places))
    return paradigms


def _phenomena(paradigms: Sequence[scoring.Group], pairs: int) -> list[scoring.Group]:
    """Return the pairs of each phenomenon, and last all."""
    phenomena = dict[str, list[int]]()
    for head, places in sorted(paradigms, key=lambda group: str(group[0]["phenomenon"])):
        phenomena.setdefault(head["phenomenon"], []).extend(places)
    return [*(({"phenomenon": name}, places) for name, places in phenomena.items()), ({}, range(pairs))]


def _mean(run: scoring.Scored, group: scoring.Group, rows: Sequence[BlimpRow]) -> BlimpRow:
    head, places = group
    accuracies = [row.accuracy for row in rows if head.get("phenomenon") in (None, row.phenomenon)]
    counts = run.count(BlimpRow, ({"paradigms": len(accuracies)}, places))
    return replace(counts, accuracy=fmean(accuracies))


def _record(pair: Pair) -> tuple[dict[str, str], dict[str, str]]:
    texts = dict(zip(("good", "bad"), pair.sentences, strict=True))
    return {"uid": pair.uid} | texts, texts
