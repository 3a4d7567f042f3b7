"""Notebook 7 has no side panel, but core's tab of what runs."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.agents import Agent
from tests.browser.pages import ready
from tests.support.hosts import Host

# Core's sections have no names where they list things; ours has our icon.
OURS = "[data-icon='jupyter-exec-ext:bot']"


def test_the_running_tab_has_the_sessions(page: Page, host: Host, agent: Agent) -> None:
    agent("open", name="first", kernel_name="forked")
    page.goto(f"{host.info.url}tree?token={host.owner.token}")
    ready(page)
    page.get_by_role("tab", name="Running").click()
    section = page.locator(".jp-RunningSessions-section").filter(has=page.locator(OURS))
    labels = section.locator(".jp-RunningSessions-itemLabel")
    expect(labels).to_have_text(["first"])
    agent("open", name="second", kernel_name="forked")
    expect(labels).to_have_text(["second", "first"])

    item = section.locator(".jp-RunningSessions-item", has_text="first")
    item.hover()
    item.locator(".jp-RunningSessions-itemShutdown").click()
    expect(labels).to_have_text(["second"])


def test_a_notebook_page_is_left_alone(page: Page, host: Host, agent: Agent) -> None:
    session = agent("open", name="to open", kernel_name="forked")
    agent("run", session_id=session, code="print('one')")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    (host.home / "root" / "plain.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    page.goto(f"{host.info.url}notebooks/plain.ipynb?token={host.owner.token}")
    ready(page)
    expect(page.locator(".jp-NotebookPanel")).to_be_visible()
    # Notebook's own pages raise errors of theirs.
    assert not [error for error in errors if "jex" in error or "jupyter-exec-ext" in error or "exec/v1" in error]
