"""The fixture server of the conformance suite, with the SDK's client in the same process."""

from __future__ import annotations

import pytest
from mcp import Client, types
from mcp.client.session import ClientRequestContext

from tests.mcp.fixture_tools import TOOLS, fixture_server

#: How the SDK's client is told which revision to speak.
MODES = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}
_ASKING = {"2025-11-25": "test_elicitation", "2026-07-28": "test_input_required_result_elicitation"}


async def _accept(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada", "response": "yes"})


@pytest.mark.parametrize("revision", MODES)
async def test_fixture_server_lists_its_tools(revision: str) -> None:
    async with Client(fixture_server(), mode=MODES[revision]) as client:
        assert client.protocol_version == revision
        assert [tool.name for tool in (await client.list_tools()).tools] == list(TOOLS)


@pytest.mark.parametrize("revision", MODES)
async def test_progress_of_a_tool_reaches_the_client(revision: str) -> None:
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with Client(fixture_server(), mode=MODES[revision]) as client:
        await client.call_tool("test_tool_with_progress", progress_callback=note)
    assert seen == [0, 50, 100]


@pytest.mark.parametrize("revision", MODES)
async def test_tool_that_asks_gets_the_answer(revision: str) -> None:
    async with Client(fixture_server(), mode=MODES[revision], elicitation_callback=_accept) as client:
        result = await client.call_tool(_ASKING[revision], {"message": "Run this?"})
    assert isinstance(result.content[0], types.TextContent)
    assert "Ada" in result.content[0].text
