"""Apps of sessions in a real browser: opened from the panel, used, and unable to touch Jupyter."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import Panel
from tests.browser.test_accessibility import violations
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host
from tests.support.kernelspecs import add_kernelspec
from tests.support.port_apps import PORT, open_port

HOSTILE_PAGE = (Path(__file__).parent / "hostile_app.html").read_text()
# Serves the page, and keeps the headers of each request.
HOSTILE_APP = """
import json, tornado.web, tornado.websocket
SEEN = []

class Hostile(tornado.web.RequestHandler):
    def get(self):
        SEEN.append(dict(self.request.headers))
        if self.request.path == "/seen":
            self.write(json.dumps(SEEN))
        elif self.request.path.endswith(".js"):
            self.set_header("Content-Type", "text/javascript")
            self.set_header("Service-Worker-Allowed", "/")
            self.write("self.onfetch = () => {}")
        else:
            self.add_header("Set-Cookie", "_xsrf=evil; Domain=localhost; Path=/")
            self.add_header("Set-Cookie", "app=evil; Domain=127.0.0.1; Path=/")
            self.write(PAGE)
    def check_xsrf_cookie(self):
        pass
    post = get

class Socket(tornado.websocket.WebSocketHandler):
    def open(self):
        SEEN.append(dict(self.request.headers))
    def on_message(self, message):
        self.write_message(message)

PAGE = %r
tornado.web.Application([("/socket", Socket), ("/.*", Hostile)]).listen(%d, "127.0.0.1")
"""
STREAMLIT_APP = """
import streamlit
if streamlit.button("Count"):
    streamlit.session_state.number = streamlit.session_state.get("number", 0) + 1
streamlit.write(f"The button was clicked {streamlit.session_state.get('number', 0)} times")
file = streamlit.file_uploader("File")
if file is not None:
    streamlit.write(f"The file says: {file.read().decode()}")
"""
STREAMLIT_START = f"""
import subprocess, sys
open("app.py", "w").write({STREAMLIT_APP!r})
subprocess.Popen([sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", "{PORT}", "--server.address",
                  "127.0.0.1", "--server.headless", "true", "--browser.gatherUsageStats", "false"])
"""


@contextmanager
def running_app(host: Host, code: str, name: str, kernel_name: str | None = None) -> Iterator[tuple[Bearer, str]]:
    """Start an app in a sandbox with an agent's token, and open its port."""
    agent = mint(host, policy="trusted", name=name)
    session_id = agent.session(isolation="sandbox", name=name, **({"kernel_name": kernel_name} if kernel_name else {}))
    started = agent.run(session_id, code).json()
    assert started["state"] == "ok", started
    open_port(agent, session_id)
    yield agent, session_id
    agent.call("DELETE", f"/sessions/{session_id}")


def open_from_panel(panel: Panel, name: str) -> Page:
    """Open the port of a session as a person does."""
    button = panel.unfold(name).get_by_role("button", name="Open", exact=True)
    with panel.page.context.expect_page() as opened:
        button.click()
    return opened.value


