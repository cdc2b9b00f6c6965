"""Pages of docs/ run as their reader would run them: every block of Python and every command, in order."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helpers import onlstm

DOCS = Path(__file__).parents[1] / "docs"


class Page(NamedTuple):
    """What a page did in its folder."""

    folder: Path
    printed: dict[str, str]
    """By command, without `onlstm`: what it printed."""
    names: dict[str, Any]
    """What the blocks of Python defined."""

    def output(self, start: str) -> str:
        """Return what the first command printed that starts so."""
        return next(text for command, text in self.printed.items() if command.startswith(start))


def run_page(name: str, folder: Path, change: Callable[[list[str]], list[str]] = lambda words: words) -> Page:
    """Run the blocks of a page in a folder; `change` may shorten a command. YAML blocks are written as files."""
    page = Page(folder, {}, {})
    text = (DOCS / name).read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
            if kind == "python":
                exec(compile(block, name, "exec"), page.names)
            elif kind == "yaml":
                Path(block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
            else:
                assert kind == "sh"
                for line in block.replace("\\\n", "").splitlines():
                    command, *words = shlex.split(line, comments=True)
                    assert command == "onlstm"
                    result = onlstm(*change(words))
                    assert result.code == 0, (line, result.err)
                    page.printed[" ".join(words)] = result.out
    return page
