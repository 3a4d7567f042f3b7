"""Host names of open ports for browsers: one for each port, on which there is nothing of Jupyter.

Cookies and everything that pages store are kept apart by host name, and not by port or path. So an app of a session has
a host name that no other app and nothing of Jupyter has. A browser enters with a ticket, once, and gets a cookie.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule

from ..auth.caller import Caller
from ..auth.policy import check_ports
from ..engine.engine import ExecEngine
from ..errors import ExecError
from .open_port import OpenPort
from .port_headers import PASS_COOKIE, SECURE_PASS_COOKIE, PortMode, pass_cookies, without_tokens
from .port_registry import PortRegistry
from .port_relay import PortRelay

#: Path of a ticket; an app cannot have this one.
TICKET_PATH = "/.exec-ticket/"
_LABEL = re.compile(r"p\d{1,5}-[0-9a-f]{16}")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
# Headers of a proxy in front of the server, which may send one host name on and others not.
_OF_PROXIES = ("X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-Ip", "Via")
# Second-level names below which others register theirs, such as co.uk.
_PUBLIC = frozenset({"ac", "co", "com", "edu", "gov", "ne", "net", "or", "org"})
_NO_ENTRY = (
    "This address belongs to an app in a session. It opens from the link that Jupyter gives, once and within "
    "30 seconds. Go back to Jupyter, and choose Open again.\n"
)
_HUB_REASON = (
    "JupyterHub sends one host name to this server, and browsers see ports under another one. Ask the administrator to "
    "set ExecEngine.ports_host"
)


class PortHost:
    """The host names.

    Parameters
    ----------
    domain : str
        As `EngineSettings.ports_host`; empty for names below ``localhost``.
    is_hub : bool
        True if JupyterHub sends requests to this server.
    """

    def __init__(self, domain: str, *, is_hub: bool) -> None:
        self._domain = domain.removeprefix("*.")
        self._is_hub = is_hub

    def label_of(self, host_name: str) -> str | None:
        """Return the first part of a ports' host name; empty for one without a port, None for any other name."""
        name = host_name.lower().rstrip(".")
        label, _, rest = name.partition(".")
        if self._domain:
            is_ours = name == self._domain or name.endswith(f".{self._domain}")
            return None if not is_ours else label if rest == self._domain else ""
        # Other names below localhost may be the server's own.
        return label if rest == "localhost" and _LABEL.fullmatch(label) else None

    def link_for(self, request: HTTPServerRequest, opened: OpenPort, caller: Caller) -> tuple[str | None, str | None]:
        """Return a link that opens a port in one browser, or None and the reason why there is none."""
        reason = self._reason(request)
        if reason is not None:
            return None, reason
        port = re.search(r":\d+$", request.host)
        authority = f"{opened.label}.{self._domain or 'localhost'}{port[0] if port else ''}"
        return f"{request.protocol}://{authority}{TICKET_PATH}{opened.issue_ticket(caller)}", None

    def _reason(self, request: HTTPServerRequest) -> str | None:
        name = request.host_name.lower().strip("[]").rstrip(".")
        if self._domain:
            shared = _shared_domain(name, self._domain)
            return shared and (
                f"the ports' host name {self._domain} and Jupyter's share the domain {shared}, for which apps could "
                "set cookies. Ask the administrator to set ExecEngine.ports_host to a name under another domain"
            )
        if self._is_hub:
            return _HUB_REASON
        if name not in _LOOPBACK_NAMES or any(header in request.headers for header in _OF_PROXIES):
            return (
                "browsers see ports under another host name than Jupyter's, and this server has one only where it is "
                "reached as localhost, without a proxy. Ask the administrator to set ExecEngine.ports_host"
            )
        return None


def _shared_domain(one: str, other: str) -> str | None:
    """Return the domain for which pages of both host names can set cookies; None if there is none."""
    shared: list[str] = []
    for ours, theirs in zip(reversed(one.split(".")), reversed(other.split(".")), strict=False):
        if ours != theirs:
            break
        shared.insert(0, ours)
    is_public = len(shared) < 2 or (len(shared) == 2 and len(shared[1]) == 2 and shared[0] in _PUBLIC)
    return None if is_public and other != one else ".".join(shared)


class PortHostMatches(Matcher):
    """Matches every request to a ports' host name, whatever its path.

    Parameters
    ----------
    host : PortHost
        The host names.
    """

    def __init__(self, host: PortHost) -> None:
        self._host = host

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Return the arguments of the handler, or None for Jupyter's requests."""
        label = self._host.label_of(request.host_name)
        return None if label is None else {"path_kwargs": {"label": label.encode()}}


