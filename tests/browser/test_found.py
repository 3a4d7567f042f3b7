"""A person finds the panel, understands it, and keeps many sessions in order."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.agents import Agent, running_agent
from tests.browser.pages import PANEL, Panel, execute, open_notebook
from tests.browser.servers import FORKED
from tests.browser.test_sessions import WAITS
from tests.support.bearers import mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host

KERNELSPEC = {"name": FORKED, "display_name": FORKED, "language": "python"}
IGNORES = """
import time
print('before', flush=True)
while True:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        pass
"""


def test_panel_is_in_the_view_menu_the_launcher_and_the_help_menu(panel: Panel) -> None:
    page = panel.page
    for menu, entry in (("View", "Agents' Sessions"), ("Help", "Help on Agents' Sessions")):
        page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
        expect(page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}$"))).to_be_visible()
        page.keyboard.press("Escape")
    execute(page, "launcher:create")
    expect(page.locator(".jp-Launcher:visible .jp-LauncherCard", has_text="Agents' Sessions")).to_be_visible()


def test_a_notebook_can_be_shared_from_its_toolbar_and_its_context_menu(panel: Panel, host: Host) -> None:
    content = {"cells": [], "metadata": {"kernelspec": KERNELSPEC}, "nbformat": 4, "nbformat_minor": 5}
    (host.home / "root" / "found.ipynb").write_text(json.dumps(content))
    notebook = open_notebook(panel.page, "found.ipynb")
    expect(notebook.locator("[data-jp-item-name='share-with-agents']")).to_be_visible()
    notebook.locator(".jp-Notebook").click(button="right")
    expect(panel.page.locator(".lm-Menu-itemLabel", has_text="Share a Kernel")).to_be_visible()
    panel.page.keyboard.press("Escape")


def test_empty_panel_leads_to_a_token_and_to_help(panel: Panel) -> None:
    steps = panel.node.locator(".jex-Empty")
    expect(steps.locator("ol > li")).to_have_count(3)
    steps.get_by_role("button", name="New token…").click()
    expect(panel.node.get_by_label("Name")).to_be_focused()
    panel.node.get_by_role("form").get_by_role("button", name="Cancel").click()
    steps.get_by_role("button", name="Help").click()
    expect(panel.page.locator(".jp-Dialog")).to_contain_text("go from row to row")
    panel.accept("Close")
    expect(steps.get_by_role("button", name="Help")).to_be_focused()


def test_every_button_that_is_an_icon_has_a_tooltip(panel: Panel, agent: Agent) -> None:
    agent("open", name="has buttons", kernel_name=FORKED)
    panel.row("has buttons").hover()
    icons = panel.node.locator("button:not(.control):visible, jp-button:visible").filter(has_not_text=re.compile(r"\S"))
    expect(icons).not_to_have_count(0)
    for icon in icons.all():
        assert icon.get_attribute("title"), icon.evaluate("each => each.outerHTML")


def test_no_section_is_pushed_out_of_a_low_window(panel: Panel, agent: Agent) -> None:
    agent("open", name="one of many", kernel_name=FORKED)
    titles = panel.page.locator(f"{PANEL} .lm-AccordionPanel-title, {PANEL} .jp-AccordionPanel-title")
    size = panel.page.viewport_size
    assert size is not None
    panel.page.set_viewport_size({"width": 1000, "height": 420})
    try:
        count = titles.count()
        for number in range(count):
            if titles.nth(number).get_attribute("aria-expanded") != "true":
                titles.nth(number).click()
            for each in range(count):
                expect(titles.nth(each)).to_be_in_viewport(ratio=0.9)
        opened = panel.page.locator(f"{PANEL} .jex-Section:visible")
        assert min(box["height"] for box in (each.bounding_box() for each in opened.all()) if box) >= 100
        expect(titles).to_have_count(4)
    finally:
        panel.page.set_viewport_size(size)
        for title in titles.all():
            if (title.get_attribute("aria-expanded") == "true") != ("Sessions" in title.inner_text().title()):
                title.click()


def test_sessions_of_a_token_are_interrupted_and_shut_down_together(
    panel: Panel, agent: Agent, host: Host, tmp_path: Path
) -> None:
    bearer = mint(host, policy="trusted", name="many at once")
    agent("open", name="of the owner", kernel_name=FORKED)
    with running_agent(replace(host.info, token=bearer.token), tmp_path) as other:
        sessions = [other("open", name=name, kernel_name=FORKED) for name in ("first", "second")]
        other.begin("run", session_id=sessions[0], code=WAITS.format(path=str(tmp_path / "never")))
        # What runs comes first.
        group = panel.node.locator(".jex-Group", has_text="many at once")
        expect(group.locator(".jex-Row-name")).to_have_text(["first", "second"])
        panel.node.get_by_label("Order of sessions").select_option("Newest first")
        expect(group.locator(".jex-Row-name")).to_have_text(["second", "first"])
        panel.node.get_by_label("Order of sessions").select_option("Busy first")
        group.locator(".jex-Row").first.hover()
        group.get_by_role("button", name="Interrupt all of many at once").click()
        assert other.result()["state"] == "interrupted"
    group.locator(".jex-Row").first.hover()
    group.get_by_role("button", name="Shut down all of many at once").click()
    expect(panel.page.locator(".jp-Dialog")).to_contain_text("Shut down all 2 sessions of “many at once”?")
    panel.accept("Shut Down All")
    expect(group).to_have_count(0)
    expect(panel.row("of the owner")).to_be_visible()
    owner_of(host).call("DELETE", f"/tokens/{bearer.id}")


def test_session_that_is_opened_low_in_the_list_comes_into_view(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="z last", kernel_name=FORKED)
    agent("run", session_id=session, code="print('x\\n' * 8 + 'the end')")
    for number in range(12):
        agent("open", name=f"n{number}", kernel_name=FORKED)
    panel.node.get_by_label("Order of sessions").select_option("By name")
    row, output = panel.row("z last"), panel.session("z last").get_by_role("log")
    row.scroll_into_view_if_needed()
    row.click()
    expect(output).to_contain_text("the end")
    expect(output).to_be_in_viewport(ratio=0.9)
    row.press("ArrowLeft")
    panel.row("n0").focus()
    row.focus()
    row.press("ArrowRight")
    expect(output).to_be_in_viewport(ratio=0.9)
    panel.node.get_by_label("Order of sessions").select_option("Busy first")


@only_in_full
def test_ignored_interrupt_offers_a_restart(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="stubborn", kernel_name=FORKED)
    agent.begin("run", session_id=session, code=IGNORES)
    expect(panel.unfold("stubborn").get_by_role("log")).to_contain_text("before")
    panel.menu("stubborn", "Interrupt")
    offer = panel.page.locator(".Toastify__toast", has_text="“stubborn” still runs")
    offer.get_by_role("button", name="Restart Kernel…").click()
    panel.accept("Restart")
    assert agent.result()["state"] in ("kernel_died", "cancelled", "interrupted")
