"""The executor inside AutoGen 0.2 and ag2 0.x: an agent's code is run, with a script in the place of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import autogen
import pytest
from autogen.coding.base import CodeBlock, CodeExecutor, IPythonCodeResult
from autogen.coding.factory import CodeExecutorFactory
from autogen.coding.jupyter import JupyterConnectionInfo as TheirConnectionInfo

import jupyter_exec_ext
from jupyter_exec_ext import ExecClient, LocalJupyterServer
from jupyter_exec_ext.adapters.autogen02 import JupyterCodeExecutor
from jupyter_exec_ext.models import ExecutionState
from tests.adapters.doorbell import Doorbell, last_execution

PICTURE = "from IPython.display import Image, display\ndisplay(Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(60)))"


@pytest.fixture
def executor(local_server: LocalJupyterServer, tmp_path: Path) -> Iterator[JupyterCodeExecutor]:
    with JupyterCodeExecutor(local_server, timeout=30, output_dir=tmp_path) as executor:
        yield executor


def agent_with(executor: Any) -> Any:
    return autogen.ConversableAgent(
        "runner", llm_config=False, code_execution_config={"executor": executor}, human_input_mode="NEVER"
    )


def reply_to(agent: Any, *codes: str) -> str:
    """Return what an agent answers to a message with code in it."""
    content = "\n\n".join(f"```python\n{code}\n```" for code in codes)
    reply: str = agent.generate_reply([{"role": "user", "content": content}])
    return reply


def python(*codes: str) -> list[CodeBlock]:
    return [CodeBlock(code=code, language="python") for code in codes]


def test_class_is_an_autogen_executor(executor: JupyterCodeExecutor) -> None:
    assert isinstance(executor, CodeExecutor)
    assert CodeExecutorFactory.create({"executor": executor}) is executor


def test_results_are_autogens_records(executor: JupyterCodeExecutor, tmp_path: Path) -> None:
    result = executor.execute_code_blocks(python("print(1)", PICTURE))
    assert isinstance(result, IPythonCodeResult)
    assert result.model_dump()["exit_code"] == 0
    (path,) = result.output_files
    assert Path(path).parent == tmp_path
    assert result.output == f"1\nImage data saved to {path}"
    failed = executor.execute_code_blocks(python("print('before')\n1/0"))
    assert failed.exit_code == 1
    assert failed.output.startswith("before\n")
    assert "ZeroDivisionError: division by zero" in failed.output


def test_an_agent_keeps_its_state_from_message_to_message(executor: JupyterCodeExecutor) -> None:
    agent = agent_with(executor)
    assert reply_to(agent, "x = 20", "print(x + 1)") == "exitcode: 0 (execution succeeded)\nCode output: 21\n"
    assert reply_to(agent, "x + 2") == "exitcode: 0 (execution succeeded)\nCode output: 22"
    assert reply_to(agent, "y").startswith("exitcode: 1 (execution failed)\nCode output: ")


def test_the_executor_without_an_adapter_is_accepted_as_well(local_server: LocalJupyterServer) -> None:
    with jupyter_exec_ext.JupyterCodeExecutor(local_server) as plain:
        assert isinstance(plain, CodeExecutor)
        assert reply_to(agent_with(plain), "print(6 * 7)") == "exitcode: 0 (execution succeeded)\nCode output: 42\n"


def test_server_options_choose_the_server(local_server: LocalJupyterServer, tmp_path: Path) -> None:
    info = local_server.connection_info
    theirs = TheirConnectionInfo(host=info.host, use_https=False, port=info.port, token=info.token)
    for server, token in (
        (info, None),
        (info.url, info.token),
        (f"{info.url}?token={info.token}", None),
        (theirs, None),
    ):
        with JupyterCodeExecutor(server, output_dir=tmp_path, token=token) as executor:
            assert executor.execute_code_blocks(python("print(1)")).output == "1\n"
            assert str(info.token) not in repr(executor)


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.mark.parametrize(
    ("code", "language"),
    [("!pip install pip", "python"), ("pip install pip", "sh"), ("%pip install pip", "python")],
)
def test_successful_pip_install_prints_nothing(executor: JupyterCodeExecutor, code: str, language: str) -> None:
    result = executor.execute_code_blocks([CodeBlock(code=code, language=language)])
    assert (result.exit_code, "Requirement already satisfied" in result.output) == (0, False)


def test_a_shell_block_of_ipythons_commands_runs(executor: JupyterCodeExecutor) -> None:
    block = CodeBlock(code='!echo "hello world!"', language="bash")
    assert executor.execute_code_blocks([block]).output.strip() == "hello world!"


def test_an_agents_code_calls_functions(local_server: LocalJupyterServer, tmp_path: Path) -> None:
    with JupyterCodeExecutor(
        local_server, output_dir=tmp_path, functions=[double], functions_module="tools"
    ) as executor:
        agent = agent_with(executor)
        assert "def double(number: int) -> int:" in executor.format_functions_for_prompt()
        for code in ("import tools; print(tools.double(21))", "print(double(21))"):
            assert reply_to(agent, code).endswith("Code output: 42\n")
        executor.restart()
        assert reply_to(agent, "print(double(21))").endswith("Code output: 42\n")


def test_close_ends_it_as_in_all_adapters(executor: JupyterCodeExecutor, client: ExecClient) -> None:
    executor.execute_code_blocks(python("1"))
    executor.close()
    assert client.list_sessions() == []


def test_a_wrong_server_is_a_value_error_as_autogens(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be a JupyterConnectable or JupyterConnectionInfo"):
        JupyterCodeExecutor(42, output_dir=tmp_path)  # type: ignore[arg-type]


def test_ctrl_c_stops_the_code_and_not_the_session(
    executor: JupyterCodeExecutor, client: ExecClient, doorbell: Doorbell
) -> None:
    agent = agent_with(executor)
    reply_to(agent, "kept = 1")
    with doorbell.interrupts_this_thread():
        reply_to(agent, doorbell.code)
    assert last_execution(client, executor._session.id).state is ExecutionState.CANCELLED
    assert reply_to(agent, "print(kept)").endswith("1\n")


def test_the_conversation_of_the_example(run_example: Callable[[str], str]) -> None:
    printed = run_example("autogen02_agent")
    assert "code_writer (to code_executor_agent)" in printed
    assert printed.count("Code output: 377") >= 2  # as it was said, and in the result of the chat
    assert "exitcode: 0 (execution succeeded)" in printed
