"""The Python SDK's client as a process that tests drive, as ``clients/driver.mjs`` drives those in TypeScript.

``python -m tests.mcp.python_driver REVISION`` reads commands from standard input; `driven_client` sends them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import anyio
import httpx2
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client, types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

#: How the client is told which revision to speak.
MODES = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}


class TaskResult(types.Result):
    """A task in place of a result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class TaskState(types.Result):
    """The answer to ``tasks/get``."""

    task_id: str
    status: str
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None


class _TaskParams(types.RequestParams):
    task_id: str


class GetTask(types.Request[_TaskParams, Literal["tasks/get"]]):
    """``tasks/get``."""

    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    name_param: ClassVar[str | None] = "taskId"


async def finish_task(session: ClientSession, task_id: str) -> types.CallToolResult:
    """Ask for a task until it has ended; return its result."""
    while True:
        state = await session.send_request(GetTask(params=_TaskParams(task_id=task_id)), TaskState)
        if state.status == "completed":
            return types.CallToolResult.model_validate(state.result)
        assert state.status == "working", state
        await anyio.sleep((state.poll_interval_ms or 1000) / 1000)


class Tasks(ClientExtension):
    """The tasks extension; a task that a call begins is waited for."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the one further result that this client understands."""

        async def resolve(task: TaskResult, context: ClaimContext) -> types.CallToolResult:
            return await finish_task(context.session, task.task_id)

        return [ResultClaim(result_type="task", model=TaskResult, resolve=resolve)]


def tell(line: dict[str, Any]) -> None:
    """Print an event."""
    print(json.dumps(line), flush=True)


async def _answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    tell({"asked": params.message})
    return types.ElicitResult(action="accept", content=json.loads(os.environ.get("MCP_ANSWER", "{}")))


class Commands:
    """What can be asked of the client."""

    def __init__(self, client: Client, group: TaskGroup) -> None:
        self._client = client
        self._group = group
        self._scopes: dict[int, anyio.CancelScope] = {}

    async def tools(self, command: dict[str, Any]) -> Any:
        """List the tools."""
        return [_dumped(tool) for tool in (await self._client.list_tools()).tools]

    async def read(self, command: dict[str, Any]) -> Any:
        """Read a resource."""
        return _dumped(await self._client.read_resource(command["uri"]))

    async def watch(self, command: dict[str, Any]) -> None:
        """Tell of each change of a resource."""
        if self._client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await self._group.start(self._tell_changes, command["uri"])
        else:
            request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=command["uri"]))
            await self._client.session.send_request(request, types.EmptyResult)

    async def _tell_changes(self, uri: str, *, task_status: TaskStatus[None]) -> None:
        async with self._client.listen(resource_subscriptions=[uri]) as subscription:
            task_status.started()
            async for event in subscription:
                if isinstance(event, ResourceUpdated):
                    tell({"updated": event.uri})

    async def call(self, command: dict[str, Any]) -> Any:
        """Call a tool; its progress is told."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            tell({"id": command["id"], "progress": {"progress": progress, "total": total, "message": message}})

        with anyio.CancelScope() as scope:
            self._scopes[command["id"]] = scope
            return _dumped(
                await self._client.call_tool(command["name"], command["arguments"], progress_callback=report)
            )
        raise MCPError(0, "cancelled by the test")

    async def cancel(self, command: dict[str, Any]) -> None:
        """Cancel a call."""
        self._scopes[command["call"]].cancel()

    async def start_task(self, command: dict[str, Any]) -> Any:
        """Call a tool that is answered by a task; return the task's id."""
        session = self._client.session
        result = await session.call_tool(command["name"], command["arguments"], allow_claimed=True)
        return result.task_id if isinstance(result, TaskResult) else None

    async def resume_task(self, command: dict[str, Any]) -> Any:
        """Wait for the end of a task that another client began; return its result."""
        return _dumped(await finish_task(self._client.session, command["task"]))

    async def run(self, command: dict[str, Any]) -> None:
        """Run one command and tell how it ended."""
        try:
            result = await getattr(self, command["do"])(command)
        except Exception as error:  # each is told to the test
            tell({"id": command["id"], "error": {"code": getattr(error, "code", None), "message": str(error)}})
        else:
            tell({"id": command["id"], "result": result})


async def _tell_change(message: Any) -> None:
    """Tell of a change, in the older revision."""
    if isinstance(message, types.ResourceUpdatedNotification):
        tell({"updated": message.params.uri})


def _dumped(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def main(revision: str) -> None:
    """Run commands until the input ends."""
    headers = {"Authorization": f"Bearer {os.environ['MCP_TOKEN']}"}
    timeout = httpx2.Timeout(30, read=300)
    modern = revision != "2025-11-25"
    async with httpx2.AsyncClient(headers=headers, timeout=timeout) as http:
        transport = streamable_http_client(os.environ["MCP_URL"], http_client=http)
        extensions = [Tasks()] if modern else None
        connecting = Client(
            transport,
            mode=MODES[revision],
            elicitation_callback=_answer,
            extensions=extensions,
            message_handler=None if modern else _tell_change,
        )
        async with connecting as client, anyio.create_task_group() as group:
            tell({"connected": client.protocol_version})
            commands = Commands(client, group)
            while line := await asyncio.to_thread(sys.stdin.readline):
                group.start_soon(commands.run, json.loads(line))
            group.cancel_scope.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
