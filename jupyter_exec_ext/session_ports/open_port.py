"""One open port of a session: its host name, the browsers that may use it, and the requests through it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..auth.caller import Caller
from ..auth.rate_limiter import RateLimiter
from ..engine.engine import ExecEngine
from ..engine.sessions.live_session import LiveSession
from ..errors import TooManyPortRequests
from ..protocol.records_json import utc_timestamp
from .port_connector import PortConnector

TICKET_SECONDS = 30.0
#: How long a browser may use a port without a new ticket.
PASS_SECONDS = 12 * 3600.0
#: A connection through which nothing has passed for this long is cut.
IDLE_SECONDS = 3600.0
MAX_CONNECTIONS = 100
_MAX_TICKETS, _MAX_PASSES = 20, 20
_REQUESTS_AT_ONCE, _REQUESTS_PER_MINUTE = 1000, 6000.0
_RECORD_SECONDS = 60.0
_RENEW_SECONDS = 60.0
# A browser answers a WebSocket's ping with so few bytes. A page that is left open must not keep its session alive.
_PONG_BYTES = 32


@dataclass(eq=False)
class PortPass:
    """Right of one browser to use a port, in the name of the caller who opened it for the browser."""

    caller: Caller
    timer: asyncio.TimerHandle
    unwatch: Callable[[], None]


@dataclass
class _Ticket:
    caller: Caller
    good_until: float


@dataclass
class _Used:
    """Use of a port by one caller since the last audit record."""

    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(eq=False)
class PortUse:
    """One request or WebSocket through a port.

    Parameters
    ----------
    port : OpenPort
        The port.
    caller : Caller
        The caller.
    cut : callable
        Ends the client's connection at once.
    """

    port: OpenPort
    caller: Caller
    cut: Callable[[], None]
    last_at: float = field(default_factory=time.monotonic)
    timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch for silence."""
        self._check_idle()

    def _check_idle(self) -> None:
        left = self.last_at + IDLE_SECONDS - time.monotonic()
        if left <= 0:
            self.cut()
            return
        self.timer = asyncio.get_running_loop().call_later(left, self._check_idle)

    def note_sent(self, size: int) -> None:
        """Count bytes for the program."""
        self.last_at = time.monotonic()
        self.port.used_by(self.caller).sent_bytes += size
        if size > _PONG_BYTES:
            self.port.renew_session()

    def note_received(self, size: int) -> None:
        """Count bytes of the program."""
        self.last_at = time.monotonic()
        self.port.used_by(self.caller).received_bytes += size

    def end(self) -> None:
        """Stop counting this use; may be called twice."""
        if self.timer is not None:
            self.timer.cancel()
        self.port.uses.discard(self)


