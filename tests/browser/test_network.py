"""Network of a session in the panel: a refused request is seen, allowed by the button, and then passes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from jupyter_exec_ext.isolation.sandbox.proxy_environment import PROXY_PORT
from tests.browser.pages import Panel
from tests.browser.test_accessibility import tab_to, violations
from tests.support.bearers import mint
from tests.support.hosts import Host

FETCH = """
import http.client
connection = http.client.HTTPConnection("127.0.0.1", {port})
connection.request("GET", {url!r})
answer = connection.getresponse()
print(answer.status, answer.read().decode()[:40])
"""


class Greeter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from outside")

    def log_message(self, *args: object) -> None:
        """Keep the test's output free of requests."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Greeter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_refused_request_is_seen_allowed_and_passes(host: Host, panel: Panel, port: int) -> None:
    agent = mint(host, policy="ruled", name="fetcher")
    session = agent.session(name="fetches")
    url = f"http://b.example:{port}/data"
    fetch = FETCH.format(port=PROXY_PORT, url=url)
    assert agent.run(session, fetch).json()["stdout"].startswith("403")
    expect(panel.row("fetches")).to_contain_text("network: 1 refused")  # without unfolding anything
    item = panel.unfold("fetches")
    network = item.locator(".jex-Network")
    expect(network).to_contain_text(f"b.example:{port}")
    assert violations(panel) == []
    _picture(panel, "network-refused")

    panel.row("fetches").focus()
    allow = network.get_by_role("button", name="Allow for This Session")
    tab_to(panel, allow)
    panel.page.keyboard.press("Enter")
    expect(allow).to_have_count(0)
    expect(panel.row("fetches")).not_to_contain_text("refused")
    toggle = network.get_by_role("button", name="Network requests")
    expect(toggle).to_be_focused()
    assert agent.run(session, fetch).json()["stdout"] == "200 hello from outside\n"

    panel.page.keyboard.press("Enter")
    expect(network).to_contain_text(f"Allowed for this session: b.example:{port}")
    newest = network.locator("ol > li").first
    expect(newest).to_contain_text(f"GET b.example:{port}/data")
    expect(newest).to_contain_text(f"allowed by b.example:{port}")
    expect(network.locator("ol > li").last).to_contain_text("refused: policy 'ruled' does not allow host")
    assert violations(panel) == []
    _picture(panel, "network-allowed")
    agent.call("DELETE", f"/sessions/{session}")


def _picture(panel: Panel, name: str) -> None:
    if directory := os.environ.get("EXEC_TEST_PICTURES"):
        panel.page.screenshot(path=f"{directory}/{name}.png")
