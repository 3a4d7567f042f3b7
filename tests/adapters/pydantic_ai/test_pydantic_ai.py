"""`JupyterToolset` inside Pydantic AI: agents with a scripted model, on a real server."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset

from jupyter_exec_ext import AsyncExecClient, ExecClient, LocalJupyterServer
from jupyter_exec_ext.adapters.pydantic_ai import JupyterToolset
from jupyter_exec_ext.errors import Unauthenticated
from jupyter_exec_ext.models import Execution
from tests.adapters.beacon import PICTURE, SHOW_PICTURE, beacon

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"


def scripted(*answers: str | Sequence[str]) -> FunctionModel:
    """Return a model that calls the tool with one code after the other, or several at once, and then says 'done'."""
    script = iter(answers)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        code = next(script, None)
        if code is None:
            return ModelResponse(parts=[TextPart("done")])
        codes = [code] if isinstance(code, str) else code
        return ModelResponse(parts=[ToolCallPart("execute_code", {"code": code}) for code in codes])

    return FunctionModel(answer)


def returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def contents(messages: Sequence[ModelMessage]) -> list[Any]:
    return [part.content for part in returns(messages)]


def agent(toolset: AbstractToolset[None], *answers: str | Sequence[str], **options: Any) -> Agent[None, Any]:
    return Agent(scripted(*answers), toolsets=[toolset], **options)


async def test_from_prompt_to_result(local_server: LocalJupyterServer, client: ExecClient) -> None:
    result = await agent(JupyterToolset(local_server), "x = 20", "print('hi'); x + 1").run("add one")
    assert result.output == "done"
    assert contents(result.all_messages()) == ["(no output)", "hi\n21"]
    execution = returns(result.all_messages())[1].metadata
    assert isinstance(execution, Execution)
    assert execution.ok
    assert client.list_sessions() == []  # closed with the run


async def test_a_picture_is_a_picture_and_the_history_can_be_stored(local_server: LocalJupyterServer) -> None:
    result = await agent(JupyterToolset(local_server), SHOW_PICTURE).run("draw")
    text, picture = contents(result.all_messages())[0]
    assert text == "here\n"
    assert picture == BinaryContent(data=PICTURE, media_type="image/png")
    stored = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
    assert contents(stored)[0][1].data == PICTURE


async def test_error_of_the_code_is_returned_and_not_raised(local_server: LocalJupyterServer) -> None:
    result = await agent(JupyterToolset(local_server, timeout_seconds=3), "1/0", "while True: pass").run("fail")
    error, timeout = contents(result.all_messages())
    assert error.endswith("ZeroDivisionError: division by zero")
    assert "Timeout: its time limit of 3 s was reached; the session's variables were kept" in timeout


async def test_calls_of_one_answer_run_in_their_order(local_server: LocalJupyterServer) -> None:
    codes = [f"n = {'0' if i == 0 else 'n + 1'}; n" for i in range(6)]
    result = await agent(JupyterToolset(local_server), codes).run("count")
    assert contents(result.all_messages()) == ["0", "1", "2", "3", "4", "5"]


async def test_a_conversation_keeps_its_variables_and_no_other_sees_them(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    toolset = JupyterToolset[None](local_server.connection_info.url, local_server.token)
    async with agent(toolset, "x = 1") as first:
        begun = await first.run("begin")
        with first.override(model=scripted("x + 1")):
            goes_on = await first.run("go on", message_history=begun.all_messages())
        with first.override(model=scripted("'x' in globals()")):
            other = await first.run("somebody else")
        assert contents(goes_on.new_messages()) == ["2"]
        assert contents(other.all_messages()) == ["False"]
        assert len(client.list_sessions()) == 2
        assert other.conversation_id is not None
        await toolset.close_conversation(other.conversation_id)
        assert len(client.list_sessions()) == 1
    assert client.list_sessions() == []


async def test_runs_at_once_have_a_session_each_that_ends_with_its_run(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    toolset = JupyterToolset[None](local_server)
    async with beacon() as light:
        long = asyncio.create_task(agent(toolset, light.code).run("run long"))
        await light.lit()
        result = await agent(toolset, "'beacon' in globals()").run("meanwhile")
        assert contents(result.all_messages()) == ["False"]
        assert len(client.list_sessions()) == 1
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        await light.out()
    assert client.list_sessions() == []


async def test_a_cancelled_run_stops_its_code_and_keeps_the_variables(local_server: LocalJupyterServer) -> None:
    toolset = JupyterToolset[None](local_server)
    async with toolset, beacon() as light:
        run = asyncio.create_task(agent(toolset, "x = 1", light.code).run("run long", conversation_id="c"))
        await light.lit()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await light.out()
        result = await agent(toolset, "x").run("again", conversation_id="c")
        assert contents(result.all_messages()) == ["1"]


async def test_approval_is_asked_for_and_the_session_waits(local_server: LocalJupyterServer) -> None:
    toolset = JupyterToolset[None](local_server, requires_approval=True)
    asking = agent(toolset, "x = 1", "x + 1", output_type=[str, DeferredToolRequests])
    async with asking:
        result = await asking.run("begin")
        for _ in range(2):
            assert isinstance(result.output, DeferredToolRequests)
            assert contents(result.new_messages()) in ([], ["(no output)"])
            approved = DeferredToolResults(approvals={call.tool_call_id: True for call in result.output.approvals})
            result = await asking.run(message_history=result.all_messages(), deferred_tool_results=approved)
        assert contents(result.all_messages()) == ["(no output)", "2"]

        with asking.override(model=scripted("x = 'rejected'")):
            result = await asking.run("more", message_history=result.all_messages())
        denied = DeferredToolResults(approvals={call.tool_call_id: False for call in result.output.approvals})
        with asking.override(model=scripted()):
            result = await asking.run(message_history=result.all_messages(), deferred_tool_results=denied)
        assert "denied" in contents(result.new_messages())[0]


async def test_given_session_is_used_and_left_open(local_server: LocalJupyterServer) -> None:
    async with AsyncExecClient(local_server) as own, await own.session() as session:
        await session.run("x = 7")
        result = await agent(JupyterToolset(session=session), "x").run("look")
        assert contents(result.all_messages()) == ["7"]
        assert (await session.run("x")).ok


async def test_a_session_that_the_server_has_ended_is_replaced(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    toolset = JupyterToolset[None](local_server)
    async with toolset:
        await agent(toolset, "x = 1").run("begin", conversation_id="c")
        (session,) = client.list_sessions()
        client.get_session(session.id).close()
        result = await agent(toolset, "x", "'x' in globals()").run("go on", conversation_id="c")
        told, fresh = contents(result.all_messages())
        assert told.startswith("Not run: ")
        assert "variables, imports and definitions are gone" in told
        assert fresh == "False"


async def test_a_wrong_token_fails_the_run_and_is_shown_nowhere(local_server: LocalJupyterServer) -> None:
    toolset = JupyterToolset[None](local_server, "not-the-token")
    assert "not-the-token" not in repr(toolset)
    with pytest.raises(Unauthenticated) as raised:
        await agent(toolset, "1").run("try")
    assert "not-the-token" not in str(raised.value)


def test_wrong_arguments_raise_in_the_constructor(local_server: LocalJupyterServer) -> None:
    with pytest.raises(ValueError, match="give a server, or a session"):
        JupyterToolset()
    with pytest.raises(TypeError):
        JupyterToolset(42)  # type: ignore[arg-type]


async def test_the_frameworks_own_test_model_calls_it(local_server: LocalJupyterServer) -> None:
    toolset = JupyterToolset[None](local_server)
    assert isinstance(toolset, AbstractToolset)
    result = await Agent(TestModel(), toolsets=[toolset.prefixed("py")]).run("whatever")
    assert [part.tool_name for part in returns(result.all_messages())] == ["py_execute_code"]
    assert "NameError" in contents(result.all_messages())[0]  # its code is the letter a


@pytest.fixture
def loop_of_run_sync() -> Iterator[None]:
    """The event loop that `run_sync` would else make, and leave open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.usefixtures("loop_of_run_sync")
def test_run_sync_twice(local_server: LocalJupyterServer) -> None:
    toolset = JupyterToolset[None](local_server)
    for _ in range(2):
        result = agent(toolset, ["1 + 1", "2 + 2"]).run_sync("add")
        assert contents(result.all_messages()) == ["2", "4"]


def test_the_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "pydantic_ai_agent.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1] == "The 20 numbers add up to 2870."
