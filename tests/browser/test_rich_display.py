"""A notebook in JupyterLab that shows an `Execution` and a list of records, hostile content included."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Dialog, expect

from tests.browser.agents import Agent
from tests.browser.pages import Panel, execute, open_notebook
from tests.browser.payloads import HTML, armed
from tests.browser.servers import FORKED
from tests.support.hosts import Host

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HOSTILE_NAME = "<img src=x onerror=canary('name')>"
PRESS = "<button onclick=\"canary('press')\">press</button>"
# Nothing listens there.
NOWHERE = "127.0.0.1:9"
# Scripts and handlers that run by themselves.
SCRIPTS = [armed(payload, number, NOWHERE) for number, payload in enumerate(HTML[:24]) if "URL" not in payload]


def shown_code() -> str:
    """Return code that shows a table, a picture and hostile pages, and then fails."""
    table = {"text/html": "<table><tr><th>city</th></tr><tr><td>Oslo</td></tr></table>", "text/plain": "city Oslo"}
    hostile = {"text/html": f"{''.join(SCRIPTS)}{PRESS}<p>end of the page</p>", "text/plain": "page"}
    bundles = [table, {"image/png": PIXEL}, hostile]
    return f"from IPython.display import display\nfor each in {bundles!r}:\n    display(each, raw=True)\n1 / 0"


def notebook(*sources: str) -> dict[str, Any]:
    """Return a notebook with code cells."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"cell-{n}", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
        for n, text in enumerate(sources)
    ]
    spec = {"name": FORKED, "display_name": FORKED, "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}


def test_notebook_shows_execution_and_list_and_runs_no_script_of_theirs(panel: Panel, host: Host, agent: Agent) -> None:
    page = panel.page
    ran: list[Any] = []
    page.context.expose_function("canary", lambda what: ran.append(what))

    def note_dialog(dialog: Dialog) -> None:
        ran.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note_dialog)
    session = agent("open", name=HOSTILE_NAME, kernel_name=FORKED)
    made = notebook(
        "from jupyter_exec_ext import ExecClient\n"
        f"client = ExecClient({host.info.url!r}, {host.owner.token!r})\n"
        f"client.get_session({session!r}).run({shown_code()!r})",
        "client.list_sessions()",
    )
    (host.home / "root" / "rich.ipynb").write_text(json.dumps(made))
    opened = open_notebook(page, "rich.ipynb")
    execute(page, "notebook:run-all-cells")
    execution, listed = (opened.locator(".jp-Cell-outputArea").nth(number) for number in range(2))

    frames = execution.locator("iframe")
    expect(frames).to_have_count(2)
    expect(frames.nth(0).content_frame.locator("td")).to_have_text("Oslo")
    picture = execution.locator("img")
    expect(picture).to_have_js_property("naturalWidth", 1)
    expect(execution.locator("pre").last).to_contain_text("ZeroDivisionError: division by zero")
    expect(listed.locator("th")).to_have_text(["id", "name", "kernel", "state", "last activity"])
    expect(listed.locator("td", has_text=re.compile("^<img src=x"))).to_have_text(HOSTILE_NAME)

    hostile = frames.nth(1).content_frame
    expect(hostile.get_by_text("end of the page")).to_be_attached()
    hostile.get_by_role("button", name="press").click()
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert ran == []
    # The control: the page itself can call it.
    page.evaluate("() => canary('control')")
    assert ran == ["control"]
