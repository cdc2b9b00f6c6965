"""What `onlstm inspect` shows of a grammar."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onlstm.cli.console import Answer, Progress, notice
from onlstm.paper.tables import NONE, Table, number

if TYPE_CHECKING:
    from onlstm.grammar.inspection import GrammarInspection
    from onlstm.paper.parsing.induced import InducedLabel

_RULES, _PRETERMINALS, _LABELS, _GOLD = 30, 40, 30, 4
"""How many are printed; of gold labels, for each induced one."""
_SHARE = 0.005  # of a preterminal's words from which one is printed


def inspect_grammar(run: str, lines: Iterable[str], limit: int, gold: Path | None, json: bool) -> Answer:
    """Return the rules and preterminals of a run's grammar, and its labels against those of a treebank."""
    from onlstm.grammar import inspection as task
    from onlstm.grammar.pcfg import Grammar
    from onlstm.paper.parsing.induced import induced_labels

    grammar = Grammar.load(run)
    with Progress("sentences") as progress:
        found = task.inspect_grammar(grammar, lines, rules=_RULES, limit=limit, on_progress=progress.update)
        labels = induced_labels(grammar, gold) if gold else None
    if found.more:
        notice(f"There is more text than the first {limit:,} sentences: --max reads more.")
    content = {"run": run, "grammar": grammar.config, **vars(found), "labels": labels}
    size = f"{grammar.config.nonterminals} nonterminals, {grammar.config.preterminals} preterminals"
    head = f"{run}: a grammar of {size}, {grammar.config.vocab_size:,} words"
    return Answer(content, [head, *_report(found), *_labels(labels or ())], json)


def _report(found: "GrammarInspection") -> Iterator[str]:
    by = "by expected use" if found.sentences else "by probability; with a text, by their use in it"
    if found.sentences:
        counts = f"{found.sentences:,} sentences of two words or more, {found.words:,} words"
        yield f"{counts}, {number(found.nats_per_word, 3)} nats per word"
    rules = [
        {"rule": f"{rule.parent} → {rule.left} {rule.right}"}
        | ({"uses": number(rule.uses)} if found.sentences else {})
        | {"probability": number(rule.probability, 3)}
        for rule in found.rules
    ]
    yield f"\nRules, {by}:\n{Table.of(rules).text()}"
    words = [
        {"": row.name}
        | ({"uses": number(row.uses)} if found.sentences else {})
        | {"words": " ".join(f"{word} {share:.2f}" for word, share in row.words if share >= _SHARE)}
        for row in found.preterminals[:_PRETERMINALS]
    ]
    yield f"\nPreterminals and their words, {by}:\n{Table.of(words).text()}"
    if more := len(found.preterminals) - len(words):
        yield f"and {more} more (--json)"


def _labels(labels: "Sequence[InducedLabel]") -> Iterator[str]:
    """Yield the gold labels of each induced one."""
    if not labels:
        return
    rows = []
    for row in labels[:_LABELS]:
        shares = [f"{name} {100 * count / row.spans:.0f} %" for name, count in row.gold.items()]
        rows.append([row.label, f"{row.spans:,}", ", ".join(shares[:_GOLD]) or NONE])
    head = ["", "spans", "gold labels of these spans (none: no constituent)"]
    yield f"\nLabels against gold:\n{Table(head=head, rows=rows).text()}"
    if len(labels) > _LABELS:
        yield f"and {len(labels) - _LABELS} more (--json)"
