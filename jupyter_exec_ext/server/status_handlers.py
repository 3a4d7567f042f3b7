"""Handlers of the server's state: readiness, load and drain."""

from __future__ import annotations

from jupyter_server.auth.decorator import allow_unauthenticated
from tornado import web

from ..errors import MethodNotAllowed
from ..protocol.view_json import view_to_json
from .base_handler import ExecHandler


class ReadyHandler(ExecHandler):
    """``GET /ready``: whether the server takes new sessions, for probes, which have no token."""

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Check Host and Origin; the identity provider is not asked, since a probe must not depend on it."""
        self.expect_no_body()
        self.services.gate.check_site(self)
        if self.request.method not in self._access:
            self.set_header("Allow", ", ".join(self._access))
            raise MethodNotAllowed(f"{self.request.method} is not possible here, only {', '.join(self._access)}")
        self._is_admitted = True

    @allow_unauthenticated
    async def get(self) -> None:
        """Answer 200 or 503."""
        readiness = self.engine.status.readiness()
        self.answer(view_to_json(readiness), 200 if readiness.ready else 503)

    def _log(self) -> None:
        """Write no line: a probe every few seconds would fill the log."""


class LoadHandler(ExecHandler):
    """``GET /load``: how loaded the server is."""

    _track_activity = False  # a watcher must not keep an idle server from being culled

    @web.authenticated
    async def get(self) -> None:
        """Send the figures."""
        self.answer(view_to_json(await self.engine.status.load()))


class DrainHandler(ExecHandler):
    """``/drain``: take no new sessions, or take them again."""

    @web.authenticated
    async def post(self) -> None:
        """Begin the drain; one that is under way goes on."""
        self.answer(view_to_json(self.engine.status.drain(self.caller.principal)))

    @web.authenticated
    async def delete(self) -> None:
        """End the drain."""
        self.answer(view_to_json(self.engine.status.end_drain(self.caller.principal)))
