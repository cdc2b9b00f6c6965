"""House rules that no linter knows: no command-line words in the library, typed signatures, files of readable size."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "onlstm"
FILES = sorted(SOURCE.rglob("*.py"))
LIBRARY = [path for path in FILES if path.relative_to(SOURCE).parts[0] not in ("cli", "paper")]
LONGEST = 300


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def docstrings(tree: ast.AST) -> set[int]:
    """The strings that stand alone as a statement."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


@pytest.mark.parametrize("path", LIBRARY, ids=name)
def test_the_library_names_no_option(path):
    tree = ast.parse(path.read_text())
    prose = docstrings(tree)
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose]
    assert [text for text in texts if isinstance(text, str) and " --" in f" {text}" and text.strip("-| ")] == []


@pytest.mark.parametrize("path", LIBRARY, ids=name)
def test_no_signature_of_the_library_has_a_dictionary_of_anything(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            hints = [ast.unparse(hint) for hint in (node.returns, *(arg.annotation for arg in arguments)) if hint]
            assert [hint for hint in hints if "dict[str, Any]" in hint] == [], node.name


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_can_be_read_at_a_sitting(path):
    assert len(path.read_text().splitlines()) <= LONGEST
