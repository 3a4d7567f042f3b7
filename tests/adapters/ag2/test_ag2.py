"""The environment and its tool inside ag2's agents, with a script in the place of the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from ag2 import Agent
from ag2.events import BinaryInput, TextInput, ToolCallEvent, ToolResultEvent
from ag2.testing import TestConfig
from ag2.tools.code import CodeEnvironment, CodeRunResult, SandboxCodeTool

from jupyter_exec_ext import ExecClient, LocalJupyterServer
from jupyter_exec_ext.adapters._tool_text import TOOL_DESCRIPTION
from jupyter_exec_ext.adapters.ag2 import JupyterCodeEnvironment
from jupyter_exec_ext.models import ExecutionState
from tests.adapters.doorbell import Doorbell, last_execution

PICTURE = "from IPython.display import Image, display\ndisplay(Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(60)))"


def call(code: str, language: str = "python") -> ToolCallEvent:
    return ToolCallEvent("run_code", arguments=json.dumps({"code": code, "language": language}))


def agent_with(tool: Any, *calls: ToolCallEvent) -> Any:
    return Agent("coder", config=TestConfig(*calls, "Done."), tools=[tool])


async def results_of(reply: Any) -> list[Any]:
    assert reply.body == "Done."
    return [event.result for event in await reply.history.get_events() if isinstance(event, ToolResultEvent)]


async def texts_of(reply: Any) -> list[str]:
    return [part.content for result in await results_of(reply) for part in result.parts]


@pytest.fixture
async def environment(local_server: LocalJupyterServer) -> AsyncIterator[JupyterCodeEnvironment]:
    async with JupyterCodeEnvironment(local_server) as environment:
        yield environment


async def test_class_is_an_ag2_code_environment(environment: JupyterCodeEnvironment) -> None:
    assert isinstance(environment, CodeEnvironment)
    assert SandboxCodeTool(environment).environment is environment
    assert await environment.run("print(1)", "python") == CodeRunResult(output="1\n", exit_code=0)


async def test_an_agent_runs_code_and_keeps_its_state(environment: JupyterCodeEnvironment) -> None:
    agent = agent_with(
        SandboxCodeTool(environment),
        call("x = 20"),
        call("print('hello')\nx + 1"),
        call("echo $((6*7))", "bash"),
        call("1/0"),
    )
    first, second, third, fourth = await texts_of(await agent.ask("Please run it."))
    assert (first, second, third) == ("(no output)", "hello\n21", "42\n")
    assert "ZeroDivisionError: division by zero" in fourth
    assert fourth.endswith("[exit code: 1]")


async def test_unsupported_language_is_reported(environment: JupyterCodeEnvironment) -> None:
    result = await environment.run("fn main() {}", "typescript")
    assert result.exit_code == 1
    assert result.output.startswith("Not run: ")


async def test_pictures_are_in_the_results_of_its_own_tool(
    environment: JupyterCodeEnvironment, client: ExecClient
) -> None:
    agent = agent_with(environment.tool(), call("x = 1"), call(f"print('look')\n{PICTURE}\nx + 1"))
    _, result = await results_of(await agent.ask("Please run it."))
    look, picture, value = result.parts
    assert isinstance(look, TextInput) and look.content == "look\n"
    assert isinstance(picture, BinaryInput) and picture.media_type == "image/png"
    assert picture.data.startswith(b"\x89PNG")
    assert value.content == "2"
    assert result.metadata["state"] == "ok"
    whole = await asyncio.to_thread(client.get_execution, result.metadata["execution_id"])
    assert whole.record.stdout == "look\n"


async def test_tool_description_reaches_the_model(environment: JupyterCodeEnvironment) -> None:
    (schema,) = await environment.tool().schemas(None)
    assert schema.function.name == "run_code"
    assert schema.function.description == f"{TOOL_DESCRIPTION}\nSupported languages: python, bash."
    assert schema.function.parameters["required"] == ["code"]


async def test_two_agents_may_share_a_session(environment: JupyterCodeEnvironment) -> None:
    await agent_with(SandboxCodeTool(environment), call("x = 1")).ask("Please run it.")
    assert await texts_of(await agent_with(environment.tool(), call("x")).ask("Please run it.")) == ["1"]


@pytest.mark.parametrize("own_tool", [True, False])
async def test_cancelling_the_agent_stops_the_code_and_not_the_session(
    environment: JupyterCodeEnvironment, client: ExecClient, doorbell: Doorbell, own_tool: bool
) -> None:
    tool = environment.tool() if own_tool else SandboxCodeTool(environment)
    asking = asyncio.create_task(agent_with(tool, call("kept = 1"), call(doorbell.code)).ask("Please run it."))
    await doorbell.wait_async()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    stopped = await asyncio.to_thread(last_execution, client, environment._session.open().id)
    assert stopped.state is ExecutionState.CANCELLED
    assert (await environment.run("kept", "python")).output == "1"


async def test_a_session_that_the_server_ended_is_replaced_and_the_model_is_told(
    environment: JupyterCodeEnvironment, client: ExecClient
) -> None:
    await environment.run("x = 1", "python")
    await asyncio.to_thread(client.get_session(environment._session.open().id).close)
    told, fresh = await texts_of(await agent_with(environment.tool(), call("x"), call("x")).ask("Please run it."))
    assert "variables, imports and definitions are gone" in told
    assert "NameError" in fresh


async def test_the_session_ends_with_the_environment_unless_it_was_there_before(
    client: ExecClient, local_server: LocalJupyterServer
) -> None:
    info = local_server.connection_info
    with client.session() as session:
        session.run("x = 5")
        async with JupyterCodeEnvironment(info.url, info.token, session_id=session.id) as guest:
            assert (await guest.run("x", "python")).output == "5"
        assert session.run("x").ok
        async with JupyterCodeEnvironment(info) as environment:
            await environment.run("1", "python")
            own = environment._session.open().id
            assert str(info.token) not in repr(environment)
        assert {own, session.id} & {record.id for record in client.list_sessions()} == {session.id}


@pytest.mark.parametrize("name", ["close", "aclose"])
async def test_close_and_aclose_end_the_session(
    local_server: LocalJupyterServer, client: ExecClient, name: str
) -> None:
    environment = JupyterCodeEnvironment(local_server)
    await environment.run("1", "python")
    await getattr(environment, name)()
    assert client.list_sessions() == []


async def test_code_that_takes_too_long_is_stopped(local_server: LocalJupyterServer) -> None:
    async with JupyterCodeEnvironment(local_server, timeout_seconds=1) as environment:
        result = await environment.run("while True: pass", "python")
        assert result.exit_code == 1
        assert "Timeout: its time limit of 1 s was reached; the session's variables were kept" in result.output


def test_the_example_runs(run_example: Callable[[str], str]) -> None:
    assert "377" in run_example("ag2_agent")
