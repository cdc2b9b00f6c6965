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


def test_the_readme_is_short_and_its_python_runs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 160
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        exec(compile(block, "README.md", "exec"), names)
    assert names["distances"].forget.shape == (1, 70, 20)
    assert len(names["parse"].confidence) == 6


def test_the_map_of_the_paper_names_what_there_is():
    places = re.findall(r"`((?:\w+/)*\w+\.(?:py|yaml)|(?:\w+/)+)(?:: (\w+))?`", (ROOT / "PAPER.md").read_text("utf-8"))
    assert len(places) > 20
    for path, name in places:
        file = (ROOT if path.startswith("tests/") else ROOT / "src" / "onlstm") / path
        assert file.exists(), path
        assert name in file.read_text("utf-8") if name else True, (path, name)
