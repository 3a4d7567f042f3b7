"""Check of a pool's servers at its start, while a server cannot answer yet."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from jupyter_exec_ext.errors import ExecError, Forbidden, Unavailable
from jupyter_exec_ext.fleet import server_checks as checks_module
from jupyter_exec_ext.fleet.pool_server import Server, ServerState
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from jupyter_exec_ext.fleet.router import NothingSent
from jupyter_exec_ext.fleet.server_checks import check_servers
from jupyter_exec_ext.models import ServerLoad


class OneServer:
    """A keeper with one server, whose first answers are errors."""

    def __init__(self, *errors: Exception) -> None:
        load = ServerLoad("w1", False, 0, 0, 0, None, 0, None, None, 0)
        self.servers = {"w1": Server("w1", "http://127.0.0.1/", state=ServerState.READY, load=load)}
        self.errors = deque(errors)

    async def call(self, server: Server, method: str, path: str) -> Any:
        if self.errors:
            raise self.errors.popleft()
        return {"policies": [{"name": "default", "isolation": "sandbox"}]} if path == "policies" else {}


async def check(server: OneServer) -> None:
    await check_servers(server, server, ExecPool())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_module, "_AGAIN_SECONDS", 0.001)


@pytest.mark.parametrize("error", [NothingSent("away"), Unavailable("the Hub cannot be asked about this token now")])
async def test_server_that_cannot_answer_now_is_asked_again(error: Exception) -> None:
    server = OneServer(error, error)
    await check(server)
    assert not server.errors


async def test_server_that_refuses_the_pool_ends_the_check() -> None:
    with pytest.raises(ExecError, match="not the owner"):
        await check(OneServer(Forbidden("not the owner")))
