"""The recipe of a JupyterHub for a class, run as written."""

from __future__ import annotations

import json
import os
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import websocket

from jupyter_exec_ext.client import ExecClient
from tests.docs.admin import SECONDS, page, two_machines
from tests.support.full import only_in_full
from tests.support.howto_pages import Recipe, Step, account
from tests.support.hubs import USER, HubHost, running_hub

PAGE = page("jupyterhub-class")
_SCRIPTS = sysconfig.get_path("scripts")

pytestmark = pytest.mark.timeout(420)


@only_in_full
@pytest.mark.needs("configurable-http-proxy")
def test_jupyterhub_for_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{_SCRIPTS}{os.pathsep}{os.environ['PATH']}")
    etc, desk = tmp_path / "etc", tmp_path / "users" / USER
    places = {
        "/opt/jupyterhub/bin/python": sys.executable,
        "/opt/jupyterhub/bin": _SCRIPTS,
        "/srv/jupyterhub": str(etc),
        "/dev/log": str(tmp_path / "log"),
        "/etc/profile.d/jupyter.sh": str(desk / ".profile"),
    }
    recipe = Recipe(PAGE, None, places)
    for path in (desk / ".profile", etc / "jupyterhub_config.py", etc / "jupyter_server_config.py"):
        recipe.write(str(path), path)
    with (etc / "jupyterhub_config.py").open("a") as added:
        added.write("c.Authenticator.admin_users = {'teacher'}\n")
    with system_log(tmp_path / "log") as logged, running_hub(tmp_path, recipe=etc / "jupyterhub_config.py") as hub:
        url = hub.info.url.removesuffix(f"user/{USER}/")
        addresses = {"https://hub.example.org/": url, "/user/ada/": f"/user/{USER}/"}
        recipe = Recipe(PAGE, None, {**places, **addresses})
        agent = tmp_path / "agent"
        recipe.write("agent.py", agent / "agent.py")
        ada = {"ada": terminal_environment(hub, desk)}
        with two_machines(ada, desk, account(agent), agent) as type_in:
            for step in recipe.steps():
                if step.line.startswith("jupyter exec audit"):
                    restart(hub)  # with the student's own configuration there
                    assert policies(hub) == {"class": 60.0}
                type_in(step)
            head = f"{logged[0]['seq']}:{logged[0]['digest']}"
            verify = f"jupyter exec audit verify --head {head} | head -n 1"
            type_in(Step("ada", verify, "the audit trail is whole: … records\n"))
            (agent / "admin.token").write_text(hub.token_of("teacher"))
            (agent / "admin.token").chmod(0o600)
            listing = next(line for line in recipe.commands() if line.endswith("--token-file admin.token"))
            type_in(Step("agent", f"{listing} --ended", "ID …\n…revoked…report agent\n"))
            (etc / "jupyter_server_config.py").write_text("c.ExecEngine.policies =\n")
            server = f"jupyterhub-singleuser --allow-root --config={etc}/jupyter_server_config.py"
            type_in(Step("ada", f"{server} 2>&1 | tail -n 1", "SyntaxError: invalid syntax\n"))
    assert [record["action"] for record in logged] == ["created", "revoked"]


@contextmanager
def system_log(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Listen where programs send their lines for the system's log; yield the records that have come."""
    records: list[dict[str, Any]] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))

        def listen() -> None:
            while line := listener.recv(65536):
                event = json.loads(line[line.index(b"{") : line.rindex(b"}") + 1])
                if "token/v1" in event["__schema__"]:
                    records.append(event)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield records
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(path))
        thread.join(SECONDS)


def terminal_environment(hub: HubHost, home: Path) -> dict[str, str]:
    """Return the environment of a terminal in the user's server."""
    headers = {"Authorization": f"token {hub.info.token}"}
    made = requests.post(f"{hub.info.url}api/terminals", headers=headers, timeout=SECONDS)
    made.raise_for_status()
    address = f"{hub.info.ws_url}terminals/websocket/{made.json()['name']}"
    connection = websocket.create_connection(address, header=headers, timeout=SECONDS)
    try:
        connection.send(json.dumps(["stdin", "env -0 > terminal.part && mv terminal.part terminal.env\r"]))
        found = home / "terminal.env"
        deadline = time.monotonic() + SECONDS
        while not found.exists():
            assert time.monotonic() < deadline, "the terminal does nothing"
            time.sleep(0.05)  # nothing tells of a file
    finally:
        connection.close()
    pairs = (entry.partition("=") for entry in found.read_text().split("\0") if entry)
    return {name: value for name, _, value in pairs}


def restart(hub: HubHost) -> None:
    hub.api("DELETE", f"/users/{USER}/server")
    deadline = time.monotonic() + SECONDS
    while hub.api("GET", f"/users/{USER}")["servers"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    hub.start_server(USER)


def policies(hub: HubHost) -> dict[str, Any]:
    with ExecClient(hub.info) as client:
        return {str(policy["name"]): policy["max_execution_seconds"] for policy in client.tokens.policies()}
