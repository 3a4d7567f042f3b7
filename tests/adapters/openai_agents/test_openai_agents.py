"""`execute_code_tool` inside the OpenAI Agents SDK: agents with a scripted model, on a real server."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import runpy
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    ToolCallOutputItem,
    Usage,
    UserError,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from jupyter_exec_ext import AsyncExecClient, ExecClient, LocalJupyterServer
from jupyter_exec_ext.adapters.openai_agents import CodeSession, execute_code_tool
from jupyter_exec_ext.errors import Unauthenticated
from tests.adapters.beacon import PICTURE, SHOW_PICTURE, beacon

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"
OFFLINE = RunConfig(tracing_disabled=True)


class Scripted(Model):
    """Calls the tool with one code after the other, or several at once, and then says 'done'."""

    def __init__(self, *answers: str | Sequence[str]) -> None:
        self._script = iter(answers)
        self._ids = itertools.count()
        self.inputs: list[Any] = []

    def arguments(self, code: str) -> str:
        return json.dumps({"code": code})

    async def get_response(  # its parameters go by the SDK's names
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002
        *args: Any,
        **options: Any,
    ) -> ModelResponse:
        self.inputs.append(input)
        code = next(self._script, None)
        if code is None:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            message = ResponseOutputMessage(
                id="message", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse([message], Usage(), None)
        calls = [
            ResponseFunctionToolCall(
                arguments=self.arguments(each),
                call_id=f"call-{id(self)}-{next(self._ids)}",
                name="execute_code",
                type="function_call",
            )
            for each in ([code] if isinstance(code, str) else code)
        ]
        return ModelResponse([*calls], Usage(), None)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        answer = await self.get_response(*args, **options)
        response = Response(
            id="response",
            created_at=0,
            model="scripted",
            object="response",
            output=answer.output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


class Broken(Scripted):
    def arguments(self, code: str) -> str:
        return '{"cod": 1'


@pytest.fixture
async def session(local_server: LocalJupyterServer) -> AsyncIterator[CodeSession]:
    async with CodeSession(local_server, timeout_seconds=20) as session:
        yield session


def agent(session: CodeSession, *answers: str | Sequence[str], needs_approval: Any = False) -> Agent[None]:
    tool = execute_code_tool(session, needs_approval=needs_approval)
    return Agent(name="agent", model=Scripted(*answers), tools=[tool])


async def run(agent: Agent[None], prompt: Any = "go") -> Any:
    return await Runner.run(agent, prompt, run_config=OFFLINE)


def items(result: Any) -> Iterator[ToolCallOutputItem]:
    return (item for item in result.new_items if isinstance(item, ToolCallOutputItem))


def texts(result: Any) -> list[str]:
    return ["".join(part.text for part in item.output) for item in items(result)]


async def test_from_prompt_to_result(session: CodeSession) -> None:
    result = await run(agent(session, "x = 20", "print('hi'); x + 1"))
    assert result.final_output == "done"
    assert texts(result) == ["(no output)", "hi\n21"]
    data = [item.custom_data for item in items(result)]
    assert data[1] is not None
    assert data[1]["execution"]["state"] == "ok"
    assert data[1]["execution"]["stdout"] == "hi\n"


async def test_variables_live_as_long_as_the_session(local_server: LocalJupyterServer, client: ExecClient) -> None:
    async with CodeSession(local_server.connection_info.url, local_server.token) as session:
        first = await run(agent(session, "x = 1"))
        assert len(client.list_sessions()) == 1
        second = await run(agent(session, "x"), [*first.to_input_list(), {"role": "user", "content": "more"}])
        assert texts(second) == ["1"]
    assert client.list_sessions() == []


async def test_a_picture_reaches_the_model_as_a_picture(session: CodeSession) -> None:
    shown = agent(session, SHOW_PICTURE)
    await run(shown)
    assert isinstance(shown.model, Scripted)
    text, picture = shown.model.inputs[-1][-1]["output"]
    assert text == {"type": "input_text", "text": "here\n"}
    assert picture["type"] == "input_image"
    kind, _, encoded = picture["image_url"].partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(encoded) == PICTURE


async def test_error_of_the_code_is_returned_and_not_raised(local_server: LocalJupyterServer) -> None:
    async with CodeSession(local_server, timeout_seconds=3) as session:
        error, timeout = texts(await run(agent(session, "1/0", "while True: pass")))
    assert error.endswith("ZeroDivisionError: division by zero")
    assert "Timeout: its time limit of 3 s was reached; the session's variables were kept" in timeout


async def test_calls_of_one_answer_run_in_their_order(session: CodeSession) -> None:
    result = await run(agent(session, [f"n = {'0' if i == 0 else 'n + 1'}; n" for i in range(6)]))
    assert texts(result) == ["0", "1", "2", "3", "4", "5"]


async def test_a_streamed_run(session: CodeSession) -> None:
    result = Runner.run_streamed(agent(session, "6 * 7"), "go", run_config=OFFLINE)
    async for _ in result.stream_events():
        pass
    assert texts(result) == ["42"]


async def test_a_cancelled_run_stops_its_code_and_keeps_the_variables(session: CodeSession) -> None:
    async with beacon() as light:
        task = asyncio.create_task(run(agent(session, "x = 1", light.code)))
        await light.lit()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await light.out()
    assert texts(await run(agent(session, "x"))) == ["1"]


async def test_a_cancelled_stream_stops_its_code(session: CodeSession) -> None:
    async with beacon() as light:
        result = Runner.run_streamed(agent(session, light.code), "go", run_config=OFFLINE)
        await light.lit()
        result.cancel(mode="immediate")
        await light.out()
        async for _ in result.stream_events():
            pass


async def test_approval_is_asked_for_and_a_run_goes_on_from_its_stored_state(session: CodeSession) -> None:
    asking = agent(session, "x = 1", "x = 'rejected'", needs_approval=True)
    result = await run(asking)
    (interruption,) = result.interruptions
    assert interruption.name == "execute_code"
    state = await RunState.from_string(asking, result.to_state().to_string())
    state.approve(state.get_interruptions()[0])
    result = await run(asking, state)
    assert texts(result) == ["(no output)"]
    state = result.to_state()
    state.reject(result.interruptions[0])
    result = await run(asking, state)
    assert result.final_output == "done"
    assert (await session.run("x")).to_text() == "1"


async def test_approval_may_depend_on_the_code(session: CodeSession) -> None:
    async def asks(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return "import" in arguments["code"]

    result = await run(agent(session, "1 + 1", "import os", needs_approval=asks))
    assert texts(result) == ["2"]
    assert len(result.interruptions) == 1


async def test_arguments_that_are_no_json_are_for_the_model(session: CodeSession) -> None:
    result = await run(Agent(name="agent", model=Broken("1"), tools=[execute_code_tool(session)]))
    (item,) = items(result)
    assert "error" in str(item.output)
    assert result.final_output == "done"


async def test_a_wrong_token_fails_the_run_and_is_shown_nowhere(local_server: LocalJupyterServer) -> None:
    async with CodeSession(local_server, "not-the-token") as session:
        assert "not-the-token" not in repr(session)
        with pytest.raises(UserError, match="Error running tool execute_code: the server refused this token") as raised:
            await run(agent(session, "1"))
        assert isinstance(raised.value.__cause__, Unauthenticated)
        assert "not-the-token" not in str(raised.value)


async def test_given_session_is_used_and_left_open(local_server: LocalJupyterServer) -> None:
    async with AsyncExecClient(local_server) as own, await own.session() as opened:
        async with CodeSession(session=opened) as session:
            await run(agent(session, "x = 7"))
        assert (await opened.run("x")).to_text() == "7"


async def test_tool_is_the_frameworks_class(session: CodeSession) -> None:
    tool = execute_code_tool(session)
    assert isinstance(tool, FunctionTool)
    assert tool.strict_json_schema
    assert tool.params_json_schema["required"] == ["code"]
    assert list(tool.params_json_schema["properties"]) == ["code"]


def test_the_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "openai_agents_agent.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1] == "The 20 numbers add up to 2870."
