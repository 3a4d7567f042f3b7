"""The tool inside LangChain's and LangGraph's agents, with a script in the place of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent

from jupyter_exec_ext import ExecClient, JupyterConnectionInfo, LocalJupyterServer
from jupyter_exec_ext.adapters._tool_text import TOOL_DESCRIPTION
from jupyter_exec_ext.adapters.langchain import JupyterCodeTool
from jupyter_exec_ext.models import Execution, ExecutionState
from tests.adapters.doorbell import Doorbell, last_execution

PICTURE = "from IPython.display import Image, display\ndisplay(Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(60)))"
QUESTION = {"messages": [("user", "Please run it.")]}


class ScriptedModel(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> ScriptedModel:
        assert [tool.name for tool in tools] == ["execute_code"]
        return self


def model_that_runs(*codes: str) -> ScriptedModel:
    """Return a model that has code run, piece by piece, and then says that it is done."""
    calls = [
        AIMessage("", tool_calls=[{"name": "execute_code", "args": {"code": code}, "id": str(number)}])
        for number, code in enumerate(codes)
    ]
    return ScriptedModel(messages=iter([*calls, AIMessage("Done.")]))


def answers(result: dict[str, Any]) -> list[ToolMessage]:
    assert result["messages"][-1].text == "Done."
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


def call(code: str) -> dict[str, Any]:
    return {"type": "tool_call", "name": "execute_code", "args": {"code": code}, "id": "1"}


@pytest.fixture
def tool(local_server: LocalJupyterServer) -> Iterator[JupyterCodeTool]:
    with JupyterCodeTool(local_server) as tool:
        yield tool


def test_tool_describes_its_arguments(tool: JupyterCodeTool) -> None:
    assert isinstance(tool, BaseTool)
    function = convert_to_openai_tool(tool)["function"]
    assert function["name"] == "execute_code"
    assert function["description"] == TOOL_DESCRIPTION
    assert function["parameters"]["required"] == ["code"]
    assert set(function["parameters"]["properties"]) == {"code"}


def test_an_agent_runs_code_and_keeps_its_state(tool: JupyterCodeTool) -> None:
    agent = create_agent(model_that_runs("x = 20", "print('hello')\nx + 1", "1/0"), [tool])
    first, second, third = answers(agent.invoke(QUESTION))
    assert first.content == "(no output)"
    assert second.content == "hello\n21"
    assert isinstance(second.artifact, Execution)
    assert second.artifact.stdout == "hello\n"
    assert "ZeroDivisionError: division by zero" in third.content
    assert not third.artifact.ok


async def test_an_agent_runs_code_asynchronously_in_the_same_session(tool: JupyterCodeTool) -> None:
    await asyncio.to_thread(tool.invoke, {"code": "x = 20"})
    agent = create_agent(model_that_runs("x += 1", "x"), [tool])
    assert [answer.content for answer in answers(await agent.ainvoke(QUESTION))] == ["(no output)", "21"]
    assert await asyncio.to_thread(tool.invoke, {"code": "x + 1"}) == "22"


def test_one_event_loop_after_another_may_use_it(tool: JupyterCodeTool) -> None:
    asyncio.run(tool.ainvoke({"code": "x = 1"}))
    assert asyncio.run(tool.ainvoke({"code": "x"})) == "1"


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_langgraphs_own_agent_takes_it(tool: JupyterCodeTool) -> None:
    agent = create_react_agent(model_that_runs("6 * 7"), [tool])
    assert [answer.content for answer in answers(agent.invoke(QUESTION))] == ["42"]


def test_a_conversation_goes_on_from_a_checkpoint(tool: JupyterCodeTool) -> None:
    model = model_that_runs("x = 1")
    agent = create_agent(model, [tool], checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "one"}}
    agent.invoke(QUESTION, thread)
    model.messages = iter([*model_that_runs("x + 1").messages])
    first, second = answers(agent.invoke(QUESTION, thread))
    assert second.content == "2"
    assert dict(first.artifact)["state"] == "ok"  # a checkpoint keeps it as a mapping


def test_calls_that_come_at_once_run_one_after_the_other(tool: JupyterCodeTool) -> None:
    calls = [{"name": "execute_code", "args": {"code": f"print({n})"}, "id": str(n)} for n in range(4)]
    model = ScriptedModel(messages=iter([AIMessage("", tool_calls=calls), AIMessage("Done.")]))
    assert [answer.content for answer in answers(create_agent(model, [tool]).invoke(QUESTION))] == [
        f"{n}\n" for n in range(4)
    ]


def test_pictures_are_in_the_artifact_and_for_models_that_see_them_in_the_message(
    tool: JupyterCodeTool, local_server: LocalJupyterServer
) -> None:
    message = tool.invoke(call(PICTURE))
    assert message.content == "[image/png, 68 bytes, not shown]"
    assert message.artifact.to_content()[0].data.startswith(b"\x89PNG")
    with JupyterCodeTool(local_server, images=True) as seeing:
        message = seeing.invoke(call(f"print('look')\n{PICTURE}"))
        text, picture = message.content_blocks
        assert text == {"type": "text", "text": "look\n"}
        assert (picture["type"], picture["mime_type"]) == ("image", "image/png")


async def test_cancelling_the_agent_stops_the_code_and_not_the_session(
    tool: JupyterCodeTool, client: ExecClient, doorbell: Doorbell
) -> None:
    agent = create_agent(model_that_runs("kept = 1", doorbell.code), [tool])
    running = asyncio.create_task(agent.ainvoke(QUESTION))
    await doorbell.wait_async()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stopped = await asyncio.to_thread(last_execution, client, tool._session.open().id)
    assert stopped.state is ExecutionState.CANCELLED
    assert await tool.ainvoke({"code": "kept"}) == "1"


def test_ctrl_c_stops_the_code(tool: JupyterCodeTool, client: ExecClient, doorbell: Doorbell) -> None:
    with doorbell.interrupts_this_thread():
        tool.invoke({"code": doorbell.code})
    assert last_execution(client, tool._session.open().id).state is ExecutionState.CANCELLED


def test_code_that_takes_too_long_is_stopped(local_server: LocalJupyterServer) -> None:
    with JupyterCodeTool(local_server, timeout_seconds=3) as tool:
        text = tool.invoke({"code": "kept = 1\nwhile True: pass"})
        assert "Timeout: its time limit of 3 s was reached; the session's variables were kept" in text
        assert tool.invoke({"code": "kept"}) == "1"


def test_a_session_that_the_server_ended_is_replaced_and_the_model_is_told(
    tool: JupyterCodeTool, client: ExecClient
) -> None:
    tool.invoke({"code": "x = 1"})
    client.get_session(tool._session.open().id).close()
    message = tool.invoke(call("x"))
    assert message.status == "error"
    assert "variables, imports and definitions are gone" in message.content
    assert "NameError" in tool.invoke({"code": "x"})


def test_an_agent_goes_on_after_code_that_its_tokens_policy_refuses(restricted_server: JupyterConnectionInfo) -> None:
    with JupyterCodeTool(restricted_server) as tool:
        agent = create_agent(model_that_runs("x = 1", "#" * 101, "x"), [tool])
        _, refused, shorter = answers(agent.invoke(QUESTION))
        assert refused.status == "error"
        assert refused.content.startswith("Not run: ")
        assert "allows 100 bytes of code, not 101" in refused.content
        assert shorter.content == "1"


async def test_an_agent_goes_on_asynchronously_as_well(restricted_server: JupyterConnectionInfo) -> None:
    with JupyterCodeTool(restricted_server) as tool:
        agent = create_agent(model_that_runs("#" * 101, "1"), [tool])
        refused, shorter = answers(await agent.ainvoke(QUESTION))
        assert (refused.status, shorter.content) == ("error", "1")


def test_the_session_ends_with_the_tool_unless_it_was_there_before(
    client: ExecClient, local_server: LocalJupyterServer
) -> None:
    with client.session() as session:
        session.run("x = 5")
        with JupyterCodeTool(local_server, session_id=session.id) as guest:
            assert guest.invoke({"code": "x"}) == "5"
        assert session.run("x").ok
        with JupyterCodeTool(local_server) as tool:
            tool.invoke({"code": "1"})
            own = tool._session.open().id
            assert own != session.id
        assert {own, session.id} & {record.id for record in client.list_sessions()} == {session.id}


def test_a_url_with_a_token_is_enough_and_no_repr_shows_it(local_server: LocalJupyterServer) -> None:
    info = local_server.connection_info
    with JupyterCodeTool(info.url, info.token, kernel_name="python3") as tool:
        assert tool.invoke({"code": "1"}) == "1"
        assert str(info.token) not in repr(tool) + str(tool) + repr(tool._session)


def test_the_example_runs(run_example: Callable[[str], str]) -> None:
    assert "377" in run_example("langchain_agent")
