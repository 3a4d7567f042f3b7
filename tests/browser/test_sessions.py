"""A person sees what an agent in another process does, and steps in."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Page, expect

from tests.browser.agents import Agent
from tests.browser.pages import Panel, close_all, execute
from tests.browser.servers import FORKED
from tests.browser.test_notebook7 import OURS
from tests.support.bearers import owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host

APPEARS_WITHIN_MS = 1000
# Notes when the first element appears that the selector finds and that has the text.
_NOTE_WHEN = """([selector, text]) => {
  const seen = () => [...document.querySelectorAll(selector)].some(each => each.textContent.includes(text));
  const look = () => {
    if (window.appearedAt === null && seen()) {
      window.appearedAt = Date.now();
      observer.disconnect();
    }
  };
  window.appearedAt = null;
  const observer = new MutationObserver(look);
  observer.observe(document.body, { childList: true, subtree: true, characterData: true });
  look();
}"""
_KERNEL_OF_NOTEBOOK = """id => {
  const { sessionContext } = window.jupyterapp.shell.currentWidget;
  return sessionContext?.session?.kernel?.id === id;
}"""
# Prints, and then waits for a file or an interrupt.
WAITS = """
import os, time
print('before', flush=True)
while not os.path.exists({path!r}):
    time.sleep(0.01)
