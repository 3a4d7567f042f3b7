"""HTTP handlers of sessions in Jupyter's kernels API."""

from __future__ import annotations

from typing import Any

from tornado import web

from ..errors import Conflict
from .kernel_handlers import StandardHandler, get_text_field
from .standard_json import SESSION_FIELDS, make_session_metadata, make_session_name, session_to_json


class StandardSessionsHandler(StandardHandler):
    """Handler of ``/api/sessions``."""

    @web.authenticated
    async def get(self) -> None:
        """Send the caller's live sessions."""
        self.answer(
            [
                session_to_json(each, self._clients.count_connections(each.id))
                for each in await self.list_live_sessions()
            ]
        )

    @web.authenticated
    async def post(self) -> None:
        """Start a session, or send the one at this path or with this kernel, like Jupyter Server."""
        body = _read_session_body(self)
        fields = {name: get_text_field(body, name) for name in SESSION_FIELDS}
        async with self._clients.creation_locks.hold(self.caller.principal, fields["path"]):
            found = await self._find_own(fields["path"], body.get("kernel"))
            if found is None:
                found = session_to_json(await self.create_session(body.get("kernel"), fields["path"], fields), 0)
        self.set_header("Location", self.make_url(f"sessions/{found['id']}"))
        self.answer(found, 201)

    async def _find_own(self, path: str, kernel: Any) -> dict[str, Any] | None:
        """Return the caller's own session at a path, or else the one with a kernel."""
        kernel_id = kernel.get("id") if isinstance(kernel, dict) else None
        # A caller can also list sessions of its tokens. Their kernels are not shared by accident of an equal path.
        own = [each for each in await self.list_live_sessions() if each.owner == self.caller.principal]
        known = [session_to_json(each, self._clients.count_connections(each.id)) for each in own]
        same_path = [each for each in known if path and each["path"] == path]
        return next(iter(same_path or [each for each in known if each["id"] == kernel_id]), None)


class StandardSessionHandler(StandardHandler):
    """Handler of ``/api/sessions/{kernel_id}``."""

    @web.authenticated
    async def get(self, kernel_id: str) -> None:
        """Send a session."""
        session = await self.find_session(kernel_id)
        self.answer(session_to_json(session, self._clients.count_connections(session.id)))

    @web.authenticated
    async def patch(self, kernel_id: str) -> None:
        """Change a session's path, name or type; fields that are missing or null stay unchanged.

        Raises
        ------
        Conflict
            If the body asks for another kernel.
        """
        session = await self.find_session(kernel_id)
        body = _read_session_body(self)
        kernel = body.get("kernel")
        # A session is its kernel here, with its own limits and records.
        if kernel is not None and not (isinstance(kernel, dict) and _keeps_kernel(kernel, kernel_id)):
            raise Conflict("a session keeps its kernel; start a session for the other kernel, and delete this one")
        given = {name: get_text_field(body, name) for name in SESSION_FIELDS if body.get(name) is not None}
        fields = {name: session_to_json(session, 0)[name] for name in SESSION_FIELDS} | given
        if given:
            name = make_session_name(fields["path"]) if "path" in given else session.name
            metadata = {**session.metadata, **make_session_metadata(fields)}
            session = await self.engine.sessions.rename(self.caller, session.id, name=name, metadata=metadata)
        self.answer(session_to_json(session, self._clients.count_connections(session.id)))

    @web.authenticated
    async def delete(self, kernel_id: str) -> None:
        """End a session and its kernel."""
        await self.engine.delete_session(self.caller, (await self.find_session(kernel_id)).id)
        self.answer_empty()


def _read_session_body(handler: StandardHandler) -> dict[str, Any]:
    body = handler.read_body()
    if isinstance(body.get("notebook"), dict):  # deprecated form of Jupyter's API before version 5
        body = {"type": "notebook", **body["notebook"], **body}
    return body


def _keeps_kernel(kernel: dict[str, Any], kernel_id: str) -> bool:
    """Return whether the kernel of a request's body is this one, or names none."""
    wanted = kernel.get("id")
    return wanted == kernel_id or (wanted is None and kernel.get("name") is None)
