"""The paper's Table 3: what models make of Marvin & Linzen's pairs, or of a user's own.

The procedure is the original's: each sentence alone, as `<eos> w1 … wn .` from a zero state, every word and the period
scored; all pairs of a row count the same. A model without a word for the period reads and scores none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.published import Published, published
from onlstm.paper.syntax import scoring
from onlstm.paper.syntax.generator import Item, generate
from onlstm.paper.syntax.loading import load
from onlstm.paper.syntax.members import Say
from onlstm.paper.syntax.pairs import read_pairs
from onlstm.paper.syntax.scoring import Group, Judged, Progress, Request, Scored
from onlstm.paper.syntax.spec import SENTENCES, Row, rows_of


def judge(request: Request, models: list[LanguageModel], say: Say, progress: Progress) -> Judged:
    """Return what models make of Marvin & Linzen's pairs, or of those that were asked for."""
    items, table = _items(request, models, say)
    scores = [_scores(model, items, progress) for model in models]
    cases = [(row, k) for row, chosen in zip(table, _chosen(items, table), strict=True) for k in chosen]
    differ = [scoring.contrast(*(items[k].sentences[i].split() for i in row.compare)) for row, k in cases]
    runs = []
    for model, found in zip(models, scores, strict=True):
        known = _known(model, set().union(*differ))
        facts = {"period": bool(_period(model)), "items": len(items)}
        compared = [(found[k][row.compare[0]], found[k][row.compare[1]]) for row, k in cases]
        runs.append(Scored(compared, [words <= known for words in differ], facts))
    quoted = [] if _is_spec(request.pairs) else published("syneval")
    by_row = scoring.grouped(row.number for row, _ in cases)
    firsts = {number: cases[where[0]] for number, where in by_row.items()}
    heads = {number: _head(row, items[k], quoted) for number, (row, k) in firsts.items()}
    by_group = scoring.grouped(row.group for row, _ in cases)
    several = {name or "other": where for name, where in by_group.items()} if len(by_group) > 1 else {}
    pooled = several | {"all" if "all" not in several else "all groups": [*range(len(cases))]}
    groups: list[Group] = [({"row": number, "group": heads[number]["group"]}, at) for number, at in by_row.items()]
    groups += [({"row": None, "group": name}, where) for name, where in pooled.items()]
    return Judged(runs, groups, partial(_arranged, heads), _records(items, scores))


def _arranged(heads: Mapping[int, dict[str, Any]], counted: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = [heads[row["row"]] | row for row in counted if row["row"]]
    return {"rows": rows, "pooled": counted[len(rows) :]}


def _items(request: Request, models: Sequence[LanguageModel], say: Say) -> tuple[list[Item], list[Row]]:
    """Return all pairs, and the rows of the table that they may belong to."""
    spec = load(request.pairs if _is_spec(request.pairs) else None)
    if request.pairs and not _is_spec(request.pairs):
        if request.lexicon:
            raise UserError(f"--lexicon {request.lexicon}: not with the pairs of a file; leave --pairs out")
        items = list(read_pairs(request.pairs, say))
    elif request.lexicon == "in-vocabulary":
        words = {word for kind in spec.words().values() for forms in kind for word in " ".join(forms).split()}
        items = list(generate(spec, known=words.intersection(*(_known(model, words) for model in models))))
    else:
        items = list(generate(spec, lexicon=request.lexicon))
    if not items:
        few = "the models know too few of the lexicon's words; leave --lexicon out"
        same = f"the templates of {request.pairs} make no two sentences that differ"
        raise UserError(f"no pair is left: {few if request.lexicon else same}")
    table = list(spec.rows)
    named = {template for row in table for template in row.templates}
    for template, width in {item.template: len(item.sentences) for item in items}.items():
        if template not in named:
            table += rows_of(template, width, len(table) + 1)
    return items, table


def _is_spec(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() in (".yaml", ".yml")


def _known(model: LanguageModel, words: Iterable[str]) -> set[str]:
    """Return the words that the model knows."""
    return {word for word, id in _ids(model, words).items() if id != tokenizer_of(model).unk_id}


def _ids(model: LanguageModel, words: Iterable[str]) -> dict[str, int]:
    listed = list(words)
    return dict(zip(listed, tokenizer_of(model).ids(listed), strict=True))


def _period(model: LanguageModel) -> list[int]:
    """Return the period's id, if the model has one."""
    return [id for id in tokenizer_of(model).ids(["."]) if id != tokenizer_of(model).unk_id]


def _scores(model: LanguageModel, items: Sequence[Item], progress: Progress) -> list[tuple[float, ...]]:
    """Return the log-probability of each sentence of each item."""
    split = [sentence.split() for item in items for sentence in item.sentences]
    ids, end = _ids(model, {word for words in split for word in words}), _period(model)
    found = iter(sentence_log_probs(model, [[ids[w] for w in words] + end for words in split], on_progress=progress))
    return [tuple(next(found) for _ in item.sentences) for item in items]


def _chosen(items: Sequence[Item], table: Sequence[Row]) -> list[list[int]]:
    """Return the places of the items of each row; a row for intrusive sentences has no pairs."""
    places = scoring.grouped(item.template for item in items)
    enough = [3 if 1 in row.compare else 2 for row in table]
    return [
        [k for template in row.templates for k in places.get(template, ()) if len(items[k].sentences) >= least]
        for row, least in zip(table, enough, strict=True)
    ]


def _head(row: Row, example: Item, quoted: Sequence[Published]) -> dict[str, Any]:
    """Return what a row's line begins with, and what the paper has in it."""
    named = {"row": row.number, "group": row.group, "phenomenon": row.phenomenon, "name": row.name}
    values = quoted[row.number - 1].values if row.number <= len(quoted) else {}
    numbers = {model: 100 * float(value) for model, value in values.items() if model != "dependency"}
    shown = [example.sentences[k] for k in row.compare]
    return named | {"files": list(row.templates), "example": shown, "published": numbers or None}


def _records(items: Sequence[Item], scores: Sequence[Sequence[tuple[float, ...]]]) -> Iterator[dict[str, Any]]:
    for item, *found in zip(items, *scores, strict=True):
        names = SENTENCES if len(item.sentences) == len(SENTENCES) else SENTENCES[::2]
        by_name = [
            dict.fromkeys(SENTENCES, "") | dict(zip(names, some, strict=True)) for some in (item.sentences, *found)
        ]
        scored = scoring.score_columns(SENTENCES, (list(some.values()) for some in by_name[1:]))
        yield {"template": item.template, "condition": item.condition} | by_name[0] | scored
