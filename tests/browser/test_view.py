"""The view in the main area: what a session uses, what ran when, and what it did to files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Locator, Request, expect

from tests.browser.agents import Agent, running_agent
from tests.browser.pages import Panel, change_theme, execute, ready
from tests.browser.servers import FORKED
from tests.browser.test_accessibility import THEMES, tab_to, violations
from tests.support.bearers import mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host

PAGE = "<img src=x onerror=alert(1)>.html"
WRITES = f"open('plan.md', 'w').write('one\\ntwo\\n'); open('{PAGE}', 'w').write('<b>bold</b>')"
CHANGES = "open('plan.md', 'w').write('one\\n<script>alert(1)</script>\\n')"
PICTURE = """
import base64
pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
_ = open('pixel.png', 'wb').write(base64.b64decode(pixel))
"""


def open_view(panel: Panel, name: str) -> Locator:
    """Open the view of a session with the mouse."""
    panel.menu(name, "Open in Main Area")
    view = panel.page.locator(".jex-View:visible")
    expect(view.get_by_role("heading", level=1)).to_have_text(name)
    return view


def open_file(view: Locator, path: str) -> Locator:
    """Open the newest entry of a file; return it."""
    entry = view.locator(".jex-Files > li", has_text=path).first
    entry.locator(".jex-File").click()
    return entry


def copied(host: Host) -> str:
    """Return the content of the copy in the person's folder."""
    answer = requests.get(f"{host.info.url}api/contents/plan.md", headers=host.owner.auth_headers, timeout=60)
    return str(answer.json()["content"])


def test_a_view_shows_what_ran_what_it_uses_and_what_changed(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="viewed", kernel_name=FORKED)
    agent("run", session_id=session, code=WRITES)
    agent("run", session_id=session, code=CHANGES)
    view = open_view(panel, "viewed")
    expect(view.get_by_role("img", name="Runs: 2 in this time")).to_be_visible()
    expect(view.get_by_role("img", name="Memory over time")).to_be_visible()
    entry = open_file(view, "plan.md")
    expect(entry.locator("[data-kind=removed]")).to_contain_text("two")
    expect(entry.locator("[data-kind=added]")).to_contain_text("<script>alert(1)</script>")
    entry.get_by_role("button", name="Show the whole file").click()
    expect(entry.get_by_label("Code", exact=True)).to_have_text("one\n<script>alert(1)</script>\n")


def test_runs_of_all_sessions_are_one_list_by_time(panel: Panel, agent: Agent) -> None:
    first, second = (agent("open", name=name, kernel_name=FORKED) for name in ("morning", "evening"))
    for session, code in ((first, "1"), (second, "2"), (first, "3"), (second, "1 / 0")):
        agent("run", session_id=session, code=code)
    execute(panel.page, "jupyter-exec-ext:open-view-of-all")
    runs = panel.page.locator(".jex-View:visible").get_by_role("region", name="Runs")
    # Those of sessions that other tests have ended may be below them.
    ours = runs.locator(".jex-Execution").filter(has_text=re.compile("morning|evening"))
    expect(ours.locator(".jex-Headline")).to_have_text(["1 / 0", "3", "2", "1"])
    expect(ours.locator(".jex-Where")).to_have_text(["evening", "morning", "evening", "morning"])
    # More than one page of one of them: the other one's are not lost between.
    agent("run_often", session_id=second, count=60)
    for count in (20, 40, 60, 64):
        expect(ours).to_have_count(count)
        if count < 64:
            runs.get_by_role("button", name="Show earlier").click()
    expect(ours.locator(".jex-Where").last).to_have_text("morning")
    # Those of a session that ends stay.
    agent("close", session_id=first)
    expect(panel.page.locator(".jex-View:visible .jex-Lanes .jex-Row-name")).to_have_text(["evening"])
    expect(ours.locator(".jex-Where").last).to_have_text("morning")


