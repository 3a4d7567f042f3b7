"""Handlers of ``exec/v1`` for ports: open, list and close them, and pass programs' requests on."""

from __future__ import annotations

from typing import Any

from tornado import web

from ..errors import InvalidRequest, PortNotFound, Unauthenticated
from ..protocol.request_parsing import MAX_PORT, port_from_json
from ..server.base_handler import ExecHandler
from .open_port import OpenPort
from .port_headers import PortMode, redirection_for_client, without_tokens
from .port_registry import PortRegistry
from .port_relay import PortRelay


class _PortHandler(ExecHandler):
    @property
    def ports(self) -> PortRegistry:
        """The open ports."""
        return self.services.ports.registry

    def path_of(self, session_id: str, port: int) -> str:
        """Return the path of a port on Jupyter's host name, without a slash at the end."""
        return self.exec_url(f"sessions/{session_id}/ports/{port}")

    def record_of(self, opened: OpenPort) -> dict[str, Any]:
        """Return the record of a port."""
        return opened.to_json(f"{self.path_of(opened.session_id, opened.port)}/")


class PortsHandler(_PortHandler):
    """``/sessions/{sid}/ports``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """List the open ports of a session."""
        self.answer({"ports": [self.record_of(opened) for opened in await self.ports.list(self.caller, session_id)]})

    @web.authenticated
    async def post(self, session_id: str) -> None:
        """Open a port; the answer has a link for one browser, or why there is none."""
        await self.engine.get_session(self.caller, session_id)
        port = port_from_json(self.json_body())
        opened, is_new = await self.ports.open(self.caller, session_id, port)
        url, reason = self.services.ports.host.link_for(self.request, opened, self.caller)
        record = {**self.record_of(opened), "browser_url": url, "browser_reason": reason}
        self.answer(record, 201 if is_new else 200)


class PortHandler(_PortHandler):
    """``/sessions/{sid}/ports/{port}``"""

    @web.authenticated
    async def delete(self, session_id: str, port: str) -> None:
        """Close a port."""
        await self.engine.get_session(self.caller, session_id)
        await self.ports.close_port(self.caller, session_id, _port_in_path(port))
        self.answer_empty()


class PortProxyHandler(PortRelay, _PortHandler):
    """``/sessions/{sid}/ports/{port}/{rest}``: programs' way to a port; browsers have another one (`port_host`)."""

    mode = PortMode.API

    def expect_body(self) -> None:
        """Leave the limit of the body to `begin_relay`."""

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Authenticate the caller, connect to the program and send it the head of the request."""
        await _PortHandler.prepare(self)
        if self.request.method == "OPTIONS":
            return
        self._is_admitted = False  # an error before the body is read closes the connection
        await self._begin()
        self._is_admitted = True

    async def _begin(self) -> None:
        session_id, port = self.path_kwargs["session_id"], self.path_kwargs["port"]
        await self.engine.get_session(self.caller, session_id)
        # A browser's page on this host name must never be an app's. Browsers add cookies by themselves, no header.
        if "Authorization" not in self.request.headers or not self.token_authenticated:
            raise Unauthenticated(
                "send a token in the Authorization header; browsers use the link in the answer of POST …/ports"
            )
        opened = await self.ports.find(self.caller, session_id, _port_in_path(port))
        self.hold_stream()
        self._prefix = self.path_of(session_id, opened.port)
        path, _, query = (self.request.uri or "").partition("?")
        if not path.startswith(f"{self._prefix}/"):  # in another spelling
            raise InvalidRequest(f"write the path as {self._prefix}/…")
        query = without_tokens(query, self.request.headers["Authorization"])
        self._target = path[len(self._prefix) :]
        forwarded = {
            "X-Forwarded-Prefix": self._prefix,
            "X-Forwarded-Host": self.request.host,
            "X-Forwarded-Proto": self.request.protocol,
        }
        target = f"{self._target}?{query}" if query else self._target
        await self.begin_relay(opened, self.caller, target, f"127.0.0.1:{opened.port}", forwarded)

    def redirection(self, location: str) -> str | None:
        """Keep redirections on this host name below the port's own path, since the client sends its token along."""
        return redirection_for_client(location, self.request.host_name, self._prefix, self._target)

    @web.authenticated
    async def get(self, **_: str) -> None:
        """Pass a request on."""
        await self.relay()

    head = post = put = patch = delete = get

    def _token_ended(self) -> None:
        if self._use is not None:
            self._use.cut()
        else:
            super()._token_ended()

    def end_relay(self) -> None:
        """Release what the request or the WebSocket held."""
        super().end_relay()
        self._unwatch()
        self._end_stream()

    def on_finish(self) -> None:
        """Release what the request held."""
        super().on_finish()
        self.end_relay()

    def on_connection_close(self) -> None:
        """Release what the request held."""
        super().on_connection_close()
        self.end_relay()


def _port_in_path(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or text != str(int(text[:6])) or not 1 <= int(text) <= MAX_PORT:
        raise PortNotFound(f"{text!r} is not the number of a port")
    return int(text)
