"""docs/: the generated pages are those of the code, and links between pages lead somewhere."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from pages import DOCS

ROOT = DOCS.parent
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


@pytest.fixture(scope="module")
def generate():
    spec = spec_from_file_location("generate", DOCS / "generate.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["commands", "files"])
def test_the_generated_pages_are_up_to_date(generate, name):
    committed = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert getattr(generate, name)() == committed, "run `python docs/generate.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    links = re.findall(r"(?<!`)\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not Path(page.parent, link).exists()] == []


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160
