"""Checkpoints in the panel: a person makes one, restores the session to it, and branches it."""

from __future__ import annotations

import os
import re

from playwright.sync_api import Locator, expect

from tests.browser.agents import Agent
from tests.browser.pages import Panel
from tests.browser.test_accessibility import tab_to, violations

# A thread, which a checkpoint does not take along.
THREAD = """
import threading
stop = threading.Event()
threading.Thread(target=stop.wait, name="worker").start()
"""


def test_person_restores_and_branches_a_session(panel: Panel, agent: Agent) -> None:
    page = panel.page
    session = agent("open", name="tries", isolation="none")
    agent("run", session_id=session, code="x = 'first'\nopen('notes.txt', 'w').write(x)")
    item = panel.unfold("tries")
    assert item.locator(".jex-Checkpoint").count() == 0

    panel.row("tries").focus()
    tab_to(panel, item.get_by_role("button", name="Make Checkpoint…"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("textbox")).to_have_value("Checkpoint 1")
    page.keyboard.press("Enter")
    row = checkpoint(item, "Checkpoint 1")
    expect(row).to_contain_text("after [1]")
    expect(row).to_contain_text(re.compile(r"\d [kM]B"))  # its memory
    agent("run", session_id=session, code="x = 'second'\nopen('notes.txt', 'w').write(x)")
    expect(item.locator(".jex-Execution")).to_have_count(2)

    panel.row("tries").focus()
    for _ in range(2):  # past the line of the history
        page.keyboard.press("ArrowDown")
    expect(row).to_be_focused()
    tab_to(panel, item.get_by_role("button", name="Restore to Checkpoint 1"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem")).to_have_text("[2] x = 'second'")
    picture(panel, "question")
    panel.accept("Restore")
    expect(item.locator(".jex-History-event")).to_contain_text("restored to “Checkpoint 1”")
    left = item.locator(".jex-Execution[data-left=true]")
    expect(left).to_have_count(1)
    expect(left).to_contain_text("other line")
    assert agent("run", session_id=session, code="print(x, open('notes.txt').read())")["stdout"] == "first first\n"
    expect(item.locator(".jex-Execution")).to_have_count(3)
    expect(left).to_have_count(1)
    assert violations(panel) == []

    item.get_by_role("button", name="Branch from Checkpoint 1").click()
    branch = panel.unfold("tries branch 1")
    expect(branch).to_contain_text("Branch of another session: tries")
    expect(item.locator(".jex-History-event").first).to_contain_text("branch: tries branch 1")
    row.click()
    assert violations(panel) == []
    panel.row("tries").focus()
    picture(panel, "history")

    row.hover()
    item.locator(".jex-Row").get_by_role("button", name="Delete Checkpoint 1").click()
    panel.accept("Delete")
    expect(row).to_have_count(0)
    expect(item.locator(".jex-History-event")).to_have_count(2)


def test_checkpoint_without_a_thread_is_made_after_a_question(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="threads", isolation="none")
    agent("run", session_id=session, code=THREAD)
    item = panel.unfold("threads")
    panel.menu("threads", "Make Checkpoint")
    panel.accept("Make Checkpoint")
    expect(panel.page.get_by_role("dialog")).to_contain_text("thread: worker")
    picture(panel, "without-a-thread")
    panel.accept("Make Without Them")
    row = checkpoint(item, "Checkpoint 1")
    expect(row).to_contain_text("without one thing")
    row.click()
    expect(item.locator(".jex-Checkpoint")).to_contain_text("Without thread: worker")
    agent("run", session_id=session, code="stop.set()")


def test_automatic_checkpoint_undoes_the_last_run(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="automatic", isolation="none", auto_checkpoint="each_run")
    agent("run", session_id=session, code="x = 1")
    item = panel.unfold("automatic")
    agent("run", session_id=session, code="x = 2")
    rows = checkpoint(item, "Automatic, ")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("after [1]")
    expect(rows.last).to_contain_text("before the first run")
    rows.first.hover()
    item.get_by_role("button", name="Restore to Automatic").click()
    panel.accept("Restore")
    expect(item.locator(".jex-Execution[data-left=true]")).to_contain_text("x = 2")
    assert agent("run", session_id=session, code="print(x)")["stdout"] == "1\n"
    expect(rows).to_have_count(3)
    picture(panel, "automatic")


def checkpoint(item: Locator, name: str) -> Locator:
    """Return the row of a session's checkpoint."""
    return item.locator(".jex-Checkpoint .jex-Row-main", has_text=name)


def picture(panel: Panel, name: str) -> None:
    if directory := os.environ.get("EXEC_TEST_PICTURES"):
        panel.page.screenshot(path=f"{directory}/{name}.png")