class OpenPort:
    """An open port.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    live : LiveSession
        The session.
    connector : PortConnector
        Connects to its programs.
    port : int
        The number of the port.
    opened_by : str
        The principal.

    Attributes
    ----------
    label : str
        First part of the port's host name, which is never used again: another app gets nothing that this one has
        stored in a browser, such as a service worker.
    """

    def __init__(
        self, engine: ExecEngine, live: LiveSession, connector: PortConnector, port: int, opened_by: str
    ) -> None:
        self._engine = engine
        self.live = live
        self.connector = connector
        self.port = port
        self.opened_by = opened_by
        self.opened_at = utc_timestamp(time.time())
        self.label = f"p{port}-{secrets.token_hex(8)}"
        self.uses: set[PortUse] = set()
        self.is_closed = False
        self._rate_limiter = RateLimiter(_REQUESTS_AT_ONCE, _REQUESTS_PER_MINUTE, max_keys=1)
        self._tickets: dict[str, _Ticket] = {}
        self._passes: dict[str, PortPass] = {}
        self._used: dict[str, _Used] = {}
        self._recorder: asyncio.TimerHandle | None = None
        self._renewed_at = -_RENEW_SECONDS

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.live.record.id

    # --- browsers ---

    def issue_ticket(self, caller: Caller) -> str:
        """Return a ticket with which one browser may enter, once."""
        while len(self._tickets) >= _MAX_TICKETS:
            self._tickets.pop(next(iter(self._tickets)))
        ticket = secrets.token_urlsafe(32)
        self._tickets[ticket] = _Ticket(caller, time.monotonic() + TICKET_SECONDS)
        return ticket

    def redeem_ticket(self, text: str) -> str | None:
        """Return the value of the cookie for a ticket; None if it is not valid any more."""
        ticket = self._tickets.pop(text, None)
        if ticket is None or ticket.good_until < time.monotonic() or self.is_closed:
            return None
        while len(self._passes) >= _MAX_PASSES:
            self.end_pass(next(iter(self._passes)))
        value = secrets.token_urlsafe(32)
        unwatch = self._engine.watch_token(ticket.caller, lambda: self.end_pass(value))
        timer = asyncio.get_running_loop().call_later(PASS_SECONDS, self.end_pass, value)
        self._passes[value] = PortPass(ticket.caller, timer, unwatch)
        return value

    def find_pass(self, values: list[str]) -> PortPass | None:
        """Return the pass of a browser's cookies; None if no cookie is valid."""
        return next((self._passes[value] for value in values if value in self._passes), None)

    def end_pass(self, value: str) -> None:
        """End the right of a browser, and its connections."""
        ended = self._passes.pop(value, None)
        if ended is not None:
            ended.unwatch()
            ended.timer.cancel()
            self._cut(lambda use: use.caller is ended.caller)

    def end_owners_passes(self) -> None:
        """End what the server's owner has opened in browsers, since a person has logged out."""
        self._tickets = {text: each for text, each in self._tickets.items() if not each.caller.is_owner}
        for value in [value for value, each in self._passes.items() if each.caller.is_owner]:
            self.end_pass(value)

    # --- requests ---

    def begin_use(self, caller: Caller, cut: Callable[[], None]) -> PortUse:
        """Count a request; `end` the use when it is over.

        Raises
        ------
        TooManyPortRequests
            If there are too many at once, or within a minute.
        """
        wait_seconds = self._rate_limiter.spend_action("", time.monotonic())
        if wait_seconds or len(self.uses) >= MAX_CONNECTIONS:
            raise TooManyPortRequests(
                f"port {self.port} has {len(self.uses)} requests and WebSockets open; {MAX_CONNECTIONS} at once and "
                f"{_REQUESTS_PER_MINUTE:g} a minute are allowed",
                retry_after_seconds=wait_seconds or 1.0,
            )
        use = PortUse(self, caller, cut)
        use.start()
        self.uses.add(use)
        self.used_by(caller).requests += 1
        self.renew_session()
        return use

    def used_by(self, caller: Caller) -> _Used:
        """Return what a caller has used since the last record; it is recorded once a minute."""
        if self._recorder is None and not self.is_closed:
            self._recorder = asyncio.get_running_loop().call_later(_RECORD_SECONDS, self._record_use)
        return self._used.setdefault(caller.principal, _Used())  # few: the owner, the token, and those above it

    def renew_session(self) -> None:
        """Start the session's idle time anew, at most once a minute."""
        now = time.monotonic()
        if now - self._renewed_at >= _RENEW_SECONDS:
            self._renewed_at = now
            self.live.renew_idle_timeout()

    def _record_use(self) -> None:
        self._recorder = None
        used, self._used = self._used, {}
        for principal, counts in used.items():
            self._record("used", principal, **vars(counts))

    def _record(self, action: str, principal: str, **data: Any) -> None:
        self._engine.audit.record("port", action, principal, self.session_id, port=self.port, **data)

    def _cut(self, is_meant: Callable[[PortUse], bool]) -> None:
        for use in [use for use in self.uses if is_meant(use)]:
            use.cut()

    def note_opened(self) -> None:
        """Record that the port was opened."""
        self._record("opened", self.opened_by)

    def close(self, principal: str, reason: str) -> None:
        """End all rights and connections."""
        self.is_closed = True
        self._tickets.clear()
        for value in list(self._passes):
            self.end_pass(value)
        self._cut(lambda _: True)
        if self._recorder is not None:
            self._recorder.cancel()
        self._record_use()
        self._record("closed", principal, reason=reason)

    def to_json(self, path: str) -> dict[str, Any]:
        """Return the record, without what only the browser may know."""
        return {"port": self.port, "url": path, "opened_by": self.opened_by, "opened_at": self.opened_at}
