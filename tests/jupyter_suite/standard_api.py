"""Fixtures for Jupyter Server's own tests: their requests go to ``exec/jupyter/`` of a server, with a scoped token.

`python -m tests.jupyter_suite` puts this file beside the tests, as their ``conftest.py``, and has a server running.
Each test has a token of its own, and so begins without kernels.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from pytest_jupyter.pytest_tornasync import AsyncHTTPServerClient

#: Where the server is: ``port``, ``base_url``, the owner's ``token``, ``scopes``, ``data_dir`` with kernelspecs.
SERVER: dict[str, Any] = json.loads(os.environ["EXEC_TEST_SERVER"])
_URL = f"http://127.0.0.1:{SERVER['port']}{SERVER['base_url']}exec"


class Client(AsyncHTTPServerClient):  # type: ignore[misc]  # it has no types
    """The tests' HTTP client."""

    def get_url(self, path: str) -> str:
        return f"http://127.0.0.1:{SERVER['port']}{path}"

    async def fetch(self, path: str, **options: Any) -> Any:
        """Return an answer whose policy of contents is as below the server's own base URL.

        A server has one address for reports on it, and a Kernel Gateway has no such policy for any of its answers.
        """
        answer = await super().fetch(path, **options)
        name, report = "Content-Security-Policy", "api/security/csp-report"
        of_gateway = f"frame-ancestors 'self'; report-uri {SERVER['base_url']}{report}; default-src 'none'"
        policy = answer.headers.get(name, of_gateway if SERVER["is_gateway"] else "")
        answer.headers[name] = policy.replace(SERVER["base_url"] + report, f"{SERVER['base_url']}exec/jupyter/{report}")
        return answer


@pytest.fixture
def http_server_client(io_loop: Any) -> Iterator[Client]:
    async def make() -> Client:
        return Client()

    client: Client = io_loop.run_sync(make)
    yield client
    client.close()


@pytest.fixture
def jp_http_port() -> int:
    port: int = SERVER["port"]
    return port


@pytest.fixture
def jp_base_url() -> str:
    return f"{SERVER['base_url']}exec/jupyter/"


@pytest.fixture
def jp_auth_header() -> Iterator[dict[str, str]]:
    owner = {"Authorization": f"token {SERVER['token']}"}
    wanted = {"name": "jupyter_server's tests", "scopes": SERVER["scopes"]}
    made = requests.post(f"{_URL}/v1/tokens", json=wanted, headers=owner, timeout=60)
    made.raise_for_status()
    yield {"Authorization": f"token {made.json()['token']}"}
    requests.delete(f"{_URL}/v1/tokens/{made.json()['id']}", headers=owner, timeout=60).raise_for_status()


@pytest.fixture
def jp_serverapp() -> SimpleNamespace:
    """What tests read of the server's inside; they cannot set anything by it."""
    manager = SimpleNamespace(default_kernel_name="python3", get_kernel=lambda kernel_id: SimpleNamespace())
    return SimpleNamespace(kernel_manager=manager)


@pytest.fixture
def jp_data_dir() -> Iterator[Path]:
    """The server's own, where tests put kernelspecs."""
    directory = Path(SERVER["data_dir"])
    kernelspecs = directory / "kernels"
    before = set(kernelspecs.iterdir())
    yield directory
    for added in set(kernelspecs.iterdir()) - before:
        shutil.rmtree(added)


@pytest.fixture(autouse=True)
def jp_server_cleanup() -> None:
    """Leave the server as it is: it is not the tests' own."""
