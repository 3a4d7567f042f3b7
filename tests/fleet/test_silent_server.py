"""Requests to a pool that name a server which has just ended, before its probes say so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from jupyter_exec_ext.fleet.pool import Pool
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from tests.support.fleets import SimulatedFleet, pool_token
from tests.support.token_servers import TokenHub
from tests.support.waiting import until

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}


@asynccontextmanager
async def pool_with_dead_server(home: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """Run a pool of two servers, and yield a client and the name of one that has just ended."""
    fleet = SimulatedFleet()
    settings = ExecPool(state_directory=str(home), min_servers=2, max_servers=2)
    try:
        async with Pool(settings, fleet, TokenHub().ask, pool_token).running() as app, TestServer(app) as served:
            headers = {"Authorization": "token ada"}
            async with aiohttp.ClientSession(str(served.make_url("/")), headers=headers) as http:
                await until(
                    lambda: len(fleet.servers) == 2 and all(each.requests > 2 for each in fleet.servers.values())
                )
                name = fleet.started[0]
                await fleet[name].die()
                yield http, name
    finally:
        await fleet.close()


@pytest.mark.parametrize("kind", ["session", "execution", "mcp"])
async def test_request_for_a_server_that_has_just_ended_is_refused_for_now(tmp_path: Path, kind: str) -> None:
    async with pool_with_dead_server(tmp_path / "pool") as (http, name):
        digits = f"{name}_{'0' * 24}"
        call: dict[str, Any] = {**CALL, "params": {"name": "execute_code", "arguments": {"session": f"ses_{digits}"}}}
        method, path, body = {
            "session": ("GET", f"/exec/v1/sessions/ses_{digits}", None),
            "execution": ("GET", f"/exec/v1/executions/exe_{digits}", None),
            "mcp": ("POST", "/exec/mcp", call),
        }[kind]
        async with http.request(method, path, json=body) as answer:
            assert (answer.status, (await answer.json())["code"]) == (503, "server_unreachable")
            assert answer.headers["Retry-After"] == "1"


async def test_list_of_aca_sessions_is_without_a_server_that_has_just_ended(tmp_path: Path) -> None:
    async with (
        pool_with_dead_server(tmp_path / "pool") as (http, _),
        http.get("/exec/aca/listSessions?api-version=2025-10-02-preview") as answer,
    ):
        assert (answer.status, await answer.json()) == (200, {"value": []})
