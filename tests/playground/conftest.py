"""What the tests of the playground share: the default page, served, and Chromium as the system has it."""

import shutil
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from onlstm.playground.export import write
from onlstm.playground.server import Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """The folder of the default page."""
    target = tmp_path_factory.mktemp("playground") / "page"
    write(["en-small", "en"], target)
    return target


@contextmanager
def serving(path: Path):
    """Serve a folder in the background for a while."""
    with Server(path) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="session")
def serve():
    return serving


@pytest.fixture(scope="session")
def site(folder):
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="session")
def browser():
    """A browser; the test is skipped where there is none, or no Playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    if not CHROMIUM:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def modules(browser, site):
    """A page in which the ES modules can be called, with the two models loaded; not the playground itself."""
    page = browser.new_page()
    page.goto(f"{site.url}models.json")
    page.evaluate(
        """async (url) => {
          window.use = (name) => import(url + name);
          const fetch = window.fetch;
          window.fetch = (name) => fetch(url + name);
          const { load, read } = await use("worker.js");
          window.models = { network: (await load("en-small")).model, grammar: (await load("en")).model };
          window.read = read;
        }""",
        site.url,
    )
    yield page
    page.close()


@contextmanager
def _opened(browser, url, **options):
    """The playground at an address, once it has drawn its trees; errors of its scripts are errors of the test."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(url)
    page.wait_for_selector(".panel, #status.bad", timeout=60_000)
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def opened(browser):
    """Return what opens any playground."""
    return lambda url, **options: _opened(browser, url, **options)


@pytest.fixture
def show(browser, site):
    """Return what opens the playground with a fragment of its address."""
    return lambda fragment="", **options: _opened(browser, f"{site.url}{fragment}", **options)
