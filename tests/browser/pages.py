"""Pages of the front end: how they are opened, and what a person finds on them."""

from __future__ import annotations

import re
import time
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.support.hosts import Host

PANEL = "#jupyter-exec-ext-panel"
OPEN_PANEL = "jupyter-exec-ext:open-panel"
_KERNEL_READY = """async () => {
  const { context, sessionContext } = window.jupyterapp.shell.currentWidget;
  await context.ready;
  await sessionContext.ready;
}"""


def open_lab(page: Page, host: Host, *, panel: bool = True) -> Panel:
    """Open JupyterLab in a workspace of its own, and in it the panel."""
    query = f"?reset&token={host.owner.token}"
    page.goto(f"{host.info.url}lab/workspaces/t{time.time_ns()}{query}")
    ready(page)
    if panel:
        execute(page, OPEN_PANEL)
        expect(page.locator(PANEL)).to_be_visible()
    return Panel(page)


def ready(page: Page) -> None:
    """Wait until the application has begun; our plugins are deferred until its layout is restored."""
    page.wait_for_function("() => window.jupyterapp !== undefined")
    page.evaluate("async () => { await window.jupyterapp.restored; await window.jupyterapp.allPluginsActivated }")


def execute(page: Page, command: str, **args: Any) -> Any:
    """Execute a command of JupyterLab's."""
    return page.evaluate("([id, args]) => { void window.jupyterapp.commands.execute(id, args) }", [command, args])


def open_notebook(page: Page, path: str) -> Locator:
    """Open a notebook and wait for its kernel; return its panel."""
    execute(page, "docmanager:open", path=path)
    opened = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    expect(opened).to_be_visible()
    page.evaluate(_KERNEL_READY)
    return opened


def close_all(page: Page) -> None:
    """Close every tab of the main area without asking whether to save: a notebook changes when its kernel answers."""
    page.evaluate("() => [...window.jupyterapp.shell.widgets('main')].forEach(each => each.dispose())")


def change_theme(page: Page, name: str) -> None:
    """Change the theme; its style sheet is loaded after it is named."""
    execute(page, "apputils:change-theme", theme=name)
    expect(page.locator("body")).to_have_attribute("data-jp-theme-name", name)
    expect(page.locator("#jupyterlab-splash")).to_have_count(0)
    page.wait_for_function("() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color1').trim() !== ''")


class Panel:
    """The side panel of a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.node = page.locator(PANEL)

    def reset(self) -> None:
        """Undo what a test may have left: dialogs, what is searched for, tabs."""
        self.page.keyboard.press("Escape")
        execute(self.page, OPEN_PANEL)
        self.node.get_by_role("searchbox").fill("")
        self.node.get_by_label("Which sessions").select_option("Active")
        close_all(self.page)

    def session(self, name: str) -> Locator:
        """Return the item of the session with this name."""
        return self.node.locator(".jex-Session").filter(
            has=self.page.locator(".jex-Row-name", has_text=re.compile(f"^{re.escape(name)}$"))
        )

    def row(self, name: str) -> Locator:
        """Return the button that opens and closes a session."""
        return self.session(name).locator("> .jex-Row > .jex-Row-main")

    def unfold(self, name: str) -> Locator:
        """Open a session; return its item."""
        row = self.row(name)
        if row.get_attribute("aria-expanded") == "false":
            row.click()
        expect(row).to_have_attribute("aria-expanded", "true")
        return self.session(name)

    def menu(self, name: str, entry: str) -> None:
        """Choose an entry of a session's menu."""
        self.row(name).hover()
        self.session(name).get_by_role("button", name="More actions").click()
        self.page.locator(".lm-Menu-item", has_text=entry).click()

    def accept(self, label: str) -> None:
        """Answer the dialog that asks."""
        self.page.locator(".jp-Dialog").get_by_role("button", name=label, exact=True).click()
