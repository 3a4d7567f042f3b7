"""The recipes of ``docs/administrators.md``, run as written; only addresses, ports and paths are the test's."""

from __future__ import annotations

import configparser
import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import websocket

from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.engine.access.token_service import ATTEMPTS_AT_ONCE
from tests.docs.blocks import blocks
from tests.support.hosts import Host, free_port, wait_until_ready
from tests.support.howto_pages import Recipe, Step, account, approve, exec_last, serving, shells
from tests.support.hubs import USER, HubHost, running_hub
from tests.support.terminals import Terminal

PAGE = (Path(__file__).parent.parent / "docs" / "administrators.md").read_text()
_SCRIPTS = sysconfig.get_path("scripts")
_SECONDS = 60.0

pytestmark = pytest.mark.timeout(420)


def test_every_recipe_is_run_here() -> None:
    titles = [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")]
    assert titles == ["JupyterHub for a class", "A shared lab server", "A gateway for agents"]
    # What is not typed is a file, which the recipe's test puts where it belongs; `tests.docs` relies on that.
    files = {block.text.partition("\n")[0] for block in blocks("docs/administrators.md") if block.language != "console"}
    here = Path(__file__).read_text()
    assert len(files) == 9
    for first in files:
        assert Path(first.removeprefix("# ")).name in here, first


# --- a class -------------------------------------------------------------------------------------------------------


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
    recipe = Recipe(PAGE, "JupyterHub for a class", places)
    for path in (desk / ".profile", etc / "jupyterhub_config.py", etc / "jupyter_server_config.py"):
        recipe.write(str(path), path)
    with (etc / "jupyterhub_config.py").open("a") as added:
        added.write("c.Authenticator.admin_users = {'teacher'}\n")
    with system_log(tmp_path / "log") as logged, running_hub(tmp_path, recipe=etc / "jupyterhub_config.py") as hub:
        url = hub.info.url.removesuffix(f"user/{USER}/")
        addresses = {"https://hub.example.org/": url, "/user/ada/": f"/user/{USER}/"}
        recipe = Recipe(PAGE, "JupyterHub for a class", {**places, **addresses})
        recipe.write("agent.py", desk / "agent.py")
        people = {"ada": terminal_environment(hub, desk), "agent": account(tmp_path / "agent")}
        with shells(people, desk) as type_in:
            for step in recipe.steps():
                if step.line.startswith("jupyter exec audit"):
                    restart(hub)  # with the student's own configuration there
                    assert policies(hub) == {"class": 60.0}
                type_in(step)
            head = f"{logged[0]['seq']}:{logged[0]['digest']}"
            verify = f"jupyter exec audit verify --head {head} | head -n 1"
            type_in(Step("ada", verify, "the audit trail is whole: … records\n"))
            (desk / "admin.token").write_text(hub.token_of("teacher"))
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
        thread.join(_SECONDS)


def terminal_environment(hub: HubHost, home: Path) -> dict[str, str]:
    """Return the environment of a terminal in the user's server."""
    headers = {"Authorization": f"token {hub.info.token}"}
    made = requests.post(f"{hub.info.url}api/terminals", headers=headers, timeout=_SECONDS)
    made.raise_for_status()
    address = f"{hub.info.ws_url}terminals/websocket/{made.json()['name']}"
    connection = websocket.create_connection(address, header=headers, timeout=_SECONDS)
    try:
        connection.send(json.dumps(["stdin", "env -0 > terminal.part && mv terminal.part terminal.env\r"]))
        found = home / "terminal.env"
        deadline = time.monotonic() + _SECONDS
        while not found.exists():
            assert time.monotonic() < deadline, "the terminal does nothing"
            time.sleep(0.05)  # nothing tells of a file
    finally:
        connection.close()
    pairs = (entry.partition("=") for entry in found.read_text().split("\0") if entry)
    return {name: value for name, _, value in pairs}


def restart(hub: HubHost) -> None:
    hub.api("DELETE", f"/users/{USER}/server")
    deadline = time.monotonic() + _SECONDS
    while hub.api("GET", f"/users/{USER}")["servers"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    hub.start_server(USER)


def policies(hub: HubHost) -> dict[str, Any]:
    with ExecClient(hub.info) as client:
        return {str(policy["name"]): policy["max_execution_seconds"] for policy in client.tokens.policies()}


# --- a lab ---------------------------------------------------------------------------------------------------------


def test_a_shared_lab_server(tmp_path: Path) -> None:
    home, port = tmp_path / "lab", free_port()
    lab = account(home)
    recipe = Recipe(
        PAGE,
        "A shared lab server",
        {'"0.0.0.0"': '"127.0.0.1"', "lab.example.org:8888": f"127.0.0.1:{port}", "port = 8888": f"port = {port}"},
    )
    recipe.write("~/.jupyter/jupyter_server_config.py", home / ".jupyter" / "jupyter_server_config.py")
    steps = iter(recipe.steps())
    with shells({"lab": lab}, home) as type_in:
        type_in(next(steps))
    password = next(steps)
    with Terminal(["bash", "-c", f"exec {password.line}"], lab, home) as terminal:
        for question in password.shown.splitlines()[:2]:
            terminal.read_until(question)
            terminal.type("what they all know")
        assert terminal.process.wait(_SECONDS) == 0
    start = f"{next(steps).line}\n{next(steps).line}"
    assert start.endswith("\njupyter lab --no-browser")
    with serving(f"{start} --allow-root", lab, home, port) as host:
        host.info.token = (home / ".jupyter" / "token").read_text().strip()
        wait_until_ready(host)
        assert_the_password_opens_it(host)
        with ExecClient(host.info) as person, person.standard_session() as notebook:
            printed = notebook.run(recipe.file("in Bea's notebook")).stdout.strip()
            assert printed.endswith(f"/kernel-{notebook.id}.json")
            people = {"lab": lab, "bea": lab, "agent": account(tmp_path / "agent", KERNEL_ID=str(notebook.id))}
            with shells(people, home) as type_in:
                waiting: list[Step] = []
                for step in steps:
                    if "from the shell" in step.line:
                        waiting.append(step)
                    elif step.line.endswith("approve watch"):
                        approve(step, lambda: type_in(waiting[0]), lab, home)
                    else:
                        type_in(step)
            assert notebook.run("print(measurements)").stdout == "[3, 1, 4, 1]\n"


def assert_the_password_opens_it(host: Host) -> None:
    browser = requests.Session()
    browser.get(f"{host.info.url}login", timeout=_SECONDS)
    form = {"password": "what they all know", "_xsrf": str(browser.cookies["_xsrf"])}
    browser.post(f"{host.info.url}login", data=form, timeout=_SECONDS).raise_for_status()
    assert browser.get(f"{host.info.url}exec/v1/", timeout=_SECONDS).status_code == 200
    assert requests.get(f"{host.info.url}exec/v1/", timeout=_SECONDS).status_code == 401


# --- a gateway -----------------------------------------------------------------------------------------------------


@pytest.mark.needs("sandbox")
def test_a_gateway_for_agents(tmp_path: Path) -> None:
    srv, port = tmp_path / "srv", free_port()
    recipe = Recipe(
        PAGE,
        "A gateway for agents",
        {
            "/srv/agents": str(srv),
            "http://127.0.0.1:8888/": f"http://127.0.0.1:{port}/",
            "https://agents.example.org/": f"http://127.0.0.1:{port}/",
            "port = 8888": f"port = {port}",
        },
    )
    for name in ("jupyter_kernel_gateway_config.py", "policies.toml"):
        recipe.write(f"{srv}/{name}", srv / name)
    admin = account(tmp_path / "admin")
    steps = iter(recipe.steps())
    with shells({"admin": admin, "agent": account(tmp_path / "agent")}, srv) as type_in:
        type_in(next(steps))
        type_in(next(steps))
        start = f"{next(steps).line}\n{next(steps).line}"
        assert "\njupyter kernelgateway " in start
        assert_a_mistake_stops_it(start, admin, srv)
        with serving(start, admin, srv, port) as host:
            host.info.token = (srv / "owner.token").read_text().strip()
            wait_until_ready(host)
            for step in steps:
                type_in(step)
            assert_a_proxy_is_believed(host)
        events = [json.loads(line) for line in (srv / "audit.log").read_text().splitlines()]
        assert {"created", "rotated", "revoked"} <= {event["action"] for event in events}


def test_the_gateways_unit_starts_it(tmp_path: Path) -> None:
    """The unit is one that systemd understands, and what it starts, as it says, is the recipe's gateway."""
    srv, port = tmp_path / "srv", free_port()
    replaced = {"/srv/agents": str(srv), "/opt/agents/bin": _SCRIPTS, "port = 8888": f"port = {port}"}
    recipe = Recipe(PAGE, "A gateway for agents", replaced)
    for name in ("jupyter_kernel_gateway_config.py", "policies.toml"):
        recipe.write(f"{srv}/{name}", srv / name)
    (srv / "owner.token").write_text(secrets.token_hex(32))
    unit = recipe.file("/etc/systemd/system/agents-gateway.service")
    verify(unit, tmp_path / "agents-gateway.service")
    settings = configparser.ConfigParser(interpolation=None, strict=True)
    settings.optionxform = str  # type: ignore[assignment,method-assign]
    settings.read_string(unit)
    service = settings["Service"]
    name, _, value = service["Environment"].partition("=")
    env = {**account(tmp_path / "agents"), "PATH": "/usr/bin:/bin", name: value}
    with serving(service["ExecStart"], env, Path(service["WorkingDirectory"]), port) as host:
        host.info.token = (srv / "owner.token").read_text().strip()
        wait_until_ready(host)
        assert (
            requests.get(f"{host.info.url}exec/v1/", headers=host.info.auth_headers, timeout=_SECONDS).status_code
            == 200
        )
    (srv / "owner.token").unlink()
    done = subprocess.run(
        shlex.split(service["ExecStart"]), env=env, cwd=srv, capture_output=True, timeout=_SECONDS, check=False
    )
    assert done.returncode != 0, "without a token it lets everybody in"


def verify(unit: str, path: Path) -> None:
    """Have systemd look at a unit, where there is one."""
    path.write_text(unit)
    if shutil.which("systemd-analyze") is None:
        return
    command = ["systemd-analyze", "verify", "--man=no", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if path.name in line]
    assert (done.returncode, said) == (0, []), done.stdout + done.stderr


def assert_a_mistake_stops_it(start: str, env: Mapping[str, str], srv: Path) -> None:
    """Without the owner's token the gateway would let everybody in; with a mistake in a policy it must not start."""
    for name, broken in (("owner.token", None), ("policies.toml", "[reporter]\nmax_sesions = 1\n")):
        kept = (srv / name).read_text()
        (srv / name).unlink() if broken is None else (srv / name).write_text(broken)
        done = subprocess.run(
            ["bash", "-c", exec_last(start)], env=dict(env), cwd=srv, capture_output=True, timeout=_SECONDS, check=False
        )
        assert done.returncode not in (0, None), done.stderr
        (srv / name).write_text(kept)


def assert_a_proxy_is_believed(host: Host) -> None:
    """Wrong tokens from one address behind the proxy hold up no other; the name that it passes on is ours."""

    def come_from(address: str, name: str = "agents.example.org") -> int:
        headers = {"X-Forwarded-For": address, "Host": name, "Authorization": f"Bearer {new_token().text}"}
        return requests.get(f"{host.info.url}exec/v1/", headers=headers, timeout=_SECONDS).status_code

    assert [come_from("203.0.113.7") for _ in range(ATTEMPTS_AT_ONCE + 1)] == [401] * ATTEMPTS_AT_ONCE + [429]
    assert come_from("203.0.113.8") == 401
    assert come_from("203.0.113.8", "evil.example") == 403
