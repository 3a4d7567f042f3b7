"""smolagents' own functions for kernels: the one that starts a kernel, and the one that runs code by its WebSocket."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import websocket
from smolagents import AgentError
from smolagents.default_tools import FinalAnswerTool
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import (
    RemotePythonExecutor,
    _create_kernel_http,
    _websocket_run_code_raise_errors,
)

from tests.standard_clients.scoped_token import AFTER, ScopedToken

LOGGER = AgentLogger(level=LogLevel.OFF)


class Remote(RemotePythonExecutor):
    """smolagents' base class, connected as its `DockerExecutor` connects: the token is in the URLs."""

    def __init__(self, url: str) -> None:
        super().__init__([], LOGGER)
        kernels, _, query = url.partition("?")
        self.ws_url = f"ws{kernels.removeprefix('http')}/{_create_kernel_http(url, LOGGER)}/channels?{query}"

    def run_code_raise_errors(self, code: str) -> Any:
        with closing(websocket.create_connection(self.ws_url)) as socket:
            return _websocket_run_code_raise_errors(code, socket, LOGGER)


@pytest.fixture
def url(token: ScopedToken, entered: Callable[[str], str]) -> str:
    return entered("smolagents' functions for kernels").replace("TOKEN", token.text)


@pytest.fixture
def remote(url: str) -> Remote:
    return Remote(url)


def test_runs_have_state_output_errors_and_a_final_answer(token: ScopedToken, remote: Remote) -> None:
    remote.send_tools({"final_answer": FinalAnswerTool()})
    remote.send_variables({"n": 20})
    assert remote("print('made')").logs == "made\n"
    output = remote("n + 1")
    assert (output.output, output.is_final_answer) == ("21", False)
    with pytest.raises(AgentError, match="ZeroDivisionError"):
        remote("1 / 0")
    answer = remote("final_answer({'n': n})")
    assert (answer.output, answer.is_final_answer) == ({"n": 20}, True)
    runs = token.executions()
    assert [code for code, _ in runs][-4:] == ["print('made')", "n + 1", "1 / 0", "final_answer({'n': n})"]
    assert [state for _, state in runs][-4:] == ["ok", "ok", "error", "error"]


def test_revoked_token_runs_no_more(token: ScopedToken, remote: Remote, url: str) -> None:
    assert remote("'before'").output == "'before'"
    token.check_end(lambda: remote(AFTER), (websocket.WebSocketBadStatusException, AgentError))
    with pytest.raises(RuntimeError, match="401"):
        Remote(url)
