"""Writes the pages that are made from the code: `reference/commands.md` and `reference/files.md`."""

import ast
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from onlstm.cli.main import app, load_commands

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "onlstm"

_COMMANDS = """# Commands

`onlstm COMMAND --help` prints the same in a terminal. Wherever a command takes a RUN, the name of a bundled model
(`en-small`) does as well; `--json` prints one JSON object for programs. A mistake in the arguments is one line on
stderr and exit code 2.

"""
_FILES = """# Files

The package has three storeys, and imports go down only: `cli` (the commands) uses `paper` (the experiments of the
article), which uses the library (everything else). Start with `cell.py`: it is the paper.

"""
_KINDS = {".py", ".cpp", ".h", ".js", ".yaml"}
_SENTENCE_END = re.compile(r"(?<=[.?])\s+(?=[A-Z`\"])")
_MARKS = re.compile(r"(?P<code>`[^`]*`)|(?P<option>--[a-z][\w.-]*\w)|[<>]|(?<=[/ (])\*(?=\.)")


def commands() -> str:
    """Return the reference of all commands, in alphabetical order."""
    load_commands()
    text = app.generate_docs(flatten_commands=True).replace(" *[default: False]*", "")
    _, *sections = re.split(r"^# onlstm ", text, flags=re.MULTILINE)
    return _COMMANDS + "\n\n".join(f"## {_marked(section).strip()}" for section in sorted(sections)) + "\n"


def files() -> str:
    """Return the files of the package, folder by folder, each with the first sentence that it says of itself."""
    return _FILES + "\n".join(_listed(SOURCE, "")) + "\n"


def _listed(folder: Path, indent: str) -> Iterator[str]:
    yield f"{indent}- **{folder.name}/**: {_summary(folder / '__init__.py')}".rstrip(": ")
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.is_dir() and any(_described(path)):
            yield from _listed(path, f"{indent}  ")
        elif path.suffix in _KINDS and path.name != "__init__.py":
            yield f"{indent}  - `{path.name}`: {_summary(path)}".rstrip(": ")


def main() -> None:
    for name, text in {"commands": commands(), "files": files()}.items():
        (HERE / "reference" / f"{name}.md").write_text(text, encoding="utf-8")


def _marked(text: str) -> str:
    """Return the Markdown with options as code, and marks that mean themselves, as in <unk> and *.json, escaped."""

    def marked(mark: re.Match[str]) -> str:
        return mark["code"] or (f"`{mark['option']}`" if mark["option"] else f"\\{mark[0]}")

    return _MARKS.sub(marked, text)


def _described(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in _KINDS)


def _summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, of the comment at the top of another file, or of a recipe."""
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        about = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    elif recipe := re.search(r"^about: (.+)", text, re.MULTILINE):
        about = recipe[1]
    else:
        comment = takewhile(lambda line: line.startswith(("#", "//")), text.splitlines())
        about = "\n".join(line.lstrip("#/ ") for line in comment).partition("\n\n")[0]
    return _marked(" ".join(_SENTENCE_END.split(about)[0].split()))


if __name__ == "__main__":
    main()
