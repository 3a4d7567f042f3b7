"""The servers that an executor can be pointed at by a URL: with our API and without, Jupyter Servers and gateways."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_exec_ext import CodeBlock, JupyterCodeExecutor, JupyterConnectionInfo
from jupyter_exec_ext.client.sync.standard_session import StandardExecSession
from jupyter_exec_ext.errors import Forbidden, Unauthenticated
from tests.support import canaries
from tests.support.hosts import Host, clean_environment, free_port, running_host, stop
from tests.support.outside_parts import ENTERPRISE_GATEWAY_VARIABLE, require_part

_START_SECONDS = 60.0


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("plain-server")
    with running_host("server-base-url", home, "--ExecExtensionApp.enabled=False") as host:
        yield host


@pytest.fixture(scope="module")
def plain_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Kernel Gateway as it comes."""
    with _gateway(
        tmp_path_factory.mktemp("plain-gateway"), sys.executable, "kernel_gateway", "KernelGatewayApp"
    ) as host:
        yield host


@pytest.fixture(scope="module")
def enterprise_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    require_part("Enterprise Gateway")
    home = tmp_path_factory.mktemp("enterprise-gateway")
    python = os.environ[ENTERPRISE_GATEWAY_VARIABLE]
    with _gateway(home, python, "enterprise_gateway", "EnterpriseGatewayApp") as host:
        yield host


@contextmanager
def _gateway(home: Path, python: str, module: str, app: str) -> Iterator[Host]:
    token, port, log = secrets.token_hex(16), free_port(), home / "log"
    options = {"port": port, "ip": "127.0.0.1", "port_retries": 0}
    # An Enterprise Gateway starts kernels in others' names, and refuses its own user, root, without the last one.
    env = clean_environment(home, KG_AUTH_TOKEN=token, EG_AUTH_TOKEN=token, EG_UNAUTHORIZED_USERS="mallory")
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [python, "-m", module, *(f"--{app}.{name}={value}" for name, value in options.items())],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    host = Host(module, process, JupyterConnectionInfo("127.0.0.1", False, port, token), home, log)
    try:
        _wait_until_ready(host)
        yield host
    finally:
        stop(process)


def _wait_until_ready(host: Host) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            requests.get(f"{host.info.url}api", headers=host.info.auth_headers, timeout=5).raise_for_status()
            return
        except requests.RequestException:
            assert host.process.poll() is None and time.monotonic() < deadline, host.log_text()
            time.sleep(0.05)


@pytest.fixture(params=["server", "gateway", "plain_server", "plain_gateway", "enterprise_gateway"])
def place(request: pytest.FixtureRequest, hosts: Any) -> Host:
    name = request.param
    found: Host = hosts[name] if name in ("server", "gateway") else request.getfixturevalue(name)
    return found


def run(executor: JupyterCodeExecutor, *codes: str) -> tuple[int, str]:
    result = executor.execute_code_blocks([CodeBlock(code, "python") for code in codes])
    return result.exit_code, result.output


def test_url_with_token_is_enough_to_connect(place: Host, tmp_path: Path) -> None:
    """As a browser, or the server's log, shows it; the token then goes in a header and into no log."""
    front_end = "lab/tree/x.ipynb" if place.name.startswith("server") else ""
    url = f"{place.info.url}{front_end}?token={canaries.note(str(place.info.token))}"
    info = JupyterConnectionInfo.from_url(url)
    assert info == place.info
    with JupyterCodeExecutor(info, timeout=20, output_dir=tmp_path) as executor:
        assert isinstance(executor._session, StandardExecSession) == (place.name not in ("server", "gateway"))
        assert run(executor, "x = 'ü'", "print(x)") == (0, "ü\n")
        code, output = run(executor, "print(x)", "1 / 0", "print('not run')")
        assert (code, output.partition("\n")[0]) == (1, "ü")
        assert "ZeroDivisionError" in output and "not run" not in output
        executor.restart()
        assert "NameError" in run(executor, "print(x)")[1]
        shown = "from IPython.display import HTML, display; display(HTML('<b>1</b>'))"
        assert len(executor.execute_code_blocks([CodeBlock(shown, "python")]).output_files) == 1
    assert str(place.info.token) not in place.log_text()


def test_a_time_limit_stops_the_code_everywhere(place: Host) -> None:
    with JupyterCodeExecutor(place.info, timeout=1) as executor:
        run(executor, "x = 1")
        code, output = run(executor, "while True: pass")
        assert code == 1
        assert "its time limit of 1 s was reached" in output
        assert run(executor, "print(x)") == (0, "1\n")


def test_a_wrong_token_is_named_everywhere(place: Host) -> None:
    wrong = JupyterConnectionInfo.from_url(place.info.url, "wrong")
    with pytest.raises((Unauthenticated, Forbidden), match="token"):
        JupyterCodeExecutor(wrong)


def test_jupyter_servers_are_discovered_and_gateways_leave_no_trace_to_find_them_by(
    plain_server: Host, plain_gateway: Host
) -> None:
    directories = [host.home / "run" for host in (plain_server, plain_gateway)]
    assert [JupyterConnectionInfo.discover(directory) for directory in directories] == [[plain_server.info], []]
