"""Servers with and without our API, and executors on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import CodeBlock, JupyterCodeExecutor
from tests.hosts import Host, running_host


def python(*codes: str) -> list[CodeBlock]:
    return [CodeBlock(code, "python") for code in codes]


@pytest.fixture(scope="session")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Jupyter Server without our API."""
    home = tmp_path_factory.mktemp("plain")
    with running_host("server-base-url", home, "--ExecExtensionApp.enabled=False") as host:
        yield host


@pytest.fixture(params=["server", "gateway", "plain server"])
def server(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = request.getfixturevalue("plain_server") if request.param == "plain server" else hosts[request.param]
    return started


@pytest.fixture
def executor(server: Host, tmp_path: Path) -> Iterator[JupyterCodeExecutor]:
    with JupyterCodeExecutor(server.info, timeout=20, output_dir=tmp_path) as executor:
        yield executor
