"""JupyterLab's and Notebook 7's own "Shut Down Unused" leaves agents' kernels alone, and shows whose they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Page, expect

from tests.browser.agents import Agent
from tests.browser.pages import Panel, execute, open_lab, ready
from tests.browser.servers import FORKED
from tests.browser.test_sessions import WAITS
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.full import only_in_full, scaled
from tests.support.hosts import Host

SESSIONS = scaled(40, per_commit=4)
BUSY = scaled(5, per_commit=1)
# What core lists below its kernelspecs.
KERNELS = ".jp-RunningSessions-item.jp-mod-kernel"


def open_lab_list(page: Page, host: Host) -> None:
    open_lab(page, host, panel=False)
    execute(page, "running:show-panel")


def open_notebook_list(page: Page, host: Host) -> None:
    page.goto(f"{host.info.url}tree?token={host.owner.token}")
    ready(page)
    page.get_by_role("tab", name="Running").click()


def begin_sessions(agent: Bearer, go_on: Path) -> list[str]:
    """Start sessions, of which the first ones run code; return these runs."""
    ids = [agent.session(name=f"session {number}", kernel_name=FORKED) for number in range(SESSIONS)]
    runs = []
    for session_id in ids[:BUSY]:
        request = {"code": WAITS.format(path=str(go_on))}
        prefer = {"Prefer": "respond-async"}
        run = agent.call("POST", f"/sessions/{session_id}/executions", json=request, headers=prefer)
        assert run.status_code == 202, run.text
        runs.append(str(run.json()["id"]))
    return runs


def states(agent: Bearer) -> list[str]:
    listed: list[dict[str, Any]] = agent.call("GET", "/sessions?ended=true").json()["sessions"]
    return sorted(each["state"] for each in listed)


@pytest.mark.parametrize("open_list", [open_lab_list, pytest.param(open_notebook_list, marks=only_in_full)])
def test_shut_down_unused_ends_no_session(
    page: Page, host: Host, tmp_path: Path, open_list: Callable[[Page, Host], None]
) -> None:
    open_list(page, host)
    kernels, headers = f"{host.info.url}api/kernels", host.owner.auth_headers
    for left in requests.get(kernels, headers=headers, timeout=60).json():  # by other tests
        requests.delete(f"{kernels}/{left['id']}", headers=headers, timeout=60).raise_for_status()
    unused = requests.post(kernels, json={"name": FORKED}, headers=headers, timeout=60).json()["id"]
    agent = mint(host, policy="trusted", name="ci")
    runs = begin_sessions(agent, tmp_path / "go on")
    page.get_by_title("Refresh List").click()
    listed = page.locator(KERNELS)
    for number in range(SESSIONS):
        expect(listed.filter(has_text=f"session {number} (ci)")).to_have_count(1)
    button = page.get_by_title("Shut Down Unused")
    # Core looks at most every ten seconds whether there is an unused kernel.
    expect(button).to_have_attribute("aria-disabled", "false", timeout=30_000)
    button.click()
    dialog = page.locator(".jp-Dialog", has_text="unused kernels")
    expect(dialog.locator("li")).to_have_text([f"{FORKED} ({unused[:8]})"])
    dialog.get_by_role("button", name="Shut Down Unused").click()
    expect(listed.filter(has_text=unused[:8])).to_have_count(0)
    expect(listed).to_have_count(SESSIONS)

    assert states(agent) == ["busy"] * BUSY + ["idle"] * (SESSIONS - BUSY)
    (tmp_path / "go on").touch()
    for run in runs:
        done = agent.call("GET", f"/executions/{run}", headers={"Prefer": "wait=30"}).json()
        assert done["state"] == "ok", done
    owner_of(host).call("DELETE", f"/tokens/{agent.id}")


def test_click_on_the_entry_of_a_session_shows_the_panel(panel: Panel, agent: Agent) -> None:
    agent("open", name="to be found", kernel_name=FORKED)
    execute(panel.page, "running:show-panel")
    expect(panel.node).to_be_hidden()
    panel.page.locator(".jp-mod-kernel-widget", has_text="to be found").click()
    expect(panel.node).to_be_visible()
    expect(panel.page.locator(".jp-Dialog")).to_have_count(0)