def results_of(app: Page) -> dict[str, str]:
    """Return what came of each try of the hostile page."""
    app.wait_for_function("() => window.results !== undefined")
    results: dict[str, str] = app.evaluate("() => window.results")
    return results


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_hostile_app_cannot_touch_jupyters_origin(
    host: Host, panel: Panel, new_page: Callable[..., Page], name: str
) -> None:
    jupyter = f"http://{name}:{host.info.port}/user/probe/"
    code = HOSTILE_APP % (HOSTILE_PAGE.replace("JUPYTER", jupyter), PORT)
    owner = owner_of(host)
    with running_app(host, code, f"hostile {name}") as (agent, session_id):
        if name == "127.0.0.1":
            app = open_from_panel(panel, f"hostile {name}")
        else:
            app = new_page()
            app.goto(f"{jupyter}api/status?token={host.owner.token}")
            app.goto(f"{jupyter}tree?token={host.owner.token}")
            app.goto(open_port(owner, session_id)["browser_url"])
        cookies = app.context.cookies(jupyter)
        assert {"_xsrf"} < {str(cookie["name"]) for cookie in cookies}  # the browser is logged in
        before = owner.call("GET", "/sessions?ended=true").json()["sessions"]
        results = results_of(app)
        assert len(results) >= 20
        assert {what: came for what, came in results.items() if not came.startswith("refused")} == {}
        assert app.evaluate("() => window.opener") is None
        assert {c["name"]: c["value"] for c in app.context.cookies(jupyter)} == {c["name"]: c["value"] for c in cookies}
        after = owner.call("GET", "/sessions?ended=true").json()["sessions"]
        assert [each["id"] for each in after] == [each["id"] for each in before]
        seen = json.dumps(agent.call("GET", f"/sessions/{session_id}/ports/{PORT}/seen").json())
        assert '"Sec-Websocket-Key"' in seen  # a WebSocket came, too
        for secret in [str(host.owner.token), agent.token, *(str(cookie["value"]) for cookie in cookies)]:
            assert secret not in seen
        assert "exec-port" not in seen and "Referer" not in seen


def test_panel_says_why_there_is_no_link(host: Host, panel: Panel) -> None:
    pattern = re.compile(r".*/exec/v1/sessions/[^/]+/ports(\?.*)?$")

    def without_link(route: Any) -> None:
        record = {"port": PORT, "url": "/", "browser_url": None, "browser_reason": "JupyterHub sends one host name"}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(record))

    with running_app(host, "1", "no link"):
        panel.page.route(pattern, without_link)
        item = panel.unfold("no link")
        expect(item.locator(".jex-Ports")).to_be_visible()
        assert violations(panel) == []
        item.get_by_role("button", name="Open", exact=True).click()
        expect(item.get_by_role("status")).to_contain_text("JupyterHub sends one host name")
        assert violations(panel) == []
        panel.page.unroute(pattern)
        if directory := os.environ.get("EXEC_TEST_PICTURES"):
            panel.page.screenshot(path=f"{directory}/no-link.png")
        item.get_by_role("button", name="Close", exact=True).click()
        expect(item.locator(".jex-Ports")).to_have_count(0)


@only_in_full
def test_streamlit_app_is_used_from_the_panel(host: Host, panel: Panel) -> None:
    python = os.environ["EXEC_TEST_STREAMLIT"]
    if not (host.home / "jupyter_data_dir" / "kernels" / "streamlit").exists():
        add_kernelspec(host.home, "streamlit", "local-provisioner", python)
    with running_app(host, STREAMLIT_START, "streamlit", "streamlit") as (agent, session_id):
        wait = "import time, urllib.request\nfor _ in range(300):\n  try:\n    urllib.request.urlopen("
        wait += f"'http://127.0.0.1:{PORT}/_stcore/health').read(); break\n  except OSError: time.sleep(0.1)"
        assert agent.run(session_id, wait).json()["state"] == "ok"
        app = open_from_panel(panel, "streamlit")
        expect(app.get_by_text("The button was clicked 0 times")).to_be_visible()
        for number in (1, 2):
            app.get_by_role("button", name="Count").click()
            expect(app.get_by_text(f"The button was clicked {number} times")).to_be_visible()
        app.locator("input[type=file]").set_input_files(
            {"name": "data.txt", "mimeType": "text/plain", "buffer": b"uploaded through the port"}
        )
        expect(app.get_by_text("The file says: uploaded through the port")).to_be_visible()
        if directory := os.environ.get("EXEC_TEST_PICTURES"):
            app.screenshot(path=f"{directory}/streamlit.png")
            panel.page.screenshot(path=f"{directory}/panel.png")
        agent.call("DELETE", f"/sessions/{session_id}/ports/{PORT}")
        app.reload()
        expect(app.get_by_text("This address belongs to an app")).to_be_visible()
