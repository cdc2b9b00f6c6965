"""The paper's Table 3: what runs make of Marvin & Linzen's pairs, or of your own.

The procedure is the original's: each sentence alone, as `<eos> w1 … wn .` from a zero state, every word and the period
scored; all pairs of a row count the same. A model without a word for the period reads and scores none.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import tokenizer_of
from onlstm.paper.published import published
from onlstm.paper.syntax.content import Syneval, SynevalRow
from onlstm.paper.syntax.pairs import Report, read_pairs
from onlstm.paper.syntax.scoring import Group, Scored, Task, contrast, grouped, word_ids
from onlstm.paper.syntax.templates import SENTENCES, Item, Row, generate, load, rows_of

Case = tuple[Row, Item]
"""A row of the table, and an item that counts in it."""


def task(
    models: Sequence[LanguageModel], *, pairs: Path | None = None, lexicon: str = "", on_defect: Report
) -> Task[Syneval]:
    """Return the pairs, and how they are counted.

    Args:
        pairs: a file, folder or archive of pairs, or templates in YAML; by default Marvin & Linzen's.
        lexicon: `in-vocabulary` (only words that all the models know), or the name of one beside the templates.
    """
    items, table = _items(pairs, lexicon, models, on_defect)
    cases = list(_cases(items, table))
    texts = [(item.sentences[row.compare[0]], item.sentences[row.compare[1]]) for row, item in cases]
    rows, pooled = _rows(cases, quoted=not _is_spec(pairs)), _pooled(cases)

    def content(run: Scored) -> Syneval:
        return Syneval(
            **run.about,
            period=bool(_period(run.model)),
            items=len(items),
            rows=[run.count(SynevalRow, group) for group in rows],
            pooled=[run.count(SynevalRow, group) for group in pooled],
        )

    return Task(
        pairs=texts,
        differ=[contrast(good.split(), bad.split()) for good, bad in texts],
        ids=[word_ids(model, {text for pair in texts for text in pair}, _period(model)) for model in models],
        records=map(_record, items),
        groups=[({key: head[key] for key in ("row", "group")}, places) for head, places in (*rows, *pooled)],
        content=content,
    )


def _items(
    path: Path | None, lexicon: str, models: Sequence[LanguageModel], on_defect: Report
) -> tuple[list[Item], list[Row]]:
    """Return all items, and the rows of the table that they may belong to."""
    spec = load(path if _is_spec(path) else None)
    if path and not _is_spec(path):
        if lexicon:
            raise UserError(f"lexicon {lexicon}: pairs from a file have words of their own")
        items = list(read_pairs(path, on_defect))
    elif lexicon == "in-vocabulary":
        items = list(generate(spec, known=set.intersection(*(set(tokenizer_of(model).vocabulary) for model in models))))
    else:
        items = list(generate(spec, lexicon=lexicon))
    if not items:
        raise UserError("no pair is left: the models know too few words of the lexicon")
    table = list(spec.rows)
    named = {template for row in table for template in row.templates}
    for template, width in {item.template: len(item.sentences) for item in items}.items():
        if template not in named:
            table += rows_of(template, width, len(table) + 1)
    return items, table


def _is_spec(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() in (".yaml", ".yml")


def _period(model: LanguageModel) -> list[int]:
    """Return the period's id, if the model has one."""
    return [id for id in tokenizer_of(model).ids(["."]) if id != tokenizer_of(model).unk_id]


def _cases(items: Sequence[Item], table: Sequence[Row]) -> Iterator[Case]:
    """Yield the items of each row; a row for intrusive sentences has no pairs."""
    places = grouped(item.template for item in items)
    for row in table:
        for item in (items[k] for template in row.templates for k in places.get(template, ())):
            if 1 not in row.compare or len(item.sentences) == len(SENTENCES):
                yield row, item


def _rows(cases: Sequence[Case], quoted: bool) -> list[Group]:
    """Return the rows of the table, with what the paper has in them if that is to be quoted."""
    values = [{k: 100 * float(v) for k, v in row.values.items() if k != "dependency"} for row in published("syneval")]
    rows = list[Group]()
    for number, places in grouped(row.number for row, _ in cases).items():
        row, example = cases[places[0]]
        head = {
            "row": number,
            "group": row.group,
            "phenomenon": row.phenomenon,
            "name": row.name,
            "files": row.templates,
            "example": [example.sentences[k] for k in row.compare],
            "published": values[number - 1] if quoted and number <= len(values) else None,
        }
        rows.append((head, places))
    return rows


def _pooled(cases: Sequence[Case]) -> list[Group]:
    """Return the cases of each group, if there are several, and all."""
    groups = grouped(row.group or "other" for row, _ in cases)
    every = {"all" if "all" not in groups else "all groups": range(len(cases))}
    pooled = (groups if len(groups) > 1 else {}) | every
    return [({"row": None, "group": name}, places) for name, places in pooled.items()]


def _record(item: Item) -> tuple[dict[str, str], dict[str, str]]:
    names = SENTENCES if len(item.sentences) == len(SENTENCES) else SENTENCES[::2]
    texts = dict.fromkeys(SENTENCES, "") | dict(zip(names, item.sentences, strict=True))
    return {"template": item.template, "condition": item.condition} | texts, texts
