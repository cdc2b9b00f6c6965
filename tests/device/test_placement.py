"""Nothing ever mixes devices: what placement.py does, in a process of its own, on a device that is pretended."""

import json
import os
import subprocess
import sys

import placement
import pytest


@pytest.fixture(scope="module")
def outcomes():
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, placement.__file__], env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", placement.CASES)
def test_placement(outcomes, name):
    if outcomes[name].startswith("skipped"):
        pytest.skip(outcomes[name])
    assert outcomes[name] == "", outcomes[name]
