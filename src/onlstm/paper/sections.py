"""`Section`: what the pages have of one kind of result. Experiments make the tables; commands and machines go below."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onlstm.paper.published import published
from onlstm.paper.results import Result
from onlstm.paper.tables import Table

Results = Sequence[Result[Any]]
Blocks = Callable[[Results], list[str]]
"""From results to paragraphs of Markdown."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One kind of result."""

    kind: str
    content: type
    title: str
    page: str
    """The experiment's page in docs/results, without .md; kinds may share one."""
    about: str
    """How to read its tables; the first paragraph stands on the front page too."""
    summary: Blocks
    """For the front page: the paper's table or figure with ours beside it."""
    details: Blocks
    """For the experiment's page: everything."""
    published: Mapping[str, str] = field(default_factory=dict)
    """Published tables for the experiment's page, each with a line to head it."""
    commands: Callable[[Result[Any]], Sequence[str]] = lambda result: [result.origin.command]

    def front(self, results: Results) -> list[str]:
        """Return the section of the front page."""
        about, _, _ = self.about.partition("\n\n")
        return [f"## {self.title}", about, *self.summary(results), "Commands:", self._commands(results)]

    def whole(self, results: Results) -> list[str]:
        """Return the section of the experiment's page."""
        blocks = [f"## {self.title}", self.about, *self.details(results), "### Commands and machines"]
        blocks += [self._commands(results), "\n".join(map(_origin, results))]
        for table, line in self.published.items():
            blocks += [f"### Published: {table}", *[line] * bool(line), *_quoted(table)]
        return blocks

    def _commands(self, results: Results) -> str:
        return "\n".join(f"- {r.file}: `{command}`" for r in results for command in self.commands(r))


def _origin(result: Result[Any]) -> str:
    """Return the machine, the versions and the time behind a result, as a line of a list."""
    origin = result.origin
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    facts = [origin.machine, f"threads: {origin.threads}", versions, f"{origin.seconds / 60:.1f} min", *origin.notes]
    return f"- {result.file}: {'; '.join(facts)}"


def _quoted(table: str) -> list[str]:
    """Return a published table, and how each source counted."""
    rows = published(table)
    columns = list(dict.fromkeys(column for row in rows for column in row.values))
    lines = [[row.row + " †" * (not row.checked), *row.cells(*columns), row.source] for row in rows]
    rules: dict[str, dict[str, None]] = {}
    for row in rows:
        rules.setdefault(row.rule, {})[row.source] = None
    counted = "\n".join(f"- {', '.join(sources)}: {rule}." for rule, sources in rules.items())
    return [Table(head=["published", *columns, "source"], rows=lines).markdown(), counted]
