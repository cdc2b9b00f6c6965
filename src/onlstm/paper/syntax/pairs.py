"""Minimal pairs from files: TSV with a header, or JSON lines; one file, or a folder or zip of them. No torch here.

Columns or keys are template, condition, grammatical, intrusive (of triples only) and ungrammatical; the first two may
be missing.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from onlstm.paper.syntax.generator import Item
from onlstm.paper.syntax.members import Say, read_lines
from onlstm.paper.syntax.spec import SENTENCES


def read_pairs(path: str | Path, on_defect: Say | None = None) -> Iterator[Item]:
    """Yield the items in a file, a folder or a zip, file by file in the order of their names; there must be one.

    Where no template is given it is the file's name. Blanks become single, and a final period is cut off.

    Args:
        on_defect: called with file, line and what is wrong with it: sentences that are missing or the same, broken
            JSON, a TSV without a header, a pair among triples of the same template. By default they are logged.
    """
    say = on_defect or logging.getLogger(__name__).warning
    names = [name + "?" * (name == "intrusive") for name in SENTENCES]
    widths = dict[str, int]()
    for line in read_lines(Path(path), names, say, clean=lambda text: text.removesuffix(".").rstrip()):
        template, condition = (str(line.record.get(key) or "") for key in ("template", "condition"))
        item = Item(template or line.stem, condition, line.sentences)
        if (width := widths.setdefault(item.template, len(item.sentences))) == len(item.sentences):
            yield item
        else:
            say(f"{line.place}: {len(item.sentences)} sentences, but {item.template} began with {width}; left out")
