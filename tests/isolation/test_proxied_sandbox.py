"""The way out of a sandbox: a port of its own, at which the server listens, and variables that lead programs there."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq.asyncio
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.isolation.common.launch_request import NETWORK_VARIABLE
from jupyter_exec_ext.isolation.sandbox.proxy_environment import CERTIFICATES, PROXY_PORT
from tests.support.kernel_answers import answer
from tests.support.kernelspecs import add_kernelspec

pytestmark = pytest.mark.needs("sandbox")
_ASK = f"""
import socket
with socket.create_connection(("127.0.0.1", {PROXY_PORT}), 20) as connection:
    print(connection.recv(100).decode())
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[AsyncKernelManager]:
    add_kernelspec(tmp_path, "boxed", "sandbox-provisioner")
    (tmp_path / "work").mkdir()
    with zmq.asyncio.Context() as context:
        yield AsyncKernelManager(kernel_name="boxed", connection_file=str(tmp_path / "kernel.json"), context=context)
        context.destroy(linger=0)


async def _start(manager: AsyncKernelManager, certificates: str | None) -> None:
    chosen = {} if certificates is None else {NETWORK_VARIABLE: certificates}
    work = str(Path(manager.connection_file).parent / "work")
    await manager.start_kernel(cwd=work, env={**os.environ, **chosen})


def _listener(manager: AsyncKernelManager) -> Any:
    return getattr(manager.provisioner, "network_listener")  # noqa: B009  # not every provisioner has one


def _reply(listener: socket.socket, text: bytes) -> None:
    """Answer the next connection with a text."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(text)

    threading.Thread(target=serve, daemon=True).start()


async def test_kernel_reaches_the_server_at_its_port_also_after_a_restart(manager: AsyncKernelManager) -> None:
    await _start(manager, "")
    first = _listener(manager)
    _reply(first, b"first")
    assert await answer(manager, _ASK) == "first\n"
    await manager.restart_kernel(now=True)
    second = _listener(manager)
    assert first.fileno() == -1 and second is not first
    _reply(second, b"second")
    assert await answer(manager, _ASK) == "second\n"
    await manager.shutdown_kernel(now=True)
    assert second.fileno() == -1


async def test_programs_find_the_port_and_certificates_in_variables(
    manager: AsyncKernelManager, tmp_path: Path
) -> None:
    (tmp_path / "certificates.pem").write_text("trusted")
    await _start(manager, str(tmp_path / "certificates.pem"))
    code = "import os; print(os.environ['https_proxy'], open(os.environ['SSL_CERT_FILE']).read())"
    assert await answer(manager, code) == f"http://127.0.0.1:{PROXY_PORT} trusted\n"
    assert await answer(manager, f"import os; print('{NETWORK_VARIABLE}' in os.environ)") == "False\n"
    await manager.shutdown_kernel(now=True)


async def test_kernel_without_rules_has_no_port(manager: AsyncKernelManager) -> None:
    await _start(manager, None)
    assert _listener(manager) is None
    code = (
        f"import os, socket; print(socket.socket().connect_ex(('127.0.0.1', {PROXY_PORT})), 'http_proxy' in os.environ)"
    )
    assert await answer(manager, code) == "111 False\n"
    code = f"import os; print(os.path.exists('{CERTIFICATES}'))"
    assert await answer(manager, code) == "False\n"
    await manager.shutdown_kernel(now=True)
