"""The program ``jupyter exec mcp`` before a Hub, and before nginx with HTTPS and a path: it is a bridge there, too."""

from __future__ import annotations

import asyncio
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from mcp import Client, StdioServerParameters

from tests.adapters.beacon import beacon
from tests.adapters.mcp.test_mcp_ends import REVISIONS, cancel_task
from tests.mcp.places import HOST_BEHIND_NGINX, Hosts, Place, behind_nginx, place_of
from tests.support.full import only_in_full

_PROGRAM = os.path.join(sysconfig.get_path("scripts"), "jupyter-exec")


@pytest.fixture(scope="module", params=["hub", "nginx"])
def program(
    request: pytest.FixtureRequest, hosts: Hosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StdioServerParameters]:
    directory, authority = tmp_path_factory.mktemp("program"), trustme.CA()
    if request.param == "hub":
        yield command_for(place_of(hosts["hub"]), directory)
        return
    authority.cert_pem.write_to_path(str(directory / "authority.pem"))
    with behind_nginx(hosts[HOST_BEHIND_NGINX], directory, authority) as place:
        yield command_for(place, directory, "--ca-bundle", str(directory / "authority.pem"))


def command_for(place: Place, directory: Path, *options: str) -> StdioServerParameters:
    """Return the command that a client starts, with the token in a file."""
    token_file = directory / "token"
    token_file.touch(0o600)
    token_file.write_text(place.token)
    server = place.url.removesuffix("exec/mcp")
    words = ["mcp", "--server", server, "--token-file", str(token_file), *options]
    return StdioServerParameters(command=_PROGRAM, args=words)


@only_in_full
@pytest.mark.parametrize("revision", REVISIONS)
async def test_program_passes_calls_and_cancellations_on(program: StdioServerParameters, revision: str) -> None:
    async with Client(program, mode=revision) as agent:
        assert len((await agent.list_tools()).tools) == 13
        async with beacon() as light:
            call = asyncio.ensure_future(agent.call_tool("execute_code", {"code": light.code}))
            await light.lit()
            await cancel_task(call)
            await light.out()
        result: Any = await agent.call_tool("execute_code", {"code": "print(6 * 7)"})
        assert [block.text for block in result.content] == ["42\n"]
