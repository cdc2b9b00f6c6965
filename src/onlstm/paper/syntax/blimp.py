"""BLiMP (Warstadt et al. 2020): pairs of raw sentences in JSON lines, paradigm by paradigm.

The model's own tokenizer reads the sentences, and all its words are scored, `<eos>` is not.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.syntax import scoring
from onlstm.paper.syntax.members import Say, read_lines
from onlstm.paper.syntax.scoring import Group, Judged, Progress, Reading, Request, Scored, Scores

Read = Callable[[Sequence[str]], list[list[int]]]
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
    sentences: tuple[str, ...]
    """The good one and the bad one."""


def judge(request: Request, models: list[LanguageModel], say: Say, progress: Progress) -> Judged:
    """Return what models make of BLiMP's pairs."""
    assert request.pairs
    readers = [reader(model, request.reading) for model in models]
    pairs, ids = _with_words(list(read(request.pairs, say)), readers, say)
    if not pairs:
        raise UserError(f"{request.pairs}: the run's tokenizer finds words in no pair; they are not in its language")
    differ = [scoring.contrast(*(text.split() for text in pair.sentences)) for pair in pairs]
    runs = []
    for model, read_as, each in zip(models, readers, ids, strict=True):
        known = _known(set().union(*differ), read_as, tokenizer_of(model).unk_id)
        facts = {"reading": request.reading, "unk_rate": scoring.unk_rate(model, each)}
        scores = scoring.pair_scores(model, each, progress)
        runs.append(Scored(scores, [words <= known for words in differ], facts))
    records = _records(pairs, [each.scores for each in runs])
    return Judged(runs, _groups(pairs), _arranged, records, ("n", "scorable_pairs"))


def read(path: Path, say: Say) -> Iterator[Pair]:
    """Yield the pairs of a file, or of all in a folder or zip; there must be one."""
    for line in read_lines(path, ["sentence_good", "sentence_bad"], say, table=False):
        uid, field, term = (str(line.record.get(key) or "") for key in ("UID", "field", "linguistics_term"))
        yield Pair(line.place, uid or line.stem, field.replace("/", "_"), term, line.sentences)


def reader(model: LanguageModel, reading: Reading) -> Read:
    """Return what gives the ids of raw sentences.

    "own" is the model's tokenizer. "words" is for models of text that was tokenised before: punctuation and clitics are
    split off, a word that only its lower case is known of is lowered, unknown punctuation is left out.
    """
    tokenizer = tokenizer_of(model)
    if reading == "own":
        encode: Read = tokenizer.encode
        return encode
    known = set(tokenizer.vocabulary)
    part = re.compile((_CLITICS if "n't" in known else "") + _WORDS)

    def words(text: str) -> list[str]:
        parts = [each if each in known else each.lower() for each in part.findall(text.replace("’", "'"))]
        return [each for each in parts if each in known or re.search(r"\w", each)]

    return lambda texts: [tokenizer.ids(words(text)) for text in texts]


def _with_words(pairs: Sequence[Pair], readers: Sequence[Read], say: Say) -> tuple[list[Pair], list[list[list[int]]]]:
    """Return the pairs whose sentences all have words, and for each reader the ids of one sentence after the other."""
    found = [read_as([text for pair in pairs for text in pair.sentences]) for read_as in readers]
    kept = [k for k in range(len(pairs)) if all(ids[2 * k] and ids[2 * k + 1] for ids in found)]
    for k in sorted(set(range(len(pairs))).difference(kept)):
        say(f"{pairs[k].place}: a sentence without words; left out")
    return [pairs[k] for k in kept], [[each for k in kept for each in ids[2 * k : 2 * k + 2]] for ids in found]


def _known(parts: Iterable[str], read_as: Read, unk: int) -> set[str]:
    """Return the parts, each a text without blanks, that have no unknown word in them."""
    listed = sorted(parts)
    return {part for part, ids in zip(listed, read_as(listed), strict=True) if unk not in ids}


def _groups(pairs: Sequence[Pair]) -> list[Group]:
    """Return the paradigms, the phenomena, and all."""
    by_uid = sorted(scoring.grouped(pair.uid for pair in pairs).items())
    groups: list[Group] = []
    for uid, where in by_uid:
        names = ("phenomenon", "field")
        said = {name: next(filter(None, (getattr(pairs[k], name) for k in where)), "") for name in names}
        groups.append(({"uid": uid} | said, where))
    of = {key["uid"]: key["phenomenon"] for key, _ in groups}
    by_name = sorted(scoring.grouped(of[pair.uid] for pair in pairs).items())
    groups += [({"uid": None, "phenomenon": name}, where) for name, where in by_name]
    return [*groups, ({"uid": None, "phenomenon": None}, range(len(pairs)))]


def _arranged(counted: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return paradigms and phenomena; these have the counts of all their pairs, but the mean of the accuracies."""
    rows, means = [row for row in counted if row["uid"] is not None], {}
    for group in counted[len(rows) :]:
        name = group["phenomenon"]
        accuracies = [row["accuracy"] for row in rows if name in (None, row["phenomenon"])]
        counts = {key: value for key, value in group.items() if key not in ("uid", "phenomenon")}
        means[name] = {"paradigms": len(accuracies)} | counts | {"accuracy": fmean(accuracies)}
    whole = means.pop(None)
    return {"paradigms": rows, "phenomena": means, "all": whole, "mean": whole["accuracy"]}


def _records(pairs: Sequence[Pair], scores: Sequence[Scores]) -> Iterator[dict[str, Any]]:
    for pair, *found in zip(pairs, *scores, strict=True):
        good, bad = pair.sentences
        yield {"uid": pair.uid, "good": good, "bad": bad} | scoring.score_columns(("good", "bad"), found)
