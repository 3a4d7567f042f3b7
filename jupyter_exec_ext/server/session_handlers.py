"""Handlers of sessions: create, read, list, delete, interrupt, restart, and export as a notebook."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_core.utils import ensure_async
from tornado import web

from ..engine.files.confinement import api_errors
from ..errors import Conflict
from ..protocol.records_json import to_json
from ..protocol.request_parsing import notebook_path_from_json, session_request_from_json
from ..protocol.strict_json import dumps, loads_strict
from ..protocol.view_json import view_to_json
from .base_handler import ExecHandler
from .gate import authorize
from .streaming import StreamingHandler


class SessionsHandler(ExecHandler):
    """``/sessions``"""

    @web.authenticated
    async def get(self) -> None:
        """List the caller's sessions."""
        ended, memory = self.flag_argument("ended"), self.flag_argument("memory")
        sessions = await self.engine.list_sessions(self.caller, ended=ended, memory=memory)
        self.answer({"sessions": [to_json(session) for session in sessions]})

    @web.authenticated
    async def post(self) -> None:
        """Create a session on a new kernel or a running one; the answer comes when the kernel is ready."""
        request = session_request_from_json(self.json_body(if_none={}))
        if request.kernel_id is not None:  # code in a user's kernel runs as that user
            await authorize(self, "execute", "kernels")
        session = await self.engine.create_session(self.caller, request)
        if self.is_abandoned:  # its client will never know the session's id
            await self.engine.delete_session(self.caller, session.id)
            return
        self.set_header("Location", self.exec_url(f"sessions/{session.id}"))
        self.answer(to_json(session), 201)


class SessionHandler(ExecHandler):
    """``/sessions/{sid}``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """Read a session."""
        memory = self.flag_argument("memory")
        self.answer(to_json(await self.engine.get_session(self.caller, session_id, memory=memory)))

    @web.authenticated
    async def delete(self, session_id: str) -> None:
        """Shut a session down."""
        await self.engine.delete_session(self.caller, session_id)
        self.answer_empty()


class SessionInterruptHandler(ExecHandler):
    """``/sessions/{sid}/interrupt``"""

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Interrupt the session's running execution."""
        self.answer(to_json(await self.engine.interrupt_session(self.caller, session_id)))


class SessionRestartHandler(ExecHandler):
    """``/sessions/{sid}/restart``"""

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Restart the session's kernel; the answer comes when it is ready."""
        self.answer(to_json(await self.engine.restart_session(self.caller, session_id)))


class SessionUsageHandler(ExecHandler):
    """``/sessions/{sid}/usage``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """Read what the session's kernel has used over the last hour."""
        self.answer(view_to_json(await self.engine.sessions.usage(self.caller, session_id)))


class SessionApprovedKindsHandler(ExecHandler):
    """``/sessions/{sid}/approved-kinds``"""

    @web.authenticated
    async def delete(self, session_id: str) -> None:
        """Ask again about one kind of code, or about all that were approved for the session."""
        kind = self.get_query_argument("kind", None)
        self.answer(to_json(await self.engine.approvals.withdraw(self.caller, session_id, kind)))


class SessionNotebookHandler(StreamingHandler):
    """``/sessions/{sid}/notebook``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """Send the session as a notebook, cell by cell."""
        self.hold_stream()
        notebook = await self.engine.notebook(self.caller, session_id)
        self.set_header("Content-Disposition", f'attachment; filename="{session_id}.ipynb"')
        async with self.streaming("application/json", "a notebook"):
            await notebook.write_to(self.send_parts)

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Save the session as a notebook among the server's own."""
        await self.engine.get_session(self.caller, session_id)
        path = notebook_path_from_json(self.json_body())
        contents = self.settings.get("contents_manager")
        if contents is None:
            raise Conflict("this host keeps no notebooks; GET the notebook and save it where you are")
        directory = path.rpartition("/")[0]
        if directory and not await ensure_async(contents.dir_exists(directory)):
            raise Conflict(f"the server has no directory {directory!r}; save the notebook in one that it has")
        if await ensure_async(contents.file_exists(path)) or await ensure_async(contents.dir_exists(path)):
            raise Conflict(f"there is already something at {path!r}")
        notebook = await (await self.engine.notebook(self.caller, session_id)).collect()
        content = await asyncio.to_thread(_as_content, notebook)
        model = {"type": "notebook", "format": "json", "content": content}
        try:
            saved = await ensure_async(contents.save(model, path))
        except web.HTTPError as error:
            # The contents manager answers 500 for a full disk or a long name; the error behind it says which.
            with api_errors(path, "server"):
                raise (error.__cause__ if isinstance(error.__cause__, OSError) else error) from None
        self.answer({"path": saved["path"]}, 201)


def _as_content(notebook: bytes) -> Any:
    """Return a notebook for a contents manager, which writes UTF-8: lone surrogates are replaced."""
    return loads_strict(dumps(loads_strict(notebook)).encode("utf-8", "replace"))
