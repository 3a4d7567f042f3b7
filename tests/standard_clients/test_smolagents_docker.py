"""smolagents' `DockerExecutor`, with the page's image, in which the token that it chooses is a scoped one."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from smolagents import AgentError, DockerExecutor
from smolagents.default_tools import FinalAnswerTool
from smolagents.monitoring import AgentLogger, LogLevel

from tests.standard_clients.client_table import read_table


@pytest.fixture(scope="module")
def executor() -> Iterator[Any]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    names = {"DockerExecutor": partial(DockerExecutor, port=port), "logger": AgentLogger(level=LogLevel.ERROR)}
    executor = eval(read_table()["smolagents `DockerExecutor`"].entered, names)
    yield executor
    executor.cleanup()


def call(executor: Any, method: str, path: str) -> Any:
    token = executor.ws_url.partition("token=")[2]
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    data = b"{}" if method == "POST" else None
    request = urllib.request.Request(f"{executor.base_url}/{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def test_runs_are_executions_of_a_session(executor: Any) -> None:
    executor.send_tools({"final_answer": FinalAnswerTool()})
    executor.send_variables({"n": 20})
    assert executor("print('made')").logs == "made\n"
    assert executor("n + 1").output == "21"
    with pytest.raises(AgentError, match="ZeroDivisionError"):
        executor("1 / 0")
    answer = executor("final_answer({'n': n})")
    assert (answer.output, answer.is_final_answer) == ({"n": 20}, True)
    (session,) = call(executor, "GET", "exec/v1/sessions")["sessions"]
    runs = call(executor, "GET", f"exec/v1/sessions/{session['id']}/executions")["executions"]
    assert [run["code"] for run in runs][-4:] == ["print('made')", "n + 1", "1 / 0", "final_answer({'n': n})"]


def test_its_token_is_not_the_owners(executor: Any) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        call(executor, "POST", "exec/v1/tokens")


def test_nothing_is_left_after_its_end(executor: Any) -> None:
    executor.cleanup()
    with pytest.raises(urllib.error.URLError, match="refused"):
        call(executor, "GET", "exec/v1/sessions")
