"""Nothing ever mixes devices: what placement.py does, in a process of its own, on a device that is pretended."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("placement.py")


def names() -> list[str]:
    """The cases of the script, which only its own process may import."""
    tree = ast.parse(SCRIPT.read_text())
    lists = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
    networks = [f"network {key.value}" for key in lists["NETWORKS"].keys]
    encoders = [f"logic {name.value}" for name in lists["ENCODERS"].elts]
    tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [*tests, *networks, *encoders]


@pytest.fixture(scope="module")
def outcomes():
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", names())
def test_placement(outcomes, name):
    if outcomes[name].startswith("skipped"):
        pytest.skip(outcomes[name])
    assert outcomes[name] == "", outcomes[name]


def test_every_case_is_known(outcomes):
    assert sorted(outcomes) == sorted(names())
