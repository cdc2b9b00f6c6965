"""What `onlstm induce` writes to result.json, and its tables: how each stage went. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass

from onlstm.induction.plan import Stage
from onlstm.paper.results import Result
from onlstm.paper.tables import Table, number


@dataclass(frozen=True, kw_only=True)
class Content:
    """The stages of an induction."""

    stages: Sequence[Stage]


def tables(results: Sequence[Result[Content]]) -> list[str]:
    """Return a table with a row for each stage of each run."""
    head = ["run", "seed", "stage", "processor minutes", "nats per held-out word", "agreement"]
    rows = []
    for result in results:
        for stage in result.content.stages:
            figures = number(stage.seconds / 60), number(stage.likelihood, 3), number(stage.agreement)
            rows.append([result.origin.name, str(result.origin.seed), stage.name, *figures])
    return [Table(head=head, rows=rows).markdown()]
