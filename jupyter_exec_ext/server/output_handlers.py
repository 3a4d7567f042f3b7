"""Outputs beyond the cap over HTTP."""

from __future__ import annotations

from tornado import web

from .base_handler import ExecHandler
from .file_download import send_file


class ExecutionOutputHandler(ExecHandler):
    """``/executions/{eid}/outputs/{name}``"""

    @web.authenticated
    async def get(self, execution_id: str, name: str) -> None:
        """Send an output that the execution's `truncated` names."""
        reader = await self.engine.outputs.open(self.caller, execution_id, name)
        await send_file(self, reader, reader.info.sha256)
