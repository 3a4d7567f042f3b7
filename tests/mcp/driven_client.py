"""A client of MCP in a process of its own, which tests drive line by line, and may kill."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.mcp.node_clients import CLIENTS, NODE, install_clients
from tests.support.environments import ROOT

#: The clients by name, with the revision that each speaks, and what is run.
DRIVERS = {
    "python-new": ("2026-07-28", [sys.executable, "-m", "tests.mcp.python_driver", "2026-07-28"]),
    "python-old": ("2025-11-25", [sys.executable, "-m", "tests.mcp.python_driver", "2025-11-25"]),
    "typescript-new": ("2026-07-28", [NODE, str(CLIENTS / "driver.mjs"), "./new_client.mjs"]),
    "typescript-old": ("2025-11-25", [NODE, str(CLIENTS / "driver.mjs"), "./old_client.mjs"]),
}
_SECONDS = 60.0
_LINE_BYTES = 64 * 1024 * 1024


class ClientError(Exception):
    """An error that the client reports."""


@dataclass
class Call:
    """A call under way.

    Parameters
    ----------
    progress : asyncio.Queue
        Reports of progress, as they come.
    """

    id: int
    ended: asyncio.Future[Any]
    progress: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)


class DrivenClient:
    """The process, once it is connected."""

    def __init__(self, process: asyncio.subprocess.Process, revision: str) -> None:
        self.revision = revision
        self.asked: list[str] = []
        self.updated: asyncio.Queue[str] = asyncio.Queue()
        self._process = process
        self._ids = itertools.count(1)
        self._calls: dict[int, Call] = {}

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        return dict(await self._ask("call", name=tool, arguments=arguments))

    def begin_call(self, tool: str, /, **arguments: Any) -> Call:
        """Call a tool without waiting for it."""
        return self._send("call", name=tool, arguments=arguments)

    async def cancel(self, call: Call) -> None:
        """Cancel a call, and wait until it has ended with an error."""
        await self._ask("cancel", call=call.id)
        try:
            result = await asyncio.wait_for(call.ended, _SECONDS)
        except ClientError:
            return
        raise AssertionError(f"the cancelled call gave {result}")

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the tools."""
        return list(await self._ask("tools"))

    async def read(self, uri: str) -> dict[str, Any]:
        """Return the contents of a resource."""
        (contents,) = (await self._ask("read", uri=uri))["contents"]
        return dict(contents)

    async def watch(self, uri: str) -> None:
        """Subscribe to a resource; its changes come to `updated`."""
        await self._ask("watch", uri=uri)

    async def start_task(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool that is answered by a task; return what a client needs to take it up again."""
        return await self._ask("start_task", name=tool, arguments=arguments)

    async def resume_task(self, task: Any) -> dict[str, Any]:
        """Wait for the end of a task; return its result."""
        return dict(await self._ask("resume_task", task=task))

    async def kill(self) -> None:
        """End the client as nothing else does: with SIGKILL."""
        self._process.kill()
        await self._process.wait()

    def _send(self, verb: str, **rest: Any) -> Call:
        call = Call(next(self._ids), asyncio.get_running_loop().create_future())
        self._calls[call.id] = call
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": call.id, "do": verb, **rest}).encode() + b"\n")
        return call

    async def _ask(self, verb: str, **rest: Any) -> Any:
        return await asyncio.wait_for(self._send(verb, **rest).ended, _SECONDS)

    async def follow(self) -> None:
        """Take in what the client tells, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            told = json.loads(line)
            if "asked" in told:
                self.asked.append(told["asked"])
            elif "updated" in told:
                self.updated.put_nowait(told["updated"])
            elif "progress" in told:
                self._calls[told["id"]].progress.put_nowait(told["progress"])
            elif "error" in told:
                self._calls[told["id"]].ended.set_exception(ClientError(told["error"]["message"]))
            else:
                self._calls[told["id"]].ended.set_result(told["result"])
        for call in self._calls.values():
            if not call.ended.done():
                call.ended.cancel()


async def start_client(
    name: str, url: str, token: str, answer: Mapping[str, Any] | None = None, stderr: int | None = None
) -> asyncio.subprocess.Process:
    """Start a client, for its arguments see `driven_client`."""
    _, command = DRIVERS[name]
    if command[0] == NODE:
        await asyncio.to_thread(install_clients)
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "MCP_URL": url, "MCP_TOKEN": token, "MCP_ANSWER": json.dumps(dict(answer or {}))},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        limit=_LINE_BYTES,
    )


@asynccontextmanager
async def driven_client(
    name: str, url: str, token: str, answer: Mapping[str, Any] | None = None
) -> AsyncIterator[DrivenClient]:
    """Start a client and connect it; end it afterwards.

    Parameters
    ----------
    name : str
        One of `DRIVERS`.
    url, token : str
        Endpoint, and bearer token for it.
    answer : mapping, optional
        What the client's person answers to every question.
    """
    revision, _ = DRIVERS[name]
    process = await start_client(name, url, token, answer)
    assert process.stdin is not None and process.stdout is not None
    client = DrivenClient(process, revision)
    try:
        connected = await asyncio.wait_for(process.stdout.readline(), _SECONDS)
        assert connected and json.loads(connected) == {"connected": revision}, connected
        following = asyncio.create_task(client.follow())
        yield client
        process.stdin.close()
        await asyncio.wait_for(following, _SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
