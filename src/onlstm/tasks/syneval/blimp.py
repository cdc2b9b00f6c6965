"""BLiMP (Warstadt et al. 2020): pairs of raw sentences in JSON lines, paradigm by paradigm.

The model's own tokenizer reads the sentences, and all its words are scored, `<eos>` is not. A pair is right if the good
sentence is strictly likelier.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from statistics import fmean
from typing import Any, Literal, NamedTuple

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.lm.score import tokenizer_of
from onlstm.tasks.syneval.members import members
from onlstm.tasks.syneval.scoring import Outcome, Progress, Say, check_target, contrast, named, tally, write_scores

PARADIGMS = 67
"""Of the whole of BLiMP."""
Reading = Literal["own", "words"]
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
    good: str
    bad: str


def run(
    path: Path,
    folder: Path,
    *,
    reading: Reading = "own",
    scores: Path | None = None,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Return what `onlstm blimp --json` prints; `say` is told of defects in the files."""
    check_target(scores)
    model = LanguageModel.load(path)
    read_as = reader(model, reading)
    pairs, ids = _with_words(list(read(folder, say)), read_as, say)
    if not pairs:
        raise UserError(f"{folder}: the run's tokenizer finds words in no pair; they are not in its language")
    found = sentence_log_probs(model, ids, on_progress=progress)
    judged = list(zip(pairs, found[::2], found[1::2], strict=True))
    if scores:
        names = ("uid", "good", "bad", "score_good", "score_bad")
        write_scores(scores, (dict(zip(names, (p.uid, p.good, p.bad, a, b), strict=True)) for p, a, b in judged))
    known = _known(pairs, read_as, tokenizer_of(model).unk_id)
    by_paradigm: dict[str, list[tuple[Pair, Outcome]]] = {}
    for pair, good, bad in judged:
        outcome = Outcome(good > bad, good == bad, contrast(pair.good.split(), pair.bad.split()) <= known)
        by_paradigm.setdefault(pair.uid, []).append((pair, outcome))
    paradigms = [_paradigm(uid, some) for uid, some in sorted(by_paradigm.items())]
    words = [id for each in ids for id in each]
    return {
        "run": str(path),
        "model": named(model),
        "reading": reading,
        "unk_rate": words.count(tokenizer_of(model).unk_id) / max(1, len(words)),
        "paradigms": paradigms,
        "phenomena": _phenomena(paradigms),
        "mean": fmean(each["accuracy"] for each in paradigms),
    }


def read(path: Path, on_defect: Say) -> Iterator[Pair]:
    """Yield the pairs of a file, or of all in a folder or zip; there must be one.

    Lines without two sentences are reported and left out; identical sentences are reported and stay: they are a tie.
    """
    found = 0
    for name, data in members(path, ".jsonl"):
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
            if not line.strip():
                continue
            pair = _pair(line, f"{name}:{number}", PurePath(name).stem)
            if isinstance(pair, str):
                on_defect(f"{name}:{number}: {pair}; left out")
                continue
            if pair.good == pair.bad:
                on_defect(f"{pair.place}: identical sentences, a tie")
            found += 1
            yield pair
    if not found:
        raise UserError(
            f"{path}: no pairs; JSON lines with sentence_good and sentence_bad are needed, in files *.jsonl"
        )


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


def _pair(line: bytes, place: str, stem: str) -> Pair | str:
    """Return the pair, or what is wrong with it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "broken JSON"
    if not isinstance(record, dict):
        return "no JSON object"
    for name in ("sentence_good", "sentence_bad"):
        text = record.get(name)
        if not isinstance(text, str) or not text.strip() or re.search("[\ud800-\udfff]", text):
            return f"no {name}"
    uid, field, term = (str(record.get(key) or "") for key in ("UID", "field", "linguistics_term"))
    return Pair(place, uid or stem, field.replace("/", "_"), term, record["sentence_good"], record["sentence_bad"])


def _with_words(pairs: Sequence[Pair], read_as: Read, say: Say) -> tuple[list[Pair], list[list[int]]]:
    """Return the pairs whose sentences both have words, and the ids of these sentences, one after the other."""
    ids = read_as([text for pair in pairs for text in (pair.good, pair.bad)])
    kept = [k for k in range(len(pairs)) if ids[2 * k] and ids[2 * k + 1]]
    for k in sorted(set(range(len(pairs))) - set(kept)):
        say(f"{pairs[k].place}: a sentence without words; left out")
    return [pairs[k] for k in kept], [each for k in kept for each in ids[2 * k : 2 * k + 2]]


def _known(pairs: Iterable[Pair], read_as: Read, unk: int) -> set[str]:
    """Return the parts between blanks that have no unknown word in them."""
    parts = sorted({part for pair in pairs for text in (pair.good, pair.bad) for part in text.split()})
    return {part for part, ids in zip(parts, read_as(parts), strict=True) if unk not in ids}


def _paradigm(uid: str, judged: Sequence[tuple[Pair, Outcome]]) -> dict[str, Any]:
    counts = tally([outcome for _, outcome in judged])
    field = next((pair.field for pair, _ in judged if pair.field), "")
    phenomenon = next((pair.phenomenon for pair, _ in judged if pair.phenomenon), "")
    return {"uid": uid, "phenomenon": phenomenon, "field": field, "n": counts.pop("pairs")} | counts


def _phenomena(paradigms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return, by phenomenon, how many paradigms there are and the mean of their accuracies."""
    names = sorted({each["phenomenon"] for each in paradigms})
    grouped = {name: [each["accuracy"] for each in paradigms if each["phenomenon"] == name] for name in names}
    return {name: {"paradigms": len(some), "accuracy": fmean(some)} for name, some in grouped.items()}
