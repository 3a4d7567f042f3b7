"""A person shares the kernel of their notebook with one token, sees what runs in it, and ends it with one click."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.agents import running_agent
from tests.browser.pages import Panel, change_theme, execute, open_notebook, ready
from tests.browser.test_accessibility import THEMES, tab_to, violations
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host

ENDS_WITHIN_SECONDS = 1.0
ITEM = ".jp-Notebook-toolbar .jex-Sharing, .jp-NotebookPanel-toolbar .jex-Sharing"
RUNS = "rows = len(table)\nimport time\nwhile True: time.sleep(0.05)"


@pytest.fixture
def owner(host: Host) -> Iterator[Bearer]:
    """The owner; tokens that a test has left are revoked, and kernels shut down."""
    owner = owner_of(host)
    yield owner
    for token in owner.call("GET", "/tokens").json()["tokens"]:
        owner.call("DELETE", f"/tokens/{token['id']}")


def write_notebook(host: Host, name: str, code: str) -> None:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "metadata": {},
        "source": code,
        "outputs": [],
        "execution_count": None,
        "id": "a",
    }
    kernelspec = {"name": "forked", "display_name": "forked"}
    made = {"cells": [cell], "metadata": {"kernelspec": kernelspec}, "nbformat": 4, "nbformat_minor": 5}
    (host.home / "root" / name).write_text(json.dumps(made))


def test_a_kernel_is_shared_with_a_new_token_until_one_click_ends_it(
    panel: Panel, host: Host, owner: Bearer, tmp_path: Path
) -> None:
    page = panel.page
    write_notebook(host, "shared.ipynb", "table = [1, 2, 3]")
    open_notebook(page, "shared.ipynb")
    execute(page, "notebook:run-all-cells")
    item = page.locator(ITEM)
    expect(item).to_have_count(0)

    execute(page, "jupyter-exec-ext:attach-kernel")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("your own rights")
    for theme in reversed(THEMES):
        change_theme(page, theme)
        assert violations(panel, ".jp-Dialog") == []
    dialog.locator("select").first.focus()
    tab_to(panel, dialog.get_by_label("Name of the new token"))
    page.keyboard.type("claude")
    tab_to(panel, dialog.get_by_role("button", name="Share"))
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("The token is shown once")
    assert violations(panel, ".jp-Dialog") == []
    snippet = dialog.get_by_label("the snippet for Python", exact=True).inner_text()
    kernel_id = dialog.get_by_label("the kernel id", exact=True).inner_text().strip()
    secret = dialog.get_by_label("the token", exact=True).inner_text().strip()
    panel.accept("Done")
    assert secret not in page.content()
    expect(item).to_contain_text("Shared with claude")
    expect(page.locator("#jupyter-exec-ext-tokens .jex-Grants")).to_contain_text("shared.ipynb")

    pasted = snippet.replace("6 * 7", "len(table) * 14")
    done = subprocess.run(
        [sys.executable, "-c", pasted], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=60
    )
    assert "42" in done.stdout, done.stderr

    with running_agent(replace(host.info, token=secret), tmp_path) as agent:
        session = agent("open", name="in the notebook", kernel_id=kernel_id)
        agent.begin("run", session_id=session, code=RUNS)
        expect(item).to_contain_text("rows = len(table)")
        assert violations(panel, ".jex-Sharing") == []
        item.get_by_role("button", name="Stop sharing this kernel").click()
        began = time.monotonic()
        ended = agent.answer()
        assert time.monotonic() - began <= ENDS_WITHIN_SECONDS
        assert ended["result"]["state"] == "cancelled", ended
        expect(item).to_have_count(0)
        agent.begin("open", name="again", kernel_id=kernel_id)
        assert "kernels:attach" in str(agent.answer()["error"])
    assert owner.call("GET", "/grants").json() == {"grants": []}


@only_in_full
def test_an_existing_token_is_chosen_and_its_row_ends_the_sharing(panel: Panel, host: Host, owner: Bearer) -> None:
    page = panel.page
    bearer = mint(host, name="known agent")
    write_notebook(host, "known.ipynb", "1")
    open_notebook(page, "known.ipynb")
    expect(page.locator("#jupyter-exec-ext-tokens .jex-Token")).to_contain_text(["known agent"])
    execute(page, "jupyter-exec-ext:attach-kernel")
    page.locator(".jp-Dialog").get_by_label("Token of the agent").select_option(bearer.id)
    panel.accept("Share")
    expect(page.locator(".jp-Dialog")).to_contain_text('os.environ["JUPYTER_TOKEN"]')
    panel.accept("Done")
    expect(page.locator(ITEM)).to_contain_text("Shared with known agent")
    page.locator("#jupyter-exec-ext-tokens h3, .jp-AccordionPanel-title", has_text="Tokens").first.click()
    page.get_by_role("button", name=re.compile("Stop sharing the kernel of known.ipynb")).click()
    expect(page.locator(ITEM)).to_have_count(0)


def test_notebook_7_shows_with_whom_its_kernel_is_shared(page: Page, host: Host, owner: Bearer) -> None:
    write_notebook(host, "seven.ipynb", "1")
    page.goto(f"{host.info.url}notebooks/seven.ipynb?token={host.owner.token}")
    ready(page)
    kernel_id = page.evaluate(
        """async () => {
          const { context } = window.jupyterapp.shell.currentWidget;
          await context.ready;
          await context.sessionContext.ready;
          return context.sessionContext.session.kernel.id;
        }"""
    )
    execute(page, "jupyter-exec-ext:attach-kernel")
    expect(page.locator(".jp-Dialog")).to_contain_text("seven.ipynb")
    page.locator(".jp-Dialog").get_by_role("button", name="Cancel").click()
    bearer = mint(host, name="visitor")
    request = {"token_id": bearer.id, "kernel_id": kernel_id, "name": "seven.ipynb"}
    assert owner.call("POST", "/grants", json=request).ok
    item = page.locator(ITEM)
    expect(item).to_contain_text("Shared with visitor")
    item.get_by_role("button", name="Stop sharing this kernel").click()
    expect(item).to_have_count(0)
