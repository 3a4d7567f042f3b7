"""The executor inside a `CodeAgent`, with a script in the place of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import PIL.Image
import pytest
from smolagents import ChatMessage, CodeAgent, LogLevel, Model, tool
from smolagents.local_python_executor import CodeOutput, PythonExecutor
from smolagents.models import MessageRole
from smolagents.serialization import SerializationError
from smolagents.utils import AgentError

from jupyter_exec_ext import ExecClient, JupyterConnectionInfo, LocalJupyterServer
from jupyter_exec_ext.adapters._tool_text import NotRun
from jupyter_exec_ext.adapters.smolagents import JupyterPythonExecutor
from jupyter_exec_ext.errors import ConnectionLost
from jupyter_exec_ext.models import ExecutionState
from tests.adapters.doorbell import Doorbell, last_execution

PICTURE = """\
import struct, zlib
from IPython.display import Image, display
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
header = struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0)
pixels = zlib.compress(bytes(8))
picture = Image(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
"""


class ScriptedModel(Model):
    """Answers with code, piece by piece, and keeps what it was told."""

    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="script")
        self.codes = iter(codes)
        self.told: list[str] = []

    def generate(self, messages: list[ChatMessage], **kwargs: Any) -> ChatMessage:
        self.told.append("".join(part["text"] for part in messages[-1].content))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go on\n<code>\n{next(self.codes)}\n</code>")


@tool
def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number.
    """
    return 2 * number


@pytest.fixture
def executor(local_server: LocalJupyterServer) -> Iterator[JupyterPythonExecutor]:
    with JupyterPythonExecutor(local_server) as executor:
        yield executor


def agent_with(executor: JupyterPythonExecutor, *codes: str) -> CodeAgent:
    return CodeAgent([double], ScriptedModel(*codes), executor=executor, verbosity_level=LogLevel.OFF, max_steps=5)


def test_class_is_an_autogen_executor(executor: JupyterPythonExecutor) -> None:
    assert isinstance(executor, PythonExecutor)
    assert executor.allow_pickle is False


def test_an_agent_gets_from_a_task_to_an_answer_with_tools_and_variables(executor: JupyterPythonExecutor) -> None:
    agent = agent_with(executor, "x = double(given)\nprint('doubled')\nx", "1/0", "final_answer(x + 1)")
    assert agent.run("Please.", additional_args={"given": 20}) == 41
    _, first, second = agent.model.told
    assert "Execution logs:\ndoubled\nLast output from code snippet:\n40" in first
    assert "ZeroDivisionError: division by zero" in second


@pytest.mark.parametrize(
    "answer", ["text", 3.5, None, [1, {"a": (2, 3)}], {1: "one"}, b"\x00\xff", {1, 2}, date(2026, 1, 2), 2 + 1j]
)
def test_final_answers_keep_their_type(executor: JupyterPythonExecutor, answer: Any) -> None:
    agent = agent_with(executor, f"import datetime\nfinal_answer({answer!r})")
    assert agent.run("Please.") == answer


def test_an_agent_that_goes_on_keeps_its_state(executor: JupyterPythonExecutor) -> None:
    agent = agent_with(executor, "x = 1\nfinal_answer(x)", "final_answer(double(x + 1))")
    assert agent.run("Begin.") == 1
    assert agent.run("Go on.", reset=False) == 4


def test_nothing_is_unpickled(executor: JupyterPythonExecutor) -> None:
    agent = agent_with(
        executor,
        "final_answer(object())",
        "class FinalAnswerException(Exception): pass\nraise FinalAnswerException('pickle:gASVAAAAAAA=')",
        "final_answer('safe')",
    )
    assert agent.run("Please.") == "safe"
    _, unserializable, pickled = agent.model.told
    assert "Cannot safely serialize object of type object" in unserializable
    assert "Pickle data rejected" in pickled
    with pytest.raises(Exception, match="Cannot safely serialize"):
        executor.send_variables({"thing": object()})


def test_managed_agents_are_refused(executor: JupyterPythonExecutor) -> None:
    helper = CodeAgent([], ScriptedModel(), name="helper", description="Helps.", verbosity_level=LogLevel.OFF)
    agent = CodeAgent([], ScriptedModel(), executor=executor, managed_agents=[helper], verbosity_level=LogLevel.OFF)
    with pytest.raises(ValueError, match="managed agents cannot be sent to a kernel: helper"):
        agent.run("Please.")


def test_pictures_are_pillow_images(executor: JupyterPythonExecutor) -> None:
    for shown in ("picture", "display(picture)"):
        output = executor(PICTURE + shown)
        assert isinstance(output.output, PIL.Image.Image)
        assert output.output.size == (3, 2)
    broken = executor("Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(60))")
    assert broken.output == "[image/png, 68 bytes, not shown]"
    assert executor("print('only text')") == CodeOutput(output=None, logs="only text\n", is_final_answer=False)


def test_a_fresh_kernel_gets_the_tools_and_variables_again(executor: JupyterPythonExecutor, client: ExecClient) -> None:
    agent = agent_with(executor, "x = 1", "import os; os._exit(1)", "final_answer((double(given), 'x' in globals()))")
    assert agent.run("Please.", additional_args={"given": 4}) == (8, False)
    assert "KernelDied" in agent.model.told[2]
    client.get_session(executor._session.open().id).close()
    with pytest.raises(AgentError, match="variables, imports and definitions are gone"):
        executor("1")
    assert executor("double(given)").output == "8"


@pytest.mark.parametrize(
    "failure", [NotRun("the queue is full"), ConnectionLost("gone"), KeyboardInterrupt()], ids=repr
)
def test_tools_and_variables_that_a_fresh_kernel_did_not_get_are_sent_before_other_code(
    executor: JupyterPythonExecutor, monkeypatch: pytest.MonkeyPatch, failure: NotRun | BaseException
) -> None:
    def fail(code: str) -> NotRun:
        if isinstance(failure, NotRun):
            return failure
        raise failure

    executor.send_variables({"given": 4})
    executor.send_tools({"double": double})
    with pytest.raises(AgentError, match="KernelDied"):
        executor("import os; os._exit(1)")
    with monkeypatch.context() as patch:
        patch.setattr(executor._session, "run", fail)
        with pytest.raises(AgentError if isinstance(failure, NotRun) else type(failure)):
            executor("double(given)")
    assert executor("double(given)").output == "8"


def test_variables_that_cannot_be_sent_are_not_sent_to_a_fresh_kernel(executor: JupyterPythonExecutor) -> None:
    executor.send_variables({"given": 4})
    with pytest.raises(SerializationError):
        executor.send_variables({"thing": object()})
    with pytest.raises(AgentError, match="KernelDied"):
        executor("import os; os._exit(1)")
    assert executor("given").output == "4"


def test_code_that_takes_too_long_is_stopped(local_server: LocalJupyterServer) -> None:
    with JupyterPythonExecutor(local_server, timeout_seconds=3) as executor:
        with pytest.raises(AgentError) as raised:
            executor("print('before', flush=True)\nwhile True: pass")
        assert raised.value.message.startswith("before\n")
        assert "Timeout: its time limit of 3 s was reached; the session's variables were kept" in raised.value.message
        assert executor("1").output == "1"


def test_ctrl_c_stops_the_code_and_not_the_session(
    executor: JupyterPythonExecutor, client: ExecClient, doorbell: Doorbell
) -> None:
    agent = agent_with(executor, "kept = 1", doorbell.code)
    with doorbell.interrupts_this_thread():
        agent.run("Please.")
    assert last_execution(client, executor._session.open().id).state is ExecutionState.CANCELLED
    assert executor("kept").output == "1"


def test_additional_imports_are_installed_or_raise(local_server: LocalJupyterServer) -> None:
    with JupyterPythonExecutor(local_server, additional_imports=["pip"]) as executor:
        executor.send_tools({})
        assert executor.installed_packages == ["pip"]
    with JupyterPythonExecutor(local_server, additional_imports=["no such package"]) as executor:
        with pytest.raises(AgentError, match="CalledProcessError"):
            executor.send_tools({})
        assert executor.installed_packages == []


def test_the_agent_ends_the_session_unless_it_was_there_before(
    client: ExecClient, local_server: LocalJupyterServer
) -> None:
    info = local_server.connection_info
    with client.session() as session:
        with agent_with(JupyterPythonExecutor(info.url, info.token), "final_answer(1)") as agent:
            agent.run("Please.")
            own = agent.python_executor._session.open().id
        with agent_with(JupyterPythonExecutor(info, session_id=session.id), "given = 1\nfinal_answer(1)") as agent:
            agent.run("Please.")
        assert session.run("print(given)").stdout == "1\n"
        assert {own, session.id} & {record.id for record in client.list_sessions()} == {session.id}


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "ended by the server"])
def test_new_session_gets_packages_tools_and_variables_again(
    local_server: LocalJupyterServer, client: ExecClient, is_closed: bool
) -> None:
    with JupyterPythonExecutor(local_server, additional_imports=["pip"]) as executor:
        executor.send_variables({"given": 4})
        executor.send_tools({"double": double})
        if is_closed:
            executor.close()
        else:
            client.get_session(executor._session.open().id).close()
            with pytest.raises(AgentError, match="variables, imports and definitions are gone"):
                executor("1")
        assert executor.installed_packages == []
        assert executor("double(given)").output == "8"
        assert executor.installed_packages == ["pip"]


def test_given_session_keeps_what_the_agent_has_changed_after_close(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    with client.session() as session, JupyterPythonExecutor(local_server, session_id=session.id) as executor:
        executor.send_variables({"given": 4})
        executor("given = 5")
        executor.close()
        assert executor("given").output == "5"


@pytest.mark.parametrize("name", ["close", "cleanup"])
def test_close_and_aclose_end_the_session(local_server: LocalJupyterServer, client: ExecClient, name: str) -> None:
    executor = JupyterPythonExecutor(local_server)
    executor("1")
    getattr(executor, name)()
    assert client.list_sessions() == []


def test_code_that_the_tokens_policy_refuses_is_an_error_of_the_step(restricted_server: JupyterConnectionInfo) -> None:
    with JupyterPythonExecutor(restricted_server) as executor:
        executor("x = 1")
        with pytest.raises(AgentError, match=r"Not run: .*allows 100 bytes of code, not 101"):
            executor("#" * 101)
        assert executor("x").output == "1"


def test_the_example_runs(run_example: Callable[[str], str]) -> None:
    assert "Fibonacci number 14 is 377." in run_example("smolagents_agent")
