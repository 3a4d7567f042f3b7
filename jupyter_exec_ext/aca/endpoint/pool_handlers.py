"""Handlers for sessions and the pool itself in the ACA sessions' protocol."""

from __future__ import annotations

from typing import Any

from tornado import web

from ...server.info_handlers import OpenAPIHandler
from ..protocol.addresses import api_version_of, skip_of
from ..protocol.session_format import metadata_to_json, page_of, session_to_json
from .aca_handler import ACAHandler


class ACASessionHandler(ACAHandler):
    """``/session``"""

    @web.authenticated
    async def get(self) -> None:
        """Read the session."""
        self.answer(session_to_json(self.identifier, await self.session(), self.now, self.max_seconds))

    @web.authenticated
    async def delete(self) -> None:
        """Shut the session down; its files go with it."""
        await self.engine.delete_session(self.caller, (await self.session()).id)
        self.set_status(204)
        self.finish()


class ACASessionsHandler(ACAHandler):
    """``/listSessions``"""

    operation = "listSessions"

    @web.authenticated
    async def get(self) -> None:
        """List the caller's sessions in the pool."""
        sessions, following = self.page("expireAt")
        self.answer({"sessions": sessions, "nextLink": following})

    def page(self, expiry: str) -> tuple[Any, str | None]:
        """Return the sessions of one page, and the address of the next page."""
        described = [
            session_to_json(name[1], session, self.now, self.max_seconds, expiry=expiry)
            for name, session in self.engine.named.list(self.caller).items()
            if name[0] == self.pool
        ]
        sessions, skip = page_of(described, skip_of(self.fields))
        if skip is None:
            return sessions, None
        return sessions, self.url_of(self.operation, {"api-version": api_version_of(self.fields), "skip": str(skip)})


class ACAMetadataHandler(ACAHandler):
    """``/metadata``"""

    @web.authenticated
    async def get(self) -> None:
        """Describe the kernels of the pool's sessions."""
        kernels = await self.engine.kernelspecs(self.caller)
        self.answer(metadata_to_json(self.engine.host.default_kernel_name, kernels))


class ACAManagedSessionHandler(ACAHandler):
    """``/.management/getSession``"""

    @web.authenticated
    async def post(self) -> None:
        """Read the session."""
        session = await self.session()
        self.answer(session_to_json(self.identifier, session, self.now, self.max_seconds, expiry="expiresAt"))


class ACAManagedSessionsHandler(ACASessionsHandler):
    """``/.management/listSessions``"""

    operation = ".management/listSessions"

    @web.authenticated
    async def post(self) -> None:
        """List the caller's sessions in the pool."""
        sessions, following = self.page("expiresAt")
        self.answer({"value": sessions, "count": len(sessions), "nextLink": following})


class ACAStopHandler(ACAHandler):
    """``/.management/stopSession``"""

    @web.authenticated
    async def post(self) -> None:
        """Shut the session down."""
        await self.engine.delete_session(self.caller, (await self.session()).id)
        self.finish(f"Session {self.identifier} has been stopped.", set_content_type="text/plain; charset=utf-8")


class ACAOpenAPIHandler(ACAHandler, OpenAPIHandler):
    """``/openapi.yaml``"""

    package, document = "jupyter_exec_ext.aca.endpoint", "openapi_aca.yaml"
