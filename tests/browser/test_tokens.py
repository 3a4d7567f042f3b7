"""Limited access that a person hands out on the page: it works where it is pasted, and ends when it is revoked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.agents import Agent, running_agent
from tests.browser.pages import Panel, execute
from tests.browser.test_sessions import WAITS
from tests.support.bearers import owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host

FAILS_WITHIN_SECONDS = 1.0


@pytest.fixture
def section(panel: Panel, host: Host) -> Iterator[Locator]:
    """The section of tokens; those that a test has left are revoked."""
    section = panel.page.locator("#jupyter-exec-ext-tokens")
    yield section
    owner = owner_of(host)
    for token in owner.call("GET", "/tokens").json()["tokens"]:
        owner.call("DELETE", f"/tokens/{token['id']}")


def create(panel: Panel, section: Locator, name: str, policy: str) -> Locator:
    """Create a token; return the dialog that shows its secret."""
    execute(panel.page, "jupyter-exec-ext:new-token")
    section.get_by_label("Name").fill(name)
    section.get_by_label("Policy").select_option(policy)
    section.get_by_role("button", name="Create").click()
    dialog = panel.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text(name)
    return dialog


def test_a_token_works_until_it_is_revoked(panel: Panel, section: Locator, host: Host, tmp_path: Path) -> None:
    dialog = create(panel, section, "for a while", "trusted")
    secret = dialog.get_by_label("the token", exact=True).inner_text().strip()
    panel.accept("Done")
    expect(section).to_contain_text("for a while")
    assert secret not in panel.page.content()

    with running_agent(replace(host.info, token=secret), tmp_path) as agent:
        session = agent("open", name="with a token")
        assert agent("run", session_id=session, code="print(6 * 7)")["stdout"] == "42\n"
        expect(panel.node.locator(".jex-Group", has_text="for a while")).to_contain_text("with a token")
        agent.begin("run", session_id=session, code=WAITS.format(path=str(tmp_path / "never")))
        expect(panel.unfold("with a token").get_by_role("log").first).to_contain_text("before")
        _revoke(panel, section, "for a while")
        began = time.monotonic()
        ended = agent.answer()
        assert time.monotonic() - began <= FAILS_WITHIN_SECONDS
        assert ended.get("result", {}).get("state", "refused") in ("token_revoked", "refused"), ended
        assert "TokenRevoked" in _refused(agent) or "Unauthorized" in _refused(agent)
    expect(section.locator(".jex-Token")).to_have_count(0)


def test_a_token_asks_about_what_was_chosen(panel: Panel, section: Locator, host: Host) -> None:
    execute(panel.page, "jupyter-exec-ext:new-token")
    section.get_by_label("Name").fill("careful")
    section.get_by_label("Policy").select_option("trusted")
    section.get_by_label("Ask me").select_option("about shell commands and magics")
    expect(section).to_contain_text("Uploads are refused")
    section.get_by_role("button", name="Create").click()
    panel.accept("Done")
    (token,) = owner_of(host).call("GET", "/tokens").json()["tokens"]
    assert token["limits"] == {"approval": {"when": ["shell", "magics"]}}
    section.get_by_role("button", name="careful").first.click()
    expect(section).to_contain_text("shell, magics")


def _revoke(panel: Panel, section: Locator, name: str) -> None:
    row = section.locator(".jex-Row", has_text=name)
    row.hover()
    row.get_by_role("button", name="Revoke").click()
    panel.accept("Revoke")


def _refused(agent: Agent) -> str:
    agent.begin("open", name="again")
    return str(agent.answer()["error"])


# Does what a client does with its configuration, which the snippet prints.
MCP_CLIENT = """
import asyncio, json, subprocess, sys
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

async def main(told):
    if "url" not in told:
        return await use(StdioServerParameters(**told))
    with open("agent.token") as file:
        token = file.read().strip()
    headers = {name: value.replace("${env:JUPYTER_TOKEN}", token) for name, value in told["headers"].items()}
    async with httpx2.AsyncClient(headers=headers) as http:
        await use(streamable_http_client(told["url"], http_client=http))

async def use(server):
    async with Client(server) as client:
        print((await client.call_tool("execute_code", {"code": "print(6 * 7)"})).content[0].text)

printed = subprocess.run(["bash", "-euo", "pipefail", "-c", sys.argv[1]], check=True, capture_output=True, text=True)
with open("agent.token") as file:
    assert file.read().strip() not in printed.stdout
asyncio.run(main(json.loads(printed.stdout)["mcpServers"]["jupyter"]))
"""


@only_in_full
def test_the_snippets_work_where_they_are_pasted(panel: Panel, section: Locator, tmp_path: Path) -> None:
    dialog = create(panel, section, "to paste", "trusted")
    installs, snippets, programs = {}, {}, {}
    for tab in dialog.get_by_role("tab").all():
        tab.click()
        title, shown = tab.inner_text(), dialog.get_by_role("tabpanel").locator("pre").all_inner_texts()
        count = 0 if title == "curl" else 1
        installs[title], snippets[title], programs[title] = shown[:count], shown[count], shown[count + 1 :]
    panel.accept("Done")
    commands = {
        "Python": [sys.executable, "-c"],
        "AutoGen": [sys.executable, "-c"],
        "MCP client": [sys.executable, "-c", MCP_CLIENT],
        "curl": ["bash", "-euo", "pipefail", "-c"],
    }
    assert {title: len(texts) for title, texts in programs.items()} == dict.fromkeys(commands, 0) | {"MCP client": 1}
    assert all(line.startswith("pip install ") for lines in installs.values() for line in lines)
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ways = [(title, snippets[title]) for title in commands] + [("MCP client", *programs["MCP client"])]
    for title, snippet in ways:
        done = subprocess.run(
            [*commands[title], snippet], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (title, done.stderr)
        assert "42" in done.stdout, (title, done.stdout)


def test_a_token_that_another_has_created_appears(panel: Panel, section: Locator, host: Host) -> None:
    execute(panel.page, "jupyter-exec-ext:new-token")
    section.get_by_role("button", name="Cancel").click()
    request = {"name": "from the command line", "policy": "trusted", "scopes": ["sessions:read"]}
    assert owner_of(host).call("POST", "/tokens", json=request).ok
    expect(section.locator(".jex-Token")).to_contain_text("from the command line")
