"""Ports by both clients and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_exec_ext.client import AsyncExecClient, ExecClient
from jupyter_exec_ext.errors import PortNotFound
from tests.support.bearers import owner_of
from tests.support.hosts import Host, clean_environment
from tests.support.port_apps import PORT, enter, start_echo_app

pytestmark = pytest.mark.needs("sandbox")


def test_client_opens_lists_and_closes_a_port(hosts: Any) -> None:
    host: Host = hosts["server"]
    with ExecClient(host.info) as client, client.session(isolation="sandbox") as session:
        start_echo_app(owner_of(host), session.id)
        opened = session.open_port(PORT)
        assert requests.get(f"{opened.url}x", headers=host.info.auth_headers, timeout=30).json()["uri"] == "/x"
        assert opened.browser_url is not None and opened.browser_url not in repr(opened)
        assert enter(owner_of(host), opened.browser_url).get("/y").json()["uri"] == "/y"
        assert [(port.port, port.browser_url) for port in session.list_ports()] == [(PORT, None)]
        assert session.refresh().open_ports == (PORT,)
        session.close_port(PORT)
        with pytest.raises(PortNotFound):
            session.close_port(PORT)
        assert session.refresh().open_ports == ()


async def test_asynchronous_client_opens_a_port(hosts: Any) -> None:
    host: Host = hosts["server"]
    async with AsyncExecClient(host.info) as client, client.session(isolation="sandbox") as session:
        opened = await session.open_port(PORT)
        assert opened.url == f"{host.info.url}exec/v1/sessions/{session.id}/ports/{PORT}/"
        assert [port.port for port in await session.list_ports()] == [PORT]
        await session.close_port(PORT)


def test_command_prints_both_addresses_and_closes(hosts: Any, tmp_path: Any) -> None:
    host: Host = hosts["server"]
    with ExecClient(host.info) as client, client.session(isolation="sandbox", name="app") as session:

        def run(*arguments: str) -> str:
            program = str(Path(sys.executable).parent / "jupyter-exec")
            command = [program, "session", "port", session.id, str(PORT)]
            env = clean_environment(tmp_path, JUPYTER_TOKEN=str(host.info.token))
            done = subprocess.run(
                [*command, "--server", host.info.url, *arguments], env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert f"ports/{PORT}/\n" in run() and session.refresh().open_ports == (PORT,)
        assert json.loads(run("--json"))["browser_url"].startswith(f"http://p{PORT}-")
        assert run("--close") == ""
        assert session.refresh().open_ports == ()
