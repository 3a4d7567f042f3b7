"""HTTP handlers of sessions in Jupyter's kernels API."""

from __future__ import annotations

from tornado import web

from .kernel_handlers import StandardHandler, get_text_field
from .standard_json import SESSION_FIELDS, session_to_json


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
        body = self.read_body()
        if isinstance(body.get("notebook"), dict):  # deprecated form of Jupyter's API before version 5
            body = {"type": "notebook", **body["notebook"], **body}
        fields = {name: get_text_field(body, name) for name in SESSION_FIELDS}
        kernel = body.get("kernel")
        kernel_id = kernel.get("id") if isinstance(kernel, dict) else None
        # A caller can also list sessions of its tokens. Their kernels are not shared by accident of an equal path.
        own = [each for each in await self.list_live_sessions() if each.owner == self.caller.principal]
        known = [session_to_json(each, self._clients.count_connections(each.id)) for each in own]
        same_path = [each for each in known if fields["path"] and each["path"] == fields["path"]]
        found = next(iter(same_path or [each for each in known if each["id"] == kernel_id]), None)
        if found is None:
            found = session_to_json(await self.create_session(kernel, fields["path"], fields), 0)
        self.set_header("Location", self.make_url(f"sessions/{found['id']}"))
        self.answer(found, 201)


class StandardSessionHandler(StandardHandler):
    """Handler of ``/api/sessions/{kernel_id}``."""

    @web.authenticated
    async def get(self, kernel_id: str) -> None:
        """Send a session."""
        session = await self.find_session(kernel_id)
        self.answer(session_to_json(session, self._clients.count_connections(session.id)))

    @web.authenticated
    async def delete(self, kernel_id: str) -> None:
        """End a session and its kernel."""
        await self.engine.delete_session(self.caller, (await self.find_session(kernel_id)).id)
        self.answer_empty()
