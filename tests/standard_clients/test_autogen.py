"""The client part of autogen-ext's `DockerJupyterCodeExecutor`, which takes a host and a port; no Docker is used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker_jupyter import DockerJupyterCodeExecutor
from autogen_ext.code_executors.docker_jupyter._jupyter_server import JupyterConnectionInfo
from websockets.exceptions import ConnectionClosed

from tests.standard_clients.scoped_token import AFTER, ScopedToken

ROW = "autogen-ext `DockerJupyterCodeExecutor`"


@pytest.fixture
def executor(token: ScopedToken, entered: Callable[[str], str]) -> DockerJupyterCodeExecutor:
    names = {"JupyterConnectionInfo": JupyterConnectionInfo, "TOKEN": token.text}
    return DockerJupyterCodeExecutor(eval(entered(ROW), names))


async def run(executor: DockerJupyterCodeExecutor, code: str) -> tuple[int, str]:
    result = await executor.execute_code_blocks([CodeBlock(language="python", code=code)], CancellationToken())
    return result.exit_code, result.output.strip()


async def test_runs_have_state_output_and_errors(token: ScopedToken, executor: DockerJupyterCodeExecutor) -> None:
    async with executor:
        assert await run(executor, "n = 20\nprint('made')") == (0, "made")
        assert await run(executor, "n + 1") == (0, "21")
        code, output = await run(executor, "1 / 0")
        assert code == 1 and "ZeroDivisionError: division by zero" in output
        assert token.executions() == [("n = 20\nprint('made')", "ok"), ("n + 1", "ok"), ("1 / 0", "error")]
        await executor.restart()
        code, output = await run(executor, "n")
        assert code == 1 and "NameError" in output
    assert token.sessions() == []


def test_revoked_token_runs_no_more(token: ScopedToken, executor: DockerJupyterCodeExecutor) -> None:
    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(executor.start())
        assert loop.run_until_complete(run(executor, "'before'")) == (0, "'before'")
        token.check_end(lambda: loop.run_until_complete(run(executor, AFTER)), (ConnectionClosed,))
