"""AutoGen 0.2's executor, which takes a host and a port."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from autogen.coding import CodeBlock
from autogen.coding.jupyter import JupyterCodeExecutor, JupyterConnectionInfo
from websocket import WebSocketException

from tests.standard_clients.scoped_token import AFTER, ScopedToken

ROW = "AutoGen 0.2 `JupyterCodeExecutor`"


@pytest.fixture
def executor(token: ScopedToken, entered: Callable[[str], str]) -> JupyterCodeExecutor:
    names = {"JupyterConnectionInfo": JupyterConnectionInfo, "TOKEN": token.text}
    return JupyterCodeExecutor(eval(entered(ROW), names))


def run(executor: JupyterCodeExecutor, code: str) -> tuple[int, str]:
    result = executor.execute_code_blocks([CodeBlock(language="python", code=code)])
    return result.exit_code, result.output.strip()


def test_runs_have_state_output_and_errors(token: ScopedToken, executor: JupyterCodeExecutor) -> None:
    assert run(executor, "n = 20\nprint('made')") == (0, "made")
    assert run(executor, "n + 1") == (0, "21")
    code, output = run(executor, "1 / 0")
    assert code == 1 and "ZeroDivisionError: division by zero" in output
    assert token.executions() == [("n = 20\nprint('made')", "ok"), ("n + 1", "ok"), ("1 / 0", "error")]
    executor.restart()
    code, output = run(executor, "n")
    assert code == 1 and "NameError" in output
    executor.stop()
    assert token.sessions() == []


def test_revoked_token_runs_no_more(token: ScopedToken, executor: JupyterCodeExecutor) -> None:
    assert run(executor, "'before'") == (0, "'before'")
    # A close frame is an empty text to it, which is no JSON.
    token.check_end(lambda: run(executor, AFTER), (WebSocketException, ValueError, OSError))
    with pytest.raises(KeyError):
        JupyterCodeExecutor(executor._connection_info)