class PortPageHandler(PortRelay):
    """All paths of the ports' host names. It knows tickets and its own cookie, and nothing of Jupyter's."""

    mode = PortMode.BROWSER

    def initialize(self, engine: ExecEngine, registry: PortRegistry, is_login_cookie: Callable[[str], bool]) -> None:
        """Store the arguments of the rule."""
        self._engine = engine
        self._registry = registry
        self._is_login_cookie = is_login_cookie
        self._release: Callable[[], None] = _nothing

    def is_login_cookie(self, name: str) -> bool:
        """Return whether a cookie of this name may be Jupyter's."""
        return self._is_login_cookie(name)

    def check_xsrf_cookie(self) -> None:
        """Leave that to the app: Jupyter's cookies do not count here."""

    async def prepare(self) -> None:
        """Let a browser in with a ticket, or pass its request on if it has the cookie."""
        request = self.request
        opened = self._registry.find_by_label(self.path_kwargs["label"])
        path = request.path
        if path.startswith(TICKET_PATH):
            # Of one use, and of none in the log.
            request.uri = request.path = TICKET_PATH
            self._let_in(opened, path[len(TICKET_PATH) :])
            return
        found = None if opened is None else opened.find_pass(pass_cookies(request.headers))
        if opened is None or found is None or not self._is_own_page():
            self._refuse(403, _NO_ENTRY)
            return
        try:
            for policy in found.caller.policies:
                check_ports(policy, 0)
            self._release = self._engine.hold_stream(found.caller)
            target, _, query = (request.uri or "").partition("?")
            query = without_tokens(query, "")
            forwarded = {"X-Forwarded-Host": request.host, "X-Forwarded-Proto": request.protocol}
            await self.begin_relay(
                opened, found.caller, f"{target}?{query}" if query else target, request.host, forwarded
            )
        except ExecError as error:
            self._refuse(error.status, f"{error.message}.\n")

    def _let_in(self, opened: OpenPort | None, ticket: str) -> None:
        """Exchange a ticket for the cookie; browsers that only look ahead do not use it up."""
        is_ahead = "Sec-Purpose" in self.request.headers or "Purpose" in self.request.headers
        is_meant = self.request.method == "GET" and not is_ahead
        value = opened.redeem_ticket(ticket) if opened is not None and is_meant else None
        if value is None:
            self._refuse(403, _NO_ENTRY)
            return
        is_secure = self.request.protocol == "https"
        # Lax and not strict: the redirection is part of a visit that began on Jupyter's page.
        self.set_cookie(
            SECURE_PASS_COOKIE if is_secure else PASS_COOKIE,
            value,
            path="/",
            httponly=True,
            samesite="Lax",
            secure=is_secure,
        )
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        self.redirect("/")

    def _is_own_page(self) -> bool:
        """Return whether a request comes from a page of the port, or is a visit to one."""
        headers = self.request.headers
        origin = headers.get("Origin") or headers.get("Sec-WebSocket-Origin")
        try:
            if origin is not None and urlsplit(origin.lower()).netloc != self.request.host.lower():
                return False
        except ValueError:
            return False
        if self.is_websocket:
            return origin is not None
        if headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none"):
            return True
        return self.request.method == "GET" and headers.get("Sec-Fetch-Dest") == "document"

    def _refuse(self, status: int, text: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Connection", "close")  # the body of the request is not read
        self.finish(text)

    async def get(self, **_: str) -> None:
        """Pass a request on."""
        try:
            await self.relay()
        except ExecError as error:
            self._refuse(error.status, f"{error.message}.\n")

    head = post = put = patch = delete = options = get

    def end_relay(self) -> None:
        """Release what the request or the WebSocket held."""
        super().end_relay()
        self._release()

    def on_finish(self) -> None:
        """Release what the request held."""
        self.end_relay()

    def on_connection_close(self) -> None:
        """Release what the request held."""
        super().on_connection_close()  # it ends the wait for the rest of the body
        self.end_relay()


def port_host_rule(
    host: PortHost, engine: ExecEngine, registry: PortRegistry, is_login_cookie: Callable[[str], bool]
) -> Rule:
    """Return Tornado's rule for the ports' host names; it has to be the first of all."""
    arguments = {"engine": engine, "registry": registry, "is_login_cookie": is_login_cookie}
    return Rule(PortHostMatches(host), PortPageHandler, arguments)


def _nothing() -> None:
    pass
