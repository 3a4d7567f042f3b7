"""Model Context Protocol (MCP) at standard input and output, for one client.

``python -m jupyter_exec_ext.adapters.mcp --server URL`` serves the client that started it. If the server has the
endpoint ``exec/mcp``, the program is a bridge to it (`_mcp_bridge`). Otherwise it has one tool, `execute_code`; also if
the server does not answer or refuses the token, which each call of the tool then reports. The token is the URL's, or
that of the environment variable ``JUPYTER_TOKEN``.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, ContentBlock, ImageContent, TextContent, ToolAnnotations

from .. import models
from ..client.aio.client import AsyncExecClient
from ..client.aio.standard_session import AsyncStandardExecSession
from ..client.local_servers import find_connection, token_of_environment
from ..client.server_connection import JupyterConnectionInfo
from ..errors import ExecError
from ._code_session import TIMEOUT_SECONDS, CodeSession, OwnSession, Server
from ._mcp_bridge import has_endpoint, make_tool_defaults, run_bridge
from ._session_watchdog import SessionWatchdog
from ._tool_text import TOOL_DESCRIPTION, TOOL_NAME

__all__ = ["jupyter_mcp_server", "main"]

_EPILOG = """\
The token is read from JUPYTER_TOKEN, unless the URL holds one. In the configuration of most clients:

  {"mcpServers": {"jupyter": {
    "command": "python",
    "args": ["-m", "jupyter_exec_ext.adapters.mcp", "--server", "http://127.0.0.1:8888/"],
    "env": {"JUPYTER_TOKEN": "..."}
  }}}
"""


def jupyter_mcp_server(
    server: Server,
    token: str | None = None,
    *,
    kernel_name: str | None = None,
    timeout_seconds: float | None = TIMEOUT_SECONDS,
    session_id: str | None = None,
) -> MCPServer[None]:
    """Return an MCP server that runs code in one Jupyter session, for one client.

    The session is opened with the first call and ended with the server. A client that cancels a call stops its code.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable
        The Jupyter server.
    token, kernel_name, timeout_seconds, session_id
        As for `CodeSession`.

    Returns
    -------
    MCPServer
        The server; ``run("stdio")`` serves a client.

    Raises
    ------
    ValueError
        If both a session and a kernel are given.
    """
    return _serving(
        CodeSession(
            server, token, kernel_name=kernel_name, timeout_seconds=timeout_seconds, session_id=session_id, name="MCP"
        )
    )


def _serving(session: CodeSession) -> MCPServer[None]:
    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        async with session:
            yield

    async def execute_code(code: str) -> CallToolResult:
        try:
            outcome = await session.run(code)
        except ExecError as error:  # the SDK hides the message of any other exception from the client
            raise ToolError(error.message) from error
        return CallToolResult(content=[_block(part) for part in outcome.to_content()], is_error=not outcome.ok)

    made: MCPServer[None] = MCPServer("jupyter", version=version("jupyter-exec-ext"), lifespan=lifespan)
    # No hints such as "read-only" are given, since code can do anything.
    made.tool(TOOL_NAME, description=TOOL_DESCRIPTION, annotations=ToolAnnotations(title="Run code"))(execute_code)
    return made


class _WatchedSession(CodeSession):
    """A `CodeSession` that ends with its program, even if that is killed."""

    _watchdog: SessionWatchdog | None = None

    async def _open(self, client: AsyncExecClient) -> tuple[AsyncExecClient, OwnSession]:
        client, session = await super()._open(client)
        if not self._target.is_given:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self._close, client, session)
                self._replace_watchdog(session)
                undo.pop_all()
        return client, session

    def _replace_watchdog(self, session: OwnSession) -> None:
        # Not in a thread: a call that is cancelled meanwhile would lose the watchdog. It takes 4 ms (2026-11-26).
        if self._watchdog is not None:  # of a session that the server has ended
            self._watchdog.dismiss()
            self._watchdog = None
        is_kernel = isinstance(session, AsyncStandardExecSession)
        self._watchdog = SessionWatchdog(self.connection_info, session.id, is_kernel=is_kernel)

    async def _close(self, client: AsyncExecClient, session: OwnSession) -> None:
        # The watchdog stays until then, because the program may be killed while it closes the session.
        await super()._close(client, session)
        await self._dismiss()

    async def _dismiss(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            await asyncio.to_thread(watchdog.dismiss)


def _block(part: models.Content) -> ContentBlock:
    if isinstance(part, models.ImageContent):
        return ImageContent(data=part.base64, mime_type=part.mime_type)
    return TextContent(text=part.text)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the client at standard input and output until it disconnects."""
    parser = argparse.ArgumentParser(
        prog="python -m jupyter_exec_ext.adapters.mcp",
        description="Let a client of the Model Context Protocol (MCP) run code in a session of a Jupyter server.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--server", required=True, metavar="URL", help="the Jupyter server")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--kernel", metavar="NAME", help="kernelspec to start (default: the server's)")
    where.add_argument("--session", metavar="ID", help="run in this session and keep it (default: a new one)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="stop code after this run time (default: %(default)g)",
    )
    args = parser.parse_args(argv)
    try:
        info = JupyterConnectionInfo.from_url(args.server)
    except ValueError as error:
        parser.error(str(error))
    serve_at_standard_streams(
        # As for all commands, the token of the URL comes before that of the environment.
        replace(info, token=info.token or token_of_environment()),
        kernel_name=args.kernel,
        timeout_seconds=args.timeout,
        session_id=args.session,
    )


def serve_at_standard_streams(
    server: Server,
    token: str | None = None,
    *,
    kernel_name: str | None = None,
    timeout_seconds: float | None = TIMEOUT_SECONDS,
    session_id: str | None = None,
) -> None:
    """Serve the client at standard input and output until it disconnects; its sessions end with this program.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable
        The Jupyter server.
    token, kernel_name, timeout_seconds, session_id
        As for `CodeSession`.
    """
    connection = find_connection(server, token)
    if anyio.run(has_endpoint, connection):
        defaults = make_tool_defaults(kernel_name, timeout_seconds, session_id)
        anyio.run(partial(run_bridge, connection, defaults))
        return
    session = _WatchedSession(
        connection, kernel_name=kernel_name, timeout_seconds=timeout_seconds, session_id=session_id, name="MCP"
    )
    _serving(session).run("stdio")


if __name__ == "__main__":
    main()
