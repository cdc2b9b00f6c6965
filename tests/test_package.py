"""The package as a whole: what it exports, what its papers say of it, what a checkout holds."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml

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
    extras = {"hf", "hf-suite", "spacy", "ray", "nltk", "log", "gpu", "onnx", "browser", "docs", "referees", "dev"}
    assert set(project["optional-dependencies"]) == extras
    wanted = list(chain(project["dependencies"], *project["optional-dependencies"].values()))
    names = {re.match(r"[\w-]+", item).group(0).lower() for item in wanted}
    assert names | {"build", "twine"} <= set(pins)


def test_the_lowest_versions_are_those_that_are_promised():
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    lowest = [line.split("==") for line in lines if not line.startswith("#")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = dict(item.split(">=") for item in project["dependencies"])
    assert [name for name, _ in lowest] == list(promised)
    for name, version in lowest:
        assert re.sub(r"(\.0)+$", "", version) == promised[name]


def test_the_citation_has_the_version_and_the_workflow_the_pythons():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == onlstm.__version__
    assert citation["license"] == project["license"]
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]
    declared = [name.split(" :: ")[-1] for name in project["classifiers"] if ":: Python ::" in name]
    assert job["strategy"]["matrix"]["python"] == declared
    assert {"run": ".ci/run"} in job["steps"]
