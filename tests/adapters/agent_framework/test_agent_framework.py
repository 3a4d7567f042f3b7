"""The tool and the provider inside Microsoft Agent Framework: agents with a scripted model, on a real server."""

from __future__ import annotations

import asyncio
import itertools
import json
import runpy
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    ResponseStream,
)

from jupyter_exec_ext import AsyncExecClient, ExecClient, LocalJupyterServer
from jupyter_exec_ext.adapters.agent_framework import CodeSession, JupyterCodeActProvider, execute_code_tool
from jupyter_exec_ext.models import Execution
from tests.adapters.beacon import PICTURE, SHOW_PICTURE, beacon

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"
_ids = itertools.count()


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Calls the tool with one code after the other, or several at once, and then says 'done'."""

    def __init__(self, *answers: str | Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.script = iter(answers)
        self.seen: list[Any] = []

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Any:
        self.seen.append((list(messages), options))
        code = next(self.script, None)
        codes = [] if code is None else [code] if isinstance(code, str) else code
        contents = [
            Content.from_function_call(f"call-{next(_ids)}", "execute_code", arguments=json.dumps({"code": code}))
            for code in codes
        ] or [Content.from_text("done")]

        async def answer() -> ChatResponse[Any]:
            return ChatResponse(messages=[Message("assistant", contents)])

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate(role="assistant", contents=contents)

        if stream:
            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)
        return answer()


@pytest.fixture
async def provider(local_server: LocalJupyterServer) -> AsyncIterator[JupyterCodeActProvider]:
    async with JupyterCodeActProvider(local_server, timeout_seconds=20) as provider:
        yield provider


def agent(provider: JupyterCodeActProvider, *answers: str | Sequence[str]) -> Agent[Any]:
    return Agent(Scripted(*answers), context_providers=[provider])


def seen_by(agent: Agent[Any]) -> list[Any]:
    """Return the messages and options of each request to the model."""
    assert isinstance(agent.client, Scripted)
    return agent.client.seen


def results(response: Any) -> list[list[Content]]:
    return [
        content.items or []
        for message in response.messages
        for content in message.contents
        if content.type == "function_result"
    ]


def texts(response: Any) -> list[str]:
    return ["".join(item.text or "" for item in items) for items in results(response)]


async def test_from_prompt_to_result(provider: JupyterCodeActProvider) -> None:
    assert isinstance(provider, ContextProvider)
    asked = agent(provider, "x = 20", "print('hi'); x + 1")
    response = await asked.run("add one")
    assert response.text == "done"
    assert texts(response) == ["(no output)", "hi\n21"]
    execution = results(response)[1][0].raw_representation
    assert isinstance(execution, Execution)
    assert execution.stdout == "hi\n"
    _, options = seen_by(asked)[0]
    assert [tool.name for tool in options["tools"]] == ["execute_code"]
    assert "execute_code" in options["instructions"]


async def test_a_conversation_keeps_its_variables_and_no_other_sees_them(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    async with JupyterCodeActProvider(local_server.connection_info.url, local_server.token) as provider:
        session, other = AgentSession(), AgentSession()
        await agent(provider, "x = 1").run("begin", session=session)
        assert texts(await agent(provider, "x + 1").run("go on", session=session)) == ["2"]
        assert texts(await agent(provider, "'x' in globals()").run("somebody else", session=other)) == ["False"]
        assert texts(await agent(provider, "'x' in globals()").run("once")) == ["False"]
        json.dumps(session.to_dict())  # nothing in it that could not be stored
        restored = AgentSession.from_dict(session.to_dict())
        assert texts(await agent(provider, "x").run("later", session=restored)) == ["1"]
        assert len(client.list_sessions()) == 3
        await provider.close_session(other)
        assert len(client.list_sessions()) == 2
    assert client.list_sessions() == []


async def test_runs_without_a_session_leave_no_more_kernels_than_they_may(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    async with JupyterCodeActProvider(local_server, max_conversations=3, idle_timeout_seconds=900) as provider:
        kept = AgentSession()
        for number in range(20):
            if number % 2 == 0:  # what is used does not make room
                counting = agent(provider, "n = globals().get('n', 0) + 1; n")
                assert texts(await counting.run("go on", session=kept)) == [str(number // 2 + 1)]
            assert texts(await agent(provider, str(number)).run("once")) == [str(number)]
            assert len(client.list_sessions()) == min(number + 2, 3)
        assert {session.idle_timeout_seconds for session in client.list_sessions()} == {900}
    assert client.list_sessions() == []


async def test_many_runs_at_once_leave_no_more_kernels_than_they_may(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    async with JupyterCodeActProvider(local_server, max_conversations=2) as provider:
        responses = await asyncio.gather(*(agent(provider, str(number)).run("once") for number in range(5)))
        assert [texts(response) for response in responses] == [[str(number)] for number in range(5)]
        await agent(provider, "1").run("once more")
        assert len(client.list_sessions()) == 2


async def test_a_picture_reaches_the_model_as_a_picture(provider: JupyterCodeActProvider) -> None:
    asked = agent(provider, SHOW_PICTURE)
    await asked.run("draw")
    messages, _ = seen_by(asked)[-1]
    text, picture = messages[-1].contents[0].items
    assert text.text == "here\n"
    assert picture.media_type == "image/png"
    assert picture.uri == Content.from_data(PICTURE, "image/png").uri


async def test_error_of_the_code_is_returned_and_not_raised(local_server: LocalJupyterServer) -> None:
    async with JupyterCodeActProvider(local_server, timeout_seconds=3) as provider:
        error, timeout = texts(await agent(provider, "1/0", "while True: pass").run("fail"))
    assert error.endswith("ZeroDivisionError: division by zero")
    assert "Timeout: its time limit of 3 s was reached; the session's variables were kept" in timeout


async def test_calls_of_one_answer_run_in_their_order(provider: JupyterCodeActProvider) -> None:
    response = await agent(provider, [f"n = {'0' if i == 0 else 'n + 1'}; n" for i in range(6)]).run("count")
    assert texts(response) == ["0", "1", "2", "3", "4", "5"]


async def test_a_streamed_run(provider: JupyterCodeActProvider) -> None:
    stream = agent(provider, "6 * 7").run("go", stream=True)
    async for _ in stream:
        pass
    assert texts(await stream.get_final_response()) == ["42"]


async def test_a_cancelled_run_stops_its_code_and_keeps_the_variables(provider: JupyterCodeActProvider) -> None:
    session = AgentSession()
    async with beacon() as light:
        run = asyncio.ensure_future(agent(provider, "x = 1", light.code).run("run long", session=session))
        await light.lit()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await light.out()
    assert texts(await agent(provider, "x").run("again", session=session)) == ["1"]


async def test_approval_is_asked_for(local_server: LocalJupyterServer) -> None:
    session = AgentSession()
    async with JupyterCodeActProvider(local_server, approval_mode="always_require") as provider:
        asking = agent(provider, "x = 1", "x = 'rejected'")
        response = await asking.run("begin", session=session)
        (request,) = response.user_input_requests
        assert request.function_call is not None
        assert request.function_call.name == "execute_code"
        approved = Message("user", [request.to_function_approval_response(True)])
        response = await asking.run(approved, session=session)
        assert texts(response) == ["(no output)"]
        (request,) = response.user_input_requests
        rejected = Message("user", [request.to_function_approval_response(False)])
        response = await asking.run(rejected, session=session)
        assert response.text == "done"
        assert (await provider._conversations.run(session.session_id, "x")).to_text() == "1"


async def test_the_tool_alone_with_a_session_of_ones_own(local_server: LocalJupyterServer) -> None:
    async with AsyncExecClient(local_server) as own, await own.session() as opened:
        async with CodeSession(session=opened) as session:
            tool = execute_code_tool(session)
            assert isinstance(tool, FunctionTool)
            assert tool.parameters()["required"] == ["code"]
            response = await Agent(Scripted("x = 7"), tools=[tool]).run("go")
            assert texts(response) == ["(no output)"]
        assert (await opened.run("x")).to_text() == "7"


async def test_a_session_that_the_server_has_ended_is_replaced(
    provider: JupyterCodeActProvider, client: ExecClient
) -> None:
    session = AgentSession()
    await agent(provider, "x = 1").run("begin", session=session)
    (running,) = client.list_sessions()
    client.get_session(running.id).close()
    told, fresh = texts(await agent(provider, "x", "'x' in globals()").run("go on", session=session))
    assert told.startswith("Not run: ")
    assert fresh == "False"


async def test_a_wrong_token_is_an_error_of_the_tool_and_is_shown_nowhere(
    local_server: LocalJupyterServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with JupyterCodeActProvider(local_server, "not-the-token") as provider:
        assert "not-the-token" not in repr(provider)
        asked = agent(provider, "1")
        response = await asked.run("try")
        (result,) = (c for m in response.messages for c in m.contents if c.type == "function_result")
        assert result.exception is not None
        assert result.exception.startswith("the server refused this token")
        assert "not-the-token" not in f"{result.to_dict()}{caplog.text}"


def test_wrong_arguments_raise_in_the_constructor() -> None:
    with pytest.raises(ValueError, match="give a server, or a session"):
        JupyterCodeActProvider()


def test_the_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "agent_framework_agent.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1] == "The 20 numbers add up to 2870."
