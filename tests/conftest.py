"""What all tests share: one thread, the same examples each time, ../shared; a `data` test may not skip quietly."""

import gc
import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

SHARED = Path(__file__).parents[2] / "shared"


settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("fuzz", max_examples=int(os.environ.get("ONLSTM_EXAMPLES", "20000")), deadline=None)


def pytest_configure(config):
    torch.set_num_threads(1)
    gc.set_threshold(100_000)  # as the command does
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("steady")


def pytest_collection_finish():
    gc.freeze()  # or each collection of garbage would look through torch and all tests


def pytest_runtest_setup(item):
    profile = item.config.getoption("--hypothesis-profile") or "steady"
    if settings.get_current_profile_name() != profile:  # torch.testing._internal brings its own, of 10 examples
        settings.load_profile(profile)
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session")
def shared():
    """The folder of corpora and golden files, for tests with the mark `data`."""
    if not SHARED.exists():
        pytest.skip("no ../shared")
    return SHARED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and item.get_closest_marker("data") and SHARED.exists():
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} skipped although {SHARED.name} is there: {report.longrepr}"
    return report
