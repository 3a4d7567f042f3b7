"""Handler of a session's network: shows its rules and requests, and adds a rule."""

from __future__ import annotations

from tornado import web

from ..protocol.request_parsing import rule_from_json
from ..protocol.view_json import view_to_json
from .base_handler import ExecHandler


class NetworkHandler(ExecHandler):
    """``/sessions/{sid}/network``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """Send what the session reaches, and what it has asked for."""
        await self._answer(session_id)

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Allow the session one thing more."""
        rule = rule_from_json(self.json_body())
        await self.engine.sessions.get_live(self.caller, session_id)
        await self.engine.networks.allow(self.caller, session_id, rule)
        await self._answer(session_id)

    async def _answer(self, session_id: str) -> None:
        session = await self.engine.get_session(self.caller, session_id)
        self.answer(view_to_json(self.engine.networks.describe(session.id, session.isolation)))
