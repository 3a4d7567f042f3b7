"""jupyter-kernel-client: its class, and its command at a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from jupyter_kernel_client import JupyterKernelClient
from requests import HTTPError
from websocket import WebSocketException

from tests.standard_clients.scoped_token import AFTER, ScopedToken


@pytest.fixture
def kernel(token: ScopedToken, entered: Callable[[str], str]) -> Iterator[JupyterKernelClient]:
    names = {"JupyterKernelClient": JupyterKernelClient, "TOKEN": token.text}
    kernel = eval(entered("jupyter-kernel-client"), names)
    kernel.start()
    yield kernel
    kernel.stop(shutdown_kernel=False)
    kernel._manager.refresh_model = kernel._manager.shutdown_kernel = lambda **_: None  # what is left for its `__del__`


def test_runs_have_state_output_and_errors(token: ScopedToken, kernel: JupyterKernelClient) -> None:
    printed = kernel.execute("n = 20\nprint('made')")
    assert printed["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "made\n"}]
    shown = kernel.execute("n + 1")
    assert shown["status"] == "ok" and shown["outputs"][0]["data"] == {"text/plain": "21"}
    failed = kernel.execute("1 / 0")
    assert failed["status"] == "error" and failed["outputs"][0]["ename"] == "ZeroDivisionError"
    assert token.executions() == [("n = 20\nprint('made')", "ok"), ("n + 1", "ok"), ("1 / 0", "error")]
    assert kernel.is_alive() and kernel.last_activity is not None
    assert kernel.kernel_info["status"] == "ok"
    answered = kernel.execute(
        "input('who? ')", allow_stdin=True, stdin_hook=lambda _: kernel._manager.client.input("me")
    )
    assert answered["outputs"][0]["data"] == {"text/plain": "'me'"}


def test_kernel_can_be_interrupted_restarted_and_ended(token: ScopedToken, kernel: JupyterKernelClient) -> None:
    kernel.execute("n = 20")
    threading.Timer(1, kernel.interrupt).start()
    stopped = kernel.execute("import time; time.sleep(60)")
    assert stopped["outputs"][-1]["ename"] == "KeyboardInterrupt"
    kernel.restart()
    assert kernel.execute("n")["outputs"][0]["ename"] == "NameError"
    kernel.stop(shutdown_kernel=True)
    assert token.sessions() == []


def test_revoked_token_runs_no_more(token: ScopedToken, kernel: JupyterKernelClient) -> None:
    assert kernel.execute("'before'")["status"] == "ok"
    token.check_end(lambda: kernel.execute(AFTER, timeout=5), (TimeoutError, WebSocketException, OSError))
    with pytest.raises(HTTPError, match="401"):
        kernel.is_alive()
