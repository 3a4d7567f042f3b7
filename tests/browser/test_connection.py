"""The page finds its way back: after a reload, after the server's restart, and where it may see nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.agents import Agent, running_agent
from tests.browser.pages import OPEN_PANEL, Panel, execute, open_lab, ready
from tests.browser.servers import STRANGER, running_lab
from tests.browser.test_sessions import WAITS
from tests.support.hosts import Host, free_port

RECONNECTS_WITHIN_SECONDS = 5.0


def test_a_reload_shows_what_there_was(page: Page, host: Host, agent: Agent, tmp_path: Path) -> None:
    session = agent("open", name="reloads", kernel_name="forked")
    go_on = tmp_path / "go on"
    agent.begin("run", session_id=session, code=WAITS.format(path=str(go_on)))
    panel = open_lab(page, host)
    expect(panel.unfold("reloads").get_by_role("log")).to_contain_text("before")
    page.goto(page.url.partition("?")[0])
    ready(page)
    # JupyterLab keeps its layout from time to time, and may not have kept this one.
    execute(page, OPEN_PANEL)
    # What was open is open again.
    item = panel.session("reloads")
    expect(item.get_by_role("log")).to_contain_text("before")
    go_on.touch()
    expect(item.get_by_role("log")).to_contain_text("after")
    assert agent.result()["state"] == "ok"


def test_the_server_s_restart_is_noticed_and_made_up_for(page: Page, tmp_path: Path) -> None:
    home, port, token = tmp_path / "lab", free_port(), "one-token-for-both"
    with running_lab(home, port, token) as host, running_agent(host.owner, tmp_path) as agent:
        agent("open", name="before")
        panel = open_lab(page, host)
        expect(panel.row("before")).to_be_visible()
    expect(panel.node.get_by_role("alert")).to_contain_text("no connection to the server")
    expect(page.locator("#jupyter-exec-ext-approvals")).to_contain_text("Not connected")
    expect(page.locator("#jupyter-exec-ext-approvals")).not_to_contain_text("No runs need your approval")
    with running_lab(home, port, token) as host, running_agent(host.owner, tmp_path) as agent:
        back = time.monotonic()
        # JupyterLab's own message, some time after its own requests have failed.
        lost = page.locator(".jp-Dialog", has_text="Server Connection Error")
        page.add_locator_handler(lost, lambda dialog: dialog.get_by_role("button").last.click())
        expect(panel.node.get_by_role("alert")).to_have_count(0)
        assert time.monotonic() - back <= RECONNECTS_WITHIN_SECONDS
        session = agent("open", name="after")
        expect(panel.row("after")).to_be_visible()
        expect(panel.row("before")).to_have_count(0)
        expect(panel.node.get_by_role("alert")).to_have_count(0)
        agent("run", session_id=session, code="print('again')")
        expect(panel.unfold("after").get_by_role("log")).to_have_text("again")


def test_who_may_see_no_kernels_is_told_so(new_page: Callable[..., Page], host: Host, agent: Agent) -> None:
    agent("open", name="secret name", kernel_name="forked")
    page = new_page(extra_http_headers={STRANGER: "1"})
    panel = open_lab(page, host)
    expect(panel.node.get_by_role("alert")).to_contain_text("refuses to show what agents run")
    expect(panel.node).not_to_contain_text("secret name")
    expect(page.locator(".jp-Dialog", has_text="exec")).to_have_count(0)


def test_nothing_is_shown_of_nothing(panel: Panel) -> None:
    expect(panel.node).to_contain_text("No agent has a session on this server.")
    expect(panel.node.get_by_role("alert")).to_have_count(0)
