"""Code that waits for a person: what the person decides reaches the agent that waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.agents import Agent, cautious_agent
from tests.browser.pages import Panel, execute, open_lab
from tests.support.bearers import owner_of
from tests.support.hosts import Host

ASKS = "!echo from the shell"

# What is in the middle of an element is the element.
_IS_SEEN = """selector => {
  const element = document.querySelector(selector);
  const box = element?.getBoundingClientRect();
  return box && element.contains(document.elementFromPoint(box.left + 20, box.top + box.height / 2));
}"""


@pytest.fixture
def asking(host: Host, panel: Panel, tmp_path: Path) -> Iterator[Agent]:
    """An agent whose policy asks a person about shell commands; what was notified goes when that is decided."""
    with cautious_agent(host, tmp_path) as agent:
        yield agent
        expect(notification(panel.page)).to_have_count(0)


def notification(page: Page) -> Locator:
    """Return what tells of code that waits; one that is on its way out is none."""
    return page.locator(".Toastify__toast:not([class*='-exit'])", has_text="waits for your approval")


def waiting(panel: Panel) -> Locator:
    """Return the section, when there is one that waits."""
    section = panel.page.locator("#jupyter-exec-ext-approvals")
    expect(section.locator(".jex-Headline")).to_have_text([ASKS])
    return section


def test_approved_code_runs_as_it_is(panel: Panel, asking: Agent) -> None:
    session = asking("open", name="to approve", kernel_name="forked")
    asking.begin("run", session_id=session, code=ASKS)
    section = waiting(panel)
    expect(section).to_contain_text("cautious")
    expect(section).to_contain_text("line 1: it runs a shell command")
    expect(section.locator(".cm-line.jex-Asks")).to_have_text(ASKS)
    section.get_by_role("button", name="Approve", exact=True).click()
    done = asking.result()
    assert (done["state"], done["stdout"].strip()) == ("ok", "from the shell")
    assert done["approval"]["decision"] == "approved"
    expect(section).to_contain_text("No runs need your approval")


def test_edited_code_runs_in_its_place(panel: Panel, asking: Agent) -> None:
    session = asking("open", name="to edit", kernel_name="forked")
    asking.begin("run", session_id=session, code=ASKS)
    section = waiting(panel)
    editor = section.locator(".cm-content")
    editor.click()
    panel.page.keyboard.press("ControlOrMeta+a")
    panel.page.keyboard.type("print('from a person')")
    changes = section.get_by_role("group", name="What you have changed")
    expect(changes).to_contain_text(ASKS)
    expect(changes).to_contain_text("print('from a person')")
    section.get_by_role("button", name="Approve as edited").click()
    done = asking.result()
    assert (done["state"], done["stdout"].strip()) == ("ok", "from a person")
    assert (done["approval"]["decision"], done["code"]) == ("edited", "print('from a person')")
    # Later, too, it is told whose code is whose.
    item = panel.unfold("to edit")
    expect(item.locator(".jex-Execution .jex-State").first).to_have_text("edited")
    expect(item.get_by_role("group", name=re.compile("has changed"))).to_contain_text(ASKS)


def test_kind_that_is_approved_for_the_session_is_not_asked_about_again(panel: Panel, asking: Agent) -> None:
    session = asking("open", name="trusted with shells", kernel_name="forked")
    asking.begin("run", session_id=session, code=ASKS)
    section = waiting(panel)
    section.get_by_label("Approve from now on in this session: shell commands").check()
    section.get_by_role("button", name="Approve", exact=True).click()
    assert asking.result()["state"] == "ok"
    assert asking("run", session_id=session, code=ASKS)["approval"] is None
    item = panel.unfold("trusted with shells")
    expect(item.locator(".jex-Approved")).to_contain_text("Approved until this session ends: shell commands")
    item.get_by_role("button", name="Ask again").click()
    expect(item.locator(".jex-Approved")).to_have_count(0)
    asking.begin("run", session_id=session, code=ASKS)
    waiting(panel).get_by_role("button", name="Reject", exact=True).click()
    assert asking.result()["state"] == "rejected"


def test_rejected_code_does_not_run_and_the_agent_is_told_why(panel: Panel, asking: Agent) -> None:
    session = asking("open", name="to reject", kernel_name="forked")
    asking.begin("run", session_id=session, code=ASKS)
    section = waiting(panel)
    section.get_by_label("Note to the agent").fill("use print")
    section.get_by_role("button", name="Reject", exact=True).click()
    done = asking.result()
    assert (done["state"], done["stdout"]) == ("rejected", "")
    assert done["approval"] == {"decision": "rejected", "reason": "use print"}


def test_it_is_told_while_the_panel_is_closed(panel: Panel, asking: Agent) -> None:
    session = asking("open", name="unseen", kernel_name="forked")
    execute(panel.page, "filebrowser:activate")
    expect(panel.node).to_be_hidden()
    asking.begin("run", session_id=session, code=ASKS)
    toast = notification(panel.page)
    expect(toast).to_contain_text("cautious")
    toast.get_by_role("button", name="Review").click()
    # Nothing tells of code that is on the screen.
    expect(toast).to_have_count(0)
    section = panel.page.locator("#jupyter-exec-ext-approvals")
    section.get_by_role("button", name="Approve", exact=True).click()
    assert asking.result()["state"] == "ok"


def test_what_waited_before_the_page_was_opened_is_open(panel: Panel, page: Page, host: Host, asking: Agent) -> None:
    session = asking("open", name="early", kernel_name="forked")
    asking.begin("run", session_id=session, code=ASKS)
    waiting(panel)
    page.set_viewport_size({"width": 1000, "height": 600})
    section = waiting(open_lab(page, host))
    # Nobody is to approve what they do not see: nothing lies over the code.
    page.wait_for_function(_IS_SEEN, arg="#jupyter-exec-ext-approvals .cm-line")
    expect(section.get_by_role("button", name="Reject", exact=True)).to_be_visible()
    section.get_by_role("button", name="Reject", exact=True).click()
    assert asking.result()["state"] == "rejected"


def test_what_comes_into_an_open_panel_has_room_there(panel: Panel, page: Page, host: Host, asking: Agent) -> None:
    page.set_viewport_size({"width": 1000, "height": 600})
    opened = open_lab(page, host)
    expect(opened.node.get_by_text("from the shell")).to_have_count(0)
    asking.begin("run", session_id=asking("open", name="late", kernel_name="forked"), code=ASKS)
    section = waiting(opened)
    page.wait_for_function(_IS_SEEN, arg="#jupyter-exec-ext-approvals .cm-line")
    expect(notification(page)).to_have_count(0)
    # Another section that takes room leaves the code in view.
    execute(page, "jupyter-exec-ext:new-token")
    expect(page.get_by_role("form", name="New token")).to_be_visible()
    page.wait_for_function(_IS_SEEN, arg="#jupyter-exec-ext-approvals .cm-line")
    section.get_by_role("button", name="Reject", exact=True).click()
    assert asking.result()["state"] == "rejected"


def test_it_can_be_rejected_from_the_notification(panel: Panel, asking: Agent) -> None:
    session = asking("open", name="unseen", kernel_name="forked")
    execute(panel.page, "filebrowser:activate")
    asking.begin("run", session_id=session, code=ASKS)
    notification(panel.page).get_by_role("button", name="Reject").click()
    panel.page.locator(".jp-Dialog input").fill("not now")
    panel.accept("Reject")
    assert asking.result()["approval"] == {"decision": "rejected", "reason": "not now"}


def test_what_another_person_decides_is_seen(panel: Panel, asking: Agent, host: Host) -> None:
    session = asking("open", name="elsewhere", kernel_name="forked")
    asking.begin("run", session_id=session, code=ASKS)
    section = waiting(panel)
    owner = owner_of(host)
    (execution,) = owner.call("GET", "/approvals").json()["executions"]
    assert owner.call("POST", f"/approvals/{execution['id']}", json={"decision": "approve"}).ok
    assert asking.result()["state"] == "ok"
    expect(section).to_contain_text("No runs need your approval")