@only_in_full
def test_use_is_drawn_with_its_limits(panel: Panel, host: Host, tmp_path: Path) -> None:
    token = mint(host, policy="trusted", max_memory_bytes=4 * 10**9, max_cpu_seconds=600).token
    with running_agent(replace(host.info, token=token), tmp_path) as agent:
        session = agent("open", name="limited", kernel_name=FORKED)
        agent("run", session_id=session, code="held = bytearray(1500 * 10**6); held[::4096] = b'x' * len(held[::4096])")
        view = open_view(panel, "limited")
        memory = view.get_by_role("img", name=re.compile(r"Memory over time: now 1\.\d GB, .*, limit 4\.0 GB"))
        expect(memory).to_be_visible()
        expect(memory.locator(".jex-Chart-bound")).to_have_count(1)
        expect(view).to_contain_text("limit 600 s of processor time")
        owner_of(host).call("DELETE", f"/sessions/{session}")
        expect(view).to_contain_text("ended")


@only_in_full
def test_files_are_shown_as_text_or_picture_and_copied_to_the_folder(panel: Panel, agent: Agent, host: Host) -> None:
    session = agent("open", name="files", kernel_name=FORKED)
    agent("run", session_id=session, code=WRITES)
    agent("run", session_id=session, code=PICTURE)
    view = open_view(panel, "files")
    expect(open_file(view, "pixel.png").locator("img")).to_have_js_property("naturalWidth", 1)
    view.locator(".jex-Execution").nth(1).locator(".jex-Row-main").click()
    expect(open_file(view, "onerror").get_by_label("Code", exact=True)).to_have_text("<b>bold</b>")
    copy, dialog = view.get_by_role("button", name="Copy plan.md to my folder"), panel.page.locator(".jp-Dialog")
    copy.click()
    expect(panel.page.locator(".Toastify__toast", has_text="plan.md was copied to /")).to_be_visible()
    agent("run", session_id=session, code=CHANGES)
    view.locator(".jex-Execution").first.get_by_role("button", name="Copy plan.md to my folder").click()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert copied(host) == "one\ntwo\n"
    view.locator(".jex-Execution").first.get_by_role("button", name="Copy plan.md to my folder").click()
    dialog.get_by_role("button", name="Overwrite").click()
    expect(panel.page.locator(".Toastify__toast", has_text="plan.md was copied to /")).to_have_count(2)
    assert copied(host) == "one\n<script>alert(1)</script>\n"


@only_in_full
@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_in_the_views(panel: Panel, agent: Agent, theme: str) -> None:
    session = agent("open", name="views", kernel_name=FORKED)
    for code in (WRITES, CHANGES, "1 / 0"):
        agent("run", session_id=session, code=code)
    change_theme(panel.page, theme)
    try:
        view = open_view(panel, "views")
        view.locator(".jex-Execution").nth(1).locator(".jex-Row-main").click()
        open_file(view, "plan.md")
        expect(view.locator("[data-kind=added]")).to_be_visible()
        assert violations(panel, ".jex-View") == []
        execute(panel.page, "jupyter-exec-ext:open-view-of-all")
        expect(panel.page.get_by_role("heading", name="All sessions")).to_be_visible()
        assert violations(panel, ".jex-View") == []
    finally:
        change_theme(panel.page, THEMES[0])


def keeps_layout_with(session_id: str, request: Request) -> bool:
    """Return whether a request keeps JupyterLab's layout with the view of a session in it."""
    return "/api/workspaces/" in request.url and request.method == "PUT" and session_id in (request.post_data or "")


@only_in_full
def test_a_view_is_opened_used_and_found_again_by_keyboard(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="keys", kernel_name=FORKED)
    agent("run", session_id=session, code=WRITES)
    keyboard = panel.page.keyboard
    panel.row("keys").focus()
    with panel.page.expect_request(lambda each: keeps_layout_with(session, each)):  # a reload before would not find it
        keyboard.press("Control+Enter")
    view = panel.page.locator(".jex-View:visible")
    row = view.locator(".jex-Execution .jex-Row-main")
    expect(row).to_have_attribute("aria-expanded", "true")
    row.focus()
    tab_to(panel, view.locator(".jex-File").first)
    keyboard.press("Enter")
    expect(view.locator(".jex-FileContent")).to_be_visible()
    panel.page.reload()
    ready(panel.page)
    expect(panel.page.locator(".jex-View").get_by_role("heading", level=1)).to_have_text("keys")
