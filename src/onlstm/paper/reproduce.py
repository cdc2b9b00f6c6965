"""`onlstm reproduce`: the commands behind a table or figure of the paper, which of them are left, and their page.

The commands themselves are lines in reproduce.yaml.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onlstm import files, recipe
from onlstm.device import find
from onlstm.errors import UserError, nearest
from onlstm.paper import report
from onlstm.paper.results import read
from onlstm.paper.tables import bundled
from onlstm.records import from_json
from onlstm.trees.treebank import read_treebank

_OWN = ".own.json"
"""In the folder of runs that were made from one's own text: which text that was."""


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

    def check(self) -> None:
        """Refuse a result of another command in the place of this one's."""
        if not self.result or self.result.suffix != ".json" or not self.result.exists():
            return
        command = str(read(self.result).get("command", ""))
        if _without_machine(shlex.split(command)[1:]) != _without_machine(self.words):
            raise UserError(f"{self.result}: the result of another command ({command}); name another --out")


def _without_machine(words: Sequence[str]) -> list[str]:
    """Return the words without options that change nothing but where, and how fast, a command runs."""
    for option in ("--threads", "--device"):
        at = words.index(option) if option in words else len(words)
        words = [*words[:at], *words[at + 2 :]]
    return list(words)


@dataclass(frozen=True, kw_only=True)
class Own:
    """A text, and a treebank, instead of the paper's."""

    text: tuple[str, ...]
    """Files or folders."""
    recipe: str
    treebank: Path | None = None
    dev: Path | None = None
    """Treebank to choose layer and decoder on."""

    def check(self, record: Path) -> None:
        """Raise a `UserError` unless all of it is there, and the runs beside the record were made from it."""
        if "-" in self.text:
            raise UserError("--text -: it is read more than once; name files")
        for option, path in [*(("--text", Path(name)) for name in self.text), ("--treebank", self.treebank)]:
            if path and not path.exists():
                raise UserError(f"{option} {path}: no such file or folder; check the name")
        if self.dev and not self.dev.exists():
            raise UserError(f"--dev {self.dev}: no such file or folder; check the name")
        recipe.read(self.recipe)
        for treebank in filter(None, (self.treebank, self.dev)):  # a mistake shows now, not after hours
            if not read_treebank(treebank).trees:
                raise UserError(f"{treebank}: no trees to score; see what is wrong: onlstm evaluate {treebank}")
        if record.exists() and (before := files.read(record)) != self.record():
            try:
                text = " ".join(from_json(before)["text"])
            except (ValueError, KeyError, TypeError):
                text = f"{record.name} is damaged"
            raise UserError(f"{record.parent}: its runs have another text or recipe ({text}); name another --out")

    def record(self) -> str:
        """Return what is stored beside the runs."""
        described = {"text": [str(Path(name).resolve()) for name in self.text], "recipe": self.recipe}
        return files.json_text(described) + "\n"

    def words(self) -> dict[str, list[str]]:
        """Return what its names stand for in the steps."""
        treebank = [str(self.treebank)] if self.treebank else []
        dev = ["--dev", str(self.dev)] if self.dev else []
        return {"text": list(self.text), "recipe": [self.recipe], "treebank": treebank, "dev": dev}


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
    own: Own | None = None
    """What it reads instead."""
    device: str = "auto"
    """Where its steps run, see `onlstm.device.find`."""

    @property
    def missing(self) -> list[str]:
        """The names of the results that are still to be made."""
        return [step.out.name for step in self.steps if step.out and step.now()]

    def check(self) -> None:
        """Refuse to begin without the data or the device, or to mix results of several."""
        if self.own:
            self.own.check(self.here.parent / _OWN)
            for step in self.steps:
                step.check()
        for path, about in self.data.items():
            if not path.exists():
                raise UserError(f"{path}: not there; needed: {about}; put or link it there, or name another --data")
        if self.device != "auto":  # which is always there, and need not load torch
            find(self.device)

    def begin(self) -> None:
        """Make the folder for the results, and note what the runs are made from."""
        files.make_folder(self.here)
        if self.own:
            files.write(self.here.parent / _OWN, self.own.record())

    def page(self) -> str:
        """Return the results in Markdown, the published numbers beside them; nothing if it makes no such results."""
        for step in self.steps:
            if step.out and step.result and step.result != step.out and read(step.result)["kind"] == self.kind:
                files.write(self.here / f"{step.out.name}.json", step.result.read_bytes())
        if not self.kind:
            return ""
        return report.front(report.collect(self.here))


def targets() -> list[str]:
    """Return what can be reproduced.

    >>> targets()
    ['table1', 'table2', 'table3', 'figure-logic', 'figure-a1']
    """
    return [name for name in bundled("reproduce.yaml") if name != "data"]


def plan(
    target: str,
    scale: str,
    data: Path,
    out: Path,
    threads: int | None = None,
    own: Own | None = None,
    device: str = "auto",
) -> Plan:
    """Return what to run for a target at the scale "small" or "paper", or on one's own data.

    It reads from the folder `data`, or `own`, and writes to the folder `out`.
    """
    if target not in targets():
        raise UserError(f"reproduce {target}: {nearest(target, targets(), choices=True)}")
    described = bundled("reproduce.yaml")
    here, chosen = out / target, described[target].get("own" if own else scale)
    if own:
        _check_own(target, chosen, own)
    paths = {name: data / item["path"] for name, item in described["data"].items()}
    used = [name for name in paths if any(f"{{{name}}}" in line for line in chosen["steps"])]
    more = [] if threads is None else ["--threads", str(threads)]
    more += [] if device == "auto" else ["--device", device]
    name = own.treebank.name.partition(".")[0] if own and own.treebank else ""
    values = {**paths, "out": out, "here": here, "name": name}
    several = {f"{{{name}}}": words for name, words in (own.words() if own else {}).items()}

    def filled(line: str) -> list[str]:
        parts = (several[part] if part in several else [part.format(**values)] for part in shlex.split(line))
        return [word for words in parts for word in words]

    return Plan(
        steps=[Step(words=(*filled(line), *more)) for line in chosen["steps"]],
        cost=chosen["cost"],
        data={paths[name]: described["data"][name]["about"] for name in used},
        here=here,
        kind=described[target].get("results"),
        own=own,
        device=device,
    )


def _check_own(target: str, chosen: Any, own: Own) -> None:
    """Raise a `UserError` unless a target can be made from just this."""
    if not chosen:
        able = ", ".join(name for name in targets() if "own" in bundled("reproduce.yaml")[name])
        raise UserError(f"--text: {target} is not made from text; {able} are")
    reads = any("{treebank}" in line for line in chosen["steps"])
    if reads and not own.treebank:
        raise UserError(f"{target}: name a treebank too: --treebank")
    if own.treebank and not reads:
        raise UserError(f"--treebank {own.treebank}: {target} reads none")
    if own.dev and not any("{dev}" in line for line in chosen["steps"]):
        raise UserError(f"--dev {own.dev}: {target} reads none")
