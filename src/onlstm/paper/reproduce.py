"""`onlstm reproduce`: the commands behind a table or figure of the paper, which of them are left, and their page.

The commands themselves are lines in reproduce.yaml.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onlstm import files
from onlstm.errors import UserError, nearest
from onlstm.paper import report
from onlstm.paper.results import read
from onlstm.paper.tables import bundled


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command."""

    words: tuple[str, ...]
    """Its line, without `onlstm`."""

    @property
    def out(self) -> Path | None:
        """What it names with --out."""
        return Path(self.words[self.words.index("--out") + 1]) if "--out" in self.words else None

    @property
    def result(self) -> Path | None:
        """The file that is there when it is done; None: it only prints."""
        return self.out / "result.json" if self.out and self.words[0] in ("train", "logic") else self.out

    def now(self) -> tuple[str, ...]:
        """Return the words that do what is left of it; none if it is done."""
        if not self.out or not self.result:
            return self.words
        if self.result.exists():
            return ()
        if self.words[0] == "train" and (self.out / "trainer.pt").exists():  # the run knows its text and recipe
            last = self.words.index("--out")
            return ("train", "--resume", *self.words[last:])
        begun = self.words[0] == "logic" and any(self.out.glob("*/trainer.pt"))
        return (*self.words, "--resume") if begun else self.words


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that makes a table or figure."""

    steps: Sequence[Step]
    cost: str
    """How long it takes."""
    data: dict[Path, str]
    """What it reads, and what that is."""
    here: Path
    """Folder for its results."""
    kind: str | None
    """Of the results on its page; None: there is no page."""

    def check(self) -> None:
        """Refuse to begin without the data."""
        for path, about in self.data.items():
            if not path.exists():
                raise UserError(f"{path}: not there; needed: {about}; put or link it there, or name another --data")

    def page(self) -> str:
        """Return the results in Markdown, the published numbers beside them; nothing if it makes no such results."""
        for step in self.steps:
            if step.out and step.result and step.result != step.out and read(step.result)["kind"] == self.kind:
                files.write(self.here / f"{step.out.name}.json", step.result.read_bytes())
        return report.front(report.collect(self.here)) if self.kind else ""


def targets() -> list[str]:
    """Return what can be reproduced.

    >>> targets()
    ['table1', 'table2', 'table3', 'figure-logic', 'figure-a1']
    """
    return [name for name in bundled("reproduce.yaml") if name != "data"]


def plan(target: str, scale: str, data: Path, out: Path, threads: int | None = None) -> Plan:
    """Return what to run for a target at the scale "small" or "paper"; it reads from `data` and writes to `out`."""
    if target not in targets():
        raise UserError(f"reproduce {target}: {nearest(target, targets())}")
    described = bundled("reproduce.yaml")
    chosen, here = described[target][scale], out / target
    paths = {name: data / item["path"] for name, item in described["data"].items()}
    used = [name for name in paths if any(f"{{{name}}}" in line for line in chosen["steps"])]
    more = () if threads is None else ("--threads", str(threads))
    lines = [[word.format(**paths, out=out, here=here) for word in shlex.split(line)] for line in chosen["steps"]]
    return Plan(
        steps=[Step(words=(*words, *more)) for words in lines],
        cost=chosen["cost"],
        data={paths[name]: described["data"][name]["about"] for name in used},
        here=here,
        kind=described[target].get("results"),
    )
