"""The package as a whole: what it exports, what its papers say of it, what a checkout holds."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

import onlstm

ROOT = Path(__file__).parents[1]


def test_the_public_names_are_frozen():
    names = ["ONLSTM", "Grammar", "LanguageModel", "ONLSTMCell", "Parser", "Tree", "__version__", "induce"]
    assert onlstm.__all__ == names
    assert dir(onlstm) == sorted(onlstm.__all__)
    for name in onlstm.__all__:
        assert getattr(onlstm, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Parsnip'"):
        _ = onlstm.Parsnip


def test_readme_starts_with_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert text.index("make demo") < text.index("make test") < 800


def test_constraints_pin_every_dependency_and_torch_without_a_local_suffix():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert pins["torch"] == "2.13.0"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {"hf", "nltk", "log", "onnx", "docs", "referees", "dev"}
    assert set(project["optional-dependencies"]) == extras
    wanted = list(chain(project["dependencies"], *project["optional-dependencies"].values()))
    names = {re.match(r"[\w-]+", item).group(0).lower() for item in wanted}
    assert names <= set(pins)
