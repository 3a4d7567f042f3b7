"""`jupyter_mcp_server` with the protocol's own client, in one process and over a pipe, on a real server."""

from __future__ import annotations

import asyncio
import base64
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from jupyter_exec_ext import ExecClient, JupyterConnectionInfo, LocalJupyterServer
from jupyter_exec_ext.adapters.mcp import jupyter_mcp_server, main
from tests.adapters.beacon import PICTURE, SHOW_PICTURE, beacon
from tests.support.full import only_in_full

EXAMPLE = Path(__file__).parents[3] / "examples" / "mcp_agent.py"


async def run(client: Client, code: str) -> Any:
    return await client.call_tool("execute_code", {"code": code})


def texts(result: Any) -> list[str]:
    return [block.text for block in result.content]


async def test_a_client_finds_one_tool(local_server: LocalJupyterServer) -> None:
    async with Client(jupyter_mcp_server(local_server)) as client:
        (tool,) = (await client.list_tools()).tools
    assert tool.name == "execute_code"
    assert "Variables, imports and definitions are kept" in str(tool.description)
    assert tool.input_schema["required"] == ["code"]
    assert tool.annotations is not None
    assert not tool.annotations.read_only_hint


async def test_variables_are_kept_and_the_session_ends_with_the_client(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    async with Client(jupyter_mcp_server(local_server)) as agent:
        assert client.list_sessions() == []  # none before there is code
        assert texts(await run(agent, "x = 20")) == ["(no output)"]
        result = await run(agent, "print('hi'); x + 1")
        assert (texts(result), result.is_error) == (["hi\n21"], False)
        assert [session.name for session in client.list_sessions()] == ["MCP"]
    assert client.list_sessions() == []


async def test_picture_is_returned_as_a_picture(local_server: LocalJupyterServer) -> None:
    async with Client(jupyter_mcp_server(local_server)) as client:
        text, picture = (await run(client, SHOW_PICTURE)).content
    assert text.text.startswith("here")
    assert (picture.type, picture.mime_type) == ("image", "image/png")
    assert base64.b64decode(picture.data) == PICTURE


async def test_error_of_the_code_is_marked_as_an_error(local_server: LocalJupyterServer) -> None:
    async with Client(jupyter_mcp_server(local_server)) as client:
        result = await run(client, "1 / 0")
    assert result.is_error
    assert "ZeroDivisionError: division by zero" in texts(result)[0]


async def test_code_that_takes_too_long_is_stopped(local_server: LocalJupyterServer) -> None:
    async with Client(jupyter_mcp_server(local_server, timeout_seconds=3)) as client:
        result = await run(client, "print('begun')\nwhile True: pass")
        assert result.is_error
        assert "begun" in texts(result)[0]
        assert texts(await run(client, "print('next')")) == ["next\n"]


async def test_refused_code_is_reported_with_the_reason(restricted_server: JupyterConnectionInfo) -> None:
    async with Client(jupyter_mcp_server(restricted_server)) as client:
        result = await run(client, "#" * 101)
    assert result.is_error
    assert texts(result)[0].startswith("Not run: ")
    assert "allows 100 bytes of code, not 101" in texts(result)[0]


async def test_a_call_that_is_cancelled_stops_its_code(local_server: LocalJupyterServer) -> None:
    async with Client(jupyter_mcp_server(local_server)) as client, beacon() as light:
        call = asyncio.ensure_future(run(client, light.code))
        await light.lit()
        call.cancel()
        await light.out()
        assert texts(await run(client, "print('next')")) == ["next\n"]


async def test_wrong_token_is_reported_and_not_printed(local_server: LocalJupyterServer) -> None:
    async with Client(jupyter_mcp_server(local_server.connection_info.url, "wrong-and-secret")) as client:
        result = await run(client, "1")
    assert result.is_error
    assert "token" in texts(result)[0]
    assert "wrong-and-secret" not in texts(result)[0]


async def test_a_session_that_exists_is_kept(local_server: LocalJupyterServer, client: ExecClient) -> None:
    with client.session() as session:
        session.run("x = 3")
        async with Client(jupyter_mcp_server(local_server, session_id=session.id)) as agent:
            assert texts(await run(agent, "x")) == ["3"]
        assert session.run("print(x)").stdout == "3\n"


async def test_the_command_serves_over_a_pipe(local_server: LocalJupyterServer, client: ExecClient) -> None:
    info = local_server.connection_info
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "jupyter_exec_ext.adapters.mcp", "--server", info.url],
        env={"JUPYTER_TOKEN": str(info.token)},
    )
    async with Client(command) as agent:
        assert texts(await run(agent, "import os; print('JUPYTER_TOKEN' in os.environ)")) == ["False\n"]
        assert len(client.list_sessions()) == 1
    assert client.list_sessions() == []


def test_missing_functions_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--server" in capsys.readouterr().err


@only_in_full
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out == "The 20 numbers add up to 2870.\n"