print('after')
"""


def note_when(page: Page, selector: str, text: str) -> None:
    """Begin to wait, on the page, for an element with this text."""
    page.evaluate(_NOTE_WHEN, [selector, text])


def appeared_at(page: Page) -> float:
    """Return when it appeared, in milliseconds of the clock."""
    return float(page.wait_for_function("() => window.appearedAt").json_value())


def milliseconds(iso: str) -> float:
    return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp() * 1000


def test_a_session_appears_within_a_second(panel: Panel, agent: Agent, host: Host) -> None:
    note_when(panel.page, ".jex-Row-name", "appears")
    session = agent("open", name="appears")
    created = owner_of(host).call("GET", f"/sessions/{session}").json()["created_at"]
    assert appeared_at(panel.page) - milliseconds(created) <= APPEARS_WITHIN_MS


def test_the_session_of_an_executor_appears_with_what_it_ran(panel: Panel, agent: Agent) -> None:
    done = agent("blocks", code="print(6 * 7)")
    assert (done["exit_code"], done["output"].strip()) == (0, "42")
    item = panel.node.locator(".jex-Session")
    item.locator(".jex-Row-main").first.click()
    expect(item.get_by_role("log")).to_have_text("42")
    expect(item.get_by_label("Code", exact=True)).to_have_text("print(6 * 7)")


def test_output_streams_while_the_code_runs(panel: Panel, agent: Agent, tmp_path: Path) -> None:
    session = agent("open", name="streams")
    go_on = tmp_path / "go on"
    agent.begin("run", session_id=session, code=WAITS.format(path=str(go_on)))
    item = panel.unfold("streams")
    output, execution = item.get_by_role("log"), item.locator(".jex-Execution").first
    expect(output).to_contain_text("before")
    expect(execution).to_have_attribute("data-tone", "running")
    expect(output).not_to_contain_text("after")
    go_on.touch()
    expect(output).to_contain_text("after")
    expect(execution).to_have_attribute("data-tone", "good")
    assert agent.result()["state"] == "ok"


@only_in_full
def test_what_a_session_uses_is_shown_and_looked_up_again(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="grows")
    expect(panel.row("grows")).to_contain_text(re.compile(r"[0-9.]{2,4} MB"), timeout=30_000)
    agent("run", session_id=session, code="held = bytearray(400 * 10**6); held[::4096] = b'x' * len(held[::4096])")
    expect(panel.row("grows")).to_contain_text(re.compile(r"[45][0-9]{2} MB"), timeout=30_000)


def test_cancel_stops_the_code(panel: Panel, agent: Agent, tmp_path: Path) -> None:
    session = agent("open", name="cancels")
    agent.begin("run", session_id=session, code=WAITS.format(path=str(tmp_path / "never")))
    item = panel.unfold("cancels")
    expect(item.get_by_role("log")).to_contain_text("before")
    item.locator(".jex-Execution .jex-Row").hover()
    item.get_by_role("button", name="Cancel this run").click()
    done = agent.result()
    assert (done["state"], done["stdout"]) == ("cancelled", "before\n")
    expect(item.locator(".jex-Execution .jex-State")).to_have_text("cancelled")
    # The kernel is there for the next one.
    assert agent("run", session_id=session, code="print(1)")["stdout"] == "1\n"


def test_interrupt_raises_in_the_code(panel: Panel, agent: Agent, tmp_path: Path) -> None:
    session = agent("open", name="interrupts")
    code = WAITS.format(path=str(tmp_path / "never"))
    agent.begin("run", session_id=session, code=code)
    item = panel.unfold("interrupts")
    expect(item.get_by_role("log")).to_contain_text("before")
    panel.menu("interrupts", "Interrupt")
    assert agent.result()["state"] == "interrupted"
    expect(item.get_by_role("log")).to_contain_text("KeyboardInterrupt")


@only_in_full
def test_restart_asks_and_gives_a_fresh_kernel(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="restarts")
    assert agent("run", session_id=session, code="x = 1")["state"] == "ok"
    panel.menu("restarts", "Restart Kernel")
    panel.accept("Restart")
    expect(panel.row("restarts")).to_have_attribute("title", re.compile("restarted once"))
    assert agent("run", session_id=session, code="x")["state"] == "error"


def test_shut_down_asks_and_ends_the_session(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="ends")
    panel.row("ends").hover()
    panel.session("ends").get_by_role("button", name="Shut down").click()
    expect(panel.page.locator(".jp-Dialog")).to_contain_text("Shut down “ends”?")
    panel.accept("Cancel")
    assert agent("run", session_id=session, code="print(1)")["state"] == "ok"
    panel.row("ends").hover()
    panel.session("ends").get_by_role("button", name="Shut down").click()
    panel.accept("Shut Down")
    expect(panel.session("ends")).to_have_count(0)
    agent.begin("run", session_id=session, code="print(1)")
    assert "SessionEnded" in agent.answer()["error"]


@only_in_full
def test_the_session_opens_as_a_valid_notebook(panel: Panel, agent: Agent, host: Host) -> None:
    session = agent("open", name="A name: with / everything?")
    agent("run", session_id=session, code="print('one')\n1 + 1")
    agent("run", session_id=session, code="1 / 0")
    panel.menu("A name: with / everything?", "Open as Notebook")
    panel.page.locator(".jp-Dialog input[type=text]").fill("opened.ipynb")
    panel.accept("Save and Open")
    opened = panel.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    expect(opened.locator(".jp-OutputArea-output").first).to_have_text("one")
    notebook = nbformat.read(host.home / "root" / "opened.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert [cell.source for cell in notebook.cells if cell.cell_type == "code"] == ["print('one')\n1 + 1", "1 / 0"]
    close_all(panel.page)


@only_in_full
def test_a_session_is_opened_as_a_notebook_with_its_own_kernel(panel: Panel, agent: Agent, host: Host) -> None:
    session = agent("open", name="goes on", kernel_name=FORKED)
    agent("run", session_id=session, code="x = 41")
    panel.menu("goes on", "Open as Notebook")
    dialog = panel.page.locator(".jp-Dialog")
    dialog.locator("input[type=text]").fill("goes-on.ipynb")
    dialog.get_by_label("Use the session's kernel").check()
    panel.accept("Save and Open")
    opened = panel.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    cell = opened.locator(".jp-CodeCell").last.locator(".cm-content")
    expect(cell).to_have_text("x = 41")
    panel.page.wait_for_function(_KERNEL_OF_NOTEBOOK, arg=session_record(host, session)["kernel_id"])
    cell.click()
    panel.page.keyboard.press("ControlOrMeta+a")
    panel.page.keyboard.type("x = x + 1; print(x)")
    panel.page.keyboard.press("Control+Enter")
    expect(opened.locator(".jp-OutputArea-output").last).to_have_text("42")
    # What the person has changed is there for the agent, and the kernel stays when the notebook closes.
    close_all(panel.page)
    assert agent("run", session_id=session, code="print(x)")["stdout"] == "42\n"


@only_in_full
def test_entries_of_the_running_panel_open_their_session(panel: Panel, agent: Agent) -> None:
    for name in ("first of two", "second of two"):
        session = agent("open", name=name, kernel_name=FORKED)
        agent("run", session_id=session, code=f"print({name!r})")
    # Neither a filter nor a group that is folded hides it.
    panel.node.get_by_role("searchbox").fill("no such session")
    expect(panel.node.locator(".jex-Session")).to_have_count(0)
    entries = (
        (f".jp-RunningSessions-section:has({OURS})", "first of two"),
        (".jp-RunningSessions-item.jp-mod-kernel-widget", "second of two"),
    )
    for where, name in entries:
        execute(panel.page, "running:show-panel")
        entry = panel.page.locator(where).locator(".jp-RunningSessions-itemLabel", has_text=name)
        entry.first.click()
        row = panel.row(name)
        expect(row).to_be_focused()
        expect(row).to_have_attribute("aria-expanded", "true")
        expect(panel.session(name).get_by_role("log")).to_have_text(name)
        group = panel.node.locator(".jex-Group-title .jex-Row-main").first
        group.click()
        expect(panel.node.locator(".jex-Session")).to_have_count(0)
    group.click()


def session_record(host: Host, session_id: str) -> dict[str, Any]:
    record: dict[str, Any] = owner_of(host).call("GET", f"/sessions/{session_id}").json()
    return record


@only_in_full
def test_the_code_is_copied(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="copies")
    agent("run", session_id=session, code="a = 1")
    agent("run", session_id=session, code="b = 2")
    panel.menu("copies", "Copy as Code")
    expect(panel.page.get_by_text("The code of 2 cells was copied.")).to_be_visible()
    assert panel.page.evaluate("() => navigator.clipboard.readText()") == "a = 1\n\nb = 2\n"


def test_a_file_is_downloaded(panel: Panel, agent: Agent, tmp_path: Path) -> None:
    session = agent("open", name="makes files")
    agent("run", session_id=session, code="open('table.csv', 'w').write('a,b\\n')")
    item = panel.unfold("makes files")
    with panel.page.expect_download() as download:
        item.get_by_title("Download table.csv").click()
    assert Path(download.value.path()).read_text() == "a,b\n"
    assert download.value.suggested_filename == "table.csv"


def test_a_person_answers_what_the_code_asks(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="asks")
    agent.begin("ask", session_id=session, code="print('Hello', input('Your name? '))")
    item = panel.unfold("asks")
    item.get_by_label("Your name?").fill("Ada")
    item.get_by_role("button", name="Answer").click()
    expect(item.get_by_role("log")).to_contain_text("Hello Ada")
    assert agent.result() == "ok"


def test_a_person_is_told_that_code_asks_and_led_to_the_answer(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="asks again")
    execute(panel.page, "filebrowser:activate")
    expect(panel.node).to_be_hidden()
    agent.begin("ask", session_id=session, code="input('How many? ')")
    expect(panel.page.locator(".jex-StatusItem-waiting")).to_have_text("1")
    toast = panel.page.locator(".Toastify__toast:not([class*='-exit'])", has_text="waits for your input")
    toast.get_by_role("button", name="Answer").click()
    expect(panel.node.locator(".jex-Session", has_text="asks again")).to_contain_text("waits for input")
    expect(panel.node.get_by_label("How many?")).to_be_focused()
    panel.page.keyboard.type("3")
    panel.page.keyboard.press("Enter")
    assert agent.result() == "ok"
    expect(toast).to_have_count(0)


def test_an_error_is_named_in_the_rows_and_shown_to_its_end(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="fails")
    code = "import os\n# Look.\ndef deep(n):\n    return deep(n - 1) if n else {}['q5']\nprint('x\\n' * 50)\ndeep(9)"
    agent("run", session_id=session, code=code)
    row = panel.node.locator(".jex-Session", has_text="fails")
    expect(row.locator(".jex-Row-detail").first).to_contain_text("last run: KeyError")
    item = panel.unfold("fails")
    expect(item.locator(".jex-Execution .jex-Headline")).to_have_text("def deep(n):")
    expect(item.locator(".jex-Execution .jex-State")).to_have_text("KeyError: 'q5'")
    expect(item.get_by_role("log").get_by_text("KeyError: 'q5'")).to_be_in_viewport()


def test_search_and_filter(panel: Panel, agent: Agent) -> None:
    for name in ("red", "green"):
        agent("open", name=name, kernel_name="forked")
    rows = panel.node.locator(".jex-Session .jex-Row-name")  # tokens that others left have names, too
    expect(rows).to_have_count(2)
    search = panel.node.get_by_role("searchbox")
    search.fill("RED")
    expect(rows).to_have_text(["red"])
    search.fill("blue")
    expect(panel.node).to_contain_text("No matches")
    search.fill("")
    panel.node.get_by_label("Which sessions").select_option("Busy")
    expect(rows).to_have_count(0)
    panel.node.get_by_label("Which sessions").select_option("Active")
    expect(rows).to_have_count(2)


def test_search_finds_what_was_run_in_ended_sessions(panel: Panel, agent: Agent, host: Host) -> None:
    session = agent("open", name="gone by then", kernel_name="forked")
    agent("run", session_id=session, code="print('needle'.upper() + ' in a haystack')")
    agent("run", session_id=session, code="x = 1")
    agent("close", session_id=session)
    expect(panel.node.locator(".jex-Session")).to_have_count(0)
    panel.node.get_by_role("searchbox").fill("NEEDLE in a")
    found = panel.node.get_by_label("Runs found")
    expect(found).to_contain_text("gone by then")
    row = found.locator(".jex-Execution .jex-Row-main")
    expect(row).to_have_count(1)
    expect(row.locator("time")).to_have_text(re.compile(r"\d\d:\d\d"))
    row.click()
    expect(found.get_by_role("log")).to_contain_text("NEEDLE in a haystack")
    found.get_by_role("button", name="Show session").click()
    view = panel.page.locator(".jex-View:visible")
    expect(view.get_by_role("heading", level=1)).to_have_text("gone by then")
    expect(view.locator(".jex-Execution")).to_have_count(2)
    # What was found is still there.
    expect(row).to_have_count(1)


@only_in_full
def test_all_executions_of_a_session_are_reached(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="long", kernel_name="forked")
    for number in range(75):
        agent("run", session_id=session, code=f"x = {number}")
    item = panel.unfold("long")
    rows = item.locator(".jex-Execution")
    for count in (20, 40, 60, 75):
        expect(rows).to_have_count(count)
        if count < 75:
            item.get_by_role("button", name="Show earlier").click()
    expect(rows.last).to_contain_text("x = 0")
    expect(item.get_by_role("button", name="Show earlier")).to_have_count(0)


@only_in_full
def test_a_console_shares_the_session_s_kernel(panel: Panel, agent: Agent) -> None:
    session = agent("open", name="shares")
    agent("run", session_id=session, code="answer = 42")
    panel.menu("shares", "Open Console")
    prompt = panel.page.locator(".jp-CodeConsole-promptCell .cm-content")
    expect(panel.page.locator(".jp-CodeConsole-content")).to_contain_text("IPython")
    prompt.click()
    panel.page.keyboard.type("print(answer)")
    panel.page.keyboard.press("Shift+Enter")
    expect(panel.page.locator(".jp-CodeConsole .jp-OutputArea-output").last).to_have_text("42")
    close_all(panel.page)
    assert agent("run", session_id=session, code="answer")["state"] == "ok"
