"""Handlers of checkpoints: make, list and delete them, and restore a session to one."""

from __future__ import annotations

import asyncio

from tornado import web

from ..protocol.checkpoint_request_parsing import (
    branch_request_from_json,
    checkpoint_request_from_json,
    restore_request_from_json,
)
from ..protocol.records_json import to_json
from ..protocol.view_json import view_to_json
from .base_handler import ExecHandler


class CheckpointsHandler(ExecHandler):
    """``/sessions/{sid}/checkpoints``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """List the session's checkpoints."""
        found = await self.engine.checkpoints.list(self.caller, session_id)
        self.answer({"checkpoints": [view_to_json(checkpoint) for checkpoint in found]})

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Make a checkpoint of the session as it is."""
        name, force = checkpoint_request_from_json(self.json_body(if_none={}))
        checkpoint = await self.engine.checkpoints.create(self.caller, session_id, name, force=force)
        self.set_header("Location", self.exec_url(f"sessions/{session_id}/checkpoints/{checkpoint.id}"))
        self.answer(view_to_json(checkpoint), 201)


class CheckpointHandler(ExecHandler):
    """``/sessions/{sid}/checkpoints/{checkpoint_id}``"""

    @web.authenticated
    async def delete(self, session_id: str, checkpoint_id: str) -> None:
        """Delete a checkpoint."""
        await self.engine.checkpoints.delete(self.caller, session_id, checkpoint_id)
        self.answer_empty()


class BranchesHandler(ExecHandler):
    """``/sessions/{sid}/branches``"""

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Make branches of the session; the answer comes when their kernels are ready."""
        checkpoint_id, count, same_random = branch_request_from_json(self.json_body(if_none={}))
        branches = await self.engine.checkpoints.branch(
            self.caller, session_id, checkpoint_id, count, same_random=same_random
        )
        if self.is_abandoned:  # its client will never know the ids
            await asyncio.gather(*(self.engine.delete_session(self.caller, branch.id) for branch in branches))
            return
        self.answer({"sessions": [to_json(branch) for branch in branches]}, 201)


class RestoreHandler(ExecHandler):
    """``/sessions/{sid}/restore``"""

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Take the session back to a checkpoint; the answer comes when its kernel is ready."""
        checkpoint_id, same_random = restore_request_from_json(self.json_body())
        session = await self.engine.checkpoints.restore(self.caller, session_id, checkpoint_id, same_random=same_random)
        self.answer(to_json(session))
