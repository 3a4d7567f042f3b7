"""A second Jupyter Server whose kernels are ours, driven by its own REST and WebSocket API. Runs with each commit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import websocket

from tests.standard_clients.scoped_token import AFTER, ScopedToken

_OWN_TOKEN = "of-the-second-server"
_START_SECONDS = 60.0
_OFF = dict.fromkeys(("jupyter_exec_ext", "jupyterlab", "jupyter_lsp", "notebook_shim"), False)


class SecondServer:
    """The second server, as its own clients see it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._address = f"127.0.0.1:{port}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"token {_OWN_TOKEN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self._address}/api{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def connect(self, kernel_id: str) -> Kernel:
        url = f"ws://{self._address}/api/kernels/{kernel_id}/channels?session_id={uuid.uuid4().hex}"
        return Kernel(websocket.create_connection(url, timeout=60, header={"Authorization": f"token {_OWN_TOKEN}"}))


class Kernel:
    """A kernel's WebSocket at the second server."""

    def __init__(self, connection: websocket.WebSocket) -> None:
        self.connection = connection

    def send(self, code: str) -> str:
        header = {"msg_id": uuid.uuid4().hex, "session": "s", "msg_type": "execute_request", "version": "5.3"}
        header |= {"username": "", "date": ""}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        self.connection.send(json.dumps({**message, "buffers": []}))
        return header["msg_id"]

    def outputs(self, msg_id: str) -> list[str]:
        """Return the texts of a run, and the name of its error."""
        texts = []
        while True:
            message = json.loads(self.connection.recv())
            kind, content = message["header"]["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            if kind == "stream":
                texts.append(content["text"])
            elif kind == "execute_result":
                texts.append(content["data"]["text/plain"])
            elif kind == "error":
                texts.append(content["ename"])
            elif kind == "status" and content["execution_state"] == "idle":
                return texts

    def run(self, code: str) -> list[str]:
        return self.outputs(self.send(code))


@pytest.fixture
def second(token: ScopedToken, entered: Callable[[str], str], tmp_path: Path) -> Iterator[SecondServer]:
    setting, *command = entered("Jupyter Server as a gateway's client").split()
    name, _, value = setting.partition("=")
    assert value == "TOKEN" and command[:2] == ["jupyter", "server"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [*command[2:], f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--allow-root", "--no-browser"]
    options += [f"--IdentityProvider.token={_OWN_TOKEN}", f"--ServerApp.jpserver_extensions={_OFF}"]
    homes = {"HOME": str(tmp_path), **{f"JUPYTER_{each}_DIR": str(tmp_path) for each in ("CONFIG", "DATA", "RUNTIME")}}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *options],
            env={**os.environ, **homes, name: token.text},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    server = SecondServer(process, port)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with suppress(urllib.error.URLError):
                server.call("GET", "/status")
                break
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        yield server
    finally:
        process.kill()  # its kernels are not here, and it would try to end them with a token that has ended
        process.wait(20)


def test_second_server_runs_its_kernels_as_sessions(token: ScopedToken, second: SecondServer) -> None:
    assert "python3" in second.call("GET", "/kernelspecs")["kernelspecs"]
    kernel_id = second.call("POST", "/kernels", {"name": "python3"})["id"]
    with closing((kernel := second.connect(kernel_id)).connection):
        assert kernel.run("n = 20\nprint('made')") == ["made\n"]
        assert kernel.run("n + 1") == ["21"]
        assert kernel.run("1 / 0") == ["ZeroDivisionError"]
        assert token.executions() == [("n = 20\nprint('made')", "ok"), ("n + 1", "ok"), ("1 / 0", "error")]
        running = kernel.send("import time; print('begun'); time.sleep(60)")
        while r"begun\n" not in kernel.connection.recv():  # as it is printed; the code comes back, too
            pass
        second.call("POST", f"/kernels/{kernel_id}/interrupt")
        assert kernel.outputs(running) == ["KeyboardInterrupt"]
        second.call("POST", f"/kernels/{kernel_id}/restart")
    with closing((kernel := second.connect(kernel_id)).connection):
        assert kernel.run("n") == ["NameError"]
    assert [each["id"] for each in second.call("GET", "/kernels")] == [kernel_id]
    other = second.call("POST", "/sessions", {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "python3"}})
    second.call("DELETE", f"/sessions/{other['id']}")
    with closing((kernel := second.connect(kernel_id)).connection):
        # The second server keeps its client's connection, and connects to ours again and again.
        kernel.connection.settimeout(2)
        token.check_end(lambda: kernel.run(AFTER), (websocket.WebSocketTimeoutException,))
    with pytest.raises(urllib.error.HTTPError):
        second.call("POST", "/kernels", {"name": "python3"})
