"""A server of one's own, for adapters whose users need not name one."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ..executors.local import LocalJupyterServer


@asynccontextmanager
async def own_server() -> AsyncIterator[LocalJupyterServer]:
    """Run a Kernel Gateway on this machine; starting and stopping it leave the event loop free."""
    with tempfile.TemporaryDirectory() as logs:
        starting = asyncio.create_task(asyncio.to_thread(LocalJupyterServer, log_file=str(Path(logs, "gateway.log"))))
        try:
            server = await asyncio.shield(starting)
        except asyncio.CancelledError:  # its thread goes on, and what it starts would be nobody's
            await asyncio.to_thread((await starting).stop)
            raise
        try:
            yield server
        finally:
            await asyncio.to_thread(server.stop)
