"""transformers' own tests over our models: none fails, and each that is skipped has its reason listed here.

The suite, of transformers 5.15.1, comes from ../shared/peers and is unpacked into a temporary folder. `make test-hf`
builds the environment that it needs and runs this file with the other tests of the adapter.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import torch

from helpers import random_model
from onlstm.text.tokenizer import Tokenizer

VERSION = "5.15.1"
ROOT = Path(__file__).parents[2]
SUITE = ROOT.parent / "shared" / "peers" / f"transformers-tests-{VERSION}.zip"
WORDS = ["this", "This", "is", "a", "test", "Another", "another", "longer", "great", "!", "Something", "else"]
SKIPS = {
    "no attention, hence no heads, masks, keys, values or positions": (
        "Model architecture does not support attentions",
        "Model does not (support output_attentions|output attentions|have position embeddings)",
        "This model does(n't use `position_ids`| not support RoPE scaling)",
        "This model doesn't return `past_key_values`",
        "This model does not support the static cache format",
        "Parts of this model don't support sdpa",
        "test requires Flash Attention( [34])?",
    ),
    "needs a device or a package that is not there": (
        "test requires (accelerator|multiple accelerators|CUDA|MPS|deepspeed|the kernels library|optimum-quanto)",
        "test requires (Timm|vision|av|PyTesseract)",
    ),
    "of other tasks than writing and features (images, sound, classes)": (
        "OnlstmModelTest::test_pipeline_.* is not in `self.pipeline_model_mapping`.*",
        "`run_pipeline_test` is currently not implemented.",
        "No sequence-to-sequence language modeling head to check",
    ),
    "of parts that the models do not have: sub-models, experts, converted or float32 weights, a plan for devices": (
        "(This model is not composite|No subconfigs so the test does not make sense)",
        "OnlstmModel does not support grouped_mm",
        "No conversion found for <class .*>",
        "Onlstm.* has no _keep_in_fp32_modules .*",
        "(No MTP keys registered|Model does not have a TP plan.)",
        "No usage of the `capture_outputs` decorator.",
        "OnlstmForCausalLM declares no recurrent layer types",
    ),
    "the vocabulary of a word-level model is fixed": ("test_resize_embeddings is set to `False`",),
    "a state cannot be taken back, so no draft can be checked": ("Stateful models don't support assisted generation",),
    "gradients are not checkpointed": ("No model with a differentiable loss was available .* checkpointing.",),
    "hidden words make the lengths of rows data, which no full graph holds": (
        "This model doesn't support compilation without graph breaks",
    ),
    "run by transformers for models of its own, or on request": (
        "Not a prioritized model for now.",
        "test is slow",
    ),
}


@pytest.fixture
def folder(tmp_path):
    """The suite with our test class in it, and the models that its pipelines load."""
    if not SUITE.exists():
        pytest.skip(f"no {SUITE.name} in ../shared/peers")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    if importlib.metadata.version("transformers") != VERSION:
        pytest.skip(f"needs transformers {VERSION}: make test-hf")
    pytest.importorskip("parameterized", reason="needs parameterized: make test-hf")
    from onlstm.adapters import huggingface as hf

    with zipfile.ZipFile(SUITE) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "src" / "transformers").symlink_to(Path(transformers.__file__).parent)
    (tmp_path / "utils" / "fetch_hub_objects_for_ci.py").write_text("def url_to_local_path(url): return url\n")
    tests = tmp_path / "tests" / "models" / "onlstm"
    tests.mkdir()
    (tests / "__init__.py").touch()
    (tests / "test_modeling_onlstm.py").write_bytes(Path(__file__).with_name("transformers_suite.py").read_bytes())

    random_model(Tokenizer.of_words(WORDS), torch.float32).save(tmp_path / "run")
    (tmp_path / "tiny" / "onlstm").mkdir(parents=True)
    (tmp_path / "tiny" / "reports").mkdir()
    names = ["OnlstmModel", "OnlstmForCausalLM"]
    for name in names:
        hf.export(tmp_path / "run", tmp_path / "tiny" / "onlstm" / name)
    parts = {"tokenizer_classes": ["PreTrainedTokenizerFast"], "processor_classes": []}
    (tmp_path / "tiny" / "reports" / "tiny_model_summary.json").write_text(json.dumps(dict.fromkeys(names, parts)))
    return tmp_path


@pytest.mark.slow
def test_nothing_fails_and_every_skip_has_its_reason(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml"]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_TINY_MODEL_PATH": str(folder / "tiny")}
    paths = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "tests/models/onlstm"], cwd=folder, env=os.environ | offline | paths, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:]
    cases = list(ET.parse(folder / "report.xml").iter("testcase"))
    reasons = [skip.get("message", "") for case in cases for skip in case.findall("skipped")]
    groups = Counter(group for reason in reasons for group in SKIPS if matches(group, reason))
    unlisted = [reason for reason in reasons if sum(matches(group, reason) for group in SKIPS) != 1]
    assert not unlisted
    assert {*groups} == {*SKIPS}
    assert sum(not case.findall("skipped") for case in cases) >= 90


def matches(group, reason):
    return any(re.fullmatch(pattern, reason) for pattern in SKIPS[group])
