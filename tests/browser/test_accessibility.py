"""The panel for everybody: axe finds nothing, and the keyboard reaches everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.agents import Agent, cautious_agent
from tests.browser.pages import PANEL, Panel, change_theme, execute
from tests.browser.servers import FORKED
from tests.support.hosts import Host

AXE = Path(__file__).parent.parent.parent / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
THEMES = ("JupyterLab Light", "JupyterLab Dark")
RICH = """
from IPython.display import HTML, Markdown, display
print('text')
display(HTML('<table><tr><th>a</th></tr><tr><td>1</td></tr></table>'), Markdown('# heading\\n\\n- item'))
open('file.txt', 'w').write('x')
1 / 0
"""


@pytest.fixture
def rich(panel: Panel, agent: Agent, host: Host, tmp_path: Path) -> Iterator[Panel]:
    """The panel with something in every section: outputs, an error, a file, what waits, a token, a form."""
    session = agent("open", name="rich", kernel_name=FORKED)
    agent("run", session_id=session, code=RICH)
    with cautious_agent(host, tmp_path) as cautious:
        waits = cautious("open", name="waits", kernel_name=FORKED)
        cautious.begin("run", session_id=waits, code="!echo x")
        panel.unfold("rich")
        expect(panel.page.locator("#jupyter-exec-ext-approvals .cm-content")).to_be_visible()
        yield panel


@pytest.fixture(params=THEMES)
def theme(request: pytest.FixtureRequest, panel: Panel) -> Iterator[str]:
    name = str(request.param)
    change_theme(panel.page, name)
    yield name
    change_theme(panel.page, THEMES[0])


def violations(panel: Panel, selector: str = PANEL) -> list[Any]:
    """Return what axe has found, in short."""
    if not panel.page.evaluate("() => 'axe' in window"):
        panel.page.add_script_tag(path=AXE)
    found = panel.page.evaluate("selector => axe.run(selector)", selector)["violations"]
    return [
        (each["id"], [node["html"][:300] for node in each["nodes"]], each["nodes"][0]["failureSummary"])
        for each in found
    ]


def test_axe_finds_nothing(rich: Panel, theme: str) -> None:
    execute(rich.page, "jupyter-exec-ext:new-token")
    form = rich.page.get_by_role("form", name="New token")
    form.get_by_label("Ask me").select_option("always")
    approvals = rich.page.locator("#jupyter-exec-ext-approvals")
    approvals.locator(".cm-content").click()
    rich.page.keyboard.type("changed")
    expect(approvals.get_by_role("group", name="What you have changed")).to_be_visible()
    assert violations(rich) == []
    # An edited entry would stay after its agent has gone.
    approvals.get_by_role("button", name="Undo edits").click()
    form.get_by_role("button", name="Cancel").click()
    rich.node.get_by_role("searchbox").fill("heading")
    found = rich.node.get_by_label("Runs found")
    expect(found).to_contain_text("rich")
    found.locator(".jex-Execution .jex-Row-main[aria-expanded='false']").first.click()
    expect(found.get_by_role("log").first).to_contain_text("ZeroDivisionError")
    assert violations(rich) == []


def test_axe_finds_nothing_in_an_empty_panel(panel: Panel, theme: str) -> None:
    expect(panel.node).to_contain_text("No agent has a session")
    assert violations(panel) == []


def tab_to(panel: Panel, wanted: Locator, key: str = "Tab", most: int = 60) -> None:
    """Press the key until the focus is there."""
    for _ in range(most):
        if wanted.count() and wanted.first.evaluate("each => each === document.activeElement"):
            return
        panel.page.keyboard.press(key)
    where = panel.page.evaluate("() => document.activeElement?.outerHTML.slice(0, 200)")
    raise AssertionError(f"{most} times {key} did not lead to {wanted}; the focus is at {where}")


def test_nothing_is_for_the_mouse_alone(rich: Panel) -> None:
    controls = "button, a[href], input, select, textarea, summary, [role='button'], [onclick]"
    # Rows share one stop, from which arrows lead to the others; the rest has stops of its own.
    left_out = rich.node.locator(f":is({controls})[tabindex='-1']:not([data-roving])")
    assert rich.node.locator(f":is({controls})").count() > 10
    assert left_out.evaluate_all("all => all.map(each => each.outerHTML.slice(0, 200))") == []


def test_search_result_is_opened_by_keyboard(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="finds", kernel_name=FORKED)
    agent("run", session_id=session, code="print('a needle by keys')")
    panel.node.get_by_role("searchbox").focus()
    panel.page.keyboard.type("needle by")
    found = panel.node.get_by_label("Runs found")
    row = found.locator(".jex-Execution .jex-Row-main")
    expect(row).to_have_count(1)
    tab_to(panel, panel.page.locator("#jupyter-exec-ext-sessions [data-roving][tabindex='0']"))
    panel.page.keyboard.press("End")
    expect(row).to_be_focused()
    panel.page.keyboard.press("ArrowRight")
    expect(found.get_by_role("log")).to_have_text("a needle by keys")


def test_code_is_decided_about_by_keyboard(panel: Panel, agent: Agent, host: Host, tmp_path: Path) -> None:
    keyboard = panel.page.keyboard
    with cautious_agent(host, tmp_path) as cautious:
        session = cautious("open", name="waits", kernel_name=FORKED)
        cautious.begin("run", session_id=session, code="!echo x")
        section = panel.page.locator("#jupyter-exec-ext-approvals")
        expect(section.locator(".cm-content")).to_be_visible()
        section.locator("[data-roving]").focus()
        tab_to(panel, section.locator(".cm-content"))
        # In the editor Tab indents; Escape leaves it.
        keyboard.press("Escape")
        tab_to(panel, section.get_by_label("Note to the agent"))
        keyboard.type("no shell")
        tab_to(panel, section.get_by_role("button", name="Reject", exact=True))
        keyboard.press("Enter")
        assert cautious.result()["approval"] == {"decision": "rejected", "reason": "no shell"}


def test_a_token_is_made_and_revoked_by_keyboard(panel: Panel) -> None:
    section = panel.page.locator("#jupyter-exec-ext-tokens")
    execute(panel.page, "jupyter-exec-ext:new-token")
    keyboard = panel.page.keyboard
    expect(section.get_by_label("Name")).to_be_focused()
    keyboard.type("by keys")
    # Which policies there are, the server says.
    expect(section.get_by_role("button", name="Create")).to_be_enabled()
    keyboard.press("Enter")
    dialog = panel.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("by keys")
    expect(dialog.get_by_role("button", name="Copy the token")).to_be_focused()
    tab_to(panel, dialog.get_by_role("button", name="Done"))
    tab_to(panel, dialog.get_by_role("button", name="Copy the token"))
    tab_to(panel, dialog.get_by_role("button", name="Done"))
    keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    tab_to(panel, section.locator("[data-roving]"))
    tab_to(panel, section.get_by_role("button", name="Revoke by keys"))
    keyboard.press("Enter")
    tab_to(panel, dialog.get_by_role("button", name="Revoke"))
    keyboard.press("Enter")
    expect(section.locator("[data-roving]")).to_have_count(0)


def test_every_action_of_a_session_by_keyboard(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="keys", kernel_name=FORKED)
    agent("run", session_id=session, code="print('seen')")
    agent("open", name="another", kernel_name=FORKED)
    keyboard = panel.page.keyboard
    panel.node.get_by_role("searchbox").focus()
    # One stop for all rows, and arrows from there.
    tab_to(panel, panel.page.locator("#jupyter-exec-ext-sessions [data-roving][tabindex='0']"))
    keyboard.press("Home")
    expect(panel.page.locator(".jex-Group-title button")).to_be_focused()
    keyboard.press("ArrowLeft")
    expect(panel.row("another")).to_have_count(0)
    keyboard.press("ArrowRight")
    keyboard.press("ArrowDown")
    expect(panel.row("another")).to_be_focused()
    keyboard.press("ArrowDown")
    expect(panel.row("keys")).to_be_focused()
    keyboard.press("ArrowRight")
    expect(panel.row("keys")).to_have_attribute("aria-expanded", "true")
    item = panel.session("keys")
    expect(item.get_by_role("log")).to_have_text("seen")
    keyboard.press("ArrowDown")
    execution = item.locator(".jex-Execution .jex-Row-main")
    expect(execution).to_be_focused()
    keyboard.press("ArrowLeft")
    expect(execution).to_have_attribute("aria-expanded", "false")
    tab_to(panel, item.get_by_role("button", name="Copy this code"))
    keyboard.press("Enter")
    expect(panel.page.get_by_text("The code was copied.").first).to_be_visible()
    keyboard.press("Shift+Tab")
    keyboard.press("ArrowLeft")
    expect(panel.row("keys")).to_be_focused()
    tab_to(panel, item.get_by_role("button", name="More actions for keys"))
    keyboard.press("Enter")
    entries = panel.page.locator(".lm-Menu-item[data-type='command']")
    expect(entries.first).to_be_visible()
    keyboard.press("Escape")
    # The focus is where it was, and not lost.
    expect(item.get_by_role("button", name="More actions for keys")).to_be_focused()
    tab_to(panel, item.get_by_role("button", name="Shut down keys"), "Shift+Tab", 2)
    keyboard.press("Enter")
    expect(panel.page.locator(".jp-Dialog")).to_be_visible()
    tab_to(panel, panel.page.locator(".jp-Dialog").get_by_role("button", name="Shut Down"))
    keyboard.press("Enter")
    expect(panel.session("keys")).to_have_count(0)
    expect(panel.row("another")).to_be_focused()
