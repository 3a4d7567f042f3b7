"""MCP endpoint of one server: loads the SDK when the first client comes, and keeps the transport."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..engine.engine import ExecEngine
from ..errors import NotFound
from .leases import Leases

if TYPE_CHECKING:
    from .transport import Transport

_MISSING = (
    "the Python package mcp is not installed on this server, so it speaks no MCP; its owner can install it with: "
    "pip install 'jupyter-exec-ext[mcp]'"
)


def is_installed() -> bool:
    """Return whether the SDK is there: the optional package ``mcp``."""
    # Top-level names only: to find a submodule imports the SDK, which takes half a second (2026-11-27).
    # `mcp_types` came with version 2.
    return find_spec("mcp") is not None and find_spec("mcp_types") is not None


class McpEndpoint:
    """The transport, made at its first use, and the leases of clients.

    Parameters
    ----------
    engine : ExecEngine
        Runs the code.
    """

    def __init__(self, engine: ExecEngine) -> None:
        self.leases = Leases(engine)
        self._engine = engine
        self._transport: Transport | None = None

    async def transport(self) -> Transport:
        """Return the transport.

        Raises
        ------
        NotFound
            If the SDK is not installed.
        """
        if self._transport is None:
            if not is_installed():
                raise NotFound(_MISSING)
            # In a thread: the import takes a second (2026-11-27), in which nobody else should have to wait.
            server = await asyncio.to_thread(import_module, f"{__package__}.sdk_server")
            if self._transport is None:  # another request may have been first
                self._transport = server.build_transport(self._engine)
        return self._transport

    async def close(self) -> None:
        """End the streams of all clients, when the server stops."""
        if self._transport is not None:
            await self._transport.close()
