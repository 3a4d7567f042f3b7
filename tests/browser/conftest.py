"""A real browser, a server with JupyterLab and Notebook 7, and agents in processes of their own.

``python -m tests.browser`` runs these tests; where there is no Playwright, nothing here is one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.outside_parts import require_part

if find_spec("playwright") is None or "EXEC_TEST_BROWSER" not in os.environ:
    collect_ignore_glob = ["test_*.py"]

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.agents import Agent
    from tests.browser.pages import Panel
    from tests.support.hosts import Host

ARTIFACTS = Path(__file__).parent.parent.parent / ".bench" / "browser-failures"
# No GPU, nothing of the browser's own in the background.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Much is done on machines that do other things, too.
PATIENCE_MS = 20_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", action="store_true", help="make the documentation's pictures anew")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pictures are made when they are asked for."""
    return True if collection_path.name == "test_pictures.py" and not config.getoption("--screenshots") else None


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import expect, sync_playwright

    require_part("chromium")
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    from tests.browser.servers import running_lab

    with running_lab(tmp_path_factory.mktemp("lab")) as host:
        yield host


@pytest.fixture
def new_page(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Page]]:
    """Opens pages in profiles of their own, and keeps a picture of each if the test fails."""
    contexts = []

    def new(**options: Any) -> Page:
        view = {"width": 1280, "height": 800}
        context = chromium.new_context(**{"viewport": view, "reduced_motion": "reduce", "locale": "en-US", **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        return context.new_page()

    yield new
    for context in contexts:
        _keep_pictures(context.pages, request)
        context.close()


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    return new_page()


@pytest.fixture(scope="session")
def _shared_page(chromium: Browser, host: Host) -> Iterator[Page]:
    context = chromium.new_context(
        viewport={"width": 1280, "height": 800},
        reduced_motion="reduce",
        locale="en-US",
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    from tests.browser.pages import open_lab

    open_lab(page, host)
    yield page
    context.close()


@pytest.fixture
def panel(_shared_page: Page, request: pytest.FixtureRequest) -> Iterator[Panel]:
    """The panel of one page for many tests: loading JupyterLab takes the most time here."""
    from tests.browser.pages import Panel

    panel = Panel(_shared_page)
    panel.reset()
    yield panel
    _keep_pictures([_shared_page], request)


@pytest.fixture
def agent(host: Host, tmp_path: Path) -> Iterator[Agent]:
    """An agent with the owner's token; what it has left is shut down."""
    from tests.browser.agents import running_agent
    from tests.support.bearers import owner_of

    owner = owner_of(host)
    with running_agent(host.owner, tmp_path) as agent:
        yield agent
    for session in owner.call("GET", "/sessions").json()["sessions"]:
        ended = owner.call("DELETE", f"/sessions/{session['id']}")
        assert ended.status_code in (204, 404, 410), ended.text


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


_FAILED = pytest.StashKey[bool]()


def _keep_pictures(pages: list[Page], request: pytest.FixtureRequest) -> None:
    if request.node.stash.get(_FAILED, False):
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        for number, page in enumerate(pages):
            page.screenshot(path=ARTIFACTS / f"{request.node.name}-{number}.png")
