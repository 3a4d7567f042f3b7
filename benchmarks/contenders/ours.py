"""Our clients and our executor, on servers that run already."""

from __future__ import annotations

import base64
import itertools
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp

from jupyter_exec_ext import AsyncExecClient, CodeBlock, ExecClient, JupyterCodeExecutor, JupyterConnectionInfo
from jupyter_exec_ext.client.aio.session import AsyncExecSession
from jupyter_exec_ext.models import Execution
from jupyter_exec_ext.protocol.kernel_messages import WEBSOCKET_PROTOCOL, decode_websocket, encode_websocket

from .gateway_websocket import Kernel
from .load import Load
from .worker import serve

_REVISION = "2026-07-28"
_META = "io.modelcontextprotocol/"
_SECONDS = 120.0


def text_of(execution: Execution) -> str:
    """Return what was printed, or fail."""
    assert execution.state.value == "ok", (execution.state, execution.error)
    assert not execution.truncated, execution.truncated
    return execution.stdout


def picture_bytes(execution: Execution) -> int:
    """Return the size of the picture that was shown, decoded."""
    text_of(execution)
    (shown,) = [output["data"]["image/png"] for output in execution.outputs if "image/png" in output.get("data", {})]
    return len(base64.b64decode(shown))


@cache
def client_of(url: str, token: str) -> ExecClient:
    """Return this process's client of a server; an agent has one for all of its sessions."""
    return ExecClient(url, token)


@cache
def async_client_of(url: str, token: str) -> AsyncExecClient:
    """Return the asynchronous client of a server."""
    return AsyncExecClient(url, token)


@cache
def mcp_connection_of(url: str, token: str) -> aiohttp.ClientSession:
    """Return the connection of an MCP client, which needs no handshake in the newest revision."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    return aiohttp.ClientSession(url, headers={**headers, "MCP-Protocol-Version": _REVISION})


class Session:
    """A session of `ExecClient`."""

    def __init__(self, url: str, token: str, isolation: str | None = None) -> None:
        self._session = client_of(url, token).session(isolation=isolation)

    def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return text_of(self._session.run(code, timeout_seconds=120))

    def image(self, code: str) -> int:
        """Run code and return the size of the picture that it shows."""
        return picture_bytes(self._session.run(code))

    def close(self) -> None:
        """End the session."""
        self._session.close()


class FreshRuns:
    """`ExecClient.run`: a fresh session for each run, in one request."""

    def __init__(self, url: str, token: str) -> None:
        self._client = client_of(url, token)

    def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return text_of(self._client.run(code, timeout_seconds=120))

    def close(self) -> None:
        """Do nothing: the session has ended with the run."""


class AsyncSession:
    """A session of `AsyncExecClient`."""

    def __init__(self, session: AsyncExecSession) -> None:
        self._session = session

    @classmethod
    async def make(cls, url: str, token: str) -> AsyncSession:
        """Start a session."""
        return cls(await async_client_of(url, token).session())

    async def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return text_of(await self._session.run(code, timeout_seconds=120))

    async def image(self, code: str) -> int:
        """Run code and return the size of the picture that it shows."""
        return picture_bytes(await self._session.run(code))

    async def stream(self, code: str) -> dict[str, int]:
        """Run code and return how many events came while it ran, and how many characters they held."""
        events = characters = 0
        async for event in self._session.stream(code):
            events += 1
            characters += len(getattr(event, "text", ""))
        return {"events": events, "characters": characters}

    async def close(self) -> None:
        """End the session."""
        await self._session.close()


class McpSession:
    """A session that the tool `execute_code` of ``exec/mcp`` makes with its first run."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._session = ""
        self._ids = itertools.count(1)

    @classmethod
    async def make(cls, url: str, token: str) -> McpSession:
        """Return a client without a session."""
        return cls(mcp_connection_of(url, token))

    async def run(self, code: str) -> str:
        """Run code and return what it printed."""
        found = await self._call("execute_code", code=code, timeout_seconds=120)
        self._session = found["structuredContent"]["session"]
        texts = [block["text"] for block in found["content"]]
        return "".join(text for text in texts if not text.startswith(("(no output)", "Session:")))

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        meta = {f"{_META}protocolVersion": _REVISION, f"{_META}clientCapabilities": {}}
        params = {"name": tool, "arguments": {**arguments, "session": self._session}, "_meta": meta}
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        routing = {"Mcp-Method": "tools/call", "Mcp-Name": tool}
        async with self._http.post("/exec/mcp", json=request, headers=routing) as answer:
            found = (await answer.json())["result"]
        assert not found.get("isError"), found
        return dict(found)

    async def close(self) -> None:
        """End the session."""
        await self._call("end_session")


class V1Kernel(Kernel):
    """A kernel of Jupyter's own API through the binary sub-protocol, at any server."""

    protocols = (WEBSOCKET_PROTOCOL,)

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send_bytes(encode_websocket("shell", message["header"], message["content"], binary=True))

    async def _receive(self) -> dict[str, Any]:
        message = decode_websocket(await self._socket.receive_bytes(timeout=_SECONDS))
        header = {"msg_type": message.msg_type}
        return {"header": header, "parent_header": {"msg_id": message.parent_id}, "content": message.content}


class Executor:
    """AutoGen's name, on our server; it is made with what there is to know of the server."""

    def __init__(self, host: str, port: int, token: str) -> None:
        info = JupyterConnectionInfo(host=host, use_https=False, port=port, token=token)
        self._home = tempfile.TemporaryDirectory()
        self._executor = JupyterCodeExecutor(info, output_dir=self._home.name)

    def run(self, code: str) -> str:
        """Run code and return the text of its result."""
        result = self._executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.exit_code == 0, result.output
        return result.output

    def image(self, code: str) -> int:
        """Run code and return the size of the picture, which is then a file."""
        result = self._executor.execute_code_blocks([CodeBlock(code, "python")])
        return Path(result.output_files[0]).stat().st_size

    def close(self) -> None:
        """End the kernel."""
        self._executor.stop()
        self._home.cleanup()


async def make_load(url: str, token: str, sessions: int) -> Load:
    """Start many sessions of one client."""
    return await Load.make(lambda: AsyncSession.make(url, token), sessions)


if __name__ == "__main__":
    serve(
        {
            "ExecClient": Session,
            "ExecClient.run": FreshRuns,
            "AsyncExecClient": AsyncSession.make,
            "exec/mcp": McpSession.make,
            "JupyterCodeExecutor": Executor,
            "kernel WebSocket": V1Kernel.make,
            "load": make_load,
        }
    )
