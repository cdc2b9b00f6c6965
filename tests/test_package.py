"""The package as a whole: what it exports, what its papers say of it, what a checkout holds."""

import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest

import onlstm

ROOT = Path(__file__).parents[1]


def test_the_public_names_are_frozen():
    assert onlstm.__all__ == ["ONLSTM", "LanguageModel", "ONLSTMCell", "Parser", "Tree", "__version__"]
    assert dir(onlstm) == sorted(onlstm.__all__)
    for name in onlstm.__all__:
        assert getattr(onlstm, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Parsnip'"):
        _ = onlstm.Parsnip


def tree_of_readme() -> set[str]:
    """The paths in README's file tree; a line ending in / opens a folder, one ending in /* stands for its contents."""
    block = re.search(r"```tree\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    paths, folders = set(), {}
    for line in block.splitlines():
        indent, name = len(line) - len(line.lstrip()), line.split()[0]
        parent = folders.get(indent - 2, "") if indent else ""
        if name.endswith("/"):
            folders[indent] = parent + name
        else:
            paths.add(parent + name)
    return paths


def test_readmes_file_tree_is_the_checkout():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    whole = {path.removesuffix("*") for path in tree_of_readme() if path.endswith("*")}
    files = {path for path in listed if not any(path.startswith(folder) for folder in whole)}
    assert {path for path in tree_of_readme() if not path.endswith("*")} == files
    for folder in whole:
        assert any(path.startswith(folder) for path in listed), folder


def test_readme_starts_with_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert text.index("make demo") < text.index("make test") < 800


def test_constraints_pin_every_dependency_and_torch_without_a_local_suffix():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert pins["torch"] == "2.13.0"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {"hf", "serve", "nltk", "spacy", "log", "plot", "ray", "referees", "dev"}
    assert set(project["optional-dependencies"]) == extras
    wanted = list(chain(project["dependencies"], *project["optional-dependencies"].values()))
    names = {re.match(r"[\w-]+", item).group(0).lower() for item in wanted}
    assert names <= set(pins)
